/* Types of the CUDA driver interface that the test programs look into. The prototypes, and every
 * type that is not spelled out here, are generated from the project's table of entry points. */
#ifndef RADRM_CUDA_TYPES_H
#define RADRM_CUDA_TYPES_H
#include <stddef.h>
#include <stdint.h>

typedef unsigned int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef unsigned long long CUlogicalEndpointId;
typedef struct { unsigned char bytes[16]; } CUuuid;

typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUlib_st *CUlibrary;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUtexref_st *CUtexref;
typedef struct CUsurfref_st *CUsurfref;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUcheckpointOperation_st *CUcheckpointOperationHandle;

typedef void (*CUhostFn)(void *);
typedef void (*CUstreamCallback)(CUstream, CUresult, void *);
typedef void (*CUasyncCallback)(void *, void *, void *);
typedef void *CUasyncCallbackHandle;
typedef void (*CUcoredumpStatusCallback)(void *, int, CUdevice);
typedef void *CUcoredumpCallbackHandle;
typedef void *CUgraphRecaptureCallback;
typedef void *CUlogsCallback;
typedef void *CUlogsCallbackHandle;
typedef size_t (*CUoccupancyB2DSize)(int);

typedef struct { unsigned int type; int id; } CUmemLocation;
typedef struct {
    unsigned int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; unsigned char reserved[4]; } allocFlags;
} CUmemAllocationProp;
typedef struct {
    unsigned int allocType, handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;
typedef struct { CUmemLocation location; unsigned int flags; } CUmemAccessDesc;
typedef struct { size_t Width, Height; unsigned int Format, NumChannels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { size_t Width, Height, Depth; unsigned int Format, NumChannels, Flags; } CUDA_ARRAY3D_DESCRIPTOR;
typedef struct {
    CUfunction func;
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;
typedef struct {
    CUmemPoolProps poolProps;
    const CUmemAccessDesc *accessDescs;
    size_t accessDescCount, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;
typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;
typedef struct { unsigned int type; unsigned char _internal_padding[92]; unsigned int value[10]; void *nextResource; } CUdevResource;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { char reserved[64]; } CUipcEventHandle;
typedef struct { unsigned char reserved[64]; } CUmemPoolPtrExportData;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_FOUND = 500 };
enum { CU_ARRAY_UNSIGNED_INT8 = 1, CU_ARRAY_FLOAT = 0x20 };
enum { CU_POOL_RELEASE_THRESHOLD = 4, CU_POOL_RESERVED = 5, CU_POOL_RESERVED_HIGH = 6, CU_POOL_USED = 7, CU_POOL_USED_HIGH = 8 };
#endif
