// Pages that came back to be read, and are written to afterwards in every way there is: what
// leaves as it came must be what it is. The shadow is a version a page.
#include "inthread_kit.h"
#include <fcntl.h>
#include <sys/uio.h>
#include <sys/wait.h>

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

static void by_one(void) { go_over(new_part(PAGES, 88172645463325252), 3000, 1); }

static void *goes_over(void *part) {
    go_over(part, 1500, 0);
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
    double until = seconds() + 2;
    while (seconds() < until)
        squeeze();
    stops = 1;
    for (int i = 0; i < 3; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
}

CASES({"by_one", by_one}, {"by_several", by_several}, {"by_both_sides", by_both_sides}, {"beside_a_writer", beside_a_writer})
