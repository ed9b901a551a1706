/* Asks for every entry point, by dlsym and by cuGetProcAddress, and tells which are there. */
#include "driver.h"
int main(void) {
    void *cuda = driver_library();
    __typeof__(&cuGetProcAddress) look_up = (__typeof__(&cuGetProcAddress))dlsym(cuda, "cuGetProcAddress");
    OK(((__typeof__(&cuInit))dlsym(cuda, "cuInit"))(0));
    for (const struct api_row *row = api_rows; row->symbol; row++) {
        void *found = NULL;
        CUresult result = look_up ? look_up(row->base, &found, row->version, row->per_thread ? 2 : 0) : 0;
        printf("%s %d %u %d\n", row->symbol, !!dlsym(cuda, row->symbol), result, !!found);
    }
    return 0;
}
