// Locks that the kernel walks without waiting for a page, in memory that nobody has touched
// for long: robust ones whose owner ends, with and without priority inheritance, and futex
// calls made by syscall(2). Each lock has a page of its own, between others, which go out; as
// well where they are parts of huge pages.
#define _GNU_SOURCE
#include "check.h"
#include <linux/futex.h>

enum { PAGES = 4096, LOCKS = 64, STEP = PAGES / LOCKS };

static char *area;
static pthread_barrier_t met;

static pthread_mutex_t *lock_at(int n) { return (pthread_mutex_t *)(area + (size_t)n * STEP * PAGE + 512); }
static uint32_t *word_at(int n) { return (uint32_t *)(area + ((size_t)n * STEP + 7) * PAGE); }

static void *owner(void *unused) {
    for (int n = 0; n < LOCKS; n++)
        SETUP(pthread_mutex_lock(lock_at(n)) == 0);
    pthread_barrier_wait(&met);
    pthread_barrier_wait(&met);
    return unused; // with all of them
}

static void make_locks(void) {
    for (int n = 0; n < LOCKS; n++) {
        pthread_mutexattr_t as;
        pthread_mutexattr_init(&as);
        pthread_mutexattr_setrobust(&as, PTHREAD_MUTEX_ROBUST);
        if (n % 2)
            pthread_mutexattr_setprotocol(&as, PTHREAD_PRIO_INHERIT);
        SETUP(pthread_mutex_init(lock_at(n), &as) == 0);
    }
}

static void check_neighbours(void) {
    for (size_t i = 0; i < PAGES; i++)
        if (i % STEP != 0 && i % STEP != 7)
            check_page(area + i * PAGE, 1 + i, "beside locks");
}

static void robust(int early) {
    if (early)
        make_locks(); // before there is a manager
    press();
    if (!early) {
        push_out(area, PAGES);
        make_locks(); // where nothing is present
    }
    pthread_barrier_init(&met, NULL, 2);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, owner, NULL) == 0);
    pthread_barrier_wait(&met);
    push_out(area, PAGES);
    pthread_barrier_wait(&met);
    pthread_join(thread, NULL);
    for (int n = 0; n < LOCKS; n++) {
        int got = pthread_mutex_trylock(lock_at(n));
        if (got != EOWNERDEAD)
            die(1, "a lock whose owner has ended", lock_at(n), strerror(got));
    }
    check_neighbours();
}

// A child that libc has forked has the locks of its parent.
static void in_child(void) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        robust(0);
        _exit(0);
    }
    expect_child(child, "a child with locks");
}

static long futex(uint32_t *word, int operation, uint32_t *other, int last) {
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, 1, other ? (void *)1 : NULL, other, last);
}

static void raw(void) {
    for (int n = 0; n < LOCKS; n++)
        *word_at(n) = 0;
    push_out(area, PAGES);
    for (int n = 0; n + 1 < LOCKS; n += 2) {
        long got = futex(word_at(n), FUTEX_LOCK_PI, NULL, 0);
        if (got != 0 || *word_at(n) == 0)
            die(1, "FUTEX_LOCK_PI", word_at(n), strerror(errno));
        got = futex(word_at(n), FUTEX_WAKE_OP, word_at(n + 1), FUTEX_OP(FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0));
        if (got != 0 || *word_at(n + 1) != 5)
            die(1, "FUTEX_WAKE_OP", word_at(n + 1), strerror(errno));
    }
    push_out(area, PAGES);
    for (int n = 0; n + 1 < LOCKS; n += 2)
        if (futex(word_at(n), FUTEX_UNLOCK_PI, NULL, 0) != 0 || *word_at(n) != 0)
            die(1, "FUTEX_UNLOCK_PI", word_at(n), strerror(errno));
    // What is no memory is refused, and kills nobody.
    void *none = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (futex(none, FUTEX_LOCK_PI, NULL, 0) != -1 || errno != EFAULT)
        die(1, "FUTEX_LOCK_PI of nothing", none, strerror(errno));
    check_neighbours();
}

int main(int argc, char **argv) {
    SETUP(argc == 2);
    area = map_aligned((size_t)PAGES * PAGE, 0);
    if (argv[1][0] == 'h')
        madvise(area, (size_t)PAGES * PAGE, MADV_HUGEPAGE);
    fill_range(area, PAGES, 1);
    switch (argv[1][0]) {
    case 'h':
    case 'e': robust(1); break;
    case 'l': robust(0); break;
    case 'c': press(), in_child(); break;
    default: raw();
    }
    return 0;
}
