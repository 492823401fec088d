// Memory that compresses to all sizes, of which three pages in four, here and there, are
// discarded: what is left lies scattered in the pool, until that is compacted. Children
// that are forked meanwhile have it all, too.
#include "check.h"

enum { PAGES = 16384 };

static uint64_t word(size_t page, size_t i) {
    size_t noisy = mix(page) % 400 + 40;
    return mix(page * WORDS + (i < noisy ? i : noisy));
}

static int is_kept(size_t page) { return mix(page * 7 + 3) % 4 == 0; }

static void check(const char *memory, const char *what) {
    for (size_t n = 0; n < PAGES; n++) {
        const uint64_t *page = (const uint64_t *)(memory + n * PAGE);
        for (size_t i = 0; i < WORDS; i++)
            if (page[i] != (is_kept(n) ? word(n, i) : 0))
                die(1, what, (void *)&page[i], "another word");
    }
}

int main(void) {
    char *memory = map_new((size_t)PAGES * PAGE);
    for (size_t n = 0; n < PAGES; n++)
        for (size_t i = 0; i < WORDS; i++)
            ((uint64_t *)(memory + n * PAGE))[i] = word(n, i);
    sleep(1);
    for (size_t n = 0; n < PAGES; n++)
        if (!is_kept(n))
            SETUP(madvise(memory + n * PAGE, PAGE, MADV_DONTNEED) == 0);
    double begin = seconds();
    for (int n = 0; seconds() < begin + 8; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (n % 8 == 0)
                check(memory, "in a child");
            _exit(0);
        }
        expect_child(pid, "a child beside compaction");
        usleep(100000);
    }
    check(memory, "when the pool was compacted");
    return 0;
}
