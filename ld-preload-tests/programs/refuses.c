/* Runs a program for which the kernel refuses new namespaces and mounts, as in a container, and with `all` Landlock too.
   Usage: refuses namespaces|all PROGRAM... */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE(number, error) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))

int main(int count, char **words)
{
    int all = count > 2 && !strcmp(words[1], "all");
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_unshare, EPERM),
        REFUSE(SYS_mount, EPERM),
        REFUSE(SYS_setns, EPERM),
        REFUSE(all ? SYS_landlock_create_ruleset : -1, ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (count < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("refuses");
        return 125;
    }
    execvp(words[2], words + 2);
    perror(words[2]);
    return 127;
}
