// Mappings of terabytes, of which next to nothing is touched: whatever is done to them, and to memory
// beside them, takes time by what was touched.
#include "inthread_kit.h"

#define WIDE (8ul << 40)
// What becomes usable, and may hold something, is looked through: that takes a second or two for so much.
#define LARGE (256ul << 30)
enum { TOUCHED = 4096, THREADS = 4, TAG = 900000, LONGEST = 40 };
static char *wide;

static char *reserve(size_t bytes, int protection) {
    char *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(at != MAP_FAILED);
    return at;
}

// Page `i` of those that are touched: a part of them near one another, the others anywhere.
static size_t bytes = WIDE;

static char *touched(char *at, size_t i) {
    return at + (i % 8 ? bytes / 3 / PAGE * PAGE + i * PAGE : mix(i) % (bytes / PAGE) * PAGE);
}

static void check_all(char *at, tag_t tag, const char *what) {
    for (size_t i = 0; i < TOUCHED; i++)
        check_page(touched(at, i), tag ? tag + i : 0, what);
}

static void fill_all(char *at) {
    for (size_t i = 0; i < TOUCHED; i++)
        fill_page(touched(at, i), TAG + i);
}

static double begun;
#define IN_TIME() RIGHT(seconds() - begun < LONGEST)

static void *goes_over(void *of) {
    for (int round = 0; round < 3; round++)
        for (size_t i = (size_t)of; i < TOUCHED; i += THREADS) {
            if (round == 0)
                fill_page(touched(wide, i), TAG + i);
            check_page(touched(wide, i), TAG + i, "of a thread");
        }
    return of;
}

static void by_several_threads(void) {
    begun = seconds();
    wide = reserve(WIDE, PROT_READ | PROT_WRITE);
    pthread_t thread[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        SETUP(pthread_create(&thread[i], NULL, goes_over, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    squeeze();
    check_all(wide, TAG, "after the threads");
    SETUP(munmap(wide, WIDE) == 0);
    IN_TIME();
}

// What is done to all of it at once.
static void changed_as_a_whole(void) {
    begun = seconds(), bytes = LARGE;
    char *at = reserve(LARGE, PROT_READ | PROT_WRITE);
    fill_all(at);
    squeeze();
    RIGHT(mprotect(at, LARGE, PROT_READ) == 0);
    check_all(at, TAG, "only to be read");
    IN_TIME();
    RIGHT(mprotect(at, LARGE, PROT_READ | PROT_WRITE) == 0);
    squeeze();
    check_all(at, TAG, "writable again");
    IN_TIME();
    expect_child(fork() ?: (check_all(at, TAG, "in a child"), _exit(0), 0), "a child");
    IN_TIME();
    char *to = reserve(LARGE, PROT_NONE);
    RIGHT(mremap(at, LARGE, LARGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    check_all(to, TAG, "elsewhere");
    IN_TIME();
    squeeze();
    RIGHT(madvise(to, LARGE, MADV_DONTNEED) == 0);
    check_all(to, 0, "discarded");
    IN_TIME();
    fill_all(to);
    squeeze();
    check_all(to, TAG, "filled again");
    RIGHT(mmap(to + LARGE / 4, LARGE / 2, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == to + LARGE / 4);
    for (size_t i = 0; i < TOUCHED; i++) {
        size_t place = touched(to, i) - to;
        check_page(to + place, place >= LARGE / 4 && place < LARGE / 4 * 3 ? 0 : TAG + i, "replaced in part");
    }
    SETUP(munmap(to, LARGE) == 0);
    IN_TIME();
    bytes = WIDE;
}

// Reserved, and made usable later: all of it, or here and there.
static void made_usable(void) {
    begun = seconds(), bytes = LARGE;
    char *at = reserve(LARGE, PROT_NONE);
    squeeze();
    RIGHT(mprotect(at, LARGE, PROT_READ | PROT_WRITE) == 0);
    fill_all(at);
    squeeze();
    check_all(at, TAG, "usable");
    SETUP(munmap(at, LARGE) == 0);
    IN_TIME();
    bytes = WIDE;
}

// More than 2^32 pages are mapped.
static void more_than_a_number(void) {
    begun = seconds();
    char *at[4];
    for (int i = 0; i < 4; i++)
        at[i] = reserve(WIDE, PROT_READ | PROT_WRITE);
    fill_all(at[2]);
    for (int i = 0; i < 4; i++)
        squeeze();
    check_all(at[2], TAG, "of the third");
    for (int i = 0; i < 4; i++)
        SETUP(munmap(at[i], WIDE) == 0);
    IN_TIME();
}

// The process manages its memory no longer: all of it is the kernel's at once.
static void left(void) {
    begun = seconds();
    char *at = reserve(WIDE, PROT_READ | PROT_WRITE);
    fill_all(at);
    squeeze();
    SETUP(mlockall(MCL_CURRENT | MCL_ONFAULT) == 0 || errno == ENOMEM || errno == EPERM);
    check_all(at, TAG, "left");
    IN_TIME();
}

CASES({"by_several_threads", by_several_threads}, {"changed_as_a_whole", changed_as_a_whole}, {"made_usable", made_usable},
      {"more_than_a_number", more_than_a_number}, {"left", left})
