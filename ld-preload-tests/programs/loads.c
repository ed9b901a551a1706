/* Work of the host, without a GPU.
 * usage: loads loader FILE BYTES ROUNDS WAIT_US SECONDS
 *                          steps of a data loader: reads BYTES of FILE, goes over them ROUNDS times, then waits, as for a GPU
 *        loads cpu SECONDS     computes all the time
 *        loads memory SECONDS  copies through memory all the time
 * Prints steps, bytes through memory, CPU seconds and seconds. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double clock_of(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static volatile uint64_t sink;

static uint64_t over(const unsigned char *bytes, size_t count, long rounds) {
    uint64_t sum = 14695981039346656037u;
    for (long round = 0; round < rounds; round++)
        for (size_t at = 0; at < count; at += 8) {
            uint64_t word;
            memcpy(&word, bytes + at, 8);
            sum = (sum ^ word) * 1099511628211u;
        }
    return sum;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    double seconds = atof(argv[argc - 1]), bytes = 0;
    long steps = 0;
    double begun = clock_of(CLOCK_MONOTONIC), cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    if (!strcmp(argv[1], "loader") && argc == 7) {
        size_t count = (size_t)atol(argv[3]);
        long rounds = atol(argv[4]), wait = atol(argv[5]);
        unsigned char *buffer = malloc(count);
        int file = open(argv[2], O_RDONLY);
        if (file < 0 || !buffer) return 3;
        while (clock_of(CLOCK_MONOTONIC) - begun < seconds) {
            if (pread(file, buffer, count, 0) != (ssize_t)count) return 4;
            sink += over(buffer, count, rounds);
            struct timespec t = {wait / 1000000, wait % 1000000 * 1000};
            while (nanosleep(&t, &t) && errno == EINTR) {
            }
            steps++;
            bytes += 3.0 * (double)count; /* read, written, read again */
        }
    } else if (!strcmp(argv[1], "cpu")) {
        static unsigned char few[4096];
        while (clock_of(CLOCK_MONOTONIC) - begun < seconds) sink += over(few, sizeof few, 100), steps++;
    } else if (!strcmp(argv[1], "memory")) {
        size_t count = (size_t)256 << 20;
        unsigned char *one = malloc(count), *other = malloc(count);
        if (!one || !other) return 3;
        memset(one, 1, count), memset(other, 2, count);
        cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID), begun = clock_of(CLOCK_MONOTONIC);
        while (clock_of(CLOCK_MONOTONIC) - begun < seconds)
            for (size_t at = 0; at < count; at += (size_t)16 << 20, bytes += 2.0 * (16 << 20))
                memcpy(other + at, one + at, (size_t)16 << 20), sink += other[at];
        steps = (long)(bytes / count);
    } else {
        return 2;
    }
    printf("%ld %.0f %.6f %.6f\n", steps, bytes, clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu,
           clock_of(CLOCK_MONOTONIC) - begun);
    return 0;
}
