/* Foundation.h - the declarations that the Metal host code uses, for a syntax-only pass with
 * Apple's ABI (clang -target arm64-apple-macos13); never linked. Types and availability versions
 * are Apple's. */
#pragma once
#include <stdint.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef _Bool BOOL;
typedef double NSTimeInterval;
typedef NSTimeInterval CFTimeInterval;
#define YES ((BOOL)1)
#define NO  ((BOOL)0)
#ifndef nil
#define nil ((id)0)
#endif

#define NS_ENUM(type, name)                                                                        \
    enum name : type name;                                                                         \
    enum name : type
#define NS_OPTIONS(type, name)                                                                     \
    enum name : type name;                                                                         \
    enum name : type

#define macos(version)            macos, introduced = version
#define MACSTUB_AVAILABILITY(...) __attribute__((availability(__VA_ARGS__)))
#define API_AVAILABLE(platform)   MACSTUB_AVAILABILITY(platform)
#define MACSTUB_DEPRECATED(from, to, name)                                                         \
    __attribute__((availability(macos, introduced = from, deprecated = to, replacement = name)))

typedef struct _NSRange {
    NSUInteger location, length;
} NSRange;
static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
    NSRange range = {location, length};
    return range;
}
typedef struct _NSZone NSZone;
typedef struct {
    unsigned long state;
    id __unsafe_unretained *itemsPtr;
    unsigned long *mutationsPtr;
    unsigned long extra[5];
} NSFastEnumerationState;
@class NSString;

@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (BOOL)isKindOfClass:(Class)aClass;
@end
@protocol NSCopying
- (id)copyWithZone:(NSZone *)zone;
@end
@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(id __unsafe_unretained[])buffer
                                    count:(NSUInteger)len;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject>
+ (instancetype)alloc;
+ (instancetype)new;
- (instancetype)init;
- (void)dealloc;
- (id)copy;
@end

@interface NSString : NSObject <NSCopying>
+ (instancetype)stringWithUTF8String:(const char *)string;
+ (instancetype)stringWithFormat:(NSString *)format,
                                 ... __attribute__((format(__NSString__, 1, 2)));
@property(readonly) const char *UTF8String;
@property(readonly) NSUInteger length;
- (BOOL)isEqualToString:(NSString *)other;
@end

@interface NSNumber : NSObject
+ (NSNumber *)numberWithInt:(int)value;
+ (NSNumber *)numberWithUnsignedInt:(unsigned int)value;
+ (NSNumber *)numberWithBool:(BOOL)value;
@end

@interface NSArray<__covariant T> : NSObject <NSFastEnumeration>
+ (instancetype)arrayWithObjects:(const T[])objects count:(NSUInteger)count;
@property(readonly) NSUInteger count;
- (BOOL)containsObject:(T)object;
- (T)objectAtIndex:(NSUInteger)index;
- (T)objectAtIndexedSubscript:(NSUInteger)index;
@end

@interface NSDictionary<K, V> : NSObject
+ (instancetype)dictionaryWithObjects:(const V[])objects
                              forKeys:(const K[])keys
                                count:(NSUInteger)count;
@end
@interface NSMutableDictionary<K, V> : NSDictionary <K, V>
@end

@interface NSError : NSObject
@property(readonly) NSString *domain;
@property(readonly) NSInteger code;
@property(readonly) NSString *localizedDescription;
@end
