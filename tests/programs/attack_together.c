// Several at once: threads and processes that read and write by one descriptor, change mappings, fork, exec
// and end beside one another, each looking after what is its own.
#include "inthread_kit.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { MANY = 64, TAG = 700000, STEADY = 1024 };
static const double LASTS = 0.5; // seconds, of each of what is a race
static volatile int stop;
static char *steady; // STEADY pages that nobody changes

static void *squeezes(void *unused) {
    while (!stop)
        squeeze();
    return unused;
}

// Runs threads of each of these functions, with 1, 2, ... as argument, and one that moves memory out.
static void begin(pthread_t *threads, int count, void *(*const *functions)(void *)) {
    stop = 0;
    for (int i = 0; i < count; i++)
        SETUP(pthread_create(&threads[i], NULL, functions[i], (void *)(uintptr_t)(i + 1)) == 0);
}

static void end(pthread_t *threads, int count) {
    stop = 1;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void steady_out(void) {
    steady = map_new(STEADY * PAGE);
    fill_range(steady, STEADY, TAG);
    squeeze();
}

// --- one descriptor -------------------------------------------------------------------------

enum { BLOCK = 4 << 20, BLOCKS = 6 };
static int shared;

static void all_of_block(const char *at, uint64_t first, int step, const char *what) {
    for (size_t i = 0; i < BLOCK; i += 8)
        if (*(const uint64_t *)(at + i) != first + (step ? i : 0))
            die(1, "a block", at + i, what);
}

static void *reads_blocks(void *unused) {
    char *to = map_new(BLOCK);
    for (ssize_t got; (got = read(shared, to, BLOCK)) != 0;) {
        RIGHT(got == BLOCK && *(uint64_t *)to % BLOCK == 0);
        all_of_block(to, *(uint64_t *)to, 1, "two reads have parts of one another");
    }
    munmap(to, BLOCK);
    return unused;
}

static void *writes_blocks(void *which) {
    char *from = map_new(BLOCK);
    struct iovec halves[2] = {{from, BLOCK / 2}, {from + BLOCK / 2, BLOCK / 2}};
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < BLOCK; i += 8)
            *(uint64_t *)(from + i) = (uintptr_t)which * 10 + turn;
        RIGHT((turn ? write(shared, from, BLOCK) : writev(shared, halves, 2)) == BLOCK);
    }
    munmap(from, BLOCK);
    return which;
}

// Each read and write of a file is one, however long: what is read by the same descriptor meanwhile is
// what follows.
static void one_descriptor(void) {
    shared = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    SETUP(shared >= 0);
    char *block = map_new(BLOCK);
    for (uint64_t at = 0; at < BLOCKS * (uint64_t)BLOCK; at += BLOCK) {
        for (size_t i = 0; i < BLOCK; i += 8)
            *(uint64_t *)(block + i) = at + i;
        SETUP(write(shared, block, BLOCK) == BLOCK);
    }
    SETUP(lseek(shared, 0, SEEK_SET) == 0);
    pthread_t threads[3];
    pid_t child = fork();
    if (child == 0) { // (by the same descriptor too)
        reads_blocks(NULL);
        _exit(0);
    }
    begin(threads, 3, (void *(*[])(void *)){reads_blocks, reads_blocks, squeezes});
    expect_child(child, "who reads");
    end(threads, 3);
    RIGHT(lseek(shared, 0, SEEK_CUR) == BLOCKS * (off_t)BLOCK);
    SETUP(ftruncate(shared, 0) == 0 && lseek(shared, 0, SEEK_SET) == 0);
    begin(threads, 3, (void *(*[])(void *)){writes_blocks, writes_blocks, writes_blocks});
    end(threads, 3);
    SETUP(lseek(shared, 0, SEEK_SET) == 0);
    for (int i = 0; i < 6; i++) {
        RIGHT(read(shared, block, BLOCK) == BLOCK);
        all_of_block(block, *(uint64_t *)block, 0, "two writes have parts of one another");
    }
    RIGHT(read(shared, block, BLOCK) == 0);
    close(shared), munmap(block, BLOCK);
}

#define PLACE(fd) lseek(fd, 0, SEEK_CUR)

// Where a descriptor is after a call that was long, short, refused or at a limit.
static void places_in_files(void) {
    int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), other, reads = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    SETUP(file >= 0 && reads >= 0);
    char *from = map_new(BLOCK), *to = map_new(BLOCK);
    fill_range(from, BLOCK / PAGE, TAG);
    squeeze();
    struct iovec vectors[3] = {{from, 100}, {from + 100, BLOCK - 4196}, {from + BLOCK - 4096, 4096}};
    RIGHT(pwritev2(file, vectors, 3, -1, 0) == BLOCK && PLACE(file) == BLOCK);
    RIGHT(pwritev2(file, vectors, 3, -1, RWF_APPEND) == BLOCK && lseek(file, 0, SEEK_END) == 2 * BLOCK);
    squeeze();
    for (int before = 0; before < 2; before++) {
        lseek(file, BLOCK + before * 100, SEEK_SET);
        RIGHT(read(file, to, BLOCK) == BLOCK - before * 100 && PLACE(file) == 2 * BLOCK && read(file, to, BLOCK) == 0);
        RIGHT(memcmp(to, from + before * 100, BLOCK - before * 100) == 0);
    }
    SETUP((other = dup(file)) >= 0 && lseek(file, 0, SEEK_SET) == 0);
    RIGHT(read(other, to, BLOCK) == BLOCK && PLACE(file) == BLOCK);
    check_range(to, BLOCK / PAGE, TAG, "read by a copy of a descriptor");
    SETUP(fcntl(file, F_SETFL, O_APPEND) == 0 && lseek(file, 0, SEEK_SET) == 0);
    RIGHT(write(file, from, BLOCK) == BLOCK && PLACE(file) == 3 * BLOCK);
    RIGHT(write(reads, from, BLOCK) == -1 && errno == EBADF && PLACE(reads) == 0);
    // What is read is cut short by the end of the memory.
    SETUP(fcntl(file, F_SETFL, 0) == 0 && lseek(file, 0, SEEK_SET) == 0 && munmap(to + (3 << 20), 1 << 20) == 0);
    RIGHT(read(file, to, BLOCK) == 3 << 20 && PLACE(file) == 3 << 20);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){6 << 20, 6 << 20});
        SETUP(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
        RIGHT(write(file, from, BLOCK) == BLOCK && write(file, from, BLOCK) == 2 << 20 && PLACE(file) == 6 << 20);
        RIGHT(write(file, from, BLOCK) == -1 && errno == EFBIG && PLACE(file) == 6 << 20);
        _exit(0);
    }
    expect_child(child, "at a limit");
    close(file), close(other), close(reads);
    munmap(from, BLOCK), munmap(to, 3 << 20);
}

// --- mappings -------------------------------------------------------------------------------

// What a child is not to have, or as zeros, it does not have where that has moved, either.
static void advice_moves(void) {
    for (int turn = 0; turn < 6; turn++) {
        int wipes = turn % 2;
        char *at = map_new(4 * MANY * PAGE), *to = map_new(8 * MANY * PAGE);
        fill_range(at, 4 * MANY, TAG);
        squeeze();
        RIGHT(madvise(at + MANY * PAGE, MANY * PAGE, wipes ? MADV_WIPEONFORK : MADV_DONTFORK) == 0);
        RIGHT(mremap(at + MANY * PAGE, MANY * PAGE, 2 * MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        size_t kept = turn < 2 ? 0 : MANY / 2;
        if (turn >= 2)
            RIGHT(madvise(to, MANY / 2 * PAGE, wipes ? MADV_KEEPONFORK : MADV_DOFORK) == 0);
        if (turn >= 4)
            RIGHT(mprotect(to + 10 * PAGE, 80 * PAGE, PROT_READ) == 0 && mprotect(to + 10 * PAGE, 80 * PAGE, 3) == 0);
        squeeze();
        pid_t child = fork();
        if (child == 0) {
            check_range(at, MANY, TAG, "a child's"), check_range(at + 2 * MANY * PAGE, 2 * MANY, TAG + 2 * MANY, "a child's");
            check_range(to, kept, TAG + MANY, "a child's after all");
            // (Where nothing is, something of ours may be mapped.)
            for (size_t i = kept; i < 2 * MANY; i++) {
                unsigned char present;
                if (wipes)
                    check_page(to + i * PAGE, 0, "a child's zeros, moved");
                else
                    RIGHT(managed() || mincore(to + i * PAGE, PAGE, &present) == -1);
            }
            _exit(0);
        }
        expect_child(child, "advice has moved");
        check_range(to, MANY, TAG + MANY, "moved"), check_zeros(to + MANY * PAGE, MANY, "grown");
        munmap(at, MANY * PAGE), munmap(at + 2 * MANY * PAGE, 2 * MANY * PAGE), munmap(to, 8 * MANY * PAGE);
    }
}

// Advice about ranges of which a part is not there says so, and is done to the rest.
static void advised_with_holes(void) {
    const int advice[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_DONTNEED};
    char *at = map_new(4 * MANY * PAGE);
    fill_range(at, 4 * MANY, TAG);
    SETUP(munmap(at + 2 * MANY * PAGE, 4 * PAGE) == 0);
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
        out_of_memory(at, MANY, 4);
        RIGHT(madvise(at, 4 * MANY * PAGE, advice[i]) == -1 && (errno == ENOMEM || (errno == EBADF && advice[i] == MADV_WILLNEED)));
        RIGHT(advice[i] == MADV_WILLNEED || madvise(at, MANY * PAGE, advice[i]) == 0);
        if (advice[i] == MADV_DONTNEED)
            check_zeros(at, 2 * MANY, "discarded"), check_zeros(at + (2 * MANY + 4) * PAGE, 2 * MANY - 4, "discarded");
        else
            check_range(at, 2 * MANY, TAG, "advised");
    }
    munmap(at, 4 * MANY * PAGE);
}

static void *changes_mappings(void *which) {
    uint64_t seed = (uintptr_t)which;
    char *at = map_new(MANY * PAGE), *new;
    fill_range(at, MANY, TAG);
    while (!stop) {
        seed = mix(seed + 1);
        switch (seed % 5) {
        case 0:
            new = mremap(at, MANY * PAGE, 2 * MANY * PAGE, MREMAP_MAYMOVE);
            if (new != MAP_FAILED) { // (By messages: several mappings, for a moment.)
                check_zeros(new + MANY * PAGE, 3, "grown");
                RIGHT(munmap(new + MANY * PAGE, MANY * PAGE) == 0);
                at = new;
            }
            break;
        case 1:
            RIGHT(madvise(at + 8 * PAGE, 8 * PAGE, MADV_DONTNEED) == 0);
            check_zeros(at + 8 * PAGE, 8, "discarded");
            fill_range(at + 8 * PAGE, 8, TAG + 8);
            break;
        case 2:
            RIGHT(mprotect(at + 20 * PAGE, 9 * PAGE, PROT_READ) == 0);
            check_range(at + 20 * PAGE, 9, TAG + 20, "protected");
            RIGHT(mprotect(at + 20 * PAGE, 9 * PAGE, 3) == 0);
            break;
        case 3:
            new = map_new(MANY * PAGE);
            fill_range(new, 10, 5);
            if (mremap(at, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, new) == new)
                at = new;
            else
                munmap(new, MANY * PAGE);
            break;
        default: check_range(at, MANY, TAG, "of a thread");
        }
    }
    check_range(at, MANY, TAG, "of a thread, at the end");
    munmap(at, MANY * PAGE);
    return which;
}

// --- processes ------------------------------------------------------------------------------

static void *forks(void *which) {
    for (int turn = 0; !stop; turn++) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = (uintptr_t)which; i < STEADY; i += 17)
                check_page(steady + i * PAGE, TAG + i, "of a child beside others");
            if (turn % 3 == 0) {
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    fill_range(steady, 8, 3);
                    check_range(steady + 8 * PAGE, 64, TAG + 8, "of a grandchild");
                    _exit(0);
                }
                expect_child(grandchild, "of a child beside others");
                check_range(steady, 8, TAG, "of a child");
            }
            _exit(0);
        }
        RIGHT(child > 0);
        expect_child(child, "beside others");
    }
    return NULL;
}

static void forks_beside_all(void) {
    pthread_t threads[6];
    steady_out();
    begin(threads, 6, (void *(*[])(void *)){changes_mappings, changes_mappings, forks, forks, forks, squeezes});
    usleep((useconds_t)(LASTS * 1e6));
    end(threads, 6);
    check_range(steady, STEADY, TAG, "that nobody changes");
    munmap(steady, STEADY * PAGE);
}

static void execs_beside_all(void) {
    for (int turn = 0; turn < 6; turn++) {
        pid_t child = fork(), got;
        if (child == 0) {
            pthread_t threads[4];
            steady_out();
            begin(threads, 4, (void *(*[])(void *)){changes_mappings, forks, squeezes, changes_mappings});
            usleep(20000 + mix(turn) % 60000);
            char *script = strcpy(map_new(PAGE), "exit 7"), *argv[] = {(char *)"sh", (char *)"-c", script, NULL};
            execv("/bin/sh", argv);
            _exit(1);
        }
        int status;
        while ((got = waitpid(child, &status, 0)) == -1 && errno == EINTR)
            ;
        RIGHT(got == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
}

// --- threads and signals --------------------------------------------------------------------

static void *lives_shortly(void *which) {
    volatile char here[3000];
    int page = (uintptr_t)which * 7 % STEADY;
    memset((void *)here, (int)(uintptr_t)which, sizeof here);
    check_page(steady + page * PAGE, TAG + page, "of a thread that ends");
    for (size_t i = 0; i < sizeof here; i++)
        RIGHT(here[i] == (char)(uintptr_t)which);
    return NULL;
}

// Threads on stacks that are other memory before they are gone from.
static void *makes_threads(void *which) {
    for (unsigned turn = 0; !stop; turn++) {
        size_t pages = 16 + mix(turn + (uintptr_t)which) % 16;
        char *stack = map_new(pages * PAGE), *moved = stack;
        pthread_attr_t attr;
        pthread_attr_init(&attr), pthread_attr_setstack(&attr, stack, pages * PAGE);
        pthread_t thread;
        RIGHT(pthread_create(&thread, &attr, lives_shortly, (void *)(uintptr_t)turn) == 0);
        pthread_join(thread, NULL);
        fill_range(stack, pages, 7 * turn);
        if (turn % 2)
            RIGHT((moved = mremap(stack, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map_new(pages * PAGE))) != MAP_FAILED);
        check_range(moved, pages, 7 * turn, "what was a stack");
        munmap(moved, pages * PAGE);
    }
    return NULL;
}

static void stacks_in_turns(void) {
    pthread_t threads[4];
    steady_out();
    begin(threads, 4, (void *(*[])(void *)){makes_threads, makes_threads, makes_threads, squeezes});
    usleep((useconds_t)(LASTS * 1e6));
    end(threads, 4);
    munmap(steady, STEADY * PAGE);
}

static volatile long handled;
static void nests(int signal) {
    int errno_ = errno, page = handled++ * 37 % STEADY, status;
    (void)signal;
    check_page(steady + page * PAGE, TAG + page, "in a handler");
    if (page % 5 == 0) {
        char *new = map_new(16 * PAGE);
        new[0] = 1, new[9 * PAGE] = 2;
        munmap(new, 16 * PAGE);
    }
    if (page % 7 == 0)
        nanosleep(&(struct timespec){0, 200000}, NULL);
    if (page % 64 == 0) {
        pid_t child = (pid_t)syscall(SYS_fork);
        if (child == 0) {
            check_page(steady + 5 * PAGE, TAG + 5, "of a handler's child");
            syscall(SYS_exit_group, 0);
        }
        while (waitpid(child, &status, 0) == -1 && errno == EINTR)
            ;
        RIGHT(status == 0);
    }
    errno = errno_;
}

// Handlers within handlers, of three timers, each of which touches, maps, sleeps and forks.
static void timers_within_timers(void) {
    const int signals[] = {SIGALRM, SIGVTALRM, SIGPROF}, timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    int fds[2];
    char bytes[3000];
    steady_out();
    SETUP(pipe(fds) == 0);
    struct sigaction action = {.sa_handler = nests, .sa_flags = SA_NODEFER | SA_RESTART}, was[3];
    for (int i = 0; i < 3; i++) {
        SETUP(sigaction(signals[i], &action, &was[i]) == 0);
        int every = i == 0 ? 1500 : 5000;
        setitimer(timers[i], &(struct itimerval){{0, every}, {0, every}}, NULL);
    }
    double until = seconds() + LASTS;
    for (unsigned turn = 0; seconds() < until; turn++) {
        char *page = steady + turn * 13 % STEADY * PAGE;
        RIGHT(write(fds[1], page, sizeof bytes) == sizeof bytes && read(fds[0], bytes, sizeof bytes) == sizeof bytes);
        RIGHT(memcmp(bytes, page, sizeof bytes) == 0);
        if (turn % 50 == 0) {
            char *new = map_new(3000 * PAGE);
            fill_range(new, 3000, TAG);
            munmap(new, 3000 * PAGE);
        }
    }
    for (int i = 0; i < 3; i++) {
        setitimer(timers[i], &(struct itimerval){{0, 0}, {0, 0}}, NULL);
        SETUP(sigaction(signals[i], &was[i], NULL) == 0);
    }
    check_range(steady, STEADY, TAG, "that nobody changes");
    close(fds[0]), close(fds[1]);
    munmap(steady, STEADY * PAGE);
}

CASES({"one_descriptor", one_descriptor}, {"places_in_files", places_in_files}, {"advice_moves", advice_moves},
      {"advised_with_holes", advised_with_holes}, {"forks_beside_all", forks_beside_all}, {"execs_beside_all", execs_beside_all},
      {"stacks_in_turns", stacks_in_turns}, {"timers_within_timers", timers_within_timers})
