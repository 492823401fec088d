// Long calls that move bytes, and a signal that comes while they wait: a short count where something was
// moved, the call made again or EINTR where nothing was, whether its handler restarts calls or not.
#include "inthread_kit.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { LONG = 1 << 20, SMALL_PIPE = 256 << 10, TAG = 500000 };
static char *bytes; // LONG of them, out
static volatile int came, broken;

static void comes(int signal) {
    came += signal == SIGALRM, broken += signal == SIGPIPE;
}

static void fill_bytes(void) {
    bytes = map_new(LONG);
    fill_range(bytes, LONG / PAGE, TAG);
    out_of_memory(bytes, LONG / PAGE, 4);
}

static void alarm_in(int ms, int flags) {
    struct sigaction action = {.sa_handler = comes, .sa_flags = flags};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    SETUP(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = ms * 1000}, NULL) == 0);
}

// All that comes until the other side is closed, as much as is wanted; it begins after so many ms, or when
// it is told to before that.
struct reader {
    int fd, after;
    size_t got, stops;
    char *into;
};
static sem_t told;

static void *reads_all(void *arg) {
    struct reader *to = arg;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long ns = until.tv_nsec + to->after % 1000 * 1000000l;
    until.tv_sec += to->after / 1000 + ns / 1000000000, until.tv_nsec = ns % 1000000000;
    while (sem_timedwait(&told, &until) != 0 && errno == EINTR) {
    }
    while (to->got < to->stops) {
        ssize_t now = read(to->fd, to->into + to->got, 65536);
        if (now <= 0)
            break;
        to->got += now;
    }
    return arg;
}

static void two_ends(int kind, int fd[2]) {
    if (kind) {
        SETUP(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
        int first = fd[0];
        fd[0] = fd[1], fd[1] = first;
    } else
        SETUP(pipe(fd) == 0 && fcntl(fd[1], F_SETPIPE_SZ, SMALL_PIPE) == SMALL_PIPE);
}

enum { WRITE, WRITEV, SEND, SENDMSG, HOWS };

static ssize_t give(int how, int fd) {
    struct iovec parts[3] = {{bytes, 1000}, {bytes + 1000, 600000}, {bytes + 601000, LONG - 601000}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    switch (how) {
    case WRITE: return write(fd, bytes, LONG);
    case WRITEV: return writev(fd, parts, 3);
    case SEND: return send(fd, bytes, LONG, 0);
    default: return sendmsg(fd, &message, 0);
    }
}

// Nobody reads until long after the signal: what went in is told.
static void interrupted_later(void) {
    fill_bytes();
    char *into = map_new(LONG + 65536);
    for (int turn = 0; turn < 2 * 2 * HOWS; turn++) {
        int how = turn % HOWS, kind = turn / HOWS % 2, flags = turn / HOWS / 2 ? SA_RESTART : 0, fd[2];
        if (!kind && how >= SEND)
            continue;
        two_ends(kind, fd);
        if (kind) {
            // (More than a piece goes in.)
            int size = 360000;
            SETUP(setsockopt(fd[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
        }
        struct reader to = {fd[0], 1500, 0, LONG + 1, into};
        SETUP(sem_init(&told, 0, 0) == 0);
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, reads_all, &to) == 0);
        came = 0;
        alarm_in(300, flags);
        double began = seconds();
        ssize_t gave = give(how, fd[1]);
        RIGHT(came == 1 && gave > 0 && gave < LONG && seconds() - began < 1.2);
        // (Of vectors, pages of a pipe are filled otherwise.)
        sem_post(&told);
        RIGHT(kind || (how == WRITE ? gave == SMALL_PIPE : gave > SMALL_PIPE - 2 * PAGE && gave <= SMALL_PIPE));
        close(fd[1]);
        pthread_join(thread, NULL);
        RIGHT(to.got == (size_t)gave && memcmp(into, bytes, gave) == 0);
        close(fd[0]);
    }
    munmap(into, LONG + 65536), munmap(bytes, LONG);
}

// Nothing goes in before the signal: made again, all of it, or EINTR.
static void interrupted_first(void) {
    fill_bytes();
    char *into = map_new(SMALL_PIPE + LONG + 65536);
    for (int turn = 0; turn < 4; turn++) {
        int how = turn % 2, flags = turn / 2 ? SA_RESTART : 0, fd[2];
        two_ends(0, fd);
        RIGHT(write(fd[1], bytes, SMALL_PIPE) == SMALL_PIPE);
        struct reader to = {fd[0], 800, 0, flags ? SMALL_PIPE + LONG : SMALL_PIPE, into};
        SETUP(sem_init(&told, 0, 0) == 0);
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, reads_all, &to) == 0);
        came = 0;
        alarm_in(200, flags);
        ssize_t gave = give(how, fd[1]);
        RIGHT(came == 1 && gave == (flags ? LONG : -1) && (flags || errno == EINTR));
        pthread_join(thread, NULL);
        RIGHT(memcmp(into, bytes, SMALL_PIPE) == 0);
        RIGHT(!flags || memcmp(into + SMALL_PIPE, bytes, LONG) == 0);
        close(fd[0]), close(fd[1]);
    }
    munmap(into, SMALL_PIPE + LONG + 65536), munmap(bytes, LONG);
}

// Signals all the time, nobody in a hurry: every byte comes once.
static void often_interrupted(void) {
    fill_bytes();
    char *into = map_new(LONG + 65536);
    struct sigaction action = {.sa_handler = comes, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    for (int turn = 0; turn < 2 * HOWS; turn++) {
        int kind = turn / HOWS, fd[2];
        if (!kind && turn % HOWS >= SEND)
            continue;
        two_ends(kind, fd);
        for (int round = 0; round < 4; round++) {
            struct reader to = {fd[0], 0, 0, 0, into};
            SETUP(sem_init(&told, 0, 0) == 0);
            SETUP(setitimer(ITIMER_REAL, &(struct itimerval){{0, 150}, {0, 150}}, NULL) == 0);
            pthread_t thread;
            to.stops = LONG + 1;
            SETUP(pthread_create(&thread, NULL, reads_all, &to) == 0);
            ssize_t gave = give(turn % HOWS, fd[1]);
            SETUP(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL) == 0);
            RIGHT(gave > 0);
            close(fd[1]);
            pthread_join(thread, NULL);
            RIGHT(to.got == (size_t)gave && memcmp(into, bytes, gave) == 0);
            close(fd[0]);
            two_ends(kind, fd);
        }
        close(fd[0]), close(fd[1]);
    }
    munmap(into, LONG + 65536), munmap(bytes, LONG);
}

// The other side reads some and closes: a socket that has sent something raises no signal for that.
static void other_side_closes(void) {
    fill_bytes();
    struct sigaction action = {.sa_handler = comes}, was;
    SETUP(sigaction(SIGPIPE, &action, &was) == 0);
    for (int how = 0; how < HOWS; how++) {
        int fd[2];
        two_ends(1, fd);
        pid_t child = fork();
        if (child == 0) {
            static char into[65536];
            close(fd[1]);
            for (size_t got = 0; got < 300000;)
                got += read(fd[0], into, sizeof into);
            usleep(300000);
            _exit(0);
        }
        close(fd[0]);
        broken = 0;
        ssize_t gave = give(how, fd[1]);
        RIGHT(gave > 0 && gave < LONG && broken == 0);
        RIGHT(waitpid(child, NULL, 0) == child);
        errno = 0;
        RIGHT(give(how, fd[1]) == -1 && errno == EPIPE && broken == 1);
        close(fd[1]);
    }
    SETUP(sigaction(SIGPIPE, &was, NULL) == 0);
    munmap(bytes, LONG);
}

// A connection that is reset while a call waits: told once, by that call or by the next.
static void connection_reset(void) {
    fill_bytes();
    int listening = socket(AF_INET, SOCK_STREAM, 0), far = -1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    SETUP(bind(listening, (void *)&at, len) == 0 && listen(listening, 1) == 0 && getsockname(listening, (void *)&at, &len) == 0);
    signal(SIGPIPE, SIG_IGN);
    for (int how = 0; how < HOWS; how++) {
        int near = socket(AF_INET, SOCK_STREAM, 0), small = 300000;
        SETUP(setsockopt(near, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
        SETUP(connect(near, (void *)&at, sizeof at) == 0 && (far = accept(listening, NULL, NULL)) >= 0);
        pid_t child = fork();
        if (child == 0) {
            usleep(300000);
            SETUP(setsockopt(far, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)) == 0);
            _exit(0);
        }
        close(far);
        int told = 0;
        for (int i = 0; i < 40 && !told; i++)
            if (give(how, near) < 0)
                told = errno;
        RIGHT(told == ECONNRESET);
        RIGHT(waitpid(child, NULL, 0) == child);
        close(near);
    }
    signal(SIGPIPE, SIG_DFL);
    close(listening), munmap(bytes, LONG);
}

// Descriptors come with the first bytes, and once.
static void descriptors_once(void) {
    fill_bytes();
    int fd[2];
    two_ends(1, fd);
    pid_t child = fork();
    if (child == 0) {
        close(fd[0]);
        struct iovec part = {bytes, LONG};
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr header;
        } *control = place(sizeof *control);
        control->header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control->header), &fd[1], sizeof(int));
        struct msghdr *message = put(&(struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof *control}, sizeof *message);
        out();
        _exit(sendmsg(fd[1], message, 0) == LONG ? 0 : 1);
    }
    close(fd[1]);
    char *into = map_new(LONG);
    size_t got = 0;
    int descriptors = 0;
    while (got < LONG) {
        char control[256];
        struct iovec part = {into + got, LONG - got};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t now = recvmsg(fd[0], &message, 0);
        RIGHT(now > 0);
        if (message.msg_controllen)
            descriptors += got == 0 ? 1 : 100;
        got += now;
    }
    RIGHT(descriptors == 1 && memcmp(into, bytes, LONG) == 0);
    expect_child(child, "a sender");
    close(fd[0]), munmap(into, LONG), munmap(bytes, LONG);
}

// Vectors of all lengths, none among them, some longer than a piece; to a pipe, a file, and back.
static void many_vectors(void) {
    enum { VECTORS = 1000, TOO_MANY = 1025, ALL = 6 << 20 };
    char *from = map_new(ALL), *to = map_new(ALL);
    fill_range(from, ALL / PAGE, TAG);
    out_of_memory(from, ALL / PAGE, 4);
    for (int turn = 0; turn < 3; turn++) {
        struct iovec parts[TOO_MANY] = {{0}}, back[VECTORS];
        size_t at = 0;
        for (int i = 0; i < VECTORS; i++) {
            size_t len = i % 7 == 3 ? 0 : i % 500 == 17 ? (turn + 1) * 300001ul : mix(i + turn) % 6000;
            parts[i] = (struct iovec){from + at, len}, back[i] = (struct iovec){to + at, len};
            at += len;
        }
        RIGHT(at < ALL);
        int fd[2], file = memfd_create("vectors", 0);
        two_ends(turn == 1, fd);
        memset(to, 0, ALL);
        struct reader reader = {fd[0], 0, 0, at, to};
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, reads_all, &reader) == 0);
        RIGHT(writev(fd[1], parts, VECTORS) == (ssize_t)at);
        pthread_join(thread, NULL);
        RIGHT(reader.got == at && memcmp(to, from, at) == 0);
        RIGHT(pwritev(file, parts, VECTORS, 12345) == (ssize_t)at);
        memset(to, 0, ALL);
        RIGHT(preadv(file, back, VECTORS, 12345) == (ssize_t)at && memcmp(to, from, at) == 0);
        RIGHT(lseek(file, 0, SEEK_CUR) == 0 && writev(file, parts, VECTORS) == (ssize_t)at && lseek(file, 0, SEEK_CUR) == (off_t)at);
        memset(to, 0, ALL);
        RIGHT(lseek(file, 0, SEEK_SET) == 0 && readv(file, back, VECTORS) == (ssize_t)at && memcmp(to, from, at) == 0);
        // One too many, one nowhere, one of no length at all: refused as a whole.
        RIGHT(writev(fd[1], parts, TOO_MANY) == -1 && errno == EINVAL);
        parts[VECTORS - 1] = (struct iovec){(void *)-4096ul, 8192};
        RIGHT(writev(fd[1], parts, VECTORS) == -1 && errno == EFAULT);
        parts[VECTORS - 1] = (struct iovec){from, (size_t)-1};
        RIGHT(writev(fd[1], parts, VECTORS) == -1 && errno == EINVAL);
        close(fd[0]), close(fd[1]), close(file);
    }
    munmap(from, ALL), munmap(to, ALL);
}

// Calls with 48 MiB, four times what may be in memory: they keep little of it.
enum { HUGE_CALL = 48 << 20 };

static long most_resident(void) {
    struct rusage usage;
    SETUP(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss / 1024;
}

static void *drains(void *arg) {
    static char into[65536];
    for (size_t got = 0; got < HUGE_CALL;) {
        ssize_t now = read(*(int *)arg, into, sizeof into);
        RIGHT(now > 0);
        got += now;
    }
    return arg;
}

static void little_is_kept(void) {
    char *all = map_new(HUGE_CALL);
    fill_range(all, HUGE_CALL / PAGE, TAG);
    squeeze();
    long before = most_resident();
    struct iovec part = {all, HUGE_CALL};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    for (int how = 0; how < 4; how++) {
        int fd[2];
        two_ends(1, fd);
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, drains, &fd[0]) == 0);
        ssize_t done = how == 0 ? send(fd[1], all, HUGE_CALL, 0)
            : how == 1          ? sendmsg(fd[1], &message, 0)
            : how == 2          ? writev(fd[1], &part, 1)
                                : write(fd[1], all, HUGE_CALL);
        RIGHT(done == HUGE_CALL);
        pthread_join(thread, NULL);
        close(fd[0]), close(fd[1]);
        check_page(all + how * 999 * PAGE, TAG + how * 999, "sent");
    }
    // (The highest is 12 MiB, and what is not managed comes to some more.)
    if (managed() && most_resident() > before + 12)
        die(1, case_now, all, "was kept in memory");
    // (What is random stays as large as it is.)
    RIGHT(syscall(SYS_getrandom, all, HUGE_CALL, 0) == HUGE_CALL);
    munmap(all, HUGE_CALL);
}

CASES({"interrupted_later", interrupted_later}, {"interrupted_first", interrupted_first}, {"often_interrupted", often_interrupted},
      {"other_side_closes", other_side_closes}, {"connection_reset", connection_reset}, {"descriptors_once", descriptors_once},
      {"many_vectors", many_vectors}, {"little_is_kept", little_is_kept})
