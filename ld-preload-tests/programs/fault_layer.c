/* Runs COMMAND so that its system calls, and those of all that it starts, which change files below FOLDER can be made to fail. Another process
 * decides each of them; programs and libraries need no change, and see nothing of it where nothing is to fail. FOLDER/machine is left out: it
 * stands for GPUs.
 * CONTROL is a file of eight numbers of 64 bits, which may be changed at any time:
 *   kinds   which kinds of calls count: DATA, SYNC, CREATE, OPEN, MOVE, ATTRIBUTES, READ, added
 *   first   the first of them that fails, counted from 1
 *   last    the last one that fails
 *   error   the error with which they fail
 *   count   how many of them there were
 *   failed  how many failed
 * CONTROL.log has a line for each call that failed.
 * usage: fault_layer FOLDER CONTROL COMMAND... */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DATA = 1, SYNC = 2, CREATE = 4, OPEN = 8, MOVE = 16, ATTRIBUTES = 32, READ = 64 };
struct control {
    volatile uint64_t kinds, first, last, error, count, failed, unused[2];
};
/* Where a call names its file: `fd`, `at` (a folder's descriptor, -1: the working directory) and `path` are places of arguments, or none. */
#define NONE 9
static const struct call {
    long number;
    const char *name;
    int kind, fd, at, path;
} CALLS[] = {
    {SYS_write, "write", DATA, 0, NONE, NONE},
    {SYS_pwrite64, "pwrite64", DATA, 0, NONE, NONE},
    {SYS_writev, "writev", DATA, 0, NONE, NONE},
    {SYS_pwritev, "pwritev", DATA, 0, NONE, NONE},
    {SYS_ftruncate, "ftruncate", DATA, 0, NONE, NONE},
    {SYS_fallocate, "fallocate", DATA, 0, NONE, NONE},
    {SYS_fsync, "fsync", SYNC, 0, NONE, NONE},
    {SYS_fdatasync, "fdatasync", SYNC, 0, NONE, NONE},
    {SYS_openat, "openat", OPEN, NONE, 0, 1},
    {SYS_mkdirat, "mkdirat", CREATE, NONE, 0, 1},
    {SYS_linkat, "linkat", CREATE, NONE, 2, 3},
    {SYS_symlinkat, "symlinkat", CREATE, NONE, 1, 2},
    {SYS_renameat2, "renameat2", MOVE, NONE, 2, 3},
    {SYS_unlinkat, "unlinkat", MOVE, NONE, 0, 1},
    {SYS_fchmod, "fchmod", ATTRIBUTES, 0, NONE, NONE},
    {SYS_fchown, "fchown", ATTRIBUTES, 0, NONE, NONE},
    {SYS_fchmodat, "fchmodat", ATTRIBUTES, NONE, 0, 1},
    {SYS_fchownat, "fchownat", ATTRIBUTES, NONE, 0, 1},
#ifdef SYS_renameat
    {SYS_renameat, "renameat", MOVE, NONE, 2, 3},
#endif
#ifdef SYS_open
    {SYS_open, "open", OPEN, NONE, -1, 0},
    {SYS_mkdir, "mkdir", CREATE, NONE, -1, 0},
    {SYS_link, "link", CREATE, NONE, -1, 1},
    {SYS_symlink, "symlink", CREATE, NONE, -1, 1},
    {SYS_rename, "rename", MOVE, NONE, -1, 1},
    {SYS_unlink, "unlink", MOVE, NONE, -1, 0},
    {SYS_rmdir, "rmdir", MOVE, NONE, -1, 0},
    {SYS_chmod, "chmod", ATTRIBUTES, NONE, -1, 0},
    {SYS_chown, "chown", ATTRIBUTES, NONE, -1, 0},
#endif
};
enum { COUNT = sizeof CALLS / sizeof *CALLS };

static void die(const char *what) {
    fprintf(stderr, "fault_layer: %s: %s\n", what, strerror(errno));
    _exit(99);
}
static int link_of(char *path, const char *format, unsigned pid, int fd) {
    char link[64];
    snprintf(link, sizeof link, format, pid, fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}
/* The path that a call is about, as its process names it. */
static int path_of(char *path, const struct call *call, const struct seccomp_notif *notice) {
    const __u64 *arguments = notice->data.args;
    if (call->fd != NONE) return link_of(path, "/proc/%u/fd/%d", notice->pid, (int)arguments[call->fd]);
    char memory[64], named[PATH_MAX] = "";
    snprintf(memory, sizeof memory, "/proc/%u/mem", notice->pid);
    int file = open(memory, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = pread(file, named, sizeof named - 1, (off_t)arguments[call->path]);
    close(file);
    if (length <= 0) return 0;
    if (*named == '/') return strcpy(path, named), 1;
    int folder = call->at < 0 ? AT_FDCWD : (int)arguments[call->at];
    int found = folder == AT_FDCWD ? link_of(path, "/proc/%u/cwd", notice->pid, 0)
                                   : link_of(path, "/proc/%u/fd/%d", notice->pid, folder);
    size_t end = strlen(path);
    return found && snprintf(path + end, PATH_MAX - end, "/%s", named) < (int)(PATH_MAX - end);
}
/* A path without links and `..`, but for the last name, which need not be there. */
static void resolve(char *path) {
    char folder[PATH_MAX], *name = strrchr(path, '/');
    if (!name || name == path) return;
    *name = 0;
    int known = realpath(path, folder) != NULL;
    *name = '/';
    if (!known || strlen(folder) + strlen(name) >= PATH_MAX) return;
    memmove(path + strlen(folder), name, strlen(name) + 1);
    memcpy(path, folder, strlen(folder));
}
static int kind_of(const struct call *call, const struct seccomp_notif *notice, const char *path) {
    if (call->kind != OPEN) return call->kind;
    int flags = (int)notice->data.args[call->path + 1];
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC))) return READ;
    int makes = (flags & O_TMPFILE) == O_TMPFILE || ((flags & O_CREAT) && access(path, F_OK));
    return makes ? CREATE : OPEN;
}
/* The error that a call gets; 0: none. */
static int decide(struct control *control, FILE *log, const char *folder, const struct seccomp_notif *notice) {
    static char path[PATH_MAX];
    const struct call *call = CALLS;
    while (call < CALLS + COUNT && call->number != notice->data.nr) call++;
    size_t length = strlen(folder);
    if (call == CALLS + COUNT || !path_of(path, call, notice)) return 0;
    if (call->fd == NONE) resolve(path);
    if (strncmp(path, folder, length) ||
        (path[length] && path[length] != '/') || !strcmp(path + length, "/machine"))
        return 0;
    if (!(kind_of(call, notice, path) & control->kinds)) return 0;
    uint64_t number = ++control->count;
    if (number < control->first || number > control->last) return 0;
    control->failed++;
    fprintf(log, "%llu %s %s\n", (unsigned long long)number, call->name, path);
    fflush(log);
    return (int)control->error;
}
static void serve(int listener, const char *below, const char *name) {
    char path[PATH_MAX], folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", below);
    resolve(folder);
    snprintf(path, sizeof path, "%s.log", name);
    FILE *log = fopen(path, "ae");
    int file = open(name, O_RDWR | O_CLOEXEC);
    struct control *control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!log || file < 0 || control == MAP_FAILED) die(name);
    for (;;) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR) die("poll");
        /* All processes are gone. */
        if (wait.revents & (POLLHUP | POLLERR)) _exit(0);
        if (!(wait.revents & POLLIN)) continue;
        struct seccomp_notif notice = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notice)) continue;
        int error = decide(control, log, folder, &notice);
        struct seccomp_notif_resp answer = {.id = notice.id, .error = -error};
        if (!error) answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        /* A process that was interrupted asks again. */
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}
/* All of CALLS ask, but for files that are opened to be read and are not to count. */
static int filter(void) {
    struct sock_filter steps[4 + 2 * COUNT];
    unsigned short length = 0;
    steps[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int at = 0; at < COUNT; at++) {
        steps[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)CALLS[at].number, 0, 1);
        steps[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    }
    steps[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = length, .filter = steps};
    if (geteuid() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("prctl");
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0) die("seccomp");
    return listener;
}
static int pass(int socket, int sent) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (sent < 0) {
        if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) die("recvmsg");
        memcpy(&sent, CMSG_DATA(head), sizeof sent);
        return sent;
    }
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof sent)};
    memcpy(CMSG_DATA(head), &sent, sizeof sent);
    if (sendmsg(socket, &message, 0) != 1) die("sendmsg");
    return 0;
}
int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: fault_layer FOLDER CONTROL COMMAND...\n"), 2;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        /* Adopted by init, and in no group that is signalled. */
        if (fork()) _exit(0);
        setsid();
        close(pair[1]);
        for (int fd = 0; fd < 2; fd++) dup2(open("/dev/null", O_RDWR | O_CLOEXEC), fd);
        serve(pass(pair[0], -1), argv[1], argv[2]);
    }
    close(pair[0]);
    waitpid(child, NULL, 0);
    int listener = filter();
    pass(pair[1], listener);
    close(listener);
    execvp(argv[3], argv + 3);
    die(argv[3]);
}
