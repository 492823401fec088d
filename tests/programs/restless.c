// restless WHAT: threads that change the address space without a pause, while memory that is
// out is read. WHAT is what they do: "discard" or "remap".
//
// Nobody may wait for ever for a moment at which none of them is at it.
#include "check.h"
#include <stdatomic.h>
#include <string.h>

enum { THREADS = 3, PART = 16, PAGES = 12000, READS = 400 };
static const tag_t TAG = 0x5000000;
// Longest that a read may take, s: some hundred times what it does.
static const double LONGEST = 10;

static atomic_int stop;

static void *discards(void *arg) {
    (void)arg;
    char *at = map_new(PART * PAGE);
    while (!stop)
        SETUP(madvise(at, PART * PAGE, MADV_DONTNEED) == 0);
    return NULL;
}

static void *remaps(void *arg) {
    tag_t tag = 0x1000000 * ((size_t)arg + 1);
    char *at = map_new(PART * PAGE);
    fill_range(at, PART, tag);
    while (!stop) {
        char *to = mmap(NULL, PART * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SETUP(to != MAP_FAILED);
        if (mremap(at, PART * PAGE, PART * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
            die(1, "mremap", at, "refused");
        at = to;
    }
    check_range(at, PART, tag, "carried");
    return NULL;
}

int main(int argc, char **argv) {
    SETUP(argc > 1);
    void *(*body)(void *) = strcmp(argv[1], "remap") ? discards : remaps;
    char *memory = map_new((size_t)PAGES * PAGE);
    fill_range(memory, PAGES, TAG);
    push_out(memory, PAGES);
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        SETUP(pthread_create(&threads[t], NULL, body, (void *)t) == 0);
    double longest = 0;
    for (size_t n = 0; n < READS; n++) {
        size_t page = n * 7919 % PAGES;
        double begin = seconds();
        check_page(memory + page * PAGE, TAG + page, "read beside changes");
        double took = seconds() - begin;
        longest = took > longest ? took : longest;
    }
    stop = 1;
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    printf("the longest read took %.3f s\n", longest);
    fflush(stdout);
    if (longest > LONGEST)
        die(1, "read beside changes", memory, "took too long");
    return 0;
}
