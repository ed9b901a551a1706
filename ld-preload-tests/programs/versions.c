/* dlvsym keeps versions apart, and says no where there is none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#define MUST(c) do { if (!(c)) { fprintf(stderr, "%d: %s does not hold\n", __LINE__, #c); exit(43); } } while (0)
typedef void *copier(void *, const void *, size_t);
int main(void) {
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    MUST(libc);
    for (int i = 0; i < 2; i++) {
        void *handle = i ? RTLD_DEFAULT : libc;
        copier *new = (copier *)dlvsym(handle, "memcpy", "GLIBC_2.14");
        copier *old = (copier *)dlvsym(handle, "memcpy", "GLIBC_2.2.5");
        MUST(new && old);
        if (new == old) printf("same\n"); else printf("apart\n");
        char from[16] = "fifteen letters", to[16] = "";
        new(to, from, 16);
        MUST(!strcmp(to, from));
        old(to, "another text...", 16);
        MUST(!strcmp(to, "another text..."));
        dlerror();
        MUST(!dlvsym(handle, "memcpy", "GLIBC_9.99"));
        char *error = dlerror();
        MUST(error && strstr(error, "memcpy"));
    }
    MUST(dlvsym(libc, "dlsym", "GLIBC_2.34"));
    return 0;
}
