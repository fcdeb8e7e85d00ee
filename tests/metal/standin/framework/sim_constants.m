// sim_constants.m - MTLCompileOptions and MTLFunctionConstantValues: values without behaviour.
#import "tests/metal/standin/framework/sim.h"

#include <stdlib.h>
#include <string.h>

static size_t type_bytes(MTLDataType type) {
    switch (type) {
    case MTLDataTypeBool:
    case MTLDataTypeChar:
    case MTLDataTypeUChar:
        return 1;
    case MTLDataTypeShort:
    case MTLDataTypeUShort:
    case MTLDataTypeHalf:
    case MTLDataTypeBFloat:
        return 2;
    case MTLDataTypeLong:
    case MTLDataTypeULong:
        return 8;
    default:
        return 4;
    }
}

@implementation MTLCompileOptions
@synthesize preprocessorMacros, mathMode, languageVersion;

+ (enum metalsim_kind)kind {
    return METALSIM_COMPILE_OPTIONS;
}
- (id)init {
    if ((self = [super init])) {
        mathMode = MTLMathModeFast;
        languageVersion = MTLLanguageVersion3_1;
    }
    return self;
}
// The older name of the same option.
- (BOOL)fastMathEnabled {
    return mathMode == MTLMathModeFast;
}
- (void)setFastMathEnabled:(BOOL)on {
    mathMode = on ? MTLMathModeFast : MTLMathModeSafe;
}
- (id)copyWithZone:(NSZone *)zone {
    MTLCompileOptions *o = [[MTLCompileOptions allocWithZone:zone] init];
    o.preprocessorMacros = preprocessorMacros;
    o.languageVersion = languageVersion;
    o.mathMode = mathMode;
    return o;
}
- (void)dealloc {
    [preprocessorMacros release];
    [super dealloc];
}
@end

@implementation MTLFunctionConstantValues
+ (enum metalsim_kind)kind {
    return METALSIM_CONSTANTS;
}
- (id)init {
    if ((self = [super init])) {
        values = calloc(1, sizeof *values);
        named = [NSMutableDictionary new];
    }
    return self;
}
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index {
    if (index > 255) {
        sim_violation("function constant index %lu", (unsigned long)index);
        return;
    }
    values->set[index] = 1;
    values->type[index] = (uint8_t)type;
    values->val[index] = 0;
    memcpy(&values->val[index], value, type_bytes(type));
}
- (void)setConstantValues:(const void *)array type:(MTLDataType)type withRange:(NSRange)range {
    for (NSUInteger i = 0; i < range.length; i++)
        [self setConstantValue:(const char *)array + i * type_bytes(type)
                          type:type
                       atIndex:range.location + i];
}
- (void)setConstantValue:(const void *)value type:(MTLDataType)type withName:(NSString *)name {
    uint64_t bits = 0;
    memcpy(&bits, value, type_bytes(type));
    [named setObject:@[ @((unsigned)type), @(bits) ] forKey:name];
}
- (void)reset {
    memset(values, 0, sizeof *values);
    [named removeAllObjects];
}
- (id)copyWithZone:(NSZone *)zone {
    MTLFunctionConstantValues *copy = [[MTLFunctionConstantValues allocWithZone:zone] init];
    *copy->values = *values;
    [copy->named setDictionary:named];
    return copy;
}
- (void)dealloc {
    free(values);
    [named release];
    [super dealloc];
}
@end
