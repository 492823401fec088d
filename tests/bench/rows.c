// Goes over memory in order, several times, then reads it at random.
//
//   cc -O2 tests/bench/rows.c -o rows
//   zfolio run --faults in-thread --compressor lz4 --high 387M -- ./rows 512 3 [write]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { WORDS = 512 };

static double now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static uint64_t next(uint64_t x) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

// Three of eight words are random: a page compresses to about half.
static void fill(uint64_t *page, uint64_t number) {
    uint64_t x = number * 0x9e3779b97f4a7c15;
    for (int i = 0; i < WORDS; i++)
        page[i] = i % 8 < 3 ? (x = next(x)) : number;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    long mib = atol(argv[1]), rounds = atol(argv[2]), pages = mib * 256;
    uint64_t *memory = mmap(NULL, mib << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (long i = 0; i < pages; i++)
        fill(memory + i * WORDS, i);
    for (long round = 0; round < rounds; round++) {
        double begin = now();
        for (long i = 0; i < pages; i++) {
            if (memory[i * WORDS + 5] != (uint64_t)i)
                abort();
            if (argc > 3)
                memory[i * WORDS + 6] = round;
        }
        printf("in order  %.0f MB/s\n", mib * 1.048576 / (now() - begin));
    }
    uint64_t x = 88172645463325252;
    double begin = now();
    for (int i = 0; i < 100000; i++) {
        long page = (x = next(x)) % pages;
        if (memory[page * WORDS + 5] != (uint64_t)page)
            abort();
    }
    printf("at random %.2f us\n", (now() - begin) * 10);
}
