/* A driver of a few dozen functions whose every answer a test can predict. Compiled with -DOLD it cannot be
 * asked for the names of functions, as drivers before 12.3. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int R;
enum { OK = 0, INVALID = 1, HANDLE = 400, UNMATCHED = 903 };

/* --- start, device, context */
static int started;
R cuInit(unsigned flags) { return started = 1, OK; }
R cuDriverGetVersion(int *v) { return *v = 12080, OK; }
R cuDeviceGet(int *d, int n) { return n ? 101 : (*d = 0, OK); }
R cuDeviceGetUuid_v2(char *u, int d) { return memset(u, 7, 16), OK; }
R cuDeviceGetName(char *n, int l, int d) { return snprintf(n, l, "fake"), OK; }
R cuDeviceTotalMem_v2(size_t *b, int d) { return *b = 1ull << 34, OK; }
static int contexts, retained;
R cuCtxCreate_v2(void **c, unsigned f, int d) { return *c = (void *)(uintptr_t)(0x1000 + 0x100 * ++contexts), OK; }
R cuCtxDestroy_v2(void *c) { return OK; }
R cuCtxGetCurrent(void **c) { return *c = (void *)0x1000, OK; }
R cuCtxGetDevice(int *d) { return *d = 0, OK; }
R cuDevicePrimaryCtxRetain(void **c, int d) { return *c = (void *)0x2000, retained++, OK; }
R cuDevicePrimaryCtxRelease_v2(int d) { return retained > 0 ? (retained--, OK) : 201; }
R cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { return *f = 0, *a = retained > 0, OK; }

/* Ends the calling thread, as a cancellation inside the driver does: its frames are unwound, the caller's too. */
R cuStreamSynchronize(void *stream) { pthread_exit(stream); }

/* --- captures: a query by a thread whose mode is not relaxed breaks a capture that is under way */
struct stream { int capturing; };
static int captures, broken;
static __thread int mode;
R cuThreadExchangeStreamCaptureMode(int *m) { int old = mode; return mode = *m, *m = old, OK; }
static void query(void) { if (captures && mode != 2) broken++; }
R cuStreamBeginCapture_v2(struct stream *s, int m) { return s->capturing++, captures++, OK; }
R cuStreamEndCapture(struct stream *s, void **g) {
    if (!s->capturing) return UNMATCHED;
    return s->capturing = 0, captures--, *g = NULL, OK;
}
R cuStreamIsCapturing(struct stream *s, int *status) { return *status = s && s->capturing, OK; }
R cuStreamIsCapturing_ptsz(struct stream *s, int *status) { return cuStreamIsCapturing(s, status); }
int fake_broken(void) { return broken; }

/* --- code: handles are slots that the next module gets again */
struct function { int used, kernel; char name[2000]; struct function *twin; };
static struct function slots[512];
static struct function *slot(const char *name, int kernel) {
    for (unsigned i = 0; i < 512; i++)
        if (!slots[i].used) {
            slots[i].used = 1, slots[i].kernel = kernel, slots[i].twin = NULL;
            snprintf(slots[i].name, sizeof slots[i].name, "%s", name);
            return &slots[i];
        }
    abort();
}
R cuModuleLoadData(void **m, const void *image) { return *m = malloc(16), OK; }
R cuModuleUnload(void *m) { return memset(slots, 0, sizeof slots), free(m), OK; }
R cuModuleGetFunction(struct function **f, void *m, const char *name) { return *f = slot(name, 0), OK; }
R cuLibraryLoadData(void **l, const void *c, void *a, void *b, unsigned n, void *d, void *e, unsigned k) {
    return *l = malloc(16), OK;
}
R cuLibraryUnload(void *l) { return memset(slots, 0, sizeof slots), free(l), OK; }
R cuLibraryGetKernel(struct function **k, void *l, const char *name) { return *k = slot(name, 1), OK; }
R cuKernelGetFunction(struct function **f, struct function *k) {
    if (!k->kernel) return HANDLE;
    if (!k->twin) k->twin = slot(k->name, 0);
    return *f = k->twin, OK;
}
R cuFuncGetModule(void **m, struct function *f) { return *m = (void *)0xabc0, OK; }
#ifndef OLD
R cuFuncGetName(const char **n, struct function *f) { return query(), f->kernel ? HANDLE : (*n = f->name, OK); }
R cuKernelGetName(const char **n, struct function *k) { return query(), k->kernel ? (*n = k->name, OK) : HANDLE; }
#endif
R cuFuncGetAttribute(int *v, int a, struct function *f) {
    query();
    if (f->kernel) return HANDLE;
    return *v = a == 4 ? (int)strlen(f->name) : a == 1 ? 48 : a == 3 ? 16 : a == 0 ? 1024 : 0, OK;
}
R cuFuncSetBlockShape(struct function *f, int x, int y, int z) { return OK; }

/* --- launches: a kernel of the name "fails" does */
static R launch(struct function *f) { return !f ? HANDLE : !strcmp(f->name, "fails") ? 719 : OK; }
#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
static unsigned long sum;
#define SEE sum += gx + gy + gz + bx + by + bz + shared + (unsigned long)s + (unsigned long)p
unsigned long fake_sum(void) { return sum; }
R cuLaunchKernel(struct function *f, SHAPE, void *s, void **p, void **e) { return SEE + (unsigned long)e, launch(f); }
R cuLaunchKernel_ptsz(struct function *f, SHAPE, void *s, void **p, void **e) { return SEE, launch(f); }
R cuLaunchCooperativeKernel(struct function *f, SHAPE, void *s, void **p) { return SEE, launch(f); }
R cuLaunchCooperativeKernel_ptsz(struct function *f, SHAPE, void *s, void **p) { return SEE, launch(f); }
R cuLaunchKernelEx(void *c, struct function *f, void **p, void **e) { return launch(f); }
/* Calls another entry point through its exported name. */
R cuLaunchKernelEx_ptsz(void *c, struct function *f, void **p, void **e) {
    extern R fake_through_name(struct function *);
    return fake_through_name(f);
}
R cuLaunch(struct function *f) { return launch(f); }
R cuLaunchGrid(struct function *f, int w, int h) { return launch(f); }
R cuLaunchGridAsync(struct function *f, int w, int h, void *s) { return launch(f); }
struct params { struct function *f; unsigned gx, gy, gz, bx, by, bz, shared; void *p, *e, *kern, *ctx; };
struct many { struct function *f; unsigned gx, gy, gz, bx, by, bz, shared; void *stream; void **p; };
R cuLaunchCooperativeKernelMultiDevice(struct many *list, unsigned n, unsigned flags) { return OK; }
/* Not bound at link time: goes the way of every call by name. */
__attribute__((noinline)) R fake_through_name(struct function *f) {
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* --- graphs */
struct graph;
struct node { int kind; struct params params; struct graph *child; };
struct graph { unsigned count; struct node *nodes[64]; };
R cuGraphCreate(struct graph **g, unsigned f) { return *g = calloc(1, sizeof **g), OK; }
static struct node *add(struct graph *g, int kind) {
    struct node *n = calloc(1, sizeof *n);
    return n->kind = kind, g->nodes[g->count++] = n;
}
R cuGraphAddKernelNode_v2(struct node **n, struct graph *g, void *d, size_t k, const struct params *p) {
    return *n = add(g, 0), (*n)->params = *p, OK;
}
R cuGraphAddChildGraphNode(struct node **n, struct graph *g, void *d, size_t k, struct graph *child) {
    return *n = add(g, 4), (*n)->child = child, OK;
}
R cuGraphAddEmptyNode(struct node **n, struct graph *g, void *d, size_t k) { return *n = add(g, 5), OK; }
R cuGraphGetNodes(struct graph *g, struct node **out, size_t *count) {
    if (out) memcpy(out, g->nodes, sizeof *out * *count);
    return *count = g->count, OK;
}
R cuGraphNodeGetType(struct node *n, int *t) { return *t = n->kind, OK; }
R cuGraphKernelNodeGetParams_v2(struct node *n, struct params *p) { return *p = n->params, OK; }
R cuGraphChildGraphNodeGetGraph(struct node *n, struct graph **g) { return *g = n->child, OK; }
R cuGraphInstantiateWithFlags(void **e, struct graph *g, uint64_t f) { return *e = malloc(64), OK; }
R cuGraphLaunch(void *e, void *s) { return OK; }
R cuGraphExecDestroy(void *e) { return free(e), OK; }
R cuGraphExecUpdate_v2(void *e, struct graph *g, void *r) { return OK; }
R cuGraphExecKernelNodeSetParams_v2(void *e, struct node *n, const struct params *p) { return OK; }
R cuGraphExecNodeSetParams(void *e, struct node *n, void *p) { return OK; }
R cuGraphExecChildGraphNodeSetParams(void *e, struct node *n, struct graph *g) { return OK; }
R cuGraphNodeSetEnabled(void *e, struct node *n, unsigned on) { return OK; }
