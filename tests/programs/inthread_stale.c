// A fault is raised while its page is ours, and served when it is not any more: another thread has
// protected, locked, or mapped over it meanwhile. It is not the program's, which would be told of a
// signal that bare nobody sends.
#include "inthread_kit.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { STALE = 64 };
static const tag_t TAG = 77000;
static _Atomic int stopping;
static double ends; // of a case, seconds()

static void *presses(void *arg) {
    char *ballast = map_new(KIT_BALLAST / 2);
    while (!stopping)
        for (size_t at = 0; at < KIT_BALLAST / 2 && !stopping; at += PAGE)
            *(volatile char *)(ballast + at) += 1;
    munmap(ballast, KIT_BALLAST / 2);
    return arg;
}

static void *reads(void *arg) {
    for (unsigned at = (unsigned)(uintptr_t)arg; !stopping; at = at * 1103515245 + 12345)
        check_range(area + (at >> 8) % STALE * PAGE, 1, TAG + (at >> 8) % STALE, "read");
    return arg;
}

static void beside_readers(void (*turn)(void)) {
    pthread_t threads[4];
    fill_range(area, STALE, TAG);
    stopping = 0;
    ends = seconds() + 1;
    for (uintptr_t i = 0; i < 4; i++)
        SETUP(pthread_create(&threads[i], NULL, i < 2 ? presses : reads, (void *)(i + 3)) == 0);
    while (seconds() < ends)
        turn(), usleep(20000);
    stopping = 1;
    for (int i = 0; i < 4; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
    check_range(area, STALE, TAG, "in the end");
}

static void protects(void) {
    RIGHT(mprotect(area, STALE * PAGE, PROT_READ) == 0);
    usleep(1000);
    RIGHT(mprotect(area, STALE * PAGE, PROT_READ | PROT_WRITE) == 0);
}
static void protected_beside(void) { beside_readers(protects); }

static void locks_and_unlocks(void) {
    if (mlock(area, STALE * PAGE) != 0) // more than RLIMIT_MEMLOCK
        RIGHT(errno == ENOMEM || errno == EPERM);
    usleep(1000);
    RIGHT(munlock(area, STALE * PAGE) == 0);
}
static void locked_beside(void) { beside_readers(locks_and_unlocks); }

// The same bytes by a mapping of another kind, and back.
static void maps_over(void) {
    static int file = -1;
    static char copy[STALE * PAGE];
    if (file < 0) {
        fill_range(copy, STALE, TAG);
        SETUP((file = memfd_create("stale", 0)) >= 0 && write(file, copy, sizeof copy) == sizeof copy);
    }
    int flags = MAP_SHARED | MAP_FIXED;
    RIGHT(mmap(area, STALE * PAGE, PROT_READ | PROT_WRITE, flags, file, 0) == area);
    usleep(1000);
    // (A new mapping in its place is made whole before it is seen: mremap moves it there.)
    char *new = map_new(STALE * PAGE);
    fill_range(new, STALE, TAG);
    RIGHT(mremap(new, STALE * PAGE, STALE * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area) == area);
}
static void mapped_over_beside(void) { beside_readers(maps_over); }

// A collector's barrier: who writes to what is read-only is told so, and by no other signal.
static _Atomic unsigned barriers;
static void opens(int number, siginfo_t *info, void *context) {
    char *at = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    (void)context;
    if (number != SIGSEGV || info->si_code != SEGV_ACCERR || at < area || at >= area + STALE * PAGE)
        die(1, "a barrier", at, "another signal than bare");
    barriers++;
    RIGHT(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void *writes(void *arg) {
    for (unsigned at = (unsigned)(uintptr_t)arg; !stopping; at = at * 1103515245 + 12345)
        atomic_fetch_add((_Atomic unsigned *)(area + (at >> 8) % STALE * PAGE + 64), 1);
    return arg;
}

static void barriers_beside(void) {
    pthread_t threads[4];
    struct sigaction action = {.sa_sigaction = opens, .sa_flags = SA_SIGINFO}, before[2];
    RIGHT(sigaction(SIGSEGV, &action, &before[0]) == 0 && sigaction(SIGBUS, &action, &before[1]) == 0);
    stopping = 0;
    ends = seconds() + 1;
    for (uintptr_t i = 0; i < 4; i++)
        SETUP(pthread_create(&threads[i], NULL, i < 2 ? presses : writes, (void *)(i + 3)) == 0);
    while (seconds() < ends) {
        RIGHT(mprotect(area, STALE * PAGE, PROT_READ) == 0);
        usleep(10000);
    }
    RIGHT(mprotect(area, STALE * PAGE, PROT_READ | PROT_WRITE) == 0);
    stopping = 1;
    for (int i = 0; i < 4; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
    RIGHT(barriers > 0);
    RIGHT(sigaction(SIGSEGV, &before[0], NULL) == 0 && sigaction(SIGBUS, &before[1], NULL) == 0);
}

CASES({"protected_beside", protected_beside}, {"locked_beside", locked_beside},
      {"mapped_over_beside", mapped_over_beside}, {"barriers_beside", barriers_beside})
