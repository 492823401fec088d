// atmax HELD GROWN [free]: HELD MiB that do not compress are held, and a thread
// wants GROWN more. With `free`, what is held is unmapped once the thread has
// not got on for two seconds, or has all it wants.
#include "check.h"
#include <stdatomic.h>

static size_t grown;
static char *growing;
static atomic_size_t got;

static void noise(char *page, uint64_t seed) {
    volatile uint64_t *words = (volatile uint64_t *)page;
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = mix(seed * WORDS + i + 1);
}

static void check_noise(const char *page, uint64_t seed) {
    const volatile uint64_t *words = (const volatile uint64_t *)page;
    for (unsigned i = 0; i < WORDS; i++)
        if (words[i] != mix(seed * WORDS + i + 1))
            die(1, "noise", (const void *)&words[i], "other bytes");
}

// Not faster than a manager comes to be on a busy machine.
static void breathe(size_t i) {
    if (i % 64 == 63)
        usleep(1000);
}

static void *grow(void *unused) {
    (void)unused;
    for (size_t i = 0; i < grown; i++) {
        noise(growing + i * PAGE, i);
        breathe(i);
        atomic_store(&got, i + 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    SETUP(argc > 2);
    size_t held = atol(argv[1]) << 8;
    grown = atol(argv[2]) << 8;
    char *holding = map_new(held * PAGE);
    growing = map_new(grown * PAGE);
    for (size_t i = 0; i < held; i++) {
        noise(holding + i * PAGE, i + grown);
        breathe(i);
    }
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, grow, NULL) == 0);
    if (argc > 3) {
        size_t seen = 0;
        for (int still = 0; still < 20 && atomic_load(&got) < grown;) {
            usleep(100000);
            size_t now = atomic_load(&got);
            still = now == seen ? still + 1 : 0;
            seen = now;
        }
        SETUP(munmap(holding, held * PAGE) == 0);
    }
    pthread_join(thread, NULL);
    for (size_t i = 0; i < grown; i++)
        check_noise(growing + i * PAGE, i);
    if (argc == 3)
        for (size_t i = 0; i < held; i++)
            check_noise(holding + i * PAGE, i + grown);
    return 0;
}
