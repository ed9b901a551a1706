/* A process that waits for a file before its first call of the driver, and trees of such processes.
 * usage: late GO ANSWER [overwrite]
 *     when GO is there, asks for memory, and renames what came of it to ANSWER; then waits until GO is gone again.
 *     `overwrite` first writes over arguments and environment, as setproctitle does.
 * usage: late tree SEED
 *     a random tree of processes: forks, sessions of their own, other programs, ends in any order, first calls at any time.
 *     Whatever does not hold is a line on standard error. */
#include "driver.h"
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;
static char segment[4096];
static uint64_t state;

static unsigned below(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state % n);
}

static void nap(unsigned ms) { usleep(ms * 1000); }

/* What setproctitle does: the environment moves to the heap, and a title goes over the memory of both. */
static void overwrite(int argc, char **argv) {
    char *begin = argv[0], *end = begin;
    for (int i = 0; i < argc; i++)
        if (argv[i] == end) end += strlen(end) + 1;
    int count = 0;
    for (char **entry = environ; *entry; entry++, count++)
        if (*entry == end) end += strlen(end) + 1;
    char **copy = calloc(count + 1, sizeof *copy);
    MUST(copy);
    for (int i = 0; i < count; i++) copy[i] = strdup(environ[i]);
    environ = copy;
    memset(begin, 0, (size_t)(end - begin));
    snprintf(begin, (size_t)(end - begin), "titled");
}

/* "free TOTAL" of the job's limit of 64 MiB, or what is wrong. */
static const char *ask(char *text, size_t room) {
    size_t available = 0, total = 0;
    CUdeviceptr block;
    use_device(0);
    OK(CU(cuMemGetInfo_v2)(&available, &total));
    /* Of the job's processes several may hold a little at once. */
    CUresult small = CU(cuMemAlloc_v2)(&block, 64 << 10);
    if (small == CUDA_SUCCESS) OK(CU(cuMemFree_v2)(block));
    CUresult large = CU(cuMemAlloc_v2)(&block, 65 << 20);
    snprintf(text, room, "%s %s %zu", small == CUDA_SUCCESS ? "granted" : "refused",
             large == CUDA_ERROR_OUT_OF_MEMORY ? "refused" : "granted", total >> 20);
    return text;
}

static void check(const char *when) {
    char text[128];
    if (access(segment, F_OK)) fprintf(stderr, "%s: the segment is gone\n", when);
    if (strcmp(ask(text, sizeof text), "granted refused 64")) fprintf(stderr, "%s: %s\n", when, text);
}

static void branch(int depth, int argc, char **argv);

/* A child, in one of the ways that there are. */
static void plant(int depth, int argc, char **argv) {
    unsigned way = below(4), seed = below(1u << 30) + 1;
    pid_t child = fork();
    if (child) {
        if (child > 0 && way == 0) waitpid(child, NULL, 0);
        if (child > 0 && way == 2) waitpid(child, NULL, 0);
        return;
    }
    state = seed;
    if (way == 1) setsid();
    if (way == 2) {
        /* A daemon: its parent ends at once. */
        setsid();
        if (fork()) _exit(0);
    }
    if (way == 3) {
        char number[16], level[16];
        snprintf(number, sizeof number, "%u", seed);
        snprintf(level, sizeof level, "%d", depth);
        execl("/proc/self/exe", "late", "tree", number, level, (char *)NULL);
        _exit(44);
    }
    branch(depth, argc, argv);
    _exit(0);
}

static void branch(int depth, int argc, char **argv) {
    int called = 0;
    if (below(8) == 0) overwrite(argc, argv), argc = 0;
    for (int children = depth < 3 ? (int)below(3) + (depth == 0) : 0; children > 0; children--) {
        if (below(4) == 0) nap(below(8));
        plant(depth + 1, argc, argv);
    }
    nap(below(40));
    if (below(3) == 0) check("in the middle"), called = 1;
    if (!called && below(2) == 0) {
        nap(below(40));
        check("at the end");
    }
    if (access(segment, F_OK)) fprintf(stderr, "before the end: the segment is gone\n");
}

int main(int argc, char **argv) {
    const char *path = getenv("RADRM_SEGMENT");
    MUST(path && strlen(path) < sizeof segment);
    strcpy(segment, path);
    MUST(argc >= 3);
    if (!strcmp(argv[1], "tree")) {
        state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
        branch(argc > 3 ? atoi(argv[3]) : 0, argc, argv);
        return 0;
    }
    char go[4096], answer[4096], fresh[4100], text[128];
    snprintf(go, sizeof go, "%s", argv[1]);
    snprintf(answer, sizeof answer, "%s", argv[2]);
    if (argc > 3) overwrite(argc, argv);
    while (access(go, F_OK)) nap(5);
    snprintf(fresh, sizeof fresh, "%s.new", answer);
    FILE *file = fopen(fresh, "w");
    MUST(file);
    fputs(ask(text, sizeof text), file);
    fclose(file);
    MUST(rename(fresh, answer) == 0);
    while (!access(go, F_OK)) nap(5);
    return 0;
}
