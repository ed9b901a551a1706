/* What can happen while a call stack is read: other threads that begin and end, a handler of a signal that jumps away, a
 * thread that ends without a word. The argument says which. Prints what must hold at the end. */
#include "driver.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define SITE __attribute__((noinline, noclone))
#define HERE __asm__ volatile("" ::: "memory")
#define THREADS 256
#define EACH 40

/* Memory is read by this call, which the recorder finds here first: a signal that comes now interrupts the reading. */
static __thread volatile int interrupts;
static __thread int reads;
static ssize_t copied(long call, pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m) {
    if (interrupts && ++reads >= interrupts) {
        interrupts = reads = 0;
        raise(SIGUSR1);
    }
    return syscall(call, pid, to, n, from, m, 0ul);
}
ssize_t process_vm_readv(pid_t pid, const struct iovec *a, unsigned long n, const struct iovec *b, unsigned long m, unsigned long flags) {
    (void)flags;
    return copied(SYS_process_vm_readv, pid, a, n, b, m);
}
ssize_t process_vm_writev(pid_t pid, const struct iovec *a, unsigned long n, const struct iovec *b, unsigned long m, unsigned long flags) {
    (void)flags;
    return copied(SYS_process_vm_writev, pid, a, n, b, m);
}

static SITE CUdeviceptr deep(int left, size_t bytes) {
    CUdeviceptr memory;
    if (left) memory = deep(left - 1, bytes);
    else OK(CU(cuMemAlloc_v2)(&memory, bytes));
    HERE;
    return memory;
}

static pthread_barrier_t all;
static void *one_of_many(void *index) {
    size_t number = (size_t)index;
    use_device(0);
    pthread_barrier_wait(&all);
    CUdeviceptr kept = deep(number % 30, 512);
    for (int i = 0; i < EACH; i++) OK(CU(cuMemFree_v2)(deep((number + i) % 30, 512 * (1 + i))));
    (void)kept;
    return NULL;
}

/* All begin at once, and stacks of threads that have ended make room for those of others. */
static void many(void) {
    pthread_t threads[THREADS];
    MUST(!pthread_barrier_init(&all, NULL, THREADS));
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < THREADS; i++) MUST(!pthread_create(&threads[i], NULL, one_of_many, (void *)i));
        for (size_t i = 0; i < THREADS; i++) MUST(!pthread_join(threads[i], NULL));
    }
    printf("%d\n", 2 * THREADS * 512);
}

static __thread sigjmp_buf back;
static void jump(int number) {
    (void)number;
    siglongjmp(back, 1);
}

/* Jumps away from the first read, the second, and so on, and then asks again as if nothing had been. */
static SITE void jumps_away(void) {
    volatile size_t held = 0;
    for (volatile int at = 1; at <= 60; at++) {
        if (!sigsetjmp(back, 1)) {
            interrupts = at;
            reads = 0;
            deep(at % 7 + 5, 512 * 3);
        }
        interrupts = 0;
        held += 512 * 3;
        OK(CU(cuMemFree_v2)(deep(20, 512)));
    }
    printf("%zu\n", held);
}

static void end_here(int number) {
    (void)number;
    syscall(SYS_exit, 0);
}

static atomic_int gone;
static void *ends(void *index) {
    use_device(0);
    interrupts = (int)(size_t)index;
    reads = 0;
    /* The driver has no lock in hand where the stack is read. */
    deep(10, 512);
    interrupts = 0;
    atomic_fetch_add(&gone, 1);
    return NULL;
}

/* Threads that end in the middle of the reading, while others go on. The C library does not see them end: they are not joined. */
static void threads_end(void) {
    pthread_t one, threads[8];
    pthread_attr_t detached;
    MUST(!pthread_attr_init(&detached) && !pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    MUST(!pthread_barrier_init(&all, NULL, 8));
    for (size_t i = 0; i < 8; i++) MUST(!pthread_create(&threads[i], NULL, one_of_many, (void *)i));
    for (size_t i = 1; i <= 12; i++) MUST(!pthread_create(&one, &detached, ends, (void *)i));
    for (size_t i = 0; i < 8; i++) MUST(!pthread_join(threads[i], NULL));
    usleep(300000);
    OK(CU(cuMemFree_v2)(deep(3, 512)));
    printf("%d\n", 8 * 512);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    MUST(argc == 2);
    use_device(0);
    struct sigaction how = {0};
    if (!strcmp(argv[1], "many")) many();
    else if (!strcmp(argv[1], "jump")) {
        how.sa_handler = jump;
        MUST(!sigaction(SIGUSR1, &how, NULL));
        jumps_away();
    } else if (!strcmp(argv[1], "end")) {
        how.sa_handler = end_here;
        MUST(!sigaction(SIGUSR1, &how, NULL));
        threads_end();
    } else return 44;
    return 0;
}
