// Memory that compresses to all sizes, of which a few pages here and there are discarded: the
// pool has holes, too few for it to be compacted unasked. Goes on until its input ends.
#include "check.h"
#include <stdio.h>

enum { PAGES = 16384 };

static uint64_t word(size_t page, size_t i) {
    size_t noisy = mix(page) % 400 + 40;
    return mix(page * WORDS + (i < noisy ? i : noisy));
}

static int is_kept(size_t page) { return page % 48 != 7; }

int main(void) {
    char *memory = map_new((size_t)PAGES * PAGE);
    for (size_t n = 0; n < PAGES; n++)
        for (size_t i = 0; i < WORDS; i++)
            ((uint64_t *)(memory + n * PAGE))[i] = word(n, i);
    sleep(1);
    for (size_t n = 0; n < PAGES; n++)
        if (!is_kept(n))
            SETUP(madvise(memory + n * PAGE, PAGE, MADV_DONTNEED) == 0);
    SETUP(fputs("ready\n", stdout) >= 0 && fflush(stdout) == 0);
    while (getchar() != EOF)
        ;
    for (size_t n = 0; n < PAGES; n++) {
        const uint64_t *page = (const uint64_t *)(memory + n * PAGE);
        for (size_t i = 0; i < WORDS; i++)
            if (page[i] != (is_kept(n) ? word(n, i) : 0))
                die(1, "when the pool was compacted", (const void *)&page[i], "another word");
    }
    return 0;
}
