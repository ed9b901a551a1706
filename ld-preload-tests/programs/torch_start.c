/* Stands in the place of Python: has the server of clients/torch_server.py, whose socket RADRM_TEST_TORCH_SERVER names,
   fork a process that runs the program, and ends as that does. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("RADRM_TEST_TORCH_SERVER");
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!path || strlen(path) >= sizeof address.sun_path) return 120;
    strcpy(address.sun_path, path);
    if (connect(server, (struct sockaddr *)&address, sizeof address)) return perror(path), 121;

    char byte = 0;
    struct iovec data = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *streams = CMSG_FIRSTHDR(&message);
    streams->cmsg_level = SOL_SOCKET;
    streams->cmsg_type = SCM_RIGHTS;
    streams->cmsg_len = CMSG_LEN(3 * sizeof(int));
    memcpy(CMSG_DATA(streams), (int[]){0, 1, 2}, 3 * sizeof(int));
    if (sendmsg(server, &message, MSG_NOSIGNAL) != 1) return perror("sendmsg"), 122;

    int status;
    if (recv(server, &status, sizeof status, MSG_WAITALL) != sizeof status) return 123;
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    /* The program has written its core, if any. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 124;
}
