// carried SECONDS PAUSE: threads that carry memory from place to place by mremap, while it is
// moved out and in, each time PAUSE microseconds after the last; somebody always asks the
// kernel whether a mapping is registered that is just leaving. PAUSE 0: no rest at all.
#include "check.h"
#include <stdatomic.h>

enum { THREADS = 4, PART = 256 };

static atomic_int stop;
static int rest;

static void *carrier(void *arg) {
    tag_t tag = 0x1000000 * ((size_t)arg + 1);
    char *at = map_new(PART * PAGE);
    fill_range(at, PART, tag);
    for (size_t n = 0; !stop; n++) {
        char *to = mmap(NULL, PART * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SETUP(to != MAP_FAILED);
        if (mremap(at, PART * PAGE, PART * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
            die(1, "mremap", at, "refused beside reclaim");
        at = to;
        if (n % 4 == 0) {
            size_t page = n / 4 * 37 % PART;
            check_page(at + page * PAGE, tag + page, "carried");
        }
        if (n % 64 == 0)
            check_range(at, PART, tag, "carried, all of it");
        if (rest)
            usleep(rest);
    }
    return NULL;
}

int main(int argc, char **argv) {
    rest = argc > 2 ? atoi(argv[2]) : 0;
    double until = seconds() + (argc > 1 ? atof(argv[1]) : 4);
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        SETUP(pthread_create(&threads[t], NULL, carrier, (void *)t) == 0);
    // What is written anew each round keeps the rest moving out.
    enum { FILLER = 16384 };
    char *filler = map_new((size_t)FILLER * PAGE);
    for (tag_t round = 1; seconds() < until; round++)
        fill_range(filler, FILLER, round * FILLER);
    stop = 1;
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    return 0;
}
