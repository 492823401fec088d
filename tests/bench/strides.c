// Touches of 128 MiB at equal distances, all of it each time: a page every STEP pages, then from the one beside
// that on (STEP below 0: from the end to the beginning). How long a touch takes, and how many faults (--stats).
//
//   cc -O2 tests/bench/strides.c -o strides
//   zfolio run --faults in-thread --high 48M --stats F -- ./strides 16 4 1
//       every 16th page, four times over all; 1: each touch writes
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGES = 32768, PAGE = 4096 };

static char *memory;
static int writes;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void touch(uint32_t page) {
    uint32_t *words = (uint32_t *)(memory + (size_t)page * PAGE);
    if (words[80] != page * 64 + 5) {
        printf("a wrong byte in page %u\n", page);
        exit(1);
    }
    if (writes)
        words[1]++;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fputs("strides STEP ROUNDS WRITES\n", stderr);
        return 2;
    }
    int step = atoi(argv[1]), rounds = atoi(argv[2]);
    writes = atoi(argv[3]);
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || step == 0)
        return 2;
    for (uint32_t page = 0; page < PAGES; page++)
        for (uint32_t word = 0; word < 64; word++)
            ((uint32_t *)(memory + (size_t)page * PAGE))[word * 16] = page * 64 + word;
    double begin = seconds();
    for (int round = 0; round < rounds; round++)
        for (int first = 0; first < abs(step); first++)
            for (int page = first; page < PAGES; page += abs(step))
                touch(step > 0 ? page : PAGES - 1 - page);
    printf("%.2f us a touch\n", (seconds() - begin) * 1e6 / rounds / PAGES);
    return 0;
}
