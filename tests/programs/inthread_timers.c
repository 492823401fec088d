// A timer of 100 us against everything that a program does, and handlers that do things themselves.
#include "inthread_kit.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

extern char **environ;
enum { TAG = 700000 };
static volatile int ticks;
static char *touched; // by the handler

static void tick(int signal) {
    (void)signal;
    ticks++;
}

static void busy_tick(int signal) {
    (void)signal;
    int error = errno;
    ticks++;
    size_t page = mix(ticks) % AREA;
    check_page(touched + page * PAGE, TAG + page, "in a handler");
    struct timespec *now = (struct timespec *)(touched + (AREA + page % 16) * PAGE + 8);
    RIGHT(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now) == 0 && now->tv_nsec < 1000000000);
    errno = error;
}

static void start(void (*handler)(int), long microseconds) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, microseconds}, {0, microseconds}};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    SETUP(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void stop(void) {
    struct itimerval never = {{0}, {0}};
    SETUP(setitimer(ITIMER_REAL, &never, NULL) == 0);
    signal(SIGALRM, SIG_IGN);
}

static void everything(void) {
    int fds[2], pair[2], event = eventfd(0, 0);
    SETUP(pipe(fds) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && event >= 0);
    for (int turn = 0; turn < 60; turn++) {
        char *one = area + mix(turn) % 100 * PAGE, *two = area + (100 + mix(turn + 1) % 100) * PAGE;
        fill_page(one, TAG + turn);
        RIGHT(write(fds[1], one, PAGE) == PAGE && read(fds[0], two, PAGE) == PAGE);
        check_page(two, TAG + turn, "through a pipe");
        RIGHT(send(pair[0], one, PAGE, 0) == PAGE);
        memset(two, 0, PAGE);
        RIGHT(recv(pair[1], two, PAGE, 0) == PAGE);
        check_page(two, TAG + turn, "through a socket");
        uint64_t *value = (uint64_t *)(area + 210 * PAGE);
        *value = 5;
        RIGHT(write(event, value, 8) == 8 && read(event, value, 8) == 8 && *value == 5);
        struct pollfd polled = {fds[0], POLLIN, 0};
        int found = poll(&polled, 1, 0);
        RIGHT(found == 0 || (found == -1 && errno == EINTR));
        char *at = map_new(40 * PAGE);
        fill_range(at, 40, TAG + turn);
        RIGHT(mprotect(at, 10 * PAGE, PROT_READ) == 0 && madvise(at + 20 * PAGE, 10 * PAGE, MADV_DONTNEED) == 0);
        at = mremap(at, 40 * PAGE, 80 * PAGE, MREMAP_MAYMOVE);
        // (bare two mappings: refused)
        if (at == MAP_FAILED)
            RIGHT(errno == EFAULT);
        else
            SETUP(munmap(at, 80 * PAGE) == 0);
        free(malloc(1 << 20)), free(malloc(100));
        if (turn % 6 == 0) {
            pid_t child = fork();
            SETUP(child >= 0);
            if (child == 0) {
                check_page(one, TAG + turn, "of a child under a timer");
                _exit(0);
            }
            expect_child(child, "under a timer");
        }
        if (turn % 10 == 5) {
            char *argv[] = {"/bin/true", NULL};
            pid_t child;
            RIGHT(posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ) == 0);
            expect_child(child, "spawned under a timer");
        }
        if (turn % 20 == 0)
            squeeze();
    }
    close(fds[0]), close(fds[1]), close(pair[0]), close(pair[1]), close(event);
}

static void often(void) {
    start(tick, 100);
    everything();
    stop();
    RIGHT(ticks > 10);
}

static void with_busy_handlers(void) {
    touched = map_new((AREA + 16) * PAGE);
    fill_range(touched, AREA, TAG);
    start(busy_tick, 400);
    everything();
    stop();
    RIGHT(ticks > 10);
    check_range(touched, AREA, TAG, "after handlers");
    SETUP(munmap(touched, (AREA + 16) * PAGE) == 0);
}

static int threads_end;

static void *is_sent(void *arg) {
    char *mine = arg;
    uint64_t turn = 0;
    while (!__atomic_load_n(&threads_end, __ATOMIC_SEQ_CST)) {
        size_t page = mix(turn++) % 64;
        check_page(mine + page * PAGE, TAG + page, "of a thread that is sent signals");
    }
    return arg;
}

static void to_threads(void) {
    enum { THREADS = 4 };
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    pthread_t threads[THREADS];
    char *parts = map_new(THREADS * 64 * PAGE);
    for (int i = 0; i < THREADS; i++)
        fill_range(parts + i * 64 * PAGE, 64, TAG);
    squeeze();
    for (int i = 0; i < THREADS; i++)
        SETUP(pthread_create(&threads[i], NULL, is_sent, parts + i * 64 * PAGE) == 0);
    for (int i = 0; i < 4000; i++) {
        SETUP(pthread_kill(threads[i % THREADS], i % 2 ? SIGUSR1 : SIGUSR2) == 0);
        if (i % 1000 == 0)
            squeeze();
        if (i % 50 == 0)
            sched_yield();
    }
    __atomic_store_n(&threads_end, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    SETUP(munmap(parts, THREADS * 64 * PAGE) == 0);
}

CASES({"often", often}, {"with_busy_handlers", with_busy_handlers}, {"to_threads", to_threads})
