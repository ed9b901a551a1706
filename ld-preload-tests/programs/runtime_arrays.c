// Arrays, mipmapped arrays, textures and surfaces of the CUDA runtime, which is loaded as the argument names it: what is
// copied to them comes back, and descriptions are given back as they were. Prints "good", or the line of the first fault.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct channels { int x, y, z, w, kind; };
struct extent { size_t width, height, depth; };
struct position { size_t x, y, z; };
struct pitched { void *at; size_t pitch, width, height; };
struct box {
    void *from_array; struct position from_at; struct pitched from;
    void *to_array; struct position to_at; struct pitched to;
    struct extent extent; int kind;
};
struct peer_box {
    void *from_array; struct position from_at; struct pitched from; int from_device;
    void *to_array; struct position to_at; struct pitched to; int to_device;
    struct extent extent;
};
// As large as CUDA 13 has them.
struct resource {
    int kind;
    union { void *array; struct { void *at; struct channels channels; size_t width, height, pitch; } rows; int all[32]; } is;
    unsigned flags;
};
struct sampling {
    int address[3], filter, read, srgb; float border[4]; int normalized; unsigned anisotropy;
    int level_filter; float bias, low, high; int no_trilinear, seamless;
};

static void *library;
static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (!found) printf("no %s\n", name);
    return found;
}
#define CALL(name, types, ...) ((int (*) types)function(name))(__VA_ARGS__)
#define IS(condition) do { if (!(condition)) { printf("line %d\n", __LINE__); return 1; } } while (0)

enum { WIDTH = 20, HEIGHT = 6, DEPTH = 3, ELEMENT = 8, ROW = WIDTH * ELEMENT, SIZE = ROW * HEIGHT * DEPTH, BY_ADDRESS = 4 };

static uint8_t source[SIZE], back[SIZE], other[SIZE];

static size_t free_bytes(void) {
    size_t now = 0, total = 0;
    CALL("cudaMemGetInfo", (size_t *, size_t *), &now, &total);
    return now;
}

static int planes(void) {
    struct channels two_floats = { 32, 32, 0, 0, 2 }, told = { 0 };
    struct extent extent = { WIDTH, HEIGHT, 0 }, known = { 0 };
    unsigned flags = 9;
    void *array = 0, *second = 0;
    size_t free_before = free_bytes();
    IS(!CALL("cudaMallocArray", (void **, struct channels *, size_t, size_t, unsigned), &array, &two_floats, WIDTH, HEIGHT, 0));
    IS(free_bytes() < free_before);
    IS(!CALL("cudaMallocArray", (void **, struct channels *, size_t, size_t, unsigned), &second, &two_floats, WIDTH, HEIGHT, 0));
    IS(!CALL("cudaArrayGetInfo", (struct channels *, struct extent *, unsigned *, void *), &told, &known, &flags, array));
    IS(!memcmp(&told, &two_floats, sizeof told) && !memcmp(&known, &extent, sizeof known) && !flags);

    // Rows to the array, from one array to another with an offset, and back.
    IS(!CALL("cudaMemcpy2DToArray", (void *, size_t, size_t, void *, size_t, size_t, size_t, int), array, 0, 0, source, ROW, ROW, HEIGHT, 1));
    IS(!CALL("cudaMemcpy2DArrayToArray", (void *, size_t, size_t, void *, size_t, size_t, size_t, size_t, int), second, 16, 1, array, 8, 2, 24, 2, 3));
    IS(!CALL("cudaMemcpy2DFromArray", (void *, size_t, void *, size_t, size_t, size_t, size_t, int), back, ROW, array, 0, 0, ROW, HEIGHT, 2));
    IS(!memcmp(back, source, ROW * HEIGHT));
    IS(!CALL("cudaMemcpy2DFromArrayAsync", (void *, size_t, void *, size_t, size_t, size_t, size_t, int, void *), back, 24, second, 16, 1, 24, 2, 2, 0));
    IS(!memcmp(back, source + 2 * ROW + 8, 24) && !memcmp(back + 24, source + 3 * ROW + 8, 24));
    // A run of bytes from the middle of a row on.
    IS(!CALL("cudaMemcpyToArray", (void *, size_t, size_t, void *, size_t, int), second, 40, 0, source, 3 * ROW, 1));
    IS(!CALL("cudaMemcpyFromArray", (void *, void *, size_t, size_t, size_t, int), back, second, 40, 0, 3 * ROW, 2));
    IS(!memcmp(back, source, 3 * ROW));
    IS(!CALL("cudaMemcpy2DFromArray", (void *, size_t, void *, size_t, size_t, size_t, size_t, int), back, ROW, second, 0, 1, ROW, 1, 2));
    IS(!memcmp(back, source + ROW - 40, ROW));
    // Outside of it.
    IS(CALL("cudaMemcpy2DToArray", (void *, size_t, size_t, void *, size_t, size_t, size_t, int), array, 8, 0, source, ROW, ROW, 1, 1) == 1);

    struct channels three = { 8, 8, 8, 0, 1 };
    void *none = 0;
    IS(CALL("cudaMallocArray", (void **, struct channels *, size_t, size_t, unsigned), &none, &three, 8, 8, 0) == 20);
    IS(!CALL("cudaFreeArray", (void *), array) && !CALL("cudaFreeArray", (void *), second) && !CALL("cudaFreeArray", (void *), 0));
    IS(free_bytes() == free_before);
    return 0;
}

static int boxes(void) {
    struct channels two_floats = { 32, 32, 0, 0, 2 };
    struct extent extent = { WIDTH, HEIGHT, DEPTH };
    void *array = 0, *memory = 0;
    IS(!CALL("cudaMalloc3DArray", (void **, struct channels *, struct extent, unsigned), &array, &two_floats, extent, 0));
    IS(!CALL("cudaMalloc", (void **, size_t), &memory, SIZE));
    struct box to = { .from = { source, ROW, WIDTH, HEIGHT }, .to_array = array, .extent = extent, .kind = 1 };
    IS(!CALL("cudaMemcpy3D", (struct box *), &to));
    // A part: beside an array positions and the width are elements, beside memory bytes.
    struct box part = { .from_array = array, .from_at = { 3, 2, 1 }, .to = { back, 64, 64, 2 }, .to_at = { 16, 0, 0 }, .extent = { 5, 2, 1 }, .kind = 2 };
    IS(!CALL("cudaMemcpy3DAsync", (struct box *, void *), &part, 0));
    for (int y = 0; y < 2; y++) IS(!memcmp(back + 64 * y + 16, source + ROW * HEIGHT + ROW * (2 + y) + 3 * ELEMENT, 5 * ELEMENT));
    struct peer_box peer = { .from_array = array, .to = { memory, ROW, WIDTH, HEIGHT }, .extent = extent };
    IS(!CALL("cudaMemcpy3DPeer", (struct peer_box *), &peer));
    IS(!CALL("cudaMemcpy", (void *, void *, size_t, int), other, memory, SIZE, 2));
    IS(!memcmp(other, source, SIZE));
    // Sets a box of two planes, and nothing beside it.
    struct pitched whole = { memory, ROW, ROW, HEIGHT };
    struct extent some = { 10, 2, 2 };
    IS(!CALL("cudaMemset3D", (struct pitched, int, struct extent), whole, 0x5a, some));
    IS(!CALL("cudaMemcpy", (void *, void *, size_t, int), other, memory, SIZE, 2));
    for (int z = 0; z < DEPTH; z++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < ROW; x++) {
                int at = (z * HEIGHT + y) * ROW + x;
                IS(other[at] == (z < 2 && y < 2 && x < 10 ? 0x5a : source[at]));
            }
    IS(!CALL("cudaFree", (void *), memory) && !CALL("cudaFreeArray", (void *), array));
    return 0;
}

static int objects(void) {
    struct channels bytes = { 8, 8, 8, 8, 1 };
    void *mipmap = 0, *level = 0, *memory = 0;
    struct extent extent = { 16, 16, 0 };
    IS(!CALL("cudaMallocMipmappedArray", (void **, struct channels *, struct extent, unsigned, unsigned), &mipmap, &bytes, extent, 3, 2));
    IS(!CALL("cudaGetMipmappedArrayLevel", (void **, void *, unsigned), &level, mipmap, 1));
    struct extent half = { 0 };
    IS(!CALL("cudaArrayGetInfo", (struct channels *, struct extent *, unsigned *, void *), 0, &half, 0, level));
    IS(half.width == 8 && half.height == 8);
    IS(CALL("cudaGetMipmappedArrayLevel", (void **, void *, unsigned), &level, mipmap, 3) == 1);

    unsigned long long texture = 0, surface = 0;
    struct resource resource = { .kind = 1, .is.array = mipmap }, of_texture;
    struct sampling sampling = { .address = { 1, 2, 3 }, .filter = 1, .read = 1, .border = { 1, 2, 3, 4 }, .normalized = 1, .anisotropy = 4,
                                 .level_filter = 1, .bias = 0.5f, .low = 1, .high = 2 }, of_sampling;
    IS(!CALL("cudaCreateTextureObject", (unsigned long long *, struct resource *, struct sampling *, void *), &texture, &resource, &sampling, 0));
    memset(&of_sampling, 9, sizeof of_sampling);
    IS(!CALL("cudaGetTextureObjectTextureDesc", (struct sampling *, unsigned long long), &of_sampling, texture));
    IS(!memcmp(&sampling, &of_sampling, sizeof sampling));
    IS(!CALL("cudaDestroyTextureObject", (unsigned long long), texture));
    IS(CALL("cudaGetTextureObjectTextureDesc", (struct sampling *, unsigned long long), &of_sampling, texture) == 1);

    struct resource plain = { .kind = 0, .is.array = level };
    IS(!CALL("cudaCreateSurfaceObject", (unsigned long long *, struct resource *), &surface, &plain));
    IS(!CALL("cudaDestroySurfaceObject", (unsigned long long), surface));

    IS(!CALL("cudaMalloc", (void **, size_t), &memory, 4096));
    struct resource rows = { .kind = 3, .is.rows = { memory, bytes, 16, 8, 512 } };
    IS(!CALL("cudaCreateTextureObject", (unsigned long long *, struct resource *, struct sampling *, void *), &texture, &rows, &sampling, 0));
    IS(!CALL("cudaGetTextureObjectResourceDesc", (struct resource *, unsigned long long), &of_texture, texture));
    IS(of_texture.kind == 3 && of_texture.is.rows.at == memory && !memcmp(&of_texture.is.rows.channels, &bytes, sizeof bytes));
    IS(of_texture.is.rows.width == 16 && of_texture.is.rows.height == 8 && of_texture.is.rows.pitch == 512);
    rows.is.rows.height = 9;
    IS(CALL("cudaCreateTextureObject", (unsigned long long *, struct resource *, struct sampling *, void *), &texture, &rows, &sampling, 0) == 1);
    IS(!CALL("cudaFreeMipmappedArray", (void *), mipmap) && !CALL("cudaFree", (void *), memory));
    return 0;
}

int main(int count, char **arguments) {
    library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : 0;
    if (!library) { printf("%s\n", count > 1 ? dlerror() : "which runtime?"); return 1; }
    for (int i = 0; i < SIZE; i++) source[i] = (uint8_t)(i * 7 + i / 251);
    if (planes() || boxes() || objects()) return 1;
    puts("good");
    return 0;
}
