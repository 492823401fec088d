// Memory that the program makes read-only after it has filled it: what collectors do that follow
// writes, and runtimes with their images. It leaves as other memory does, and stays read-only.
#include "inthread_kit.h"
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

enum { SOME = 2048, PART = 64 }; // pages: 8 MiB, and 256 KiB

static char *memory;

static void protect(char *at, size_t pages, int as_) { RIGHT(mprotect(at, pages * PAGE, as_) == 0); }

// Filled and read-only.
static void filled(tag_t tag) {
    memory = map_new(SOME * PAGE);
    fill_range(memory, SOME, tag);
    protect(memory, SOME, PROT_READ);
}

static void drop(void) { SETUP(munmap(memory, SOME * PAGE) == 0); }

static void leave(void) { out_of_memory(memory, SOME, 4); }

static void leaves(void) {
    filled(0x1000);
    for (int round = 0; round < 3; round++) {
        leave();
        check_range(memory, SOME, 0x1000, case_now);
    }
    drop();
}

// A write barrier: each page that is written to is made writable by the handler, once.
static volatile size_t written, code;
static char *was_written[SOME];

static void barrier(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    if (page < memory || page >= memory + SOME * PAGE || written == SOME)
        die(1, "barrier", page, "a signal for a page that is none");
    code = info->si_code;
    was_written[written++] = page;
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
        die(1, "barrier", page, "mprotect");
}

static void with_barrier(void) {
    struct sigaction action = {.sa_sigaction = barrier, .sa_flags = SA_SIGINFO}, before;
    SETUP(sigaction(SIGSEGV, &action, &before) == 0);
    filled(0x2000);
    for (int round = 0; round < 3; round++) {
        leave();
        written = 0;
        size_t wrote = 0;
        for (size_t i = round; i < SOME; i += 7, wrote++) {
            // (Half of them are in memory by then, half are out.)
            if (i % 2)
                check_page(memory + i * PAGE, 0x2000 + round * SOME + i, case_now);
            *(volatile uint64_t *)(memory + i * PAGE) = 1;
            RIGHT(written == wrote + 1 && was_written[wrote] == memory + i * PAGE);
            RIGHT(code == SEGV_ACCERR);
            fill_page(memory + i * PAGE, 0x2000 + round * SOME + i);
        }
        RIGHT(written == wrote);
        check_range(memory, SOME, 0x2000 + round * SOME, case_now);
        protect(memory, SOME, PROT_READ | PROT_WRITE);
        fill_range(memory, SOME, 0x2000 + (round + 1) * SOME);
        protect(memory, SOME, PROT_READ);
    }
    SETUP(sigaction(SIGSEGV, &before, NULL) == 0);
    drop();
}

// Read-only in parts, whatever lies beside them; none, and again.
static void in_parts(void) {
    memory = map_new(SOME * PAGE);
    fill_range(memory, SOME, 0x10000);
    for (size_t at = 0; at < SOME; at += 2 * PART)
        protect(memory + at * PAGE, PART, PROT_READ);
    leave();
    check_range(memory, SOME, 0x10000, case_now);
    for (size_t at = PART; at < SOME; at += 2 * PART)
        fill_range(memory + at * PAGE, PART, 0x20000 + at);
    leave();
    for (size_t at = 0; at < SOME; at += 2 * PART) {
        check_range(memory + at * PAGE, PART, 0x10000 + at, case_now);
        check_range(memory + (at + PART) * PAGE, PART, 0x20000 + at + PART, case_now);
    }
    leave();
    // Over both kinds at once, to nothing and back.
    protect(memory + PART / 2 * PAGE, PART, PROT_NONE);
    protect(memory, SOME, PROT_READ | PROT_WRITE);
    check_range(memory, PART, 0x10000, case_now);
    check_range(memory + PART * PAGE, PART, 0x20000 + PART, case_now);
    fill_range(memory, SOME, 0x30000);
    leave();
    check_range(memory, SOME, 0x30000, case_now);
    drop();
}

static void forked(void) {
    filled(0x40000);
    leave();
    for (int n = 0; n < 3; n++) {
        pid_t pid = fork();
        SETUP(pid >= 0);
        if (pid == 0) {
            check_range(memory, SOME, 0x40000, "in the child");
            protect(memory, SOME, PROT_READ | PROT_WRITE);
            fill_range(memory, SOME, 0x50000);
            protect(memory, SOME, PROT_READ);
            squeeze();
            check_range(memory, SOME, 0x50000, "in the child, rewritten");
            _exit(0);
        }
        squeeze();
        check_range(memory, SOME, 0x40000, "in the parent");
        int status;
        RIGHT(waitpid(pid, &status, 0) == pid && status == 0);
    }
    drop();
}

static void calls(void) {
    int ends[2];
    SETUP(pipe(ends) == 0);
    filled(0x60000);
    leave();
    char got[PAGE];
    for (size_t i = 0; i < SOME; i += 5) {
        RIGHT(write(ends[1], memory + i * PAGE, PAGE) == PAGE);
        RIGHT(read(ends[0], got, PAGE) == PAGE);
        check_page(got, 0x60000 + i, case_now);
        // The kernel may not write there.
        RIGHT(write(ends[1], "x", 1) == 1);
        errno = 0;
        RIGHT(read(ends[0], memory + i * PAGE, 1) == -1 && errno == EFAULT);
        RIGHT(read(ends[0], got, 1) == 1);
    }
    check_range(memory, SOME, 0x60000, case_now);
    close(ends[0]), close(ends[1]);
    drop();
}

static sigjmp_buf back;

static void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

// Whether a write to a page is refused, as it is where all of it is read-only.
static int is_refused(char *at) {
    if (sigsetjmp(back, 1))
        return 1;
    *(volatile char *)at = 1;
    return 0;
}

static void moved(void) {
    struct sigaction action = {.sa_handler = jump}, before;
    SETUP(sigaction(SIGSEGV, &action, &before) == 0);
    filled(0x70000);
    leave();
    char *to = mmap(NULL, 2 * SOME * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(to != MAP_FAILED);
    char *at = mremap(memory, SOME * PAGE, SOME * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    RIGHT(at == to);
    memory = at;
    squeeze();
    check_range(memory, SOME, 0x70000, case_now);
    for (size_t i = 0; i < SOME; i += 100)
        RIGHT(is_refused(memory + i * PAGE));
    // Shrinks and grows in place.
    RIGHT(mremap(memory, SOME * PAGE, SOME / 2 * PAGE, 0) == memory);
    check_range(memory, SOME / 2, 0x70000, case_now);
    RIGHT(mremap(memory, SOME / 2 * PAGE, SOME * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
    SETUP(sigaction(SIGSEGV, &before, NULL) == 0);
}

static void discarded(void) {
    filled(0x80000);
    leave();
    RIGHT(madvise(memory + 100 * PAGE, 300 * PAGE, MADV_DONTNEED) == 0);
    check_range(memory, 100, 0x80000, case_now);
    check_zeros(memory + 100 * PAGE, 300, case_now);
    check_range(memory + 400 * PAGE, SOME - 400, 0x80000 + 400, case_now);
    leave();
    check_zeros(memory + 100 * PAGE, 300, case_now);
    protect(memory, SOME, PROT_READ | PROT_WRITE);
    fill_range(memory, SOME, 0x90000);
    leave();
    check_range(memory, SOME, 0x90000, case_now);
    drop();
}

// What is in memory, and not out, is discarded: as much as no step of reclaim takes at once.
static void emptied(void) {
    enum { LAST = 500 };
    for (int round = 0; round < 3; round++) {
        filled(0x98000);
        char *last = memory + (SOME - LAST) * PAGE;
        RIGHT(madvise(last, LAST * PAGE, MADV_DONTNEED) == 0);
        for (int presses = 0; presses < 4; presses++)
            squeeze();
        check_range(memory, SOME - LAST, 0x98000, case_now);
        check_zeros(last, LAST, case_now);
        protect(memory, SOME, PROT_READ | PROT_WRITE);
        fill_range(last, LAST, 0x99000);
        squeeze();
        check_range(last, LAST, 0x99000, case_now);
        drop();
    }
}

// Most of it was never touched, when it becomes read-only and when it is writable again.
static void sparse(void) {
    enum { WIDE = 4 * SOME, APART = 50 };
    struct sigaction action = {.sa_handler = jump}, before;
    SETUP(sigaction(SIGSEGV, &action, &before) == 0);
    squeeze();
    memory = map_new(WIDE * PAGE);
    for (size_t round = 0; round < 4; round++) {
        tag_t tag = 0xb0000 + round * WIDE;
        for (size_t i = 0; i < WIDE; i += APART)
            fill_page(memory + i * PAGE, tag + i);
        protect(memory, WIDE, PROT_READ);
        if (round % 2)
            squeeze();
        RIGHT(is_refused(memory) && is_refused(memory + PAGE) && is_refused(memory + (WIDE - 1) * PAGE));
        for (size_t i = 0; i < WIDE; i++)
            if (i % APART == 0)
                check_page(memory + i * PAGE, tag + i, case_now);
            else if (round < 2 || i % APART < 5)
                check_zeros(memory + i * PAGE, 1, case_now);
        squeeze();
        protect(memory, WIDE, PROT_READ | PROT_WRITE);
        for (size_t i = 0; i < WIDE; i += APART)
            check_page(memory + i * PAGE, tag + i, case_now);
        // (What is between is memory like any other.)
        fill_range(memory + 5 * PAGE, APART - 5, tag);
        check_range(memory + 5 * PAGE, APART - 5, tag, case_now);
        SETUP(madvise(memory + PAGE, (APART - 1) * PAGE, MADV_DONTNEED) == 0);
    }
    SETUP(sigaction(SIGSEGV, &before, NULL) == 0);
    SETUP(munmap(memory, WIDE * PAGE) == 0);
}

// Over a hole mprotect fails, and has changed what lies before it.
static void over_a_hole(void) {
    enum { HOLE = SOME / 2 };
    struct sigaction action = {.sa_handler = jump}, before;
    SETUP(sigaction(SIGSEGV, &action, &before) == 0);
    for (int round = 0; round < 2; round++) {
        tag_t tag = 0xe0000 + round * SOME;
        memory = map_new(SOME * PAGE);
        fill_range(memory, SOME, tag);
        leave();
        SETUP(munmap(memory + HOLE * PAGE, PAGE) == 0);
        RIGHT(mprotect(memory, SOME * PAGE, PROT_READ) == -1 && errno == ENOMEM);
        if (round)
            squeeze();
        for (size_t i = 0; i < SOME; i += 61) {
            if (i == HOLE)
                continue;
            check_page(memory + i * PAGE, tag + i, case_now);
            RIGHT(is_refused(memory + i * PAGE) == (i < HOLE));
            if (i > HOLE)
                fill_page(memory + i * PAGE, tag + i);
        }
        squeeze();
        RIGHT(mprotect(memory, SOME * PAGE, PROT_READ | PROT_WRITE) == -1 && errno == ENOMEM);
        for (size_t i = 0; i < HOLE; i += 7) {
            check_page(memory + i * PAGE, tag + i, case_now);
            RIGHT(!is_refused(memory + i * PAGE));
            fill_page(memory + i * PAGE, tag + i);
        }
        squeeze();
        check_range(memory, HOLE, tag, case_now);
        check_range(memory + (HOLE + 1) * PAGE, SOME - HOLE - 1, tag + HOLE + 1, case_now);
        drop();
    }
    SETUP(sigaction(SIGSEGV, &before, NULL) == 0);
}

// Code that is made, protected and run.
static void code_that_is_made(void) {
    memory = map_new(SOME * PAGE);
    for (size_t i = 0; i < SOME; i++) {
        unsigned char *at = (unsigned char *)memory + i * PAGE;
        at[0] = 0xb8, at[5] = 0xc3; // mov $i, %eax; ret
        memcpy(at + 1, &(unsigned){(unsigned)i}, 4);
    }
    protect(memory, SOME, PROT_READ);
    leave();
    protect(memory, SOME, PROT_READ | PROT_EXEC);
    for (size_t i = 0; i < SOME; i++)
        RIGHT(((unsigned (*)(void))(void *)(memory + i * PAGE))() == i);
    protect(memory, SOME, PROT_READ | PROT_WRITE);
    fill_range(memory, SOME, 0xa0000);
    check_range(memory, SOME, 0xa0000, case_now);
    drop();
}

// Readers everywhere, while one thread rewrites part after part.
static _Atomic tag_t tag_of[SOME / PART];
static _Atomic int stop;
static pthread_rwlock_t locks[SOME / PART];

static void *reads(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    while (!stop) {
        size_t part = (size_t)rand_r(&seed) % (SOME / PART), page = (size_t)rand_r(&seed) % PART;
        pthread_rwlock_rdlock(&locks[part]);
        check_page(memory + (part * PART + page) * PAGE, tag_of[part] + page, "read beside a writer");
        pthread_rwlock_unlock(&locks[part]);
    }
    return NULL;
}

static void *presses(void *arg) {
    while (!stop)
        squeeze();
    return arg;
}

static void beside_threads(void) {
    enum { READERS = 3 };
    memory = map_new(SOME * PAGE);
    for (size_t part = 0; part < SOME / PART; part++) {
        SETUP(pthread_rwlock_init(&locks[part], NULL) == 0);
        tag_of[part] = 0x100000 + part * PART;
        fill_range(memory + part * PART * PAGE, PART, tag_of[part]);
        protect(memory + part * PART * PAGE, PART, PROT_READ);
    }
    pthread_t threads[READERS + 1];
    stop = 0;
    for (uintptr_t t = 0; t < READERS; t++)
        SETUP(pthread_create(&threads[t], NULL, reads, (void *)(t + 1)) == 0);
    SETUP(pthread_create(&threads[READERS], NULL, presses, NULL) == 0);
    double until = seconds() + 2;
    for (size_t n = 0; seconds() < until; n++) {
        size_t part = n * 5 % (SOME / PART);
        char *at = memory + part * PART * PAGE;
        pthread_rwlock_wrlock(&locks[part]);
        protect(at, PART, PROT_READ | PROT_WRITE);
        tag_of[part] += SOME;
        fill_range(at, PART, tag_of[part]);
        protect(at, PART, PROT_READ);
        pthread_rwlock_unlock(&locks[part]);
    }
    stop = 1;
    for (int t = 0; t <= READERS; t++)
        pthread_join(threads[t], NULL);
    for (size_t part = 0; part < SOME / PART; part++)
        check_range(memory + part * PART * PAGE, PART, tag_of[part], case_now);
    drop();
}

CASES({"leaves", leaves}, {"with_barrier", with_barrier}, {"in_parts", in_parts}, {"forked", forked},
      {"calls", calls}, {"moved", moved}, {"discarded", discarded}, {"emptied", emptied}, {"sparse", sparse}, {"over_a_hole", over_a_hole},
      {"code_that_is_made", code_that_is_made}, {"beside_threads", beside_threads})
