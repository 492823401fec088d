// Threads that fault at once, in the same pages, in neighbouring ones and apart, while others
// change the address space under them, fork, and have the kernel read and write there.
#include "inthread_kit.h"
#include <fcntl.h>
#include <sys/uio.h>

enum { FAULTERS = 4, SPREAD = 6 * 1024, TURNS = 6 }; // 24 MiB, twice what may be resident

static char *spread;
static int stop_now;

// The pages of a range were filled with `base` + their number; a few of them are looked at.
static void look(char *at, size_t pages, tag_t base, uint64_t *seed, int count) {
    while (count-- > 0) {
        *seed = mix(*seed + 1);
        size_t page = *seed % pages;
        check_page(at + page * PAGE, base + page, "read beside others");
    }
}

// --- the same pages, by all at once ---------------------------------------------------------

static pthread_barrier_t together;

static void *reads_with_others(void *arg) {
    size_t me = (size_t)(uintptr_t)arg;
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_barrier_wait(&together);
        // (All begin at one page; in odd turns each a page further.)
        for (size_t i = 0; i < SPREAD / 4; i++) {
            size_t page = (i * 4 + (turn % 2) * me) % SPREAD;
            check_page(spread + page * PAGE, 7 + page, "read by all at once");
        }
    }
    return arg;
}

static void same_pages(void) {
    pthread_t threads[FAULTERS];
    spread = map_new(SPREAD * PAGE);
    fill_range(spread, SPREAD, 7);
    SETUP(pthread_barrier_init(&together, NULL, FAULTERS) == 0);
    for (size_t i = 0; i < FAULTERS; i++)
        SETUP(pthread_create(&threads[i], NULL, reads_with_others, (void *)i) == 0);
    for (size_t i = 0; i < FAULTERS; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
    check_range(spread, SPREAD, 7, "after all have read it");
    SETUP(munmap(spread, SPREAD * PAGE) == 0);
}

// --- each word of a page by another thread ---------------------------------------------------

static void *counts_in_words(void *arg) {
    size_t me = (size_t)(uintptr_t)arg;
    uint64_t seed = me;
    for (int i = 0; i < 30000; i++) {
        seed = mix(seed + 1);
        uint64_t *word = (uint64_t *)(spread + seed % SPREAD * PAGE) + me;
        __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
        // Counted by all: no addition may be lost where a page goes and comes.
        __atomic_fetch_add((uint64_t *)(spread + seed % 61 * PAGE) + 100, 1, __ATOMIC_RELAXED);
    }
    return arg;
}

static void no_write_is_lost(void) {
    pthread_t threads[FAULTERS];
    spread = map_new(SPREAD * PAGE);
    for (size_t i = 0; i < FAULTERS; i++)
        SETUP(pthread_create(&threads[i], NULL, counts_in_words, (void *)i) == 0);
    for (size_t i = 0; i < FAULTERS; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
    uint64_t all = 0, each[FAULTERS] = {0};
    for (size_t page = 0; page < SPREAD; page++) {
        uint64_t *words = (uint64_t *)(spread + page * PAGE);
        for (size_t i = 0; i < FAULTERS; i++)
            each[i] += words[i];
        all += words[100];
    }
    for (size_t i = 0; i < FAULTERS; i++)
        RIGHT(each[i] == 30000);
    RIGHT(all == FAULTERS * 30000);
    SETUP(munmap(spread, SPREAD * PAGE) == 0);
}

// --- while the address space changes ----------------------------------------------------------

static void *faults_on(void *arg) {
    uint64_t seed = (uintptr_t)arg;
    while (!__atomic_load_n(&stop_now, __ATOMIC_ACQUIRE))
        look(spread, SPREAD, 7, &seed, 64);
    return arg;
}

// Pieces between those that the faulters read: neighbours in the same runs of pages.
enum { PIECE = 48, PIECES = 24 };

static void *changes(void *arg) {
    size_t me = (size_t)(uintptr_t)arg;
    uint64_t seed = me * 1000;
    while (!__atomic_load_n(&stop_now, __ATOMIC_ACQUIRE)) {
        seed = mix(seed + 1);
        char *piece = map_new(PIECE * PAGE);
        fill_range(piece, PIECE, seed);
        uint64_t looks = seed;
        look(spread, SPREAD, 7, &looks, 96);
        switch ((seed >> 20) % 5) {
        case 0:
            SETUP(madvise(piece + PAGE, 20 * PAGE, MADV_DONTNEED) == 0);
            for (size_t page = 1; page < 21; page++)
                check_page(piece + page * PAGE, 0, "discarded beside faults");
            check_page(piece, seed, "before what was discarded");
            break;
        case 1: {
            char *moved = mremap(piece, PIECE * PAGE, 2 * PIECE * PAGE, MREMAP_MAYMOVE);
            SETUP(moved != MAP_FAILED);
            check_range(moved, PIECE, seed, "moved beside faults");
            SETUP(munmap(moved + PIECE * PAGE, PIECE * PAGE) == 0);
            piece = moved;
            break;
        }
        case 2:
            SETUP(mprotect(piece, PIECE * PAGE, PROT_READ) == 0);
            check_range(piece, PIECE, seed, "protected beside faults");
            SETUP(mprotect(piece, PIECE * PAGE, 3) == 0);
            break;
        case 3:
            SETUP(munmap(piece + 8 * PAGE, 8 * PAGE) == 0);
            check_range(piece, 8, seed, "before what was unmapped");
            check_range(piece + 16 * PAGE, PIECE - 16, seed + 16, "behind what was unmapped");
            break;
        default: check_range(piece, PIECE, seed, "filled beside faults");
        }
        SETUP(munmap(piece, PIECE * PAGE) == 0);
    }
    return arg;
}

static void for_seconds(double length, void *(*what[])(void *), size_t count) {
    pthread_t threads[FAULTERS + 4];
    stop_now = 0;
    for (size_t i = 0; i < count; i++)
        SETUP(pthread_create(&threads[i], NULL, what[i], (void *)(i + 1)) == 0);
    double until = seconds() + length;
    while (seconds() < until)
        usleep(10000);
    __atomic_store_n(&stop_now, 1, __ATOMIC_RELEASE);
    for (size_t i = 0; i < count; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
}

static void beside_changes(void) {
    void *(*what[])(void *) = {faults_on, faults_on, changes, changes};
    spread = map_new(SPREAD * PAGE);
    fill_range(spread, SPREAD, 7);
    for_seconds(0.8, what, 4);
    check_range(spread, SPREAD, 7, "after changes beside it");
    SETUP(munmap(spread, SPREAD * PAGE) == 0);
}

// --- forks in the middle -------------------------------------------------------------------------

static void *forks(void *arg) {
    uint64_t seed = 99;
    while (!__atomic_load_n(&stop_now, __ATOMIC_ACQUIRE)) {
        pid_t child = fork();
        if (child == 0) {
            look(spread, SPREAD, 7, &seed, 2000);
            _exit(0);
        }
        expect_child(child, "forked while pages are in transit");
        seed = mix(seed);
    }
    return arg;
}

static void beside_forks(void) {
    void *(*what[])(void *) = {faults_on, faults_on, faults_on, forks};
    spread = map_new(SPREAD * PAGE);
    fill_range(spread, SPREAD, 7);
    for_seconds(0.8, what, 4);
    SETUP(munmap(spread, SPREAD * PAGE) == 0);
}

// --- calls into pages that others bring and close ----------------------------------------------------

static void *passes_through_pipes(void *arg) {
    uint64_t seed = (uintptr_t)arg * 77;
    int ends[2];
    SETUP(pipe(ends) == 0);
    while (!__atomic_load_n(&stop_now, __ATOMIC_ACQUIRE)) {
        seed = mix(seed + 1);
        // What is read into is another's page before and behind.
        size_t page = seed % (SPREAD / 8 - 1) * 8 + (uintptr_t)arg % 4 * 2;
        char *from = spread + page * PAGE, *into = from + PAGE;
        struct iovec parts[2] = {{from, 1000}, {from + 1000, PAGE - 1000}};
        RIGHT(writev(ends[1], parts, 2) == PAGE);
        memset(into, 0xee, 16);
        RIGHT(read(ends[0], into, PAGE) == PAGE);
        check_page(into, 7 + page, "read from a pipe beside faults");
        fill_page(into, 7 + page + 1);
    }
    close(ends[0]), close(ends[1]);
    return arg;
}

static void *faults_on_even(void *arg) {
    uint64_t seed = (uintptr_t)arg;
    while (!__atomic_load_n(&stop_now, __ATOMIC_ACQUIRE)) {
        seed = mix(seed + 1);
        size_t page = seed % (SPREAD / 2) * 2;
        check_page(spread + page * PAGE, 7 + page, "beside calls");
    }
    return arg;
}

static void beside_calls(void) {
    void *(*what[])(void *) = {faults_on_even, faults_on_even, passes_through_pipes, passes_through_pipes};
    spread = map_new(SPREAD * PAGE);
    fill_range(spread, SPREAD, 7);
    for_seconds(0.8, what, 4);
    check_range(spread, SPREAD, 7, "after calls");
    SETUP(munmap(spread, SPREAD * PAGE) == 0);
}

// --- discards of the very pages that are faulted ----------------------------------------------------

// A page is as its writer left it, or zeros from the moment it was discarded: nothing older.
static uint64_t *generations;

static void *reads_generations(void *arg) {
    uint64_t seed = (uintptr_t)arg;
    while (!__atomic_load_n(&stop_now, __ATOMIC_ACQUIRE)) {
        seed = mix(seed + 1);
        size_t page = seed % SPREAD;
        uint64_t before = __atomic_load_n(&generations[page], __ATOMIC_ACQUIRE);
        uint64_t found = __atomic_load_n((uint64_t *)(spread + page * PAGE) + 9, __ATOMIC_ACQUIRE);
        RIGHT(found == 0 || found >= before);
    }
    return arg;
}

static void *discards(void *arg) {
    uint64_t seed = (uintptr_t)arg * 31;
    size_t me = (uintptr_t)arg % 2;
    while (!__atomic_load_n(&stop_now, __ATOMIC_ACQUIRE)) {
        seed = mix(seed + 1);
        size_t first = (seed % (SPREAD / 16) / 2 * 2 + me) * 16, count = 1 + (seed >> 32) % 16;
        SETUP(madvise(spread + first * PAGE, count * PAGE, MADV_DONTNEED) == 0);
        // (What is read from here on was written after this, or is zero.)
        for (size_t page = first; page < first + count; page++)
            __atomic_store_n(&generations[page], generations[page] + 1, __ATOMIC_RELEASE);
        for (size_t page = first; page < first + count; page++) {
            uint64_t *words = (uint64_t *)(spread + page * PAGE);
            RIGHT(words[9] == 0);
            if (seed & 1) {
                words[10] = seed;
                __atomic_store_n(&words[9], generations[page], __ATOMIC_RELEASE);
            }
        }
    }
    return arg;
}

static void beside_discards(void) {
    void *(*what[])(void *) = {reads_generations, reads_generations, discards, discards};
    spread = map_new(SPREAD * PAGE);
    generations = mmap(NULL, SPREAD * 8, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(generations != MAP_FAILED);
    for_seconds(0.8, what, 4);
    SETUP(munmap(spread, SPREAD * PAGE) == 0 && munmap(generations, SPREAD * 8) == 0);
}

// --- more threads than there are stages, which end in between -----------------------------------------

static void *reads_a_little(void *arg) {
    uint64_t seed = (uintptr_t)arg;
    look(spread, SPREAD, 7, &seed, 100);
    return arg;
}

static void many_that_end(void) {
    enum { MANY = 48 };
    spread = map_new(SPREAD * PAGE);
    fill_range(spread, SPREAD, 7);
    for (int turn = 0; turn < 3; turn++) {
        pthread_t threads[MANY];
        for (size_t i = 0; i < MANY; i++)
            SETUP(pthread_create(&threads[i], NULL, reads_a_little, (void *)(i + 100 * turn)) == 0);
        for (size_t i = 0; i < MANY; i++)
            SETUP(pthread_join(threads[i], NULL) == 0);
    }
    SETUP(munmap(spread, SPREAD * PAGE) == 0);
}

CASES({"same_pages", same_pages}, {"no_write_is_lost", no_write_is_lost}, {"beside_changes", beside_changes},
      {"beside_forks", beside_forks}, {"beside_calls", beside_calls}, {"beside_discards", beside_discards},
      {"many_that_end", many_that_end})
