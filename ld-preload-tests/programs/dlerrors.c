/* What dlerror says after dlsym, with the library's name in it. The output must be the same with
 * and without a shim. */
#include "driver.h"
static void tell(const char *what) {
    char *error = dlerror();
    printf("%s: %s\n", what, error ? error : "(null)");
}
int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    MUST(cuda);
    dlerror();
    MUST(!dlsym(cuda, "cuNoSuchFunction"));
    tell("no such driver function");
    tell("again");
    MUST(!dlsym(cuda, "no_such_function"));
    MUST(dlsym(cuda, "cuInit"));
    tell("a miss, then a hit");
    MUST(dlsym(cuda, "cuMemAlloc_v2"));
    tell("a hit");
    MUST(!dlsym(RTLD_DEFAULT, "no_such_function"));
    tell("default");
    MUST(!dlsym(RTLD_NEXT, "no_such_function"));
    tell("next");
    MUST(!dlopen("libnothing.so.9", RTLD_NOW));
    MUST(dlsym(cuda, "cuMemFree_v2"));
    tell("failed dlopen, then a hit");
    MUST(!dlvsym(cuda, "cuInit", "NO_SUCH_VERSION_1"));
    tell("no such version");
    return 0;
}
