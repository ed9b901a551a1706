/* Ends in the way that its argument names, with a block held and work in handlers and destructors
 * that run late. usage: ends return|exit|_exit|quick_exit|abort|pthread_exit|signal|thread_exits */
#include "driver.h"
#include <pthread.h>
#include <signal.h>
static CUdeviceptr late;
static void at_exit(void) {
    /* allocation after main: the driver may say no, but nothing may crash */
    CU(cuMemAlloc_v2)(&late, 3 << 20);
}
__attribute__((destructor)) static void destructor(void) {
    if (late) CU(cuMemFree_v2)(late);
}
static void *end_here(void *arg) {
    exit(7);
}
static void *later(void *arg) {
    usleep(20000);
    CUdeviceptr block;
    CU(cuMemAlloc_v2)(&block, 1 << 20);
    exit(7);
}
int main(int argc, char **argv) {
    CUdeviceptr block;
    pthread_t id;
    const char *way = argv[1];
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&block, 5 << 20));
    atexit(at_exit);
    if (!strcmp(way, "return")) return 7;
    if (!strcmp(way, "exit")) exit(7);
    if (!strcmp(way, "_exit")) _exit(7);
    if (!strcmp(way, "quick_exit")) quick_exit(7);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "signal")) raise(SIGTERM);
    if (!strcmp(way, "thread_exits")) {
        pthread_create(&id, NULL, end_here, NULL);
        pause();
    }
    if (!strcmp(way, "pthread_exit")) {
        pthread_create(&id, NULL, later, NULL);
        pthread_exit(NULL);
    }
    return 46;
}
