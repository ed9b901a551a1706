/* Holds memory of a device and shows those who look at it odd objects.
 * usage: odd_objects pipe PATH       a mapped and removed file, at whose name a pipe lies
 *        odd_objects library PATH    this file is mapped
 *        odd_objects command MIB     a command line of this length, of pages that take no memory
 *        odd_objects variables MIB   an environment of this length */
#include "driver.h"
#include <fcntl.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static void *map(const char *path, int flags) {
    int file = open(path, flags, 0644);
    MUST(file >= 0);
    if (flags & O_CREAT) MUST(!ftruncate(file, 4096));
    void *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    MUST(at != MAP_FAILED);
    close(file);
    return at;
}

/* The words of /proc/self/stat, numbered as in proc(5). */
static void stat_words(unsigned long long words[60]) {
    char text[4096];
    FILE *file = fopen("/proc/self/stat", "r");
    MUST(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = 0;
    int number = 3;
    for (char *word = strtok(strrchr(text, ')') + 2, " "); word && number < 60; word = strtok(0, " "))
        words[number++] = strtoull(word, 0, 10);
    fclose(file);
}

static void lengthen(int of_command, size_t bytes) {
    char *text = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(text != MAP_FAILED);
    text[0] = 'x';
    unsigned long long words[60] = {0};
    stat_words(words);
    struct prctl_mm_map it = {
        .start_code = words[26], .end_code = words[27], .start_stack = words[28], .start_data = words[45],
        .end_data = words[46], .start_brk = words[47], .brk = (unsigned long)sbrk(0), .arg_start = words[48],
        .arg_end = words[49], .env_start = words[50], .env_end = words[51], .exe_fd = -1,
    };
    unsigned long long start = (unsigned long)text;
    if (of_command) it.arg_start = start, it.arg_end = start + bytes;
    else it.env_start = start, it.env_end = start + bytes;
    MUST(!prctl(PR_SET_MM, PR_SET_MM_MAP, &it, sizeof it, 0));
}

int main(int argc, char **argv) {
    if (argc != 3) return 44;
    CUdeviceptr block;
    char pipe[4096];
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&block, 50ul << 20));
    if (!strcmp(argv[1], "pipe")) {
        map(argv[2], O_RDWR | O_CREAT);
        unlink(argv[2]);
        snprintf(pipe, sizeof pipe, "%s (deleted)", argv[2]);
        MUST(!mkfifo(pipe, 0644));
        MUST(!mkfifo(argv[2], 0644));
    } else if (!strcmp(argv[1], "library")) {
        map(argv[2], O_RDONLY);
    } else {
        lengthen(!strcmp(argv[1], "command"), strtoul(argv[2], 0, 0) << 20);
    }
    pause_here();
    return 0;
}
