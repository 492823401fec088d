// What a program does by system calls and signals, with everything they point to in memory
// that is out: for the ways of managing in which the thread that faults serves itself.
//   inthread calls      calls that read, write, consume; vectors; strings; what nobody has
//   inthread race       four threads make calls on memory that others have moved out
//   inthread signals    faults of the program's own, jumps out of calls, coroutines
//   inthread locks      robust and priority-inheriting locks, whose words the kernel follows
//   inthread exec       execve with all its strings out
//   inthread tasks      children that wait for their parent, or share its descriptors
//   inthread space      calls that fail in part, and memory that the kernel has the address of
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

enum { AREA = 512, TAG = 0x5000000 };
static char *area;

// A place in the area, out, for a call to point to.
static void *place(size_t page) {
    push_out(area, AREA);
    return area + page * PAGE + 8;
}

#define RIGHT(condition) \
    do { \
        if (!(condition)) \
            die(1, #condition, area, "a call did not do what it does bare"); \
    } while (0)

static void consumed(void) {
    int pair[2];
    SETUP(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    RIGHT(send(pair[0], "datagram", 8, 0) == 8);
    char *into = place(7);
    RIGHT(recv(pair[1], into, 64, 0) == 8 && memcmp(into, "datagram", 8) == 0);
    uint64_t *value = place(20);
    int event = eventfd(7, 0);
    RIGHT(event >= 0 && read(event, value, 8) == 8 && *value == 7);
    close(event);
    struct itimerspec soon = {{0}, {0, 1000}}, *spec = place(30);
    *spec = soon;
    push_out(area, AREA);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    RIGHT(timer >= 0 && timerfd_settime(timer, 0, spec, NULL) == 0);
    value = place(40);
    RIGHT(read(timer, value, 8) == 8 && *value >= 1);
    close(timer);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0)
        _exit(9);
    int *status = place(50);
    RIGHT(waitpid(child, status, 0) == child && WIFEXITED(*status) && WEXITSTATUS(*status) == 9);
    sigset_t *set = place(60);
    sigemptyset(set), sigaddset(set, SIGUSR1);
    SETUP(sigprocmask(SIG_BLOCK, set, NULL) == 0 && raise(SIGUSR1) == 0);
    push_out(area, AREA);
    int signals = signalfd(-1, set, 0);
    struct signalfd_siginfo *info = place(70);
    RIGHT(signals >= 0 && read(signals, info, sizeof *info) == sizeof *info);
    RIGHT(info->ssi_signo == SIGUSR1);
    close(signals);
    SETUP(raise(SIGUSR1) == 0);
    siginfo_t *waited = place(80);
    RIGHT(sigtimedwait(set, waited, NULL) == SIGUSR1 && waited->si_signo == SIGUSR1);
}

static void vectors(void) {
    int pair[2];
    SETUP(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    fill_range(area, 200, TAG);
    struct iovec *from = (struct iovec *)(area + 300 * PAGE), *to = (struct iovec *)(area + 310 * PAGE);
    struct msghdr *header = (struct msghdr *)(area + 320 * PAGE);
    for (int i = 0; i < 16; i++) {
        from[i] = (struct iovec){area + i * 5 * PAGE, PAGE};
        to[i] = (struct iovec){area + (100 + i * 5) * PAGE, PAGE};
    }
    *header = (struct msghdr){.msg_iov = from, .msg_iovlen = 16};
    push_out(area, AREA);
    RIGHT(sendmsg(pair[0], header, 0) == 16 * PAGE);
    push_out(area, AREA);
    RIGHT(readv(pair[1], to, 16) == 16 * PAGE);
    for (int i = 0; i < 16; i++)
        check_page(area + (100 + i * 5) * PAGE, TAG + i * 5, "through a vector");
}

static void files(void) {
    char name[] = "/tmp/zfolio-inthread-XXXXXX";
    int file = mkstemp(name);
    SETUP(file >= 0);
    fill_range(area, AREA, TAG);
    push_out(area, AREA);
    RIGHT(write(file, area, AREA * PAGE) == AREA * PAGE);
    memset(area, 0, AREA * PAGE);
    push_out(area, AREA);
    RIGHT(pread(file, area, AREA * PAGE, 0) == AREA * PAGE);
    check_range(area, AREA, TAG, "read from a file");
    char *path = (char *)place(100) - 8 + PAGE - 10; // over the end of a page
    memcpy(path, name, sizeof name);
    push_out(area, AREA);
    struct stat *about = (struct stat *)(area + 3 * PAGE);
    RIGHT(stat(path, about) == 0 && about->st_size == AREA * PAGE);
    RIGHT(getcwd(place(90), 200) != NULL);
    struct timespec *now = place(91);
    RIGHT(syscall(SYS_clock_gettime, CLOCK_REALTIME, now) == 0 && now->tv_sec > 1000000000);
    struct pollfd *polled = place(92);
    *polled = (struct pollfd){file, POLLIN, 0};
    push_out(area, AREA);
    RIGHT(poll(polled, 1, 1000) == 1 && polled->revents == POLLIN);
    push_out(area, AREA);
    RIGHT(unlink(path) == 0);
    close(file);
}

static void calls(void) {
    consumed();
    vectors();
    files();
    // What nobody has stays nobody's, and what is not a call no call.
    int fds[2];
    SETUP(pipe(fds) == 0);
    errno = 0;
    RIGHT(syscall(SYS_write, fds[1], 16L, 8L) == -1 && errno == EFAULT);
    RIGHT(syscall(SYS_stat, 0x7000deadb000L, area) == -1 && errno == EFAULT);
    RIGHT(syscall(SYS_sendmsg, fds[1], 0x7000deadb000L, 0L) == -1);
    RIGHT(syscall(999, area, area, area) == -1 && errno == ENOSYS);
    RIGHT(fcntl(fds[0], F_GETFD) == 0);
}

enum { RACERS = 4, PART = 3000, TURNS = 4000 };

static void *racer(void *arg) {
    size_t id = (size_t)arg;
    char *part = area + id * PART * PAGE;
    tag_t tag = TAG + id * PART;
    uint64_t random = id * 7919 + 1;
    int fds[2];
    SETUP(pipe(fds) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        random = mix(random + turn);
        size_t one = random % PART, other = (random >> 24) % PART;
        switch (random >> 60 & 3) {
        case 0:
            RIGHT(write(fds[1], part + one * PAGE, PAGE) == PAGE);
            RIGHT(read(fds[0], part + other * PAGE, PAGE) == PAGE);
            check_page(part + other * PAGE, tag + one, "through a pipe");
            fill_page(part + other * PAGE, tag + other);
            break;
        case 1: {
            struct timespec *now = (struct timespec *)(part + one * PAGE + 64);
            RIGHT(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now) == 0 && now->tv_nsec < 1000000000);
            fill_page(part + one * PAGE, tag + one);
            break;
        }
        default: check_page(part + one * PAGE, tag + one, "of a racer"); break;
        }
    }
    return NULL;
}

static void ticks(int signal) { (void)signal; }

static void race(void) {
    area = map_new((size_t)RACERS * PART * PAGE);
    fill_range(area, RACERS * PART, TAG);
    struct sigaction action = {.sa_handler = ticks, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 900}, {0, 900}}, never = {{0}, {0}};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    pthread_t threads[RACERS];
    for (size_t i = 0; i < RACERS; i++)
        SETUP(pthread_create(&threads[i], NULL, racer, (void *)i) == 0);
    for (int i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    SETUP(setitimer(ITIMER_REAL, &never, NULL) == 0);
    check_range(area, RACERS * PART, TAG, "after the race");
}

static char *guarded;
static volatile int barriers;

static void opens(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *at = (char *)((uintptr_t)info->si_addr & -(uintptr_t)PAGE);
    if (at < guarded || at >= guarded + 64 * PAGE)
        die(1, "a fault", info->si_addr, "that is nobody's");
    barriers++;
    SETUP(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static sigjmp_buf back;

static void jumps(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static ucontext_t in_main, in_coroutine[16];
static volatile int coroutine_runs;

static void coroutine(int index) {
    for (int i = 0; i < 50; i++) {
        volatile char deep[4000];
        deep[0] = deep[3999] = (char)i;
        coroutine_runs++;
        swapcontext(&in_coroutine[index], &in_main);
        if (deep[0] != (char)i || deep[3999] != (char)i)
            die(1, "a coroutine's stack", (void *)deep, "changed");
    }
}

static void signals(void) {
    guarded = map_new(64 * PAGE);
    fill_range(guarded, 64, TAG);
    struct sigaction action = {.sa_sigaction = opens, .sa_flags = SA_SIGINFO}, old;
    SETUP(sigaction(SIGSEGV, &action, NULL) == 0);
    push_out(guarded, 64);
    SETUP(mprotect(guarded, 64 * PAGE, PROT_READ) == 0);
    press();
    for (int i = 0; i < 64; i++) {
        check_page(guarded + i * PAGE, TAG + i, "behind a write barrier");
        fill_page(guarded + i * PAGE, TAG + 100 + i);
    }
    RIGHT(barriers == 64);
    check_range(guarded, 64, TAG + 100, "written through a barrier");
    RIGHT(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == opens);
    struct sigaction jump = {.sa_handler = jumps};
    SETUP(sigaction(SIGSEGV, &jump, NULL) == 0);
    for (volatile int i = 0; i < 20; i++)
        if (sigsetjmp(back, 1) == 0) {
            *(volatile char *)(uintptr_t)(8 + i) = 1;
            die(1, "a null pointer", NULL, "was written through");
        }
    // Out of a read that waits, by a jump.
    int fds[2];
    SETUP(pipe(fds) == 0 && sigaction(SIGALRM, &jump, NULL) == 0);
    for (volatile int i = 0; i < 6; i++)
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval soon = {{0}, {0, 2000}};
            char *into = place(i);
            SETUP(setitimer(ITIMER_REAL, &soon, NULL) == 0);
            SETUP(read(fds[0], into, 8) == 8);
        }
    // Coroutines on stacks that are memory like any other, under a timer.
    struct sigaction tick = {.sa_handler = ticks, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 900}, {0, 900}}, never = {{0}, {0}};
    enum { STACK = 16 * PAGE };
    char *stacks = map_new(16 * STACK);
    for (volatile int i = 0; i < 16; i++) {
        SETUP(getcontext(&in_coroutine[i]) == 0);
        in_coroutine[i].uc_stack.ss_sp = stacks + i * STACK;
        in_coroutine[i].uc_stack.ss_size = STACK;
        in_coroutine[i].uc_link = &in_main;
        makecontext(&in_coroutine[i], (void (*)(void))coroutine, 1, i);
        swapcontext(&in_main, &in_coroutine[i]);
    }
    SETUP(sigaction(SIGALRM, &tick, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int turn = 0; turn < 49; turn++) {
        if (turn % 16 == 0)
            push_out(stacks, 16 * STACK / PAGE);
        for (int i = 0; i < 16; i++)
            swapcontext(&in_main, &in_coroutine[i]);
    }
    SETUP(setitimer(ITIMER_REAL, &never, NULL) == 0);
    RIGHT(coroutine_runs == 16 * 50);
}

static void *dies_with_it(void *mutex) {
    SETUP(pthread_mutex_lock(mutex) == 0);
    push_out(area, AREA);
    return NULL;
}

static void *waits_for_it(void *mutex) {
    RIGHT(pthread_mutex_lock(mutex) == 0);
    RIGHT(pthread_mutex_unlock(mutex) == 0);
    return NULL;
}

static void locks(void) {
    pthread_mutexattr_t robust, inherits;
    SETUP(pthread_mutexattr_init(&robust) == 0 && pthread_mutexattr_init(&inherits) == 0);
    SETUP(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0);
    SETUP(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT) == 0);
    for (int i = 0; i < 2; i++) {
        pthread_mutex_t *mutex = (pthread_mutex_t *)(area + (10 + i) * PAGE);
        SETUP(pthread_mutex_init(mutex, &robust) == 0);
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, dies_with_it, mutex) == 0);
        SETUP(pthread_join(thread, NULL) == 0);
        push_out(area, AREA);
        RIGHT(pthread_mutex_lock(mutex) == EOWNERDEAD);
        RIGHT(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
        pthread_mutex_t *pi = (pthread_mutex_t *)(area + (100 + i) * PAGE);
        SETUP(pthread_mutex_init(pi, &inherits) == 0 && pthread_mutex_lock(pi) == 0);
        SETUP(pthread_create(&thread, NULL, waits_for_it, pi) == 0);
        push_out(area, AREA);
        RIGHT(pthread_mutex_unlock(pi) == 0);
        SETUP(pthread_join(thread, NULL) == 0);
    }
}

static void exec(void) {
    char **argv = (char **)(area + 10 * PAGE), **envp = (char **)(area + 20 * PAGE);
    const char *words[] = {"/bin/sh", "-c", "test \"$WORD\" = right && exit 7"};
    for (int i = 0; i < 3; i++)
        argv[i] = strcpy(area + (30 + i) * PAGE - 4, words[i]);
    envp[0] = strcpy(area + 50 * PAGE - 3, "WORD=right");
    for (int i = 0; i < 2; i++) {
        push_out(area, AREA);
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            push_out(area, AREA);
            execve(argv[0], argv, envp);
            _exit(1);
        }
        int status;
        SETUP(waitpid(child, &status, 0) == child);
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        push_out(area, AREA);
        SETUP(posix_spawn(&child, argv[0], NULL, NULL, argv, envp) == 0);
        SETUP(waitpid(child, &status, 0) == child);
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
}

static int answer[2];

static void *answers(void *arg) {
    push_out(area, AREA);
    SETUP(write(answer[1], "", 1) == 1);
    return arg;
}

static void tasks(void) {
    fill_range(area, AREA, TAG);
    pthread_t thread;
    SETUP(pipe(answer) == 0 && pthread_create(&thread, NULL, answers, NULL) == 0);
    // The thread goes on whatever the child of a vfork waits for.
    pid_t child = vfork();
    SETUP(child >= 0);
    if (child == 0) {
        char byte;
        _exit(read(answer[0], &byte, 1) != 1);
    }
    expect_child(child, "that its parent's thread answers");
    SETUP(pthread_join(thread, NULL) == 0);
    check_range(area, AREA, TAG, "beside a vfork");
    push_out(area, AREA);
    // CLONE_FILES
    child = (pid_t)syscall(SYS_clone, 0x400 | SIGCHLD, 0, 0, 0, 0);
    SETUP(child >= 0);
    if (child == 0) {
        check_range(area, AREA, TAG, "of a child that shares descriptors");
        syscall(SYS_exit_group, 0);
    }
    expect_child(child, "that shares descriptors");
    check_range(area, AREA, TAG, "of a parent that shares descriptors");
    fill_range(area, AREA, TAG + AREA);
    push_out(area, AREA);
    check_range(area, AREA, TAG + AREA, "written after that");
}

static void space(void) {
    // A hole: the call fails, and has been made for the rest.
    fill_range(area, AREA, TAG);
    SETUP(munmap(area + 200 * PAGE, PAGE) == 0);
    push_out(area, 200);
    RIGHT(madvise(area, AREA * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM);
    check_zeros(area, 200, "discarded before a hole");
    check_zeros(area + 201 * PAGE, AREA - 201, "discarded behind a hole");
    fill_range(area, 200, TAG);
    push_out(area, 200);
    RIGHT(mprotect(area, AREA * PAGE, PROT_READ) == -1 && errno == ENOMEM);
    check_range(area, 200, TAG, "protected before a hole");
    press();
    check_range(area, 200, TAG, "protected before a hole");
    RIGHT(mprotect(area, 200 * PAGE, PROT_READ | PROT_WRITE) == 0);
    fill_range(area, 200, TAG + AREA);
    push_out(area, 200);
    check_range(area, 200, TAG + AREA, "writable again");
    // A signal stack that was discarded.
    enum { STACK = 32 * PAGE };
    char *stack = map_new(STACK);
    push_out(stack, STACK / PAGE);
    stack_t wanted = {.ss_sp = stack, .ss_size = STACK};
    struct sigaction tick = {.sa_handler = ticks, .sa_flags = SA_ONSTACK};
    SETUP(sigaltstack(&wanted, NULL) == 0 && sigaction(SIGUSR1, &tick, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        SETUP(madvise(stack, STACK, MADV_DONTNEED) == 0);
        press();
        SETUP(raise(SIGUSR1) == 0);
    }
    // Moved and grown, again and again, while parts of it are closed and open.
    size_t pages = 64;
    char *at = map_new(pages * PAGE);
    fill_range(at, pages, TAG);
    for (; pages < 2048; pages *= 2) {
        push_out(at, pages);
        for (size_t i = 0; i < pages; i += 7)
            check_page(at + i * PAGE, TAG + i, "to be moved");
        char *to = map_new(2 * pages * PAGE);
        at = mremap(at, pages * PAGE, 2 * pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        RIGHT(at == to);
        check_range(at, pages, TAG, "moved");
        check_zeros(at + pages * PAGE, pages, "grown");
        fill_range(at, 2 * pages, TAG);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "calls";
    area = map_new(AREA * PAGE);
    if (strcmp(what, "race") == 0)
        race();
    else if (strcmp(what, "signals") == 0)
        signals();
    else if (strcmp(what, "locks") == 0)
        locks();
    else if (strcmp(what, "exec") == 0)
        exec();
    else if (strcmp(what, "tasks") == 0)
        tasks();
    else if (strcmp(what, "space") == 0)
        space();
    else
        calls();
    return 0;
}
