// Pages that came back to be read, and are written to afterwards in every way there is: what
// leaves as it came must be what it is. The shadow is a version a page.
#include "inthread_kit.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { PAGES = 6144, THREADS = 3 };

struct part {
    char *base;
    uint32_t versions[PAGES];
    uint64_t seed;
    int pages;
};

static void fill(char *at, uint64_t page, uint32_t version) {
    uint64_t word = (page + 1) * 0x9e3779b97f4a7c15 ^ version * 0xff51afd7ed558ccd;
    for (size_t i = 0; i < PAGE / 8; i++)
        ((uint64_t *)at)[i] = version == 0 ? 0 : i % 3 ? i : word;
}

static void check(struct part *part, int page) {
    char want[PAGE];
    fill(want, page, part->versions[page]);
    RIGHT(memcmp(part->base + (size_t)page * PAGE, want, PAGE) == 0);
}

static uint64_t any(struct part *part, uint64_t below) {
    part->seed ^= part->seed << 13, part->seed ^= part->seed >> 7, part->seed ^= part->seed << 17;
    return part->seed % below;
}

// Reads in rows and at random, so that most of what is in memory is clean.
static void read_some(struct part *part, int count) {
    int at = any(part, part->pages);
    for (int i = 0; i < count; i++)
        check(part, any(part, 3) ? (at + i) % part->pages : (int)any(part, part->pages));
}

static void write_by_calls(struct part *part, int page) {
    char bytes[PAGE];
    fill(bytes, page, ++part->versions[page]);
    char *at = part->base + (size_t)page * PAGE;
    struct iovec from = {bytes, PAGE}, to = {at, PAGE};
    int ends[2];
    switch (any(part, 3)) {
    case 0:
        SETUP(pipe(ends) == 0 && write(ends[1], bytes, PAGE) == PAGE);
        RIGHT(read(ends[0], at, PAGE) == PAGE);
        close(ends[0]), close(ends[1]);
        break;
    case 1:
        RIGHT(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == PAGE);
        break;
    default: {
        int file = open("/proc/self/mem", O_RDWR);
        SETUP(file >= 0);
        RIGHT(pwrite(file, bytes, PAGE, (off_t)at) == PAGE);
        close(file);
    }
    }
}

static void change_one(struct part *part, int alone) {
    int page = any(part, part->pages);
    char *at = part->base + (size_t)page * PAGE;
    check(part, page);
    switch (any(part, alone ? 7 : 5)) {
    case 0:
    case 1:
        fill(at, page, ++part->versions[page]);
        break;
    case 2: // One byte of it.
        fill(at, page, part->versions[page] ? part->versions[page] : ++part->versions[page]);
        break;
    case 3:
        write_by_calls(part, page);
        break;
    case 4:
        SETUP(madvise(at, PAGE, MADV_DONTNEED) == 0);
        part->versions[page] = 0;
        break;
    case 5: // Gone, and there anew.
        SETUP(munmap(at, PAGE) == 0);
        SETUP(mmap(at, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        part->versions[page] = 0;
        break;
    default: { // Somewhere else, and back: other pages have been there.
        int rows = 16, first = any(part, part->pages - rows);
        char *from = part->base + (size_t)first * PAGE;
        char *there = mmap(NULL, rows * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SETUP(there != MAP_FAILED);
        RIGHT(mremap(from, rows * PAGE, rows * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
        SETUP(mmap(from, rows * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from);
        if (any(part, 2))
            RIGHT(mremap(there, rows * PAGE, rows * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, from) == from);
        else {
            memcpy(from, there, rows * PAGE);
            SETUP(munmap(there, rows * PAGE) == 0);
        }
    }
    }
}

static struct part *new_part(int pages, uint64_t seed) {
    struct part *part = map_new(sizeof *part);
    part->base = map_new((size_t)pages * PAGE);
    part->pages = pages;
    part->seed = seed;
    for (int page = 0; page < pages; page++)
        fill(part->base + (size_t)page * PAGE, page, part->versions[page] = 1);
    return part;
}

static void go_over(struct part *part, int turns, int alone) {
    for (int turn = 0; turn < turns; turn++) {
        read_some(part, 1 + any(part, 64));
        for (int i = any(part, 6); i > 0; i--)
            change_one(part, alone);
    }
    for (int page = 0; page < part->pages; page++)
        check(part, page);
}

static void by_one(void) { go_over(new_part(PAGES, 88172645463325252), 1200, 1); }

static void *goes_over(void *part) {
    go_over(part, 600, 0);
    return NULL;
}

static void by_several(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        SETUP(pthread_create(&threads[i], NULL, goes_over, new_part(PAGES / THREADS, 1234567 + i)) == 0);
    for (int i = 0; i < THREADS; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
}

// Both sides of a fork have what there was, and change it each for itself.
static void by_both_sides(void) {
    struct part *part = new_part(PAGES / 2, 987654321);
    for (int turn = 0; turn < 6; turn++) {
        read_some(part, PAGES / 4);
        int child = fork();
        SETUP(child >= 0);
        part->seed += child == 0;
        go_over(part, 120, 1);
        if (child == 0)
            _exit(0);
        int status;
        SETUP(waitpid(child, &status, 0) == child);
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

// A thread writes to a word of each page, one page after another, while others only read them:
// what is asked about a page is old when the page goes.
static char *shared;
static _Atomic uint64_t rounds;
static _Atomic int stops;

static void *writes_words(void *arg) {
    for (uint64_t round = 1; !stops; round++) {
        for (size_t at = 0; at < 2048 * PAGE; at += PAGE)
            __atomic_store_n((uint64_t *)(shared + at + 128), round, __ATOMIC_RELAXED);
        rounds = round;
    }
    return arg;
}

static void *reads_words(void *arg) {
    uint64_t least = 0;
    while (!stops) {
        uint64_t whole = rounds;
        for (size_t at = 0; at < 2048 * PAGE; at += PAGE) {
            uint64_t word = __atomic_load_n((uint64_t *)(shared + at + 128), __ATOMIC_RELAXED);
            RIGHT(word >= whole && word >= least);
        }
        least = whole;
    }
    return arg;
}

static void beside_a_writer(void) {
    shared = map_new(2048 * PAGE);
    for (size_t at = 0; at < 2048 * PAGE; at += PAGE)
        memset(shared + at, 1, 64);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        SETUP(pthread_create(&threads[i], NULL, i ? reads_words : writes_words, NULL) == 0);
    double until = seconds() + 1;
    while (seconds() < until)
        squeeze();
    stops = 1;
    for (int i = 0; i < 3; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
}

// Calls whose results the kernel writes to pages that were only read before: each page is looked at,
// so that it is clean, and a call puts its result somewhere in it.
static void kernel_writes(struct part *part, int page) {
    char *at = part->base + (size_t)page * PAGE, *place = at + 512 + any(part, 40) * 64;
    check(part, page);
    int ends[2];
    switch (any(part, 14)) {
    case 0:
        RIGHT(syscall(SYS_getrandom, place, 64, 0) == 64);
        break;
    case 1:
        RIGHT(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, place) == 0);
        break;
    case 2:
        RIGHT(syscall(SYS_uname, place) == 0);
        break;
    case 3:
        RIGHT(syscall(SYS_pipe2, place, 0) == 0);
        close(((int *)place)[0]), close(((int *)place)[1]);
        break;
    case 4:
        RIGHT(syscall(SYS_getcwd, place, 512) > 0);
        break;
    case 5:
        RIGHT(syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, place, 8) == 0);
        break;
    case 6:
        RIGHT(syscall(SYS_sched_getaffinity, 0, 128, place) > 0);
        break;
    case 7:
        RIGHT(syscall(SYS_readlink, "/proc/self/exe", place, 256) > 0);
        break;
    case 8:
        RIGHT(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, place) == 0);
        break;
    case 9:
        RIGHT(syscall(SYS_newfstatat, AT_FDCWD, "/", place, 0) == 0);
        break;
    case 10: { // A list of ready descriptors.
        SETUP(pipe(ends) == 0);
        struct pollfd *polls = (void *)place;
        *(struct pollfd *)polls = (struct pollfd){ends[1], POLLOUT, 0};
        RIGHT(poll(polls, 1, 0) == 1 && polls->revents == POLLOUT);
        close(ends[0]), close(ends[1]);
        break;
    }
    case 11: { // Two places, of two pages.
        int other = (page + 7) % part->pages;
        char *there = part->base + (size_t)other * PAGE + 1024;
        check(part, other);
        struct iovec to[2] = {{place, 8}, {there, 8}};
        SETUP(pipe(ends) == 0 && write(ends[1], "0123456789abcdef", 16) == 16);
        RIGHT(readv(ends[0], to, 2) == 16);
        RIGHT(memcmp(place, "01234567", 8) == 0 && memcmp(there, "89abcdef", 8) == 0);
        close(ends[0]), close(ends[1]);
        fill(part->base + (size_t)other * PAGE, other, ++part->versions[other]);
        break;
    }
    case 12: { // A message, its sender's name and what comes with it.
        SETUP(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && write(ends[1], "message", 8) == 8);
        struct iovec to = {place, 64};
        struct msghdr message = {.msg_iov = &to, .msg_iovlen = 1, .msg_name = place + 128, .msg_namelen = 64,
                                 .msg_control = place + 256, .msg_controllen = 64};
        RIGHT(recvmsg(ends[0], &message, 0) == 8 && memcmp(place, "message", 8) == 0);
        close(ends[0]), close(ends[1]);
        break;
    }
    default: // A lock that is woken with a change of another word.
        *(volatile int *)place;
        RIGHT(syscall(SYS_futex, place, FUTEX_WAKE_OP, 1, 1, place + 64, FUTEX_OP(FUTEX_OP_SET, 77, FUTEX_OP_CMP_EQ, 0)) >= 0);
        RIGHT(*(int *)(place + 64) == 77);
    }
    char want[PAGE];
    fill(want, page, part->versions[page]);
    RIGHT(memcmp(at, want, 512) == 0 && memcmp(at + 3584, want + 3584, 512) == 0);
    fill(at, page, ++part->versions[page]);
}

static void *by_kernel(void *arg) {
    struct part *part = arg;
    for (int turn = 0; turn < 250; turn++) {
        read_some(part, 1 + any(part, 64));
        for (int i = any(part, 6); i > 0; i--)
            kernel_writes(part, any(part, part->pages));
    }
    for (int page = 0; page < part->pages; page++)
        check(part, page);
    return NULL;
}

static void by_the_kernel(void) {
    by_kernel(new_part(PAGES, 424242));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        SETUP(pthread_create(&threads[i], NULL, by_kernel, new_part(PAGES / THREADS, 7654321 + i)) == 0);
    for (int i = 0; i < THREADS; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
}

// A stack of memory that is managed, whose pages below were only read: calls are answered there.
static ucontext_t back, there;
static volatile long looked;

static void on_it(void) {
    for (int turn = 0; turn < 15; turn++) {
        squeeze();
        volatile char *stack = __builtin_frame_address(0);
        for (size_t below = 0; below < 32 * PAGE; below += PAGE)
            looked += stack[-(long)below];
        sigset_t wanted, old;
        sigemptyset(&wanted), sigaddset(&wanted, turn % 2 ? SIGUSR1 : SIGUSR2);
        RIGHT(sigprocmask(SIG_SETMASK, &wanted, NULL) == 0);
        for (size_t below = 0; below < 32 * PAGE; below += PAGE)
            looked += stack[-(long)below];
        RIGHT(sigprocmask(SIG_SETMASK, NULL, &old) == 0);
        RIGHT(sigismember(&old, SIGUSR1) == turn % 2 && sigismember(&old, SIGUSR2) == !(turn % 2));
        struct sigaction action, before = {.sa_handler = SIG_IGN};
        RIGHT(sigaction(SIGUSR1, &before, NULL) == 0 && sigaction(SIGUSR1, NULL, &action) == 0);
        RIGHT(action.sa_handler == SIG_IGN);
    }
    sigset_t none;
    sigemptyset(&none);
    RIGHT(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
}

static void below_a_stack(void) {
    size_t len = 64 * PAGE;
    char *stack = map_new(len);
    memset(stack, 1, len);
    SETUP(getcontext(&there) == 0);
    there.uc_stack.ss_sp = stack, there.uc_stack.ss_size = len, there.uc_link = &back;
    makecontext(&there, on_it, 0);
    SETUP(swapcontext(&back, &there) == 0);
}

CASES({"by_one", by_one}, {"by_several", by_several}, {"by_both_sides", by_both_sides}, {"beside_a_writer", beside_a_writer}, {"by_the_kernel", by_the_kernel},
      {"below_a_stack", below_a_stack})
