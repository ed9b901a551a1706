/* Calls through three links: each must find the next one, none twice. */
#include <stdio.h>
int chain(void);
int cuChain(void);
int main(void) {
    printf("%d %d\n", chain(), cuChain());
    return 0;
}
