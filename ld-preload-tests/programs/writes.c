/* Changes a file in one way. Usage: writes HOW FILE [OTHER] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            perror(words[1]); \
            return 1; \
        } \
    } while (0)

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    const char *how = words[1], *file = words[2], *other = count > 3 ? words[3] : "";
    if (!strcmp(how, "truncate-on-open")) {
        CHECK(open(file, O_WRONLY | O_TRUNC) >= 0);
    } else if (!strcmp(how, "ftruncate")) {
        CHECK(!ftruncate(open(file, O_RDWR), 3));
    } else if (!strcmp(how, "map")) {
        char *at = mmap(0, 4, PROT_READ | PROT_WRITE, MAP_SHARED, open(file, O_RDWR), 0);
        CHECK(at != MAP_FAILED);
        memcpy(at, "mmap", 4);
        CHECK(!msync(at, 4, MS_SYNC));
    } else if (!strcmp(how, "exchange")) {
        CHECK(!syscall(SYS_renameat2, AT_FDCWD, file, AT_FDCWD, other, 2 /* RENAME_EXCHANGE */));
    } else if (!strcmp(how, "fchmod")) {
        CHECK(!fchmod(open(file, O_RDONLY), 0600));
    } else if (!strcmp(how, "link")) {
        CHECK(!link(file, other));
    } else if (!strcmp(how, "fifo")) {
        CHECK(!mkfifo(file, 0600));
    } else if (!strcmp(how, "punch")) {
        CHECK(!fallocate(open(file, O_RDWR), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4));
    } else if (!strcmp(how, "send")) {
        CHECK(sendfile(open(file, O_WRONLY), open(other, O_RDONLY), 0, 4) > 0);
    } else {
        return 2;
    }
    return 0;
}
