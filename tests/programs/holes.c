// Memory that compresses to all sizes, of which a few pages here and there are discarded: the
// pool has holes, too few for it to be compacted unasked. Goes on until its input ends:
//
//   holes           sleeps until then
//   holes polls     looks for it every 10 ms
//   holes computes  computes without a call, on two threads of three, while the third waits
//   holes forks     makes one child after the other, each of which verifies all of it
#include "check.h"
#include <poll.h>
#include <stdatomic.h>

enum { PAGES = 16384 };

static uint64_t word(size_t page, size_t i) {
    size_t noisy = mix(page) % 400 + 40;
    return mix(page * WORDS + (i < noisy ? i : noisy));
}

static int is_kept(size_t page) { return page % 48 != 7; }

static char *memory;
static atomic_int over;

static void verify(void) {
    for (size_t n = 0; n < PAGES; n++) {
        const uint64_t *page = (const uint64_t *)(memory + n * PAGE);
        for (size_t i = 0; i < WORDS; i++)
            if (page[i] != (is_kept(n) ? word(n, i) : 0))
                die(1, "when the pool was compacted", (const void *)&page[i], "another word");
    }
}

// Whether the input has ended, or does within so many ms.
static int has_ended(int ms) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, ms) > 0 && getchar() == EOF;
}

// Reads words of the first tenth, most of which come to be in memory.
static void *compute(void *seed) {
    for (uint64_t i = (uint64_t)seed << 40; !atomic_load(&over); i++) {
        size_t n = mix(i) % (PAGES / 10), at = mix(~i) % WORDS;
        const volatile uint64_t *page = (const uint64_t *)(memory + n * PAGE);
        if (page[at] != (is_kept(n) ? word(n, at) : 0))
            die(1, "while the pool is compacted", (const void *)&page[at], "another word");
    }
    return NULL;
}

static void forks(void) {
    while (!has_ended(0)) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            verify();
            _exit(0);
        }
        int status;
        SETUP(waitpid(child, &status, 0) == child);
        if (status != 0)
            die(1, "in a child", memory, "it did not end well");
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    memory = map_new((size_t)PAGES * PAGE);
    for (size_t n = 0; n < PAGES; n++)
        for (size_t i = 0; i < WORDS; i++)
            ((uint64_t *)(memory + n * PAGE))[i] = word(n, i);
    sleep(1);
    for (size_t n = 0; n < PAGES; n++)
        if (!is_kept(n))
            SETUP(madvise(memory + n * PAGE, PAGE, MADV_DONTNEED) == 0);
    SETUP(fputs("ready\n", stdout) >= 0 && fflush(stdout) == 0);
    if (strcmp(how, "polls") == 0) {
        while (!has_ended(10))
            ;
    } else if (strcmp(how, "computes") == 0) {
        pthread_t threads[2];
        for (uintptr_t i = 0; i < 2; i++)
            SETUP(pthread_create(&threads[i], NULL, compute, (void *)(i + 1)) == 0);
        while (getchar() != EOF)
            ;
        atomic_store(&over, 1);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(how, "forks") == 0) {
        forks();
    } else {
        while (getchar() != EOF)
            ;
    }
    verify();
    return 0;
}
