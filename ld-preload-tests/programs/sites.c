/* Asks for memory in known lines. Of each request that stands at the end of the peak it prints "LINE BYTES". The argument
 * says which way is taken to the requests. */
#include "driver.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

#define SITE __attribute__((noinline, noclone))
/* Keeps a call from being the last thing that its function does. */
#define HERE __asm__ volatile("" ::: "memory")
#define PAGES(n) ((size_t)(n) << 21)

static CUdeviceptr take(size_t bytes, int line) {
    CUdeviceptr memory;
    OK(CU(cuMemAlloc_v2)(&memory, bytes));
    if (line) printf("%d %zu\n", line, bytes);
    return memory;
}

/* In one line, so that the line is that of the request. */
#define ASK(bytes) ({ CUdeviceptr m_; OK(CU(cuMemAlloc_v2)(&m_, bytes)); printf("%d %zu\n", __LINE__, (size_t)(bytes)); m_; })

static SITE CUdeviceptr weights(void) {
    CUdeviceptr memory = ASK(PAGES(50));
    HERE;
    return memory;
}

static SITE CUdeviceptr activations(int depth) {
    if (depth) {
        CUdeviceptr memory = activations(depth - 1);
        HERE;
        return memory;
    }
    CUdeviceptr memory = ASK(PAGES(3));
    HERE;
    return memory;
}

static SITE void kinds(void) {
    CUdeviceptr memory;
    size_t pitch;
    OK(CU(cuMemAllocPitch_v2)(&memory, &pitch, 1000, 64, 4)); printf("%d %zu\n", __LINE__, pitch * 64);
    OK(CU(cuMemAllocAsync)(&memory, PAGES(2), 0)); printf("%d %zu\n", __LINE__, PAGES(2));
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp how;
    memset(&how, 0, sizeof how);
    how.type = 1;
    how.location.type = 1;
    OK(CU(cuMemCreate)(&handle, PAGES(4), &how, 0)); printf("%d %zu\n", __LINE__, PAGES(4));
    HERE;
}

/* More than the peak has, given back, and less again: what counts is what was held in between. */
static SITE void peak(void) {
    CUdeviceptr kept = weights();
    CUdeviceptr lost = take(PAGES(9), 0);
    OK(CU(cuMemFree_v2)(lost));
    for (int i = 0; i < 5; i++) activations(i * 10);
    kinds();
    CUdeviceptr last = ASK(PAGES(20));
    OK(CU(cuMemFree_v2)(last));
    OK(CU(cuMemFree_v2)(kept));
    take(PAGES(1), 0);
    HERE;
}

static void *in_thread(void *index) {
    CUcontext context;
    OK(CU(cuCtxGetCurrent)(&context));
    use_device(0);
    for (int i = 0; i < 200; i++) {
        CUdeviceptr memory = take(PAGES(1), 0);
        OK(CU(cuMemFree_v2)(memory));
    }
    CUdeviceptr memory = take(PAGES(1) + 512 * (size_t)index, 0);
    (void)memory;
    HERE;
    return NULL;
}

static jmp_buf back;
static void on_signal(int number) {
    (void)number;
    take(PAGES(1), 0);
    siglongjmp(back, 1);
}

static ucontext_t home, away;
static SITE void aside(void) {
    take(PAGES(1), 0);
    swapcontext(&away, &home);
}

typedef CUresult (*asks)(CUdeviceptr *, size_t);

/* Code without tables: push rbx; call *rdx; pop rbx; ret. */
static SITE void made_code(void) {
    static const unsigned char code[] = {0x53, 0xff, 0xd2, 0x5b, 0xc3};
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    memcpy(at, code, sizeof code);
    CUdeviceptr memory;
    OK(((CUresult(*)(CUdeviceptr *, size_t, asks))at)(&memory, PAGES(1), CU(cuMemAlloc_v2)));
    HERE;
}

/* A stack whose frames lead nowhere: all of it is overwritten with what `seed` makes before the request. */
static void *garbage_stack;
static volatile unsigned long long seed = 1;
static SITE void over_garbage(void) {
    unsigned long long *top = (unsigned long long *)((char *)garbage_stack + (1 << 16)) - 1;
    /* Its own frame stays: 512 bytes above this variable, whose address the compiler must not reason about. */
    unsigned long long *volatile here = (unsigned long long *)&here;
    for (unsigned long long *at = top; at > here + 64; at--) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        *at = seed % 3 ? seed : (unsigned long long)garbage_stack + seed % (1 << 17);
    }
    take(PAGES(1), 0);
    swapcontext(&away, &home);
}

static void on_own_stack(void (*work)(void), void *stack) {
    MUST(!getcontext(&away));
    away.uc_stack.ss_sp = stack;
    away.uc_stack.ss_size = 1 << 16;
    away.uc_link = NULL;
    makecontext(&away, work, 0);
    MUST(!swapcontext(&home, &away));
}

/* A child with stacks of its own: forked before the driver is used, as it must be. */
static void in_child(void) {
    pid_t child = fork();
    if (!child) {
        use_device(0);
        weights();
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

static SITE void hard(void) {
    pthread_t threads[32];
    for (size_t i = 0; i < 32; i++) MUST(!pthread_create(&threads[i], NULL, in_thread, (void *)i));
    for (size_t i = 0; i < 32; i++) MUST(!pthread_join(threads[i], NULL));
    signal(SIGUSR1, on_signal);
    if (!sigsetjmp(back, 1)) raise(SIGUSR1);
    made_code();
    garbage_stack = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(garbage_stack != MAP_FAILED);
    on_own_stack(aside, garbage_stack);
    for (int i = 0; i < 500; i++) on_own_stack(over_garbage, garbage_stack);
    MUST(!munmap(garbage_stack, 1 << 16));
    /* A child of a process that used the driver cannot use it; it records no stack. */
    pid_t child = fork();
    if (!child) _exit(0);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    weights();
}

static SITE void refused(void) {
    CUdeviceptr memory;
    ASK(PAGES(1));
    for (int i = 0; i < 3; i++) MUST(CU(cuMemAlloc_v2)(&memory, (size_t)1 << 45) == CUDA_ERROR_OUT_OF_MEMORY);
    HERE;
}

int main(int argc, char **argv) {
    MUST(argc == 2);
    if (!strcmp(argv[1], "hard")) in_child();
    use_device(0);
    if (!strcmp(argv[1], "peak")) peak();
    else if (!strcmp(argv[1], "hard")) hard();
    else if (!strcmp(argv[1], "refused")) refused();
    else return 44;
    return 0;
}
