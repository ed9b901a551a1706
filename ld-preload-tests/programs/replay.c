/* Asks cuGetProcAddress for every line of a recorded list and tells which library and which symbol
 * came back.
 * usage: replay LIST v1|v2; a line of the list is: runtime, name, version, flags, symbol */
#include "driver.h"

int main(int argc, char **argv) {
    MUST(argc >= 3);
    FILE *list = fopen(argv[1], "r");
    MUST(list);
    int second = !strcmp(argv[2], "v2");
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    MUST(cuda);
    __typeof__(&cuGetProcAddress) first_form = (__typeof__(&cuGetProcAddress))dlsym(cuda, "cuGetProcAddress");
    __typeof__(&cuGetProcAddress_v2) second_form = (__typeof__(&cuGetProcAddress_v2))dlsym(cuda, "cuGetProcAddress_v2");
    MUST(first_form && second_form);
    OK(((__typeof__(&cuInit))dlsym(cuda, "cuInit"))(0));
    char line[512];
    MUST(fgets(line, sizeof line, list));
    while (fgets(line, sizeof line, list)) {
        char *rest = line, *cell[5];
        for (int i = 0; i < 5; i++) MUST((cell[i] = strsep(&rest, "\t\n")));
        const char *name = cell[1];
        int version = atoi(cell[2]);
        unsigned long long flags = strtoull(cell[3], NULL, 10);
        void *found = (void *)1;
        unsigned int status = 77;
        CUresult result = second ? second_form(name, &found, version, flags, (void *)&status)
                                 : first_form(name, &found, version, flags);
        Dl_info info = {0};
        if (result == CUDA_SUCCESS && found) dladdr(found, &info);
        const char *where = !info.dli_fname ? "-" : strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
        printf("%u %d %s %s\n", result, second ? (int)status : 0, where,
               info.dli_sname && info.dli_saddr == found ? info.dli_sname : "-");
    }
    return 0;
}
