/* NVTX as programs have it: with GENUINE_NVTX from NVIDIA's headers, else the part of it that the tests use, written from
 * the public description of its interface for tools. */
#ifndef RADRM_NVTX_H
#define RADRM_NVTX_H
#ifdef GENUINE_NVTX
#include <nvtx3/nvToolsExt.h>
#else
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef struct nvtx_handle *nvtxDomainHandle_t, *nvtxStringHandle_t;
typedef uint64_t nvtxRangeId_t;
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    uint64_t payload;
    int32_t messageType;
    union {
        const char *ascii;
        const wchar_t *unicode;
        nvtxStringHandle_t registered;
    } message;
} nvtxEventAttributes_t;
enum { NVTX_VERSION = 3, NVTX_EVENT_ATTRIB_STRUCT_SIZE = sizeof(nvtxEventAttributes_t) };
enum { NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_MESSAGE_TYPE_UNICODE = 2, NVTX_MESSAGE_TYPE_REGISTERED = 3 };

typedef void (*nvtx_function)(void);
static nvtx_function nvtx_core[16], nvtx_core2[16];
static nvtx_function *nvtx_core_places[16], *nvtx_core2_places[16];
static int nvtx_is_on;

static int nvtx_module(int module, nvtx_function ***places, unsigned int *size) {
    if (module != 1 && module != 5) return 0;
    *places = module == 1 ? nvtx_core_places : nvtx_core2_places;
    *size = 16;
    return 1;
}
static struct {
    size_t size;
    int (*module)(int, nvtx_function ***, unsigned int *);
} nvtx_callbacks = {sizeof nvtx_callbacks, nvtx_module};
static const void *nvtx_table(uint32_t id) { return id == 1 ? &nvtx_callbacks : NULL; }

/* Called by the program before any other function: the headers do it with the first one. */
static __attribute__((constructor)) void nvtx_begin(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*begin)(const void *(*)(uint32_t)) = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    for (int i = 1; i < 16; i++) nvtx_core_places[i] = &nvtx_core[i], nvtx_core2_places[i] = &nvtx_core2[i];
    nvtx_is_on = begin && begin(nvtx_table);
}
#define NVTX(table, number, result, types, values, otherwise)                                      \
    do {                                                                                           \
        if (!nvtx_is_on || !table[number]) return otherwise;                                       \
        return ((result(*) types)table[number]) values;                                            \
    } while (0)
static void nvtxMarkA(const char *m) { NVTX(nvtx_core, 2, void, (const char *), (m), ); }
static nvtxRangeId_t nvtxRangeStartA(const char *m) { NVTX(nvtx_core, 5, uint64_t, (const char *), (m), 0); }
static void nvtxRangeEnd(nvtxRangeId_t id) { NVTX(nvtx_core, 7, void, (uint64_t), (id), ); }
static int nvtxRangePushA(const char *m) { NVTX(nvtx_core, 9, int, (const char *), (m), -2); }
static int nvtxRangePushW(const wchar_t *m) { NVTX(nvtx_core, 10, int, (const wchar_t *), (m), -2); }
static int nvtxRangePop(void) { NVTX(nvtx_core, 11, int, (void), (), -2); }
static int nvtxDomainRangePushEx(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a) {
    NVTX(nvtx_core2, 4, int, (nvtxDomainHandle_t, const nvtxEventAttributes_t *), (d, a), -2);
}
static int nvtxDomainRangePop(nvtxDomainHandle_t d) { NVTX(nvtx_core2, 5, int, (nvtxDomainHandle_t), (d), -2); }
static void nvtxDomainNameCategoryA(nvtxDomainHandle_t d, uint32_t c, const char *n) {
    NVTX(nvtx_core2, 8, void, (nvtxDomainHandle_t, uint32_t, const char *), (d, c, n), );
}
static nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t d, const char *s) {
    NVTX(nvtx_core2, 10, nvtxStringHandle_t, (nvtxDomainHandle_t, const char *), (d, s), NULL);
}
static nvtxDomainHandle_t nvtxDomainCreateA(const char *n) {
    NVTX(nvtx_core2, 12, nvtxDomainHandle_t, (const char *), (n), NULL);
}
#endif
#endif
