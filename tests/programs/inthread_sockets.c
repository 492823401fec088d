// Calls about sockets and waiting, with messages, names and control data out of memory.
#include "inthread_kit.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>

static void control_data(void) {
    int pair[2], passed;
    SETUP(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    char *byte = put("z", 1), *into = place(8);
    struct iovec *out_of = put(&(struct iovec){byte, 1}, sizeof *out_of);
    struct iovec *to = put(&(struct iovec){into, 8}, sizeof *to);
    char *control = place(CMSG_SPACE(4)), *received = place(256);
    struct msghdr *message = place(sizeof *message), *got = place(sizeof *got);
    for (int i = 0; i < 3; i++) {
        memset(control, 0, CMSG_SPACE(4));
        *message = (struct msghdr){
            .msg_iov = out_of, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(4)};
        *got = (struct msghdr){
            .msg_iov = to, .msg_iovlen = 1, .msg_control = received, .msg_controllen = 256};
        struct cmsghdr *head = CMSG_FIRSTHDR(message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(4);
        passed = open("/dev/null", O_RDONLY);
        SETUP(passed >= 0);
        memcpy(CMSG_DATA(head), &passed, 4);
        out();
        RIGHT(sendmsg(pair[0], message, 0) == 1);
        out();
        RIGHT(recvmsg(pair[1], got, 0) == 1 && into[0] == 'z');
        head = CMSG_FIRSTHDR(got);
        RIGHT(head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(4));
        int arrived;
        memcpy(&arrived, CMSG_DATA(head), 4);
        RIGHT(arrived != passed && fcntl(arrived, F_GETFD) >= 0);
        close(arrived), close(passed);
    }
    close(pair[0]), close(pair[1]);
}

static void many_messages(void) {
    enum { MANY = 64 };
    int pair[2];
    SETUP(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    struct mmsghdr *all = (struct mmsghdr *)(area + 4 * PAGE - 200);
    struct iovec *vectors = (struct iovec *)(area + 20 * PAGE - 8);
    memset(all, 0, MANY * sizeof *all);
    char received[10];
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < MANY; i++) {
            char *byte = area + (30 + i) * PAGE + PAGE - 4;
            memcpy(byte, "12345678", 8);
            vectors[i] = (struct iovec){byte, 8};
            all[i].msg_hdr = (struct msghdr){.msg_iov = vectors + i, .msg_iovlen = 1};
        }
        out();
        int sent = sendmmsg(pair[0], all, MANY, MSG_DONTWAIT), taken_in = 0;
        RIGHT(sent >= 8);
        out();
        if (turn == 0) {
            for (int i = 0; i < sent; i++)
                RIGHT(recv(pair[1], received, 10, 0) == 8 && memcmp(received, "12345678", 8) == 0);
            continue;
        }
        memset(area + 30 * PAGE, 0, MANY * PAGE);
        struct timespec *time = put(&(struct timespec){1, 0}, sizeof *time);
        out();
        while (taken_in < sent) {
            int got = recvmmsg(pair[1], all + taken_in, MANY - taken_in, MSG_WAITFORONE, time);
            RIGHT(got > 0);
            taken_in += got;
        }
        for (int i = 0; i < sent; i++)
            RIGHT(all[i].msg_len == 8 && memcmp(vectors[i].iov_base, "12345678", 8) == 0);
    }
    close(pair[0]), close(pair[1]);
}

static void names(void) {
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    SETUP(server >= 0 && client >= 0);
    struct sockaddr_in loop = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in *name = put(&loop, sizeof loop), *other = place(sizeof *other);
    socklen_t *len = put(&(socklen_t){sizeof loop}, 4), *other_len = put(&(socklen_t){sizeof loop}, 4);
    out();
    if (bind(server, (void *)name, sizeof *name) != 0 || listen(server, 4) != 0)
        return; // no loopback here
    out();
    RIGHT(getsockname(server, (void *)name, len) == 0 && *len == sizeof loop && name->sin_port);
    out();
    if (connect(client, (void *)name, sizeof *name) != 0)
        return;
    out();
    int made = accept4(server, (void *)other, other_len, SOCK_CLOEXEC);
    RIGHT(made >= 0 && other->sin_port && ntohl(other->sin_addr.s_addr) == INADDR_LOOPBACK);
    in_port_t port = other->sin_port;
    *other_len = sizeof loop, memset(other, 0, sizeof *other);
    out();
    RIGHT(getpeername(made, (void *)other, other_len) == 0 && other->sin_port == port);
    int *value = put(&(int){1}, 4);
    out();
    RIGHT(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, value, 4) == 0);
    *value = 0, *len = 4;
    out();
    RIGHT(getsockopt(client, SOL_SOCKET, SO_KEEPALIVE, value, len) == 0 && *value == 1 && *len == 4);
    char *info = place(300);
    *len = 300;
    out();
    RIGHT(getsockopt(client, IPPROTO_TCP, 11, info, len) == 0 && *len > 100 && info[0] == 1);
    // A stream in both directions, whole, by its kept words.
    fill_range(area + 10 * PAGE, 8, 55);
    out();
    RIGHT(sendto(client, area + 10 * PAGE, 8 * PAGE, 0, NULL, 0) == 8 * PAGE);
    memset(area + 10 * PAGE, 0, 8 * PAGE);
    out();
    RIGHT(recv(made, area + 10 * PAGE, 8 * PAGE, MSG_WAITALL) == 8 * PAGE);
    check_range(area + 10 * PAGE, 8, 55, "through TCP");
    close(server), close(client), close(made);
    // The sender's address, which a refused one would have cost the datagram.
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    SETUP(a >= 0 && b >= 0 && bind(a, (void *)&loop, sizeof loop) == 0);
    socklen_t plain = sizeof loop;
    SETUP(getsockname(a, (void *)&loop, &plain) == 0);
    *name = loop;
    char *data = put("datagram", 8);
    out();
    RIGHT(sendto(b, data, 8, 0, (void *)name, sizeof *name) == 8);
    memset(data, 0, 8), *other_len = sizeof loop;
    out();
    RIGHT(recvfrom(a, data, 8, 0, (void *)other, other_len) == 8 && memcmp(data, "datagram", 8) == 0);
    RIGHT(other->sin_port != 0 && *other_len == sizeof loop);
    // Refused: what was consumed is consumed, as bare.
    RIGHT(send(b, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
    RIGHT(connect(b, (void *)8, sizeof loop) == -1 && errno == EFAULT);
    RIGHT(getsockname(a, (void *)name, (void *)8) == -1 && errno == EFAULT);
    close(a), close(b);
}

// A filter is behind a pointer in the option.
static void filters(void) {
    int pair[2];
    SETUP(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    struct sock_filter code[200];
    for (int i = 0; i < 199; i++)
        code[i] = (struct sock_filter){BPF_LD | BPF_W | BPF_LEN, 0, 0, 0};
    code[199] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 4};
    struct sock_filter *far = put(code, sizeof code);
    struct sock_fprog *program = put(&(struct sock_fprog){200, far}, sizeof *program);
    out();
    RIGHT(setsockopt(pair[1], SOL_SOCKET, SO_ATTACH_FILTER, program, sizeof *program) == 0);
    char bytes[16];
    RIGHT(send(pair[0], "12345678", 8, 0) == 8 && recv(pair[1], bytes, 16, 0) == 4);
    // Asked for by the number of its instructions.
    struct sock_filter *back = place(sizeof code);
    socklen_t *len = put(&(socklen_t){200}, 4);
    out();
    RIGHT(getsockopt(pair[1], SOL_SOCKET, SO_GET_FILTER, back, len) == 0 && *len == 200);
    RIGHT(memcmp(back, code, sizeof code) == 0);
    close(pair[0]), close(pair[1]);
}

// A datagram is one, however long it is and whatever call moves it.
static void large_datagrams(void) {
    enum { LONG = 340 << 10 };
    int pair[2], size = 1 << 20;
    SETUP(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    SETUP(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, 4) == 0);
    char *from = map_new(LONG), *to = map_new(LONG);
    for (int i = 0; i < LONG; i += 8)
        *(uint64_t *)(from + i) = mix(i / 4096);
    out_of_memory(from, LONG / PAGE, 2);
    ssize_t sent = write(pair[0], from, LONG);
    RIGHT(sent == LONG);
    RIGHT(read(pair[1], to, LONG) == LONG && memcmp(from, to, LONG) == 0);
    RIGHT(send(pair[0], from, LONG, 0) == LONG);
    RIGHT(recv(pair[1], to, LONG, 0) == LONG && memcmp(from, to, LONG) == 0);
    RIGHT(recv(pair[1], to, LONG, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    close(pair[0]), close(pair[1]);
    SETUP(munmap(from, LONG) == 0 && munmap(to, LONG) == 0);
}

static void waiting(void) {
    int fds[2];
    SETUP(pipe(fds) == 0);
    struct pollfd *polled = place(200 * sizeof *polled);
    for (int i = 0; i < 200; i++)
        polled[i] = (struct pollfd){fds[1], POLLOUT, 0};
    struct timespec *time = put(&(struct timespec){1, 0}, sizeof *time);
    sigset_t *mask = place(sizeof *mask);
    sigfillset(mask);
    out();
    RIGHT(ppoll(polled, 200, time, mask) == 200 && polled[199].revents == POLLOUT);
    sigset_t now;
    SETUP(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && !sigismember(&now, SIGUSR1));
    fd_set *writable = place(sizeof *writable), *readable = place(sizeof *readable);
    FD_ZERO(writable);
    FD_ZERO(readable);
    FD_SET(fds[1], writable);
    FD_SET(fds[0], readable);
    out();
    RIGHT(pselect(fds[1] + 1, readable, writable, NULL, time, mask) == 1 && FD_ISSET(fds[1], writable));
    RIGHT(!FD_ISSET(fds[0], readable));
    int epoll = epoll_create1(0);
    struct epoll_event *event = put(&(struct epoll_event){EPOLLOUT, {.u64 = 77}}, sizeof *event);
    out();
    RIGHT(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[1], event) == 0);
    struct epoll_event *events = place(500 * sizeof *events);
    out();
    RIGHT(epoll_wait(epoll, events, 500, 1000) == 1 && events->data.u64 == 77);
    memset(events, 0, sizeof *events);
    out();
    RIGHT(epoll_pwait(epoll, events, 500, 1000, mask) == 1 && events->data.u64 == 77);
    memset(events, 0, sizeof *events);
    out();
    RIGHT(syscall(441, epoll, events, 500, time, mask, 8) == 1 && events->data.u64 == 77);
    RIGHT(epoll_ctl(epoll, EPOLL_CTL_MOD, fds[1], (void *)8) == -1 && errno == EFAULT);
    close(epoll), close(fds[0]), close(fds[1]);
}

// More descriptors than an fd_set of libc's has room for.
static void select_beyond_1024(void) {
    enum { SET = 4000 / 8 };
    struct rlimit limit, old;
    SETUP(getrlimit(RLIMIT_NOFILE, &old) == 0);
    limit = old, limit.rlim_cur = old.rlim_max;
    if (old.rlim_max < 4000)
        return;
    SETUP(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int fds[2];
    SETUP(pipe(fds) == 0 && dup2(fds[1], 3990) == 3990);
    unsigned char *set = (unsigned char *)area + 3 * PAGE - 140;
    struct timeval *time = put(&(struct timeval){1, 0}, sizeof *time);
    memset(set, 0, SET);
    set[3990 / 8] = 1 << 3990 % 8;
    out();
    RIGHT(syscall(SYS_select, 3991, 0, set, 0, time) == 1 && set[3990 / 8] == 1 << 3990 % 8);
    out();
    RIGHT(syscall(SYS_pselect6, 3991, 0, set, 0, 0, 0) == 1 && set[3990 / 8] == 1 << 3990 % 8);
    close(3990), close(fds[0]), close(fds[1]);
    SETUP(setrlimit(RLIMIT_NOFILE, &old) == 0);
}

CASES({"control_data", control_data}, {"many_messages", many_messages}, {"names", names},
      {"filters", filters}, {"large_datagrams", large_datagrams}, {"waiting", waiting},
      {"select_beyond_1024", select_beyond_1024})
