// A million touches of 128 MiB, a page each, one in ten anywhere and the others in a part: how many faults
// it takes to keep what is hot (pgmajfault of --stats).
//
//   cc -O2 tests/bench/hot.c -o hot
//   zfolio run --faults in-thread --high 48M --stats F -- ./hot 5 1
//       the part is one in so many pages, spread over all (1: all are alike); 1: each touch writes
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGES = 32768, PAGE = 4096, TOUCHES = 1000000, HERE = 5 };

static uint64_t state = 7;

static uint32_t draw(uint32_t below) {
    state = state * 6364136223846793005u + 1;
    return (state >> 33) % below;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fputs("hot PART WRITES\n", stderr);
        return 2;
    }
    uint32_t part = PAGES / atoi(argv[1]);
    int writes = atoi(argv[2]);
    char *memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (uint32_t page = 0; page < PAGES; page++)
        for (uint32_t word = 0; word < 64; word++)
            ((uint32_t *)(memory + (size_t)page * PAGE))[word * 16] = page * 64 + word;
    for (uint32_t touch = 0; touch < TOUCHES; touch++) {
        uint32_t among = draw(10) < 9 ? part : PAGES;
        uint32_t page = (uint64_t)draw(among) * 2503 % PAGES;
        uint32_t *words = (uint32_t *)(memory + (size_t)page * PAGE);
        if (words[HERE * 16] != page * 64 + HERE) {
            printf("a wrong byte in page %u\n", page);
            return 1;
        }
        if (writes)
            words[1] = touch;
    }
    return 0;
}
