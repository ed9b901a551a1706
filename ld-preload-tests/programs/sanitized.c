/* Ends with 3, or by what a sanitizer reports of it. usage: sanitized [overflow] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OWN_OPTIONS
const char *__asan_default_options(void) { return "detect_leaks=0"; }
#endif

int main(int argc, char **argv) {
    volatile char *block = malloc(10);
    if (!block) return 4;
    memset((char *)block, 1, 10);
    block[8 + argc] = 2;
    printf("ended %d\n", argc > 1 && !strcmp(argv[1], "overflow"));
    free((char *)block);
    return 3;
}
