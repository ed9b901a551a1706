/* Runs a program whose system calls of one kind fail, as under a filter of a container.
 * usage: deny madvise ADVICE | shared BYTES PROGRAM ARG...
 * `madvise` fails for an advice as on a kernel without it; `shared` fails for shared mappings of so many bytes. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
/* The lower half of an argument. */
#define ARGUMENT(i) offsetof(struct seccomp_data, args[i])
int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int shared = !strcmp(argv[1], "shared");
    unsigned value = strtoul(argv[2], NULL, 0);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, shared ? SYS_mmap : SYS_madvise, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(shared ? 1 : 2)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(3)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, shared ? MAP_SHARED : 0, 0, shared ? 1 : 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (shared ? EPERM : EINVAL)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("seccomp");
        return 3;
    }
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 4;
}
