// Threads that read memory at random, each on its own: how many touches a second they make in
// all, and what one touch takes.
//
//   cc -O2 -pthread tests/bench/threads.c -o threads
//   zfolio run --faults in-thread --compressor lz4 --high 200M -- ./threads 256 1.5 0 1 2 4
//       MiB, seconds each, of 100 touches that write (-1: none, and each reads in order); then numbers
//       of threads
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { WORDS = 512, MOST = 256 };

static long pages, writes;
static uint64_t *memory;
static int stop;

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

static void *touches(void *arg) {
    uint64_t x = 88172645463325252 + 977 * (uintptr_t)arg;
    uint64_t at = x % pages;
    long done = 0;
    for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); done++) {
        x = next(x);
        uint64_t page = writes < 0 ? at++ % pages : x % pages;
        if (memory[page * WORDS + 5] != page)
            abort();
        if ((long)(x >> 40) % 100 < writes)
            __atomic_fetch_add(&memory[page * WORDS + 500], 1, __ATOMIC_RELAXED);
    }
    return (void *)done;
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    pages = atol(argv[1]) * 256, writes = atol(argv[3]);
    memory = mmap(NULL, pages * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (long i = 0; i < pages; i++)
        fill(memory + i * WORDS, i);
    for (int at = 4; at < argc; at++) {
        int count = atoi(argv[at]);
        pthread_t threads[MOST];
        if (count < 1 || count > MOST)
            return 2;
        stop = 0;
        double begin = now();
        for (intptr_t i = 0; i < count; i++)
            if (pthread_create(&threads[i], NULL, touches, (void *)(i + 1)))
                return 2;
        struct timespec length = {(time_t)atof(argv[2]), (long)(atof(argv[2]) * 1e9) % 1000000000};
        nanosleep(&length, NULL);
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        long done = 0;
        for (int i = 0; i < count; i++) {
            void *result;
            pthread_join(threads[i], &result);
            done += (long)result;
        }
        double took = now() - begin;
        printf("%3d threads: %8.0f touches/s, %6.2f us each\n", count, done / took, took * 1e6 * count / done);
    }
    return 0;
}
