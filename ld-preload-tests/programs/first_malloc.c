/* An allocator that looks up the next malloc with dlsym in its own first malloc. dlsym itself may
 * allocate then, so a small store serves it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
static char store[65536];
static size_t used;
static int looking;
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void look(void) {
    looking = 1;
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    looking = 0;
    if (!next_malloc || !next_free || !next_calloc || !next_realloc) _exit(48);
}
static void *from_store(size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (used + bytes > sizeof store) _exit(49);
    used += bytes;
    return store + used - bytes;
}
static int stored(void *p) { return (char *)p >= store && (char *)p < store + sizeof store; }
void *malloc(size_t bytes) {
    if (looking) return from_store(bytes);
    if (!next_malloc) look();
    return next_malloc(bytes);
}
void *calloc(size_t n, size_t each) {
    if (looking) return from_store(n * each);
    if (!next_calloc) look();
    return next_calloc(n, each);
}
void *realloc(void *p, size_t bytes) {
    if (looking) return from_store(bytes);
    if (!next_realloc) look();
    if (stored(p)) {
        void *fresh = next_malloc(bytes);
        size_t room = store + sizeof store - (char *)p;
        memcpy(fresh, p, bytes < room ? bytes : room);
        return fresh;
    }
    return next_realloc(p, bytes);
}
void free(void *p) {
    if (!p || stored(p)) return;
    if (!next_free) look();
    next_free(p);
}
