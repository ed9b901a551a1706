/* Products of cuSPARSE in captures of every mode: the handle made before the capture or in it, the workspace taken before it
 * or from the stream's pool in it. Prints what each call answered, what the graphs consist of and what is free after them.
 * usage: sparse_capture */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *runtime, *sparse, *driver;

static void *function(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}
#define RUNTIME(name, types, ...) ((int (*) types)function(runtime, name))(__VA_ARGS__)
#define SPARSE(name, types, ...) ((int (*) types)function(sparse, name))(__VA_ARGS__)
#define MUST(call) do { int code = (call); if (code) { printf("line %d: %d\n", __LINE__, code); exit(1); } } while (0)

enum { ROWS = 100, COLUMNS = 8, FLOATS = 0, INDICES = 2, BY_ROWS = 2, NON_BLOCKING = 1 };

static void *stream, *handle, *matrix, *factor, *product, *workspace;
static size_t bytes;
static const float one = 1;

static void *floats(size_t count) {
    void *at = NULL;
    MUST(RUNTIME("cudaMalloc", (void **, size_t), &at, count * sizeof(float)));
    return at;
}

static int multiply(void *with, void *at) {
    return SPARSE("cusparseSpMM", (void *, int, int, const void *, void *, void *, const void *, void *, int, int, void *), with,
                  0, 0, &one, matrix, factor, &one, product, FLOATS, 0, at);
}

static void describe(void *graph) {
    void *nodes[64];
    size_t count = 64;
    MUST(((int (*)(void *, void **, size_t *))function(driver, "cuGraphGetNodes"))(graph, nodes, &count));
    printf("  nodes:");
    for (size_t i = 0; i < count; i++) {
        int kind = -1;
        MUST(((int (*)(void *, int *))function(driver, "cuGraphNodeGetType"))(nodes[i], &kind));
        printf(" %d", kind);
    }
    puts("");
}

static void capture(int mode, int makes_handle, int takes_workspace) {
    void *graph = NULL, *exec = NULL, *own = NULL, *taken = workspace;
    int status = -1;
    MUST(RUNTIME("cudaStreamBeginCapture", (void *, int), stream, mode));
    printf("mode %d, handle %d, workspace %d\n", mode, makes_handle, takes_workspace);
    if (makes_handle) {
        printf("  handle: %d", SPARSE("cusparseCreate", (void **), &own));
        printf(" %d\n", SPARSE("cusparseSetStream", (void *, void *), own, stream));
    }
    if (takes_workspace)
        printf("  workspace: %d\n", RUNTIME("cudaMallocAsync", (void **, size_t, void *), &taken, bytes, stream));
    printf("  product: %d\n", multiply(makes_handle ? own : handle, taken));
    if (takes_workspace) printf("  given back: %d\n", RUNTIME("cudaFreeAsync", (void *, void *), taken, stream));
    MUST(RUNTIME("cudaStreamIsCapturing", (void *, int *), stream, &status));
    printf("  status: %d, end: %d\n", status, RUNTIME("cudaStreamEndCapture", (void *, void **), stream, &graph));
    if (graph) {
        describe(graph);
        printf("  made: %d\n", RUNTIME("cudaGraphInstantiate", (void **, void *, unsigned long long), &exec, graph, 0));
        for (int i = 0; i < 3; i++) printf("  launch: %d\n", RUNTIME("cudaGraphLaunch", (void *, void *), exec, stream));
        printf("  done: %d\n", RUNTIME("cudaStreamSynchronize", (void *), stream));
        RUNTIME("cudaGraphExecDestroy", (void *), exec);
        RUNTIME("cudaGraphDestroy", (void *), graph);
    }
    if (own) SPARSE("cusparseDestroy", (void *), own);
    size_t unused = 0, total = 0;
    printf("  last error: %d", RUNTIME("cudaGetLastError", (void)));
    MUST(RUNTIME("cudaMemGetInfo", (size_t *, size_t *), &unused, &total));
    printf(", free: %zu\n", unused);
}

int main(void) {
    runtime = dlopen("libcudart.so.12", RTLD_NOW);
    sparse = dlopen("libcusparse.so.12", RTLD_NOW);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    MUST(RUNTIME("cudaStreamCreateWithFlags", (void **, unsigned), &stream, NON_BLOCKING));
    MUST(SPARSE("cusparseCreate", (void **), &handle));
    MUST(SPARSE("cusparseSetStream", (void *, void *), handle, stream));
    MUST(SPARSE("cusparseCreateCsr", (void **, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int, int), &matrix,
                ROWS, ROWS, ROWS, floats(ROWS + 1), floats(ROWS), floats(ROWS), INDICES, INDICES, 0, FLOATS));
    MUST(SPARSE("cusparseCreateDnMat", (void **, int64_t, int64_t, int64_t, void *, int, int), &factor, ROWS, COLUMNS, COLUMNS,
                floats(ROWS * COLUMNS), FLOATS, BY_ROWS));
    MUST(SPARSE("cusparseCreateDnMat", (void **, int64_t, int64_t, int64_t, void *, int, int), &product, ROWS, COLUMNS, COLUMNS,
                floats(ROWS * COLUMNS), FLOATS, BY_ROWS));
    MUST(SPARSE("cusparseSpMM_bufferSize",
                (void *, int, int, const void *, void *, void *, const void *, void *, int, int, size_t *), handle, 0, 0, &one,
                matrix, factor, &one, product, FLOATS, 0, &bytes));
    workspace = floats(bytes / sizeof(float) + 1);
    printf("workspace of %zu bytes, product outside of a capture: %d\n", bytes, multiply(handle, workspace));
    for (int mode = 0; mode < 3; mode++)
        for (int how = 0; how < 4; how++) capture(mode, how & 1, how >> 1);
    return 0;
}
