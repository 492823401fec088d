// Memory that compresses to all sizes, of which one page in eight, here and there, is
// kept: zspages then lie scattered over the arena, until they are carried together.
// Meanwhile threads read what was kept, write parts of it anew, and discard others.
#include "check.h"
#include <pthread.h>

enum { PAGES = 16384, THREADS = 2, SECONDS = 5 };

static char *memory;
static double begin;

// Each page has one thread that writes to it, and the number of times it did.
static uint32_t version[PAGES];

static uint64_t word(size_t page, size_t i) {
    size_t noisy = mix(page) % 400 + 40;
    return mix((page + (uint64_t)version[page] * PAGES) * WORDS + (i < noisy ? i : noisy));
}

static int is_kept(size_t page) { return mix(page * 7 + 3) % 8 == 0; }

static void write_nth(size_t n) {
    for (size_t i = 0; i < WORDS; i++)
        ((uint64_t *)(memory + n * PAGE))[i] = word(n, i);
}

static void check_nth(size_t n, const char *what) {
    const uint64_t *page = (const uint64_t *)(memory + n * PAGE);
    for (size_t i = 0; i < WORDS; i++)
        if (page[i] != word(n, i))
            die(1, what, (void *)&page[i], "another word");
}

static void *churn(void *argument) {
    size_t own = (size_t)argument;
    for (uint64_t turn = own; seconds() < begin + SECONDS; turn += THREADS) {
        size_t n = mix(turn) % PAGES;
        if (n % THREADS != own || !is_kept(n))
            continue;
        check_nth(n, "while zspages are carried about");
        if (turn % 3 == 0) {
            if (turn % 2 == 0)
                SETUP(madvise(memory + n * PAGE, PAGE, MADV_DONTNEED) == 0);
            version[n]++;
            write_nth(n);
        }
        if (turn % 16 == own)
            usleep(1000);
    }
    return 0;
}

int main(void) {
    memory = map_new((size_t)PAGES * PAGE);
    for (size_t n = 0; n < PAGES; n++)
        write_nth(n);
    for (size_t n = 0; n < PAGES; n++)
        if (!is_kept(n))
            SETUP(madvise(memory + n * PAGE, PAGE, MADV_DONTNEED) == 0);
    sleep(3);
    begin = seconds();
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        SETUP(pthread_create(&threads[t], 0, churn, (void *)t) == 0);
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], 0);
    for (size_t n = 0; n < PAGES; n++)
        if (is_kept(n))
            check_nth(n, "in the end");
        else
            for (size_t i = 0; i < WORDS; i++)
                if (((uint64_t *)(memory + n * PAGE))[i])
                    die(1, "what was discarded", memory + n * PAGE, "not zero");
    return 0;
}
