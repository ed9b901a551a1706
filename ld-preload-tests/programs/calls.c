/* Makes the calls that a program file lists and prints what each of them answered: the same with and without a shim.
 * A line is NAME A B C T. The numbers choose among slots that hold handles, dangling ones included, and among null and
 * nonsense; with T = 1 a thread of its own makes the call, which has no context.
 * usage: calls PROGRAM; calls names */
#include "driver.h"
#include <pthread.h>

enum { SLOTS = 8, NODES = 32 };

static CUdeviceptr pointer[SLOTS], managed[SLOTS], range[SLOTS];
static CUmemGenericAllocationHandle handle[SLOTS];
static CUmemoryPool pool[SLOTS];
static CUarray array[SLOTS];
static CUmipmappedArray mipmap[SLOTS];
static CUstream stream[SLOTS];
static CUevent event[SLOTS];
static CUgraph graph[SLOTS];
static CUgraphNode node[NODES];
static CUgraphExec exec[SLOTS];
static CUcontext context[SLOTS];
static CUgreenCtx green[SLOTS];
static unsigned long long condition[SLOTS];
static CUmodule module[SLOTS];
static CUlibrary library[SLOTS];
static CUkernel kernel[SLOTS];
static CUfunction function[SLOTS];
static CUlinkState link_of[SLOTS];
static unsigned long long texture[SLOTS];
static void *host[SLOTS];
static char registered[SLOTS][8192] __attribute__((aligned(4096)));
static char buffer[1 << 16];

/* A handle of a slot, dangling or not; null; nonsense. */
#define ANY(kind, x) ((x) % 10 < SLOTS ? kind[(x) % 10] : (x) % 10 == 8 ? (__typeof__(kind[0]))0 : (__typeof__(kind[0]))0xdead)
#define STREAM(x) ((x) % 12 < 10 ? ANY(stream, (x) % 12) : (CUstream)(uintptr_t)((x) % 12 - 9))
#define NODE(x) node[(x) % NODES]
#define OUT(x, place) ((x) % 29 == 28 ? NULL : &(place))
#define DEVICE(x) ((x) % 7 == 6 ? 99 : (int)((x) % 2))
#define AT(kind, x) kind[(x) % SLOTS]

static const size_t sizes[] = {512,     1,       4096,     2 << 20, 100000,   3 << 20, 0,
                               4 << 20, 1 << 20, 33 << 20, 511,     1 << 30, 6ull << 30, 1ull << 50};
#define SIZE(x) sizes[(x) % (sizeof sizes / sizeof *sizes)]
#define SMALL(x) (SIZE(x) & 0x1fff)
/* Of memory that is mapped: mostly such that sizes fit each other. */
#define CHUNKS(x) ((x) % 11 == 10 ? SIZE(x) : (size_t)(1 + (x) % 11 / 8) << 21)

static CUdeviceptr address(unsigned x) {
    switch (x % 12) {
    case 8: return 0;
    case 9: return 0xdead0000;
    case 10: return x / 12 % 4 ? pointer[x / 12 % SLOTS] + 256 : managed[x / 12 % SLOTS];
    case 11: return range[x / 12 % SLOTS];
    default: return pointer[x % 12];
    }
}

/* Forgets addresses of host memory, which anything else may get when it is freed. */
#define FORGETS(call) ({ CUresult r = (call); memset(managed, 0, sizeof managed); memset(host, 0, sizeof host); r; })

static void noted(void *count) { ++*(int *)count; }
static int calls_back;

/* Which slot has this handle: handles themselves differ from run to run. */
#define WHICH(kind, value) which((value) ? (uintptr_t)(value) : 0, (uintptr_t *)kind, sizeof kind / sizeof *kind)
static int which(uintptr_t value, const uintptr_t *of, int count) {
    for (int i = 0; i < count; i++)
        if (of[i] == value) return value ? i : -1;
    return -2;
}

#define PROP(x) ((CUmemAllocationProp){.type = 1, .requestedHandleTypes = (x) % 3 == 2, .location = {1, DEVICE(x)}})
#define SAY(...) snprintf(said, sizeof said, __VA_ARGS__)
/* What time answers depends on when it is asked. */
#define TIMELESS(result) ((result) == 600 ? 0 : (result))

static void *kernel_arguments[1] = {&calls_back};
static CUDA_KERNEL_NODE_PARAMS kernel_node(unsigned a, unsigned b) {
    return (CUDA_KERNEL_NODE_PARAMS){ANY(function, a), 1 + b % 3, 1, 1, 32, 1, 1, 0, kernel_arguments, NULL, NULL, NULL};
}

/* A node of any kind: the number of the kind, then words of its own parameters. */
#define NODE_OF(...) unsigned long long p[32] = {__VA_ARGS__}
/* A conditional node with up to three graphs. */
#define CONDITIONAL(handle, how, size) NODE_OF(13, 0, handle, (how) | (unsigned long long)(size) << 32)
#define BODY(x) (p[4] ? ((CUgraph *)(uintptr_t)p[4])[x] : NULL)

#define BEHIND(x) ((x) % 3 ? NULL : &NODE(x)), ((x) % 3 ? 0 : 1)

#define CALLS(X)                                                                                                        \
    /* plain memory */                                                                                                  \
    X(alloc, CU(cuMemAlloc_v2)(OUT(c, AT(pointer, a)), SIZE(b)))                                                        \
    X(alloc_pitch, ({ size_t p = 0; CUresult r = CU(cuMemAllocPitch_v2)(OUT(c, AT(pointer, a)), OUT(c / 29, p), SMALL(b), c % 50, 4 << a % 4); SAY("%zu", p); r; })) \
    X(alloc_managed, CU(cuMemAllocManaged)(OUT(c, AT(managed, a)), SIZE(b), c % 4))                                     \
    X(free_managed, ({ CUdeviceptr p = AT(managed, a); AT(managed, a) = 0; CU(cuMemFree_v2)(p); }))                     \
    X(free_, CU(cuMemFree_v2)(pointer[a % SLOTS]))                                                                      \
    X(free_again, CU(cuMemFree_v2)(a % 12 == 10 ? pointer[a / 12 % SLOTS] + 256 : address(a)))                          \
    X(info, ({ size_t f = 1, t = 1; CU(cuCtxSynchronize)(); CUresult r = CU(cuMemGetInfo_v2)(OUT(a, f), OUT(b, t)); SAY("%zu %zu", f, t); r; })) \
    X(total, ({ size_t t = 1; CUresult r = CU(cuDeviceTotalMem_v2)(OUT(b, t), DEVICE(a)); SAY("%zu", t); r; }))         \
    X(address_range, ({ CUdeviceptr p = 0, of = address(a); size_t n = 0; CUresult r = CU(cuMemGetAddressRange_v2)(OUT(b, p), OUT(c, n), of); SAY("%llu %zu", p ? of - p : 0, n); r; })) \
    X(host_alloc, CU(cuMemHostAlloc)(OUT(c, AT(host, a)), SIZE(b % 6), c % 8))                                          \
    X(host_free, ({ void *p = AT(host, a); AT(host, a) = NULL; CU(cuMemFreeHost)(p); }))                                \
    X(host_register, CU(cuMemHostRegister_v2)(AT(registered, a), 4096 + b % 2 * 4096, c % 4))                           \
    X(host_unregister, CU(cuMemHostUnregister)(AT(registered, a)))                                                      \
    X(host_pointer, ({ CUdeviceptr p = 0; CUresult r = CU(cuMemHostGetDevicePointer_v2)(OUT(c, p), AT(host, a), b % 9 == 8); SAY("%d", p == (uintptr_t)AT(host, a)); r; })) \
    X(host_flags, ({ unsigned f = 99; CUresult r = CU(cuMemHostGetFlags)(OUT(c, f), AT(host, a)); SAY("%u", f); r; }))  \
    X(host_plain, CU(cuMemAllocHost_v2)(OUT(c, AT(host, a)), SIZE(b % 6)))                                              \
    X(memset_, CU(cuMemsetD8_v2)(address(a), b, SMALL(c)))                                                              \
    X(memset_async, CU(cuMemsetD32Async)(address(a), b, SMALL(c) / 4, STREAM(b)))                                       \
    X(copy_in, CU(cuMemcpyHtoD_v2)(address(a), buffer, SMALL(b)))                                                       \
    X(copy_out, CU(cuMemcpyDtoH_v2)(buffer, address(a), SMALL(b)))                                                      \
    X(copy_within, CU(cuMemcpyDtoDAsync_v2)(address(a), address(b), SMALL(c), STREAM(c)))                               \
    X(pointer_attribute, ({ unsigned v[4] = {0}; CUresult r = CU(cuPointerGetAttribute)(v, (unsigned[]){2, 8, 9, 12, 99}[b % 5], address(a)); SAY("%u", v[0]); r; })) \
    X(advise, CU(cuMemAdvise)(address(a), SIZE(b), c % 8, DEVICE(c)))                                                   \
    X(prefetch, CU(cuMemPrefetchAsync)(address(a), SMALL(b), c % 5 ? DEVICE(c) : -1, STREAM(b)))                        \
    X(ipc, ({ CUipcMemHandle h; CU(cuIpcGetMemHandle)(&h, address(a)); }))                                              \
    /* stream-ordered memory */                                                                                         \
    X(alloc_async, CU(cuMemAllocAsync)(OUT(c, AT(pointer, a)), SIZE(b), STREAM(c)))                                 \
    X(alloc_async_ptsz, CU(cuMemAllocAsync_ptsz)(&AT(pointer, a), SIZE(b), STREAM(c)))                              \
    X(free_async, CU(cuMemFreeAsync)(a % 12 == 10 ? 0 : address(a), STREAM(b)))                                         \
    X(pool_create, ({ CUmemPoolProps p = {.allocType = b % 5 ? 1 : 0, .location = {1, DEVICE(b)}, .maxSize = c % 4 ? 0 : SIZE(c)}; CU(cuMemPoolCreate)(OUT(c, AT(pool, a)), &p); })) \
    X(pool_destroy, CU(cuMemPoolDestroy)(ANY(pool, a)))                                                                 \
    X(pool_alloc, CU(cuMemAllocFromPoolAsync)(OUT(c, AT(pointer, a)), SIZE(b), ANY(pool, c), STREAM(c / 10)))       \
    X(pool_trim, CU(cuMemPoolTrimTo)(ANY(pool, a), SIZE(b)))                                                            \
    X(pool_keep, ({ unsigned long long n = SIZE(b); CU(cuMemPoolSetAttribute)(ANY(pool, a), c % 4 ? CU_POOL_RELEASE_THRESHOLD : c % 12, &n); })) \
    X(pool_figure, ({ unsigned long long n = 0; CU(cuCtxSynchronize)(); CUresult r = CU(cuMemPoolGetAttribute)(ANY(pool, a), b % 10, &n); SAY("%llu", b % 10 > 3 ? n : n & 0xffffffff); r; })) \
    X(pool_default, CU(cuDeviceGetDefaultMemPool)(OUT(c, AT(pool, a)), DEVICE(b)))                                      \
    X(pool_set, CU(cuDeviceSetMemPool)(DEVICE(a), ANY(pool, b)))                                                        \
    X(pool_get, ({ CUmemoryPool p = NULL; CUresult r = CU(cuDeviceGetMemPool)(&p, DEVICE(a)); SAY("%d", WHICH(pool, p)); r; })) \
    X(pool_access, ({ CUmemAccessDesc d = {{1, DEVICE(b)}, c % 4}; CU(cuMemPoolSetAccess)(ANY(pool, a), &d, 1); }))     \
    /* mapped memory */                                                                                                 \
    X(create, ({ CUmemAllocationProp p = PROP(c); CU(cuMemCreate)(OUT(c, AT(handle, a)), CHUNKS(b), &p, 0); }))         \
    X(release, CU(cuMemRelease)(ANY(handle, a)))                                                                        \
    X(retain, CU(cuMemRetainAllocationHandle)(OUT(c, AT(handle, a)), (void *)(uintptr_t)address(b)))                    \
    X(handle_of, ({ CUmemAllocationProp p = {0}; CUresult r = CU(cuMemGetAllocationPropertiesFromHandle)(OUT(c, p), ANY(handle, a)); SAY("%u %d", p.type, p.location.id); r; })) \
    X(reserve, CU(cuMemAddressReserve)(OUT(c, AT(range, a)), CHUNKS(b), 0, 0, 0))                                       \
    X(unreserve, CU(cuMemAddressFree)(AT(range, a), CHUNKS(b)))                                                         \
    X(map, CU(cuMemMap)(AT(range, a), CHUNKS(b), 0, ANY(handle, c), 0))                                                 \
    X(unmap, CU(cuMemUnmap)(AT(range, a), CHUNKS(b)))                                                                   \
    X(set_access, ({ CUmemAccessDesc d = {{1, DEVICE(c)}, 3}; CU(cuMemSetAccess)(AT(range, a), CHUNKS(b), &d, 1); }))   \
    X(get_access, ({ unsigned long long f = 0; CUmemLocation l = {1, DEVICE(b)}; CUresult r = CU(cuMemGetAccess)(&f, &l, AT(range, a)); SAY("%llu", f); r; })) \
    X(granularity, ({ size_t n = 0; CUmemAllocationProp p = PROP(a); CUresult r = CU(cuMemGetAllocationGranularity)(OUT(c, n), &p, b % 3); SAY("%zu", n); r; })) \
    X(export_, ({ int fd = -1; CUresult r = CU(cuMemExportToShareableHandle)(&fd, ANY(handle, a), 1, 0); if (!r) { CUmemGenericAllocationHandle h; r = CU(cuMemImportFromShareableHandle)(b % 2 ? &AT(handle, b) : &h, (void *)(uintptr_t)fd, 1); close(fd); } r; })) \
    /* arrays */                                                                                                        \
    X(array_create, ({ CUDA_ARRAY_DESCRIPTOR d = {b % 600, c % 90, b % 4 ? CU_ARRAY_FLOAT : b % 40, 1 << c % 4}; CU(cuArrayCreate_v2)(OUT(c, AT(array, a)), &d); })) \
    X(array_create_3d, ({ CUDA_ARRAY3D_DESCRIPTOR d = {b % 300, c % 60, a % 5, CU_ARRAY_UNSIGNED_INT8, 1, c % 3}; CU(cuArray3DCreate_v2)(OUT(c, AT(array, a)), &d); })) \
    X(array_destroy, CU(cuArrayDestroy)(ANY(array, a)))                                                                 \
    X(array_describe, ({ CUDA_ARRAY_DESCRIPTOR d = {0}; CUresult r = CU(cuArrayGetDescriptor_v2)(&d, ANY(array, a)); SAY("%zu %zu", d.Width, d.Height); r; })) \
    X(mipmap_create, ({ CUDA_ARRAY3D_DESCRIPTOR d = {b % 300, c % 300, 0, CU_ARRAY_FLOAT, 1, 0}; CU(cuMipmappedArrayCreate)(OUT(c, AT(mipmap, a)), &d, b % 7); })) \
    X(mipmap_destroy, CU(cuMipmappedArrayDestroy)(ANY(mipmap, a)))                                                      \
    X(mipmap_level, CU(cuMipmappedArrayGetLevel)(OUT(c, AT(array, a)), ANY(mipmap, b), c % 5))                          \
    X(texture_create, ({ unsigned long long p[18] = {b % 5, b % 5 < 2 ? (uintptr_t)ANY(array, c) : address(c), 0x100000020ull, SIZE(a), SMALL(b), SMALL(c)}; unsigned d[26] = {c % 5, [3] = b % 3}; CU(cuTexObjectCreate)(OUT(c, AT(texture, a)), (void *)p, (void *)d, NULL); })) \
    X(texture_of, ({ unsigned long long p[18] = {9}; CUresult r = CU(cuTexObjectGetResourceDesc)((void *)OUT(c, p), ANY(texture, a)); SAY("%llu", p[0]); r; })) \
    X(texture_destroy, CU(cuTexObjectDestroy)(ANY(texture, a)))                                                         \
    /* streams and events */                                                                                            \
    X(stream_create, CU(cuStreamCreate)(OUT(c, AT(stream, a)), b % 3))                                                  \
    X(stream_destroy, CU(cuStreamDestroy_v2)(ANY(stream, a)))                                                           \
    X(stream_synchronize, CU(cuStreamSynchronize)(STREAM(a)))                                                           \
    X(stream_query, TIMELESS(CU(cuStreamQuery)(STREAM(a))))                                                             \
    X(stream_wait, CU(cuStreamWaitEvent)(STREAM(a), ANY(event, b), c % 3))                                              \
    X(stream_flags, ({ unsigned f = 9; CUresult r = CU(cuStreamGetFlags)(STREAM(a), OUT(c, f)); SAY("%u", f); r; }))    \
    X(stream_context, ({ CUcontext own = NULL; CUresult r = CU(cuStreamGetCtx)(STREAM(a), OUT(c, own)); SAY("%d", WHICH(context, own)); r; })) \
    X(stream_green, ({ CUgreenCtx own = NULL; CUresult r = CU(cuStreamGetGreenCtx)(STREAM(a), OUT(c, own)); SAY("%d", WHICH(green, own)); r; })) \
    X(stream_write, CU(cuStreamWriteValue32_v2)(STREAM(a), address(b) & ~3ull, c, c % 3))                               \
    X(host_function, CU(cuLaunchHostFunc)(STREAM(a), noted, &calls_back))                                               \
    X(event_create, CU(cuEventCreate)(OUT(c, AT(event, a)), b % 5))                                                     \
    X(event_destroy, CU(cuEventDestroy_v2)(ANY(event, a)))                                                              \
    X(event_record, CU(cuEventRecord)(ANY(event, a), STREAM(b)))                                                        \
    X(event_record_with, CU(cuEventRecordWithFlags)(ANY(event, a), STREAM(b), c % 3))                                   \
    X(event_query, TIMELESS(CU(cuEventQuery)(ANY(event, a))))                                                           \
    X(event_synchronize, CU(cuEventSynchronize)(ANY(event, a)))                                                         \
    X(event_elapsed, ({ float ms; TIMELESS(CU(cuEventElapsedTime)(OUT(c, ms), ANY(event, a), ANY(event, b))); }))       \
    /* captures and graphs */                                                                                           \
    X(capture_begin, CU(cuStreamBeginCapture_v2)(STREAM(a), b % 4))                                                     \
    X(capture_into, CU(cuStreamBeginCaptureToGraph)(STREAM(a), ANY(graph, b), c % 4 ? NULL : &NODE(c), NULL, c % 4 ? 0 : 1, 2)) \
    X(capture_behind, CU(cuStreamUpdateCaptureDependencies)(STREAM(a), &NODE(b), c % 3 ? 1 : 0, c % 5 % 3))             \
    X(capture_end, CU(cuStreamEndCapture)(STREAM(a), OUT(c, AT(graph, b))))                                             \
    X(capture_status, ({ unsigned s = 9; CUresult r = CU(cuStreamIsCapturing)(STREAM(a), (void *)OUT(c, s)); SAY("%u", s); r; })) \
    X(capture_mode, ({ unsigned m = a % 4; CUresult r = CU(cuThreadExchangeStreamCaptureMode)(&m); SAY("%u", m); r; })) \
    X(graph_create, CU(cuGraphCreate)(OUT(c, AT(graph, a)), b % 9 == 8))                                                \
    X(graph_destroy, CU(cuGraphDestroy)(ANY(graph, a)))                                                                 \
    X(graph_clone, CU(cuGraphClone)(OUT(c, AT(graph, a)), ANY(graph, b)))                                               \
    X(graph_nodes, ({ size_t n = 0; CUresult r = CU(cuGraphGetNodes)(ANY(graph, a), NULL, OUT(c, n)); SAY("%zu", n); r; })) \
    X(graph_edges, ({ size_t n = 0; CUresult r = CU(cuGraphGetEdges)(ANY(graph, a), NULL, NULL, OUT(c, n)); SAY("%zu", n); r; })) \
    X(graph_take_node, ({ CUgraphNode all[NODES]; size_t n = NODES; CUresult r = CU(cuGraphGetNodes)(ANY(graph, a), all, &n); if (!r && n) NODE(b) = all[c % n]; r; })) \
    X(node_empty, CU(cuGraphAddEmptyNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c)))                                   \
    X(node_kernel, ({ CUDA_KERNEL_NODE_PARAMS p = kernel_node(c, b); CU(cuGraphAddKernelNode_v2)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), &p); })) \
    X(node_alloc, ({ CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = 1, .location = {1, DEVICE(c)}}, .bytesize = SIZE(c)}; CUresult r = CU(cuGraphAddMemAllocNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), &p); if (!r) AT(pointer, a) = p.dptr; r; })) \
    X(node_free, CU(cuGraphAddMemFreeNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), pointer[a % SLOTS]))              \
    X(node_child, CU(cuGraphAddChildGraphNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), ANY(graph, c)))               \
    X(node_event, CU(cuGraphAddEventRecordNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), ANY(event, c)))              \
    X(node_wait, CU(cuGraphAddEventWaitNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), ANY(event, c)))                 \
    X(node_host, ({ void *p[2] = {c % 7 ? noted : NULL, &calls_back}; CU(cuGraphAddHostNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), (void *)p); })) \
    X(node_set, ({ unsigned long long p[5] = {address(c), 0, (1ull << c % 4) << 32, SMALL(b), 1}; CU(cuGraphAddMemsetNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), (void *)p, c % 5 ? NULL : ANY(context, c)); })) \
    X(node_copy, ({ unsigned long long p[25] = {[4] = 1, [5] = (uintptr_t)buffer, [15] = 2, [17] = address(c), [22] = SMALL(b), [23] = 1, [24] = 1}; CU(cuGraphAddMemcpyNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), (void *)p, c % 5 ? NULL : ANY(context, c)); })) \
    X(node_give, ({ NODE_OF(4, 0, (uintptr_t)ANY(graph, c), c % 3); CU(cuGraphAddNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), (void *)p); })) \
    X(node_any, ({ NODE_OF(b % 15, 0, c % 2 ? address(c) : (uintptr_t)ANY(event, c)); int fits = (1 << b % 15) & 0xae0; fits ? CU(cuGraphAddNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), (void *)p) : 0; })) \
    X(node_set_any, ({ NODE_OF(b % 2 ? 6 : 7, 0, (uintptr_t)ANY(event, c)); CU(cuGraphNodeSetParams)(NODE(a), (void *)p); })) \
    X(condition, CU(cuGraphConditionalHandleCreate)((void *)OUT(c, AT(condition, a)), ANY(graph, b), c % 5 ? NULL : ANY(context, c), b % 4, c % 7 == 6 ? 2 : c % 2)) \
    X(node_conditional, ({ CONDITIONAL(ANY(condition, c), c % 4, b % 4); CUresult r = CU(cuGraphAddNode)(OUT(c, NODE(a)), ANY(graph, b), BEHIND(c), (void *)p); if (!r) AT(graph, a) = BODY(c % (b % 4)); r; })) \
    X(node_destroy, CU(cuGraphDestroyNode)(NODE(a)))                                                                    \
    X(node_type, ({ unsigned t = 99; CUresult r = CU(cuGraphNodeGetType)(NODE(a), (void *)OUT(c, t)); SAY("%u", t); r; })) \
    X(node_depend, CU(cuGraphAddDependencies)(ANY(graph, a), &NODE(b), &NODE(c), 1))                                    \
    X(node_kernel_set, ({ CUDA_KERNEL_NODE_PARAMS p = kernel_node(b, c); CU(cuGraphKernelNodeSetParams_v2)(NODE(a), &p); })) \
    X(instantiate, CU(cuGraphInstantiateWithFlags)(OUT(c, AT(exec, a)), ANY(graph, b), c % 5 ? 0 : c % 17))             \
    X(exec_destroy, CU(cuGraphExecDestroy)(ANY(exec, a)))                                                               \
    X(exec_launch, CU(cuGraphLaunch)(ANY(exec, a), STREAM(b)))                                                          \
    X(exec_upload, CU(cuGraphUpload)(ANY(exec, a), STREAM(b)))                                                          \
    X(exec_kernel_set, ({ CUDA_KERNEL_NODE_PARAMS p = kernel_node(c, b); CU(cuGraphExecKernelNodeSetParams_v2)(ANY(exec, a), NODE(b), &p); })) \
    X(exec_enable, CU(cuGraphNodeSetEnabled)(ANY(exec, a), NODE(b), c % 3))                                             \
    X(exec_child_set, CU(cuGraphExecChildGraphNodeSetParams)(ANY(exec, a), NODE(b), ANY(graph, c)))                     \
    X(exec_set_any, ({ CONDITIONAL(ANY(condition, c), c % 4, b % 4); if (b % 2) p[0] = 7, p[2] = (uintptr_t)ANY(event, c); CU(cuGraphExecNodeSetParams)(ANY(exec, a), NODE(b), (void *)p); })) \
    X(instantiate_with, ({ unsigned long long p[4] = {c % 5 ? 0 : c % 17}; CUresult r = CU(cuGraphInstantiateWithParams)(OUT(c, AT(exec, a)), ANY(graph, b), (void *)p); SAY("%u", (unsigned)p[3]); r; })) \
    X(graph_trim, CU(cuDeviceGraphMemTrim)(DEVICE(a)))                                                                  \
    X(graph_figure, ({ unsigned long long n = 0; CU(cuCtxSynchronize)(); CUresult r = CU(cuDeviceGetGraphMemAttribute)(DEVICE(a), b % 5, &n); SAY("%llu", n); r; })) \
    /* contexts */                                                                                                      \
    X(context_create, CU(cuCtxCreate_v2)(OUT(c, AT(context, a)), b % 7, DEVICE(c)))                                     \
    X(context_destroy, FORGETS(CU(cuCtxDestroy_v2)(ANY(context, a))))                                                   \
    X(context_current, CU(cuCtxSetCurrent)(ANY(context, a)))                                                            \
    X(context_push, CU(cuCtxPushCurrent_v2)(ANY(context, a)))                                                           \
    X(context_pop, ({ CUcontext own = NULL; CUresult r = CU(cuCtxPopCurrent_v2)(OUT(c, own)); SAY("%d", WHICH(context, own)); r; })) \
    X(context_which, ({ CUcontext own = NULL; CUresult r = CU(cuCtxGetCurrent)(OUT(c, own)); SAY("%d", WHICH(context, own)); r; })) \
    X(context_synchronize, CU(cuCtxSynchronize)())                                                                      \
    X(context_device, ({ int d = -1; CUresult r = CU(cuCtxGetDevice)(OUT(c, d)); SAY("%d", d); r; }))                   \
    X(context_limit, CU(cuCtxSetLimit)(a % 7, SIZE(b)))                                                                 \
    X(primary_retain, CU(cuDevicePrimaryCtxRetain)(OUT(c, AT(context, a)), DEVICE(b)))                                  \
    X(primary_release, FORGETS(CU(cuDevicePrimaryCtxRelease_v2)(DEVICE(a))))                                            \
    X(primary_reset, FORGETS(CU(cuDevicePrimaryCtxReset_v2)(DEVICE(a))))                                                \
    X(primary_state, ({ unsigned f = 0; int on = -1; CUresult r = CU(cuDevicePrimaryCtxGetState)(DEVICE(a), OUT(b, f), OUT(c, on)); SAY("%u %d", f, on); r; })) \
    X(peer, CU(cuCtxEnablePeerAccess)(ANY(context, a), b % 2))                                                          \
    X(green_create, ({ CUdevResource r = {0}, s = {0}; CUdevResourceDesc d = NULL; unsigned n = 1; SEVERAL(CU(cuDeviceGetDevResource)(DEVICE(b), &r, 1), CU(cuDevSmResourceSplitByCount)(&s, &n, &r, NULL, c % 5, c % 120), CU(cuDevResourceGenerateDesc)(&d, c % 3 ? &s : &r, 1), CU(cuGreenCtxCreate)(OUT(c, AT(green, a)), d, DEVICE(b), 1), CU(cuCtxFromGreenCtx)(&AT(context, a), AT(green, a))); })) \
    X(green_destroy, FORGETS(CU(cuGreenCtxDestroy)(ANY(green, a))))                                                     \
    X(green_stream, CU(cuGreenCtxStreamCreate)(OUT(c, AT(stream, a)), ANY(green, b), c % 9 != 8, 0))                    \
    X(green_record, CU(cuGreenCtxRecordEvent)(ANY(green, a), ANY(event, b)))                                            \
    X(green_wait, CU(cuGreenCtxWaitEvent)(ANY(green, a), ANY(event, b)))                                                \
    X(green_of, ({ CUdevResource r = {0}; CUresult e = CU(cuGreenCtxGetDevResource)(ANY(green, a), OUT(c, r), b % 5); SAY("%u", r.value[0]); e; })) \
    X(green_id, ({ unsigned long long n = 0; CUresult r = CU(cuGreenCtxGetId)(b % 4 ? ANY(green, a) : NULL, OUT(c, n)); SAY("%d", n != 0); r; })) \
    X(green_view, CU(cuCtxFromGreenCtx)(OUT(c, AT(context, a)), ANY(green, b)))                                         \
    X(context_of, ({ CUdevResource r = {0}; CUresult e = CU(cuCtxGetDevResource)(ANY(context, a), OUT(c, r), b % 3); SAY("%u", r.value[0]); e; })) \
    X(context_record, CU(cuCtxRecordEvent)(ANY(context, a), ANY(event, b)))                                             \
    X(context_wait, CU(cuCtxWaitEvent)(ANY(context, a), ANY(event, b)))                                                 \
    /* several at once */                                                                                               \
    X(capture_whole, ({ CUstream s = AT(stream, a); CUdeviceptr p = 0; SEVERAL(CU(cuStreamBeginCapture_v2)(s, b % 3), CU(cuLaunchKernel)(ANY(function, b), 2, 1, 1, 32, 1, 1, 0, s, kernel_arguments, NULL), CU(cuMemAllocAsync)(&p, SIZE(c), s), CU(cuMemsetD8Async)(p, 0, 1, s), c % 3 ? CU(cuMemFreeAsync)(p, s) : 0, b % 4 ? 0 : CU(cuLaunchHostFunc)(s, noted, &calls_back), c % 5 ? 0 : CU(cuGraphLaunch)(ANY(exec, c), s), CU(cuStreamEndCapture)(s, &AT(graph, c)), CU(cuGraphInstantiateWithFlags)(&AT(exec, b), AT(graph, c), 0), CU(cuGraphLaunch)(AT(exec, b), STREAM(c))); })) \
    X(graph_whole, ({ CUDA_KERNEL_NODE_PARAMS p = kernel_node(a, b), q = kernel_node(b, c); SEVERAL(CU(cuGraphCreate)(&AT(graph, a), 0), CU(cuGraphAddKernelNode_v2)(&NODE(b), AT(graph, a), NULL, 0, &p), c % 2 ? 0 : CU(cuGraphAddChildGraphNode)(&NODE(c), AT(graph, a), &NODE(b), 1, ANY(graph, b)), CU(cuGraphInstantiateWithFlags)(&AT(exec, c), AT(graph, a), 0), CU(cuGraphExecKernelNodeSetParams_v2)(AT(exec, c), NODE(b), &q), CU(cuGraphNodeSetEnabled)(AT(exec, c), NODE(b), c % 3), CU(cuGraphLaunch)(AT(exec, c), STREAM(a))); })) \
    X(conditional_whole, ({ CUDA_KERNEL_NODE_PARAMS k = kernel_node(a, b), q = kernel_node(b, c); CONDITIONAL(0, c % 3, 1 + (c % 3 != 1 && b % 2)); SEVERAL(CU(cuGraphCreate)(&AT(graph, a), 0), CU(cuGraphConditionalHandleCreate)((void *)&p[2], AT(graph, a), NULL, b % 3, c % 2), CU(cuGraphAddNode)(&NODE(a), AT(graph, a), NULL, 0, (void *)p), CU(cuGraphAddKernelNode_v2)(&NODE(b), BODY(0), NULL, 0, &k), c % 4 ? 0 : CU(cuGraphAddMemFreeNode)(&NODE(c), BODY(0), &NODE(b), 1, pointer[c % SLOTS]), b % 5 ? 0 : CU(cuGraphAddChildGraphNode)(&NODE(c), BODY(0), &NODE(b), 1, ANY(graph, b)), CU(cuGraphInstantiateWithFlags)(&AT(exec, c), AT(graph, a), 0), CU(cuGraphExecKernelNodeSetParams_v2)(AT(exec, c), NODE(b), &q), CU(cuGraphLaunch)(AT(exec, c), STREAM(a))); })) \
    X(graph_update, ({ unsigned how[4] = {0}; CUresult r = CU(cuGraphExecUpdate_v2)(ANY(exec, a), ANY(graph, b), c % 9 ? (void *)how : NULL); SAY("%u", how[0]); r; })) \
    X(map_whole, ({ CUmemAllocationProp p = PROP(b); CUmemAccessDesc d = {{1, DEVICE(b)}, 3}; CUdeviceptr *to = &AT(range, a); CUmemGenericAllocationHandle h = 0, again = 0; SEVERAL(CU(cuMemUnmap)(*to, CHUNKS(b)), CU(cuMemAddressFree)(*to, CHUNKS(b)), CU(cuMemAddressReserve)(to, CHUNKS(b), 0, 0, 0), CU(cuMemCreate)(&h, CHUNKS(c), &p, 0), CU(cuMemMap)(*to, CHUNKS(c), 0, h, 0), CU(cuMemRelease)(h), CU(cuMemSetAccess)(*to, CHUNKS(c), &d, 1), CU(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)*to), c % 3 ? CU(cuMemRelease)(again) : 0); })) \
    /* code and launches */                                                                                             \
    X(module_load, CU(cuModuleLoadData)(OUT(c, AT(module, a)), b % 9 == 8 ? "nonsense" : KERNEL_PTX))                   \
    X(module_unload, CU(cuModuleUnload)(ANY(module, a)))                                                                \
    X(module_function, CU(cuModuleGetFunction)(OUT(c, AT(function, a)), ANY(module, b), c % 9 == 8 ? "none" : c % 2 ? "nothing" : "other")) \
    X(library_load, CU(cuLibraryLoadData)(OUT(c, AT(library, a)), KERNEL_PTX, NULL, NULL, 0, NULL, NULL, 0))            \
    X(library_unload, CU(cuLibraryUnload)(ANY(library, a)))                                                             \
    X(library_kernel, CU(cuLibraryGetKernel)(OUT(c, AT(kernel, a)), ANY(library, b), c % 9 == 8 ? "none" : "nothing"))  \
    X(kernel_function, CU(cuKernelGetFunction)(OUT(c, AT(function, a)), ANY(kernel, b)))                                \
    X(kernel_as_function, (AT(function, a) = (CUfunction)ANY(kernel, b), 0))                                            \
    X(function_attribute, ({ int v = -1; CUresult r = CU(cuFuncGetAttribute)(&v, b % 18, ANY(function, a)); SAY("%d", v); r; })) \
    X(function_limit, CU(cuFuncSetAttribute)(ANY(function, a), b % 18, SMALL(c)))                                       \
    X(function_name, ({ const char *n = "-"; CUresult r = CU(cuFuncGetName)(OUT(c, n), ANY(function, a)); SAY("%s", n ? n : "null"); r; })) \
    X(occupancy, ({ int n = -1; CUresult r = CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(OUT(c, n), ANY(function, a), b % 1100, SMALL(c)); SAY("%d", n); r; })) \
    X(link_create, CU(cuLinkCreate_v2)(0, NULL, NULL, OUT(c, AT(link_of, a))))                                          \
    X(link_add, CU(cuLinkAddData_v2)(ANY(link_of, a), b % 6 == 5 ? 5 : 1, b % 9 == 8 ? "nonsense" : KERNEL_PTX, sizeof KERNEL_PTX, NULL, 0, NULL, NULL)) \
    X(link_complete, ({ void *image = NULL; CUresult r = CU(cuLinkComplete)(ANY(link_of, a), OUT(c, image), NULL); !r && b % 2 ? CU(cuModuleLoadData)(&AT(module, b), image) : r; })) \
    X(link_destroy, CU(cuLinkDestroy)(ANY(link_of, a)))                                                                 \
    X(core_dump_set, ({ int on = b % 2; size_t n = c % 3 ? 1 : 4; CU(cuCoredumpSetAttribute)(a % 9, OUT(c, on), &n); })) \
    X(core_dump_get, ({ char v[1024] = ""; size_t n = c % 3 ? sizeof v : 1; CUresult r = CU(cuCoredumpGetAttribute)(a % 9, OUT(c, v), &n); SAY("%d", a % 9 < 5 ? v[0] : 0); r; })) \
    X(launch, CU(cuLaunchKernel)(ANY(function, a), 1 + b % 300, b % 13 ? 1 : 0, 1, 32 << c % 7, 1, 1, c % 5 ? 0 : SIZE(c) & 0xfffff, STREAM(c), kernel_arguments, NULL)) \
    X(launch_again, CU(cuLaunchKernel)(ANY(function, a), 4, 1, 1, 32, 1, 1, 0, STREAM(b), kernel_arguments, NULL))      \
    X(launch_ptsz, CU(cuLaunchKernel_ptsz)(ANY(function, a), 1 + b % 300, 1, 1, 64, 1, 1, 0, STREAM(c), kernel_arguments, NULL)) \
    X(launch_ex, ({ CUlaunchConfig k = {1 + b % 30, 1, 1, 64, 1, 1, 0, STREAM(c), NULL, 0}; CU(cuLaunchKernelEx)(c % 31 ? &k : NULL, ANY(function, a), kernel_arguments, NULL); })) \
    X(launch_cooperative, CU(cuLaunchCooperativeKernel)(ANY(function, a), 1 + b % 3000, 1, 1, 64, 1, 1, 0, STREAM(c), kernel_arguments))

/* Whole captures, graphs and mappings, as single calls would seldom make one. */
#define SEVERAL(...) ({ CUresult all[] = {__VA_ARGS__}; int n = sizeof all / sizeof *all, at = 0; \
                        for (int i = 0; i < n; i++) at += SAY_AT(at, "%u ", all[i]); all[n - 1]; })
#define SAY_AT(at, ...) snprintf(said + at, sizeof said - at, __VA_ARGS__)

struct call {
    const char *name;
    unsigned a, b, c, line;
    int kind;
};

static const char *const names[] = {
#define NAME(name, call) #name,
    CALLS(NAME)
};

enum {
#define NUMBER(name, call) case_##name,
    CALLS(NUMBER)
};

static void *make(void *which_call) {
    struct call *own = which_call;
    unsigned a = own->a, b = own->b, c = own->c;
    char said[128] = "";
    CUresult result = 0;
    switch (own->kind) {
#define CASE(name, call) case case_##name: result = (call); break;
        CALLS(CASE)
    }
    (void)a, (void)b, (void)c;
    printf("%u %s %u %u %u: %u %s\n", own->line, own->name, a, b, c, result, said);
    return NULL;
}

int main(int argc, char **argv) {
    const int kinds = sizeof names / sizeof *names;
    MUST(argc == 2);
    if (!strcmp(argv[1], "names")) {
        for (int i = 0; i < kinds; i++) puts(names[i]);
        return 0;
    }
    FILE *program = fopen(argv[1], "r");
    MUST(program);
    for (int i = 0; i < SLOTS; i++) context[i] = use_device(i % 2);
    OK(CU(cuCtxSetCurrent)(context[0]));
    char name[64];
    struct call own = {.name = name};
    int thread;
    while (fscanf(program, "%63s %u %u %u %d", name, &own.a, &own.b, &own.c, &thread) == 5) {
        own.line++;
        for (own.kind = 0; own.kind < kinds && strcmp(names[own.kind], name); own.kind++) {}
        MUST(own.kind < kinds);
        pthread_t id;
        if (!thread) make(&own);
        else MUST(!pthread_create(&id, NULL, make, &own) && !pthread_join(id, NULL));
    }
    return 0;
}
