/* Prototypes of the fake driver's functions for the clients. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define SHAPE unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned
typedef int R;
typedef void *H;
R cuInit(unsigned), cuModuleLoadData(H *, const void *), cuModuleUnload(H), cuModuleGetFunction(H *, H, const char *);
R cuLibraryLoadData(H *, const void *, H, H, unsigned, H, H, unsigned), cuLibraryGetKernel(H *, H, const char *);
R cuKernelGetFunction(H *, H), cuFuncSetBlockShape(H, int, int, int);
R cuLaunchKernel(H, SHAPE, H, H *, H *), cuLaunchKernel_ptsz(H, SHAPE, H, H *, H *);
R cuLaunchCooperativeKernel(H, SHAPE, H, H *), cuLaunchCooperativeKernel_ptsz(H, SHAPE, H, H *);
R cuLaunchKernelEx(H, H, H *, H *), cuLaunchKernelEx_ptsz(H, H, H *, H *);
R cuLaunch(H), cuLaunchGrid(H, int, int), cuLaunchGridAsync(H, int, int, H);
R cuLaunchCooperativeKernelMultiDevice(H, unsigned, unsigned);
R cuStreamBeginCapture_v2(H, int), cuStreamEndCapture(H, H *);
R cuGraphCreate(H *, unsigned), cuGraphAddKernelNode_v2(H *, H, H, size_t, H);
R cuGraphAddChildGraphNode(H *, H, H, size_t, H), cuGraphAddEmptyNode(H *, H, H, size_t);
R cuGraphInstantiateWithFlags(H *, H, uint64_t), cuGraphLaunch(H, H), cuGraphExecDestroy(H);
R cuGraphExecUpdate_v2(H, H, H), cuGraphExecKernelNodeSetParams_v2(H, H, H), cuGraphExecNodeSetParams(H, H, H);
R cuGraphExecChildGraphNodeSetParams(H, H, H), cuGraphNodeSetEnabled(H, H, unsigned);
R cuStreamSynchronize(H);
R cuCtxCreate_v2(H *, unsigned, int), cuCtxDestroy_v2(H), cuDevicePrimaryCtxRetain(H *, int);
R cuDevicePrimaryCtxRelease_v2(int);
int fake_broken(void);
unsigned long fake_sum(void);
struct params { H f; unsigned gx, gy, gz, bx, by, bz, shared; H p, e, kern, ctx; };
struct config { unsigned gx, gy, gz, bx, by, bz, shared; H stream, attrs; unsigned count; };
struct many { H f; unsigned gx, gy, gz, bx, by, bz, shared; H stream; H *p; };
#define OK(call)                                                                                               \
    ({                                                                                                         \
        R r_ = (call);                                                                                         \
        if (r_) fprintf(stderr, "%d: %s = %d\n", __LINE__, #call, r_), exit(42);                               \
    })
static H module;
static H function(const char *name) {
    H f;
    if (!module) OK(cuModuleLoadData(&module, ""));
    OK(cuModuleGetFunction(&f, module, name));
    return f;
}
