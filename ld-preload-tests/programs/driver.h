/* How a test program reaches the driver. CU(name) is the function `name`:
 * - compiled with ROUTE_LINKED: the linked symbol;
 * - else by ROUTE in the environment: "dlsym" (default), or "proc": cuGetProcAddress_v2. */
#ifndef RADRM_DRIVER_H
#define RADRM_DRIVER_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"

#ifdef ROUTE_LINKED
#define CU(name) name
#else
#define CU(name)                                                                                   \
    ({                                                                                             \
        static __typeof__(&name) p_##name;                                                         \
        if (!p_##name) p_##name = (__typeof__(&name))driver_symbol(#name);                         \
        p_##name;                                                                                  \
    })

static void *driver_library(void) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "dlopen: %s\n", dlerror());
        _exit(40);
    }
    return library;
}

static void *driver_symbol(const char *symbol) {
    const char *route = getenv("ROUTE");
    void *found = NULL;
    if (route && !strcmp(route, "proc")) {
        __typeof__(&cuGetProcAddress_v2) look_up =
            (__typeof__(&cuGetProcAddress_v2))dlsym(driver_library(), "cuGetProcAddress_v2");
        for (const struct api_row *row = api_rows; row->symbol; row++)
            if (!strcmp(row->symbol, symbol)) {
                look_up(row->base, &found, row->version, row->per_thread ? 2 : 0, NULL);
                break;
            }
    } else {
        found = dlsym(driver_library(), symbol);
    }
    if (!found) {
        fprintf(stderr, "no %s\n", symbol);
        _exit(41);
    }
    return found;
}
#endif

/* Ends the program with 42 if a call does not succeed. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "%s:%d: %s = %u\n", __FILE__, __LINE__, #call, result_);               \
            _exit(42);                                                                             \
        }                                                                                          \
    } while (0)

/* Ends the program with 43 if something is not as it should be. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            _exit(43);                                                                             \
        }                                                                                          \
    } while (0)

/* Tiny kernel, written by hand. */
#define KERNEL_PTX                                                                                 \
    ".version 6.0\n.target sm_50\n.address_size 64\n"                                              \
    ".visible .entry nothing(.param .u64 p)\n{\n\tret;\n}\n"                                       \
    ".visible .entry other(.param .u64 p)\n{\n\tret;\n}\n"

/* Makes the primary context of `device` current. */
static __attribute__((unused)) CUcontext use_device(int device) {
    CUdevice handle;
    CUcontext context;
    OK(CU(cuInit)(0));
    OK(CU(cuDeviceGet)(&handle, device));
    OK(CU(cuDevicePrimaryCtxRetain)(&context, handle));
    OK(CU(cuCtxSetCurrent)(context));
    return context;
}

static __attribute__((unused)) CUfunction load_kernel(const char *name) {
    CUmodule module;
    CUfunction function;
    OK(CU(cuModuleLoadData)(&module, KERNEL_PTX));
    OK(CU(cuModuleGetFunction)(&function, module, name));
    return function;
}

/* Tells the test where the program stands and waits until it is told to go on, or until no test is
 * there any more to tell it. */
static __attribute__((unused)) void pause_here(void) {
    char line[64];
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return;
}
#endif
