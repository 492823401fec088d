// Memory that becomes usable otherwise than by a plain mmap: nothing but the program's own touches
// of it would ever make room, and what is open from the start is touched without a fault.
#include "inthread_kit.h"

enum { SOME = 8192, STEP = 256 }; // pages: 32 MiB, and 1 MiB

static char still[SOME * PAGE] __attribute__((aligned(4096)));

// Writes to all of it, in order, and reads it twice; then most of it cannot be in memory, where
// `high` is less (12 MiB). (What it is made usable by comes first, for each step.)
static void go_over(char *at, void (*use)(char *at, size_t pages), size_t step) {
    for (size_t page = 0; page < SOME; page++) {
        if (use && page % step == 0)
            use(at + page * PAGE, step);
        uint64_t *word = (uint64_t *)(at + page * PAGE);
        RIGHT(word[0] == 0 && word[511] == 0);
        word[0] = page + 1, word[511] = ~page;
    }
    for (int round = 0; round < 2; round++)
        for (size_t page = 0; page < SOME; page++) {
            uint64_t *word = (uint64_t *)(at + page * PAGE);
            if (word[0] != page + 1 || word[511] != ~page)
                die(1, case_now, word, "a wrong byte");
        }
    if (managed() && resident(at, SOME) > SOME / 2)
        die(1, case_now, at, "is in memory, all of it");
}

static char *reserved(void) {
    char *at = mmap(NULL, SOME * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(at != MAP_FAILED);
    return at;
}

static void drop(char *at) { SETUP(munmap(at, SOME * PAGE) == 0); }

static void writable(char *at, size_t pages) { RIGHT(mprotect(at, pages * PAGE, 3) == 0); }

// As runtimes and malloc's arenas do.
static void by_steps(void) {
    char *at = reserved();
    go_over(at, writable, STEP);
    drop(at);
}

static void by_pages(void) {
    char *at = reserved();
    go_over(at, writable, 1);
    drop(at);
}

static void at_once(void) {
    char *at = reserved();
    writable(at, SOME);
    go_over(at, NULL, 0);
    drop(at);
}

// What it held before it could not be read is there afterwards.
static void again(void) {
    char *at = map_new(SOME * PAGE);
    go_over(at, NULL, 0);
    RIGHT(mprotect(at, SOME * PAGE, PROT_NONE) == 0);
    writable(at, SOME);
    for (size_t page = 0; page < SOME; page++)
        RIGHT(*(uint64_t *)(at + page * PAGE) == page + 1);
    // (The call that made it readable had it all in memory. What is too much leaves as calls are made.)
    double until = seconds() + 10;
    while (managed() && resident(at, SOME) > SOME / 2)
        if (seconds() > until)
            die(1, case_now, at, "is in memory, all of it");
    drop(at);
}

static void prefaulted(void) {
    const int advice[] = {22, 23}; // MADV_POPULATE_READ and _WRITE
    for (int i = 0; i < 2; i++) {
        char *at = map_new(SOME * PAGE);
        RIGHT(madvise(at, SOME * PAGE, advice[i]) == 0);
        go_over(at, NULL, 0);
        RIGHT(madvise(at, SOME * PAGE, advice[i]) == 0);
        for (size_t page = 0; page < SOME; page++)
            RIGHT(*(uint64_t *)(at + page * PAGE) == page + 1);
        // A hole in it: what lies before is done.
        RIGHT(munmap(at + SOME / 2 * PAGE, PAGE) == 0);
        errno = 0;
        RIGHT(madvise(at, SOME * PAGE, advice[i]) == -1 && errno == ENOMEM);
        RIGHT(madvise(at + 1, PAGE, advice[i]) == -1 && errno == EINVAL);
        drop(at);
    }
}

static void mapped_prefaulted(void) {
    char *at = mmap(NULL, SOME * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SETUP(at != MAP_FAILED);
    go_over(at, NULL, 0);
    drop(at);
}

static void static_data(void) {
    go_over(still, NULL, 0);
    RIGHT(madvise(still, SOME * PAGE, MADV_DONTNEED) == 0);
    go_over(still, NULL, 0);
}

CASES({"static_data", static_data}, {"by_steps", by_steps}, {"by_pages", by_pages}, {"at_once", at_once},
      {"again", again}, {"prefaulted", prefaulted}, {"mapped_prefaulted", mapped_prefaulted})
