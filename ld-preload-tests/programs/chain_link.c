/* One link of a chain of libraries that each pass a call on to the next with RTLD_NEXT, twice over:
 * compiled with LINK=1, 10, 100. Also passes on a name that begins like the driver's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#ifndef LINK
#define LINK 1
#endif

int chain(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "chain");
    int (*again)(void) = (int (*)(void))dlsym(RTLD_NEXT, "chain");
    if (next != again) return -100000;
    return LINK + (next ? next() : 0);
}

int cuChain(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "cuChain");
    int (*again)(void) = (int (*)(void))dlsym(RTLD_NEXT, "cuChain");
    if (next != again) return -100000;
    return LINK + (next ? next() : 0);
}
