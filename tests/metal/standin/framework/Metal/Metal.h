/* Metal.h - the compute subset of Apple's Metal API, for Linux (GNUstep) and for the syntax pass.
 *
 * Names, selectors, enumerator values and the macOS versions that introduced them are those of the
 * public API. Apple's documentation says what a selector means; the .m files beside this one say
 * what the stand-in rejects. The only addition is MetalsimObject, which the product does not name;
 * the stand-in's switches are in metalsim.h. */
#ifndef METALSIM_METAL_H
#define METALSIM_METAL_H

/* The SDK that this header stands for. */
#ifndef __MAC_OS_X_VERSION_MAX_ALLOWED
#define __MAC_OS_X_VERSION_MAX_ALLOWED 150000
#endif

#import <Foundation/Foundation.h>

#include <dispatch/dispatch.h>

#ifdef GNUSTEP
typedef NSTimeInterval CFTimeInterval;
#define API_AVAILABLE(...)
#define METAL_DEPRECATED(...)
@interface MetalsimObject : NSObject
@end
#define METALSIM_ROOT MetalsimObject
#else
#define METALSIM_ROOT                    NSObject
#define METAL_DEPRECATED(from, to, name) MACSTUB_DEPRECATED(from, to, name)
#endif

typedef struct {
    NSUInteger width, height, depth;
} MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
    MTLSize size = {width, height, depth};
    return size;
}

/* ---- enumerations ---- */

typedef NS_ENUM(NSUInteger, MTLStorageMode) {
    MTLStorageModeShared = 0,
    MTLStorageModeManaged = 1,
    MTLStorageModePrivate = 2,
    MTLStorageModeMemoryless = 3,
};

typedef NS_OPTIONS(NSUInteger, MTLResourceOptions) {
    MTLResourceCPUCacheModeDefaultCache = 0,
    MTLResourceCPUCacheModeWriteCombined = 1,
    MTLResourceStorageModeShared = 0 << 4,
    MTLResourceStorageModeManaged = 1 << 4,
    MTLResourceStorageModePrivate = 2 << 4,
    MTLResourceHazardTrackingModeDefault = 0 << 8,
    MTLResourceHazardTrackingModeUntracked = 1 << 8,
    MTLResourceHazardTrackingModeTracked = 2 << 8,
};

typedef NS_ENUM(NSInteger, MTLGPUFamily) {
    MTLGPUFamilyApple1 = 1001,
    MTLGPUFamilyApple2 = 1002,
    MTLGPUFamilyApple3 = 1003,
    MTLGPUFamilyApple4 = 1004,
    MTLGPUFamilyApple5 = 1005,
    MTLGPUFamilyApple6 = 1006,
    MTLGPUFamilyApple7 = 1007,
    MTLGPUFamilyApple8 = 1008,
    MTLGPUFamilyApple9 = 1009,
    MTLGPUFamilyApple10 = 1010,
    MTLGPUFamilyMac1 = 2001,
    MTLGPUFamilyMac2 = 2002,
    MTLGPUFamilyCommon1 = 3001,
    MTLGPUFamilyCommon2 = 3002,
    MTLGPUFamilyCommon3 = 3003,
    MTLGPUFamilyMetal3 API_AVAILABLE(macos(13.0)) = 5001,
    MTLGPUFamilyMetal4 API_AVAILABLE(macos(26.0)) = 5002,
} API_AVAILABLE(macos(10.15));

typedef NS_ENUM(NSUInteger, MTLDataType) {
    MTLDataTypeNone = 0,
    MTLDataTypeFloat = 3,
    MTLDataTypeHalf = 16,
    MTLDataTypeInt = 29,
    MTLDataTypeUInt = 33,
    MTLDataTypeShort = 37,
    MTLDataTypeUShort = 41,
    MTLDataTypeChar = 45,
    MTLDataTypeUChar = 49,
    MTLDataTypeBool = 53,
    MTLDataTypeLong API_AVAILABLE(macos(12.0)) = 81,
    MTLDataTypeULong API_AVAILABLE(macos(12.0)) = 85,
    MTLDataTypeBFloat API_AVAILABLE(macos(14.0)) = 121,
};

typedef NS_ENUM(NSUInteger, MTLLanguageVersion) {
    MTLLanguageVersion2_2 API_AVAILABLE(macos(10.15)) = (2 << 16) + 2,
    MTLLanguageVersion2_3 API_AVAILABLE(macos(11.0)) = (2 << 16) + 3,
    MTLLanguageVersion2_4 API_AVAILABLE(macos(12.0)) = (2 << 16) + 4,
    MTLLanguageVersion3_0 API_AVAILABLE(macos(13.0)) = (3 << 16) + 0,
    MTLLanguageVersion3_1 API_AVAILABLE(macos(14.0)) = (3 << 16) + 1,
    MTLLanguageVersion3_2 API_AVAILABLE(macos(15.0)) = (3 << 16) + 2,
    MTLLanguageVersion4_0 API_AVAILABLE(macos(26.0)) = (4 << 16) + 0,
};

typedef NS_ENUM(NSInteger, MTLMathMode) {
    MTLMathModeSafe = 0,
    MTLMathModeRelaxed = 1,
    MTLMathModeFast = 2,
} API_AVAILABLE(macos(15.0));

typedef NS_ENUM(NSUInteger, MTLDispatchType) {
    MTLDispatchTypeSerial = 0,
    MTLDispatchTypeConcurrent = 1,
} API_AVAILABLE(macos(10.14));

typedef NS_OPTIONS(NSUInteger, MTLBarrierScope) {
    MTLBarrierScopeBuffers = 1 << 0,
    MTLBarrierScopeTextures = 1 << 1,
    MTLBarrierScopeRenderTargets = 1 << 2,
} API_AVAILABLE(macos(10.14));

typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) {
    MTLPipelineOptionNone = 0,
    MTLPipelineOptionArgumentInfo = 1 << 0,
    MTLPipelineOptionBufferTypeInfo = 1 << 1,
};

typedef NS_ENUM(NSInteger, MTLBindingType) {
    MTLBindingTypeBuffer = 0,
    MTLBindingTypeThreadgroupMemory = 1,
} API_AVAILABLE(macos(13.0));

typedef NS_ENUM(NSUInteger, MTLBindingAccess) {
    MTLBindingAccessReadOnly = 0,
    MTLBindingAccessReadWrite = 1,
    MTLBindingAccessWriteOnly = 2,
};

typedef NS_ENUM(NSUInteger, MTLCommandBufferStatus) {
    MTLCommandBufferStatusNotEnqueued = 0,
    MTLCommandBufferStatusEnqueued = 1,
    MTLCommandBufferStatusCommitted = 2,
    MTLCommandBufferStatusScheduled = 3,
    MTLCommandBufferStatusCompleted = 4,
    MTLCommandBufferStatusError = 5,
};

typedef NS_ENUM(NSUInteger, MTLCommandBufferError) {
    MTLCommandBufferErrorNone = 0,
    MTLCommandBufferErrorInternal = 1,
    MTLCommandBufferErrorTimeout = 2,
    MTLCommandBufferErrorPageFault = 3,
    MTLCommandBufferErrorAccessRevoked = 4,
    MTLCommandBufferErrorNotPermitted = 7,
    MTLCommandBufferErrorOutOfMemory = 8,
    MTLCommandBufferErrorInvalidResource = 9,
    MTLCommandBufferErrorMemoryless = 10,
    MTLCommandBufferErrorDeviceRemoved API_AVAILABLE(macos(10.13)) = 11,
    MTLCommandBufferErrorStackOverflow API_AVAILABLE(macos(12.0)) = 12,
};

typedef NS_ENUM(NSUInteger, MTLLibraryError) {
    MTLLibraryErrorUnsupported = 1,
    MTLLibraryErrorInternal = 2,
    MTLLibraryErrorCompileFailure = 3,
    MTLLibraryErrorCompileWarning = 4,
    MTLLibraryErrorFunctionNotFound = 5,
    MTLLibraryErrorFileNotFound = 6,
};

extern NSString *const MTLLibraryErrorDomain;
extern NSString *const MTLCommandBufferErrorDomain;

/* ---- values ---- */

@protocol MTLDevice;
@protocol MTLBuffer;
@protocol MTLLibrary;
@protocol MTLFunction;
@protocol MTLCommandQueue;
@protocol MTLCommandBuffer;
@protocol MTLComputePipelineState;
@protocol MTLComputeCommandEncoder;
@protocol MTLBlitCommandEncoder;

@interface MTLCompileOptions : METALSIM_ROOT <NSCopying> {
    NSDictionary *preprocessorMacros;
    MTLMathMode mathMode;
    MTLLanguageVersion languageVersion;
}
@property(nonatomic, copy) NSDictionary *preprocessorMacros;
@property(nonatomic) BOOL fastMathEnabled METAL_DEPRECATED(10.11, 15.0, "mathMode");
@property(nonatomic) MTLMathMode mathMode API_AVAILABLE(macos(15.0));
@property(nonatomic) MTLLanguageVersion languageVersion;
@end

API_AVAILABLE(macos(10.12))
@interface MTLFunctionConstantValues : METALSIM_ROOT <NSCopying> {
  @public
    struct msl_fc_values *values;
    NSMutableDictionary *named;
}
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index;
- (void)setConstantValues:(const void *)values type:(MTLDataType)type withRange:(NSRange)range;
- (void)setConstantValue:(const void *)value type:(MTLDataType)type withName:(NSString *)name;
- (void)reset;
@end

/* ---- resources ---- */

@protocol MTLAllocation <NSObject>
@end

@protocol MTLResource <MTLAllocation>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLStorageMode storageMode;
@property(readonly) NSUInteger allocatedSize API_AVAILABLE(macos(10.13));
@end

@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
@property(readonly) uint64_t gpuAddress API_AVAILABLE(macos(13.0));
- (void *)contents;
- (void)didModifyRange:(NSRange)range;
@end

/* ---- libraries and pipelines ---- */

@protocol MTLFunction <NSObject>
@property(copy) NSString *label API_AVAILABLE(macos(10.12));
@property(readonly) id<MTLDevice> device;
@property(readonly) NSString *name;
@end

@protocol MTLLibrary <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSArray *functionNames;
- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName;
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)constantValues
                                 error:(NSError **)error API_AVAILABLE(macos(10.12));
@end

API_AVAILABLE(macos(13.0))
@protocol MTLBinding <NSObject>
@property(readonly) NSString *name;
@property(readonly) MTLBindingType type;
@property(readonly) MTLBindingAccess access;
@property(readonly) NSUInteger index;
@end

@interface MTLComputePipelineReflection : METALSIM_ROOT {
  @public
    NSArray *bindings;
}
@property(readonly) NSArray *bindings API_AVAILABLE(macos(13.0)); /* of id<MTLBinding> */
@end
typedef __autoreleasing MTLComputePipelineReflection *MTLAutoreleasedComputePipelineReflection;

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSString *label API_AVAILABLE(macos(10.13));
@property(readonly) id<MTLDevice> device;
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength API_AVAILABLE(macos(10.13));
@end

/* ---- commands ---- */

@protocol MTLCommandEncoder <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
- (void)endEncoding;
- (void)pushDebugGroup:(NSString *)string;
- (void)popDebugGroup;
@end

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup;
- (void)dispatchThreads:(MTLSize)threadsPerGrid
    threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup API_AVAILABLE(macos(10.13));
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope API_AVAILABLE(macos(10.14));
@end

@protocol MTLBlitCommandEncoder <MTLCommandEncoder>
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size;
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value;
@end

typedef void (^MTLCommandBufferHandler)(id<MTLCommandBuffer>);

@protocol MTLCommandBuffer <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
@property(readonly) id<MTLCommandQueue> commandQueue;
@property(readonly) BOOL retainedReferences;
@property(readonly) MTLCommandBufferStatus status;
@property(readonly) NSError *error;
@property(readonly) CFTimeInterval GPUStartTime API_AVAILABLE(macos(10.15));
@property(readonly) CFTimeInterval GPUEndTime API_AVAILABLE(macos(10.15));
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType
    API_AVAILABLE(macos(10.14));
- (id<MTLBlitCommandEncoder>)blitCommandEncoder;
- (void)enqueue;
- (void)commit;
- (void)waitUntilScheduled;
- (void)waitUntilCompleted;
- (void)addCompletedHandler:(MTLCommandBufferHandler)block;
@end

API_AVAILABLE(macos(15.0))
@interface MTLResidencySetDescriptor : METALSIM_ROOT {
    NSString *label;
    NSUInteger initialCapacity;
}
@property(nonatomic, copy) NSString *label;
@property(nonatomic) NSUInteger initialCapacity;
@end

API_AVAILABLE(macos(15.0))
@protocol MTLResidencySet <NSObject>
@property(readonly) NSUInteger allocationCount;
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end

@protocol MTLCommandQueue <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
- (void)addResidencySet:(id<MTLResidencySet>)residencySet API_AVAILABLE(macos(15.0));
- (void)removeResidencySet:(id<MTLResidencySet>)residencySet API_AVAILABLE(macos(15.0));
@end

/* ---- the device ---- */

@protocol MTLDevice <NSObject>
@property(readonly) NSString *name;
@property(readonly) NSUInteger maxBufferLength API_AVAILABLE(macos(10.14));
@property(readonly) NSUInteger maxThreadgroupMemoryLength API_AVAILABLE(macos(10.13));
@property(readonly) uint64_t recommendedMaxWorkingSetSize API_AVAILABLE(macos(10.12));
@property(readonly) NSUInteger currentAllocatedSize API_AVAILABLE(macos(10.13));
@property(readonly) BOOL hasUnifiedMemory API_AVAILABLE(macos(10.15));
@property(readonly) MTLSize maxThreadsPerThreadgroup;
- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily API_AVAILABLE(macos(10.15));
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytes:(const void *)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void *pointer, NSUInteger length))deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                             error:(NSError **)error;
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                options:(MTLPipelineOption)options
                             reflection:(MTLAutoreleasedComputePipelineReflection *)reflection
                                  error:(NSError **)error;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)desc
                                               error:(NSError **)error API_AVAILABLE(macos(15.0));
@end

extern id<MTLDevice> MTLCreateSystemDefaultDevice(void);
extern NSArray *MTLCopyAllDevices(void);

#endif
