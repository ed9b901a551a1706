/* Makes a context and does nothing with it until it is killed. */
#include "driver.h"

int main(void) {
    use_device(0);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
