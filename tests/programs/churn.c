// Several threads map, write, check and unmap at the same few addresses while
// one keeps verifying memory of its own: whatever is known of an address
// must die with its mapping.
#include "check.h"
#include <stdatomic.h>

enum { THREADS = 4, LARGEST = 512, STEADY = 6144 };
static atomic_int stop;
static atomic_ulong rounds;

static void *churner(void *arg) {
    uint64_t state = (uintptr_t)arg * 7919 + 1;
    while (!stop) {
        size_t pages = 16 + (state = mix(state + 0x9e3779b97f4a7c15u)) % (LARGEST - 16);
        char *at = map_new(pages * PAGE);
        // A mapping is fresh wherever it lies. Half of it only gets written.
        for (size_t i = 0; i < pages; i += 1 + state % 3)
            check_page(at + i * PAGE, 0, "a fresh mapping");
        tag_t tag = state >> 20 | 1;
        fill_range(at, pages, tag);
        for (int n = 0; n < 3; n++)
            sched_yield();
        check_range(at, pages, tag, "a short-lived mapping");
        if (state & 1 << 15) { // part of it goes first
            size_t part = pages / 3;
            SETUP(munmap(at + part * PAGE, part * PAGE) == 0);
            check_range(at, part, tag, "beside a hole");
            check_range(at + 2 * part * PAGE, pages - 2 * part, tag + 2 * part, "beside a hole");
            // The hole may be another thread's by now.
            SETUP(munmap(at + 2 * part * PAGE, (pages - 2 * part) * PAGE) == 0);
            pages = part;
        }
        SETUP(munmap(at, pages * PAGE) == 0);
        rounds++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    double until = seconds() + (argc > 1 ? atof(argv[1]) : 8);
    char *steady = map_new((size_t)STEADY * PAGE);
    fill_range(steady, STEADY, 0x5000);
    push_out(steady, STEADY);
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        SETUP(pthread_create(&threads[t], NULL, churner, (void *)t) == 0);
    tag_t tag = 0x5000;
    while (seconds() < until) {
        press();
        for (size_t i = 0; i < STEADY; i++) {
            check_page(steady + i * PAGE, tag + i, "memory beside the churn");
            fill_page(steady + i * PAGE, tag + STEADY + i);
        }
        tag += STEADY;
    }
    stop = 1;
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    check_range(steady, STEADY, tag, "memory beside the churn");
    printf("%lu mappings\n", rounds);
    return 0;
}
