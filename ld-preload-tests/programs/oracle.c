/* Prints what a driver library and an NVML library answer, without anything that differs from run to run.
 * usage: oracle lookups|before|after|errors|nvml|nvml-after|ways NAMES; a line of NAMES begins with a name */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int call(long, long, long, long, long, long, long, long, long, long, long, long);
typedef int look_up(const char *, void **, int, uint64_t, int *);

static void *const UNTOUCHED = (void *)7;
static void *cuda, *nvml;

static void *open_library(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static const char *kind(void *found) { return found == UNTOUCHED ? "untouched" : found ? "found" : "null"; }

/* What cuGetProcAddress answers, and at which asked versions the answer changes. */
static void lookups(const char *name) {
    static const int versions[] = {2000,  3020,  4000,  6050,  7000,  7050,  8000,  9000,  10000,
                                   10020, 11000, 11020, 11040, 11060, 12000, 12010, 12020, 13000};
    look_up *second = (look_up *)dlsym(cuda, "cuGetProcAddress_v2");
    look_up *first = (look_up *)dlsym(cuda, "cuGetProcAddress");
    printf("%s dlsym %s\n", name, kind(dlsym(cuda, name)));
    for (int flags = 0; flags < 3; flags++)
        for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++) {
            void *found = UNTOUCHED;
            int status = -7, code = second(name, &found, versions[i], flags, &status);
            printf("%s v2 flags %d version %d: %d %d %s\n", name, flags, versions[i], code, status, kind(found));
        }
    void *found = UNTOUCHED;
    int code = first(name, &found, 12000, 0, NULL);
    printf("%s v1: %d %s\n", name, code, kind(found));
}

static int start(void *library, const char *name) {
    return ((call *)dlsym(library, name))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/* A call with nothing but zeros, in a process of its own. */
static void zeros(void *library, const char *name) {
    call *function = (call *)dlsym(library, name);
    if (!function || !strcmp(name, "nvmlErrorString")) return; /* this one returns a text */
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        close(2);
        alarm(10);
        printf("%s %d\n", name, function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) printf("%s signal %d\n", name, WTERMSIG(status));
}

static void errors(void) {
    int (*text)(int, const char **) = (__typeof__(text))dlsym(cuda, "cuGetErrorString");
    int (*name)(int, const char **) = (__typeof__(text))dlsym(cuda, "cuGetErrorName");
    for (int code = 0; code < 1100; code++) {
        const char *a = "untouched", *b = "untouched";
        int first = name(code, &a), second = text(code, &b);
        printf("%d: %d %s, %d %s\n", code, first, a ? a : "null", second, b ? b : "null");
    }
    const char *(*said)(int) = (__typeof__(said))dlsym(nvml, "nvmlErrorString");
    for (int code = 0; said && code < 40; code++) printf("nvml %d: %s\n", code, said(code));
}

static void *initialise(void *where) {
    *(int *)where = start(cuda, "cuInit");
    return NULL;
}

/* Threads, a child of fork, an export table, and the library closed and opened again. */
static void ways(void) {
    int codes[4], version = -1, count = -1;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, initialise, &codes[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("threads %d %d %d %d\n", codes[0], codes[1], codes[2], codes[3]);
    for (int again = 0; again < 2; again++) {
        int a = ((int (*)(int *))dlsym(cuda, "cuDriverGetVersion"))(&version);
        int b = ((int (*)(int *))dlsym(cuda, "cuDeviceGetCount"))(&count);
        const void *table = UNTOUCHED;
        unsigned char id[16] = {0};
        int c = ((int (*)(const void **, void *))dlsym(cuda, "cuGetExportTable"))(&table, id);
        printf("%d: version %d %d, count %d %d, table %d %s\n", again, a, version, b, count, c, kind((void *)table));
        fflush(stdout);
        if (!fork()) {
            initialise(codes);
            printf("%d child: %d %d\n", again, codes[0], ((int (*)(int *))dlsym(cuda, "cuDeviceGetCount"))(&count));
            fflush(stdout);
            _exit(0);
        }
        wait(NULL);
        printf("%d close: %d\n", again, dlclose(cuda));
        cuda = open_library("libcuda.so.1");
        initialise(codes);
        printf("%d opened again: %d\n", again, codes[0]);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    cuda = open_library("libcuda.so.1");
    nvml = open_library("libnvidia-ml.so.1");
    const char *what = argv[1];
    if (!strcmp(what, "errors")) return errors(), 0;
    if (!strcmp(what, "ways")) return ways(), 0;
    FILE *names = fopen(argv[2], "r");
    if (!names) return perror(argv[2]), 2;
    if (!strcmp(what, "after")) printf("start: %d\n", start(cuda, "cuInit"));
    if (!strcmp(what, "nvml-after")) printf("start: %d\n", start(nvml, "nvmlInit_v2"));
    char line[4096];
    while (fgets(line, sizeof line, names)) {
        line[strcspn(line, "\t\n ")] = 0;
        int driver = !strncmp(line, "cu", 2) && strncmp(line, "cuda", 4), library = !strncmp(line, "nvml", 4);
        if (!strcmp(what, "lookups") && !library) lookups(line);
        if ((!strcmp(what, "before") || !strcmp(what, "after")) && driver) zeros(cuda, line);
        if (!strncmp(what, "nvml", 4) && library) zeros(nvml, line);
    }
    return 0;
}
