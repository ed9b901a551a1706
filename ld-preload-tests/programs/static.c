/* A static program: no preload reaches it. It must run as it is. */
#include <stdio.h>
int main(void) {
    printf("static\n");
    return 3;
}
