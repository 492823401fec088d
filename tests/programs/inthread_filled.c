// Needs MIB of memory that compresses well, and checks every byte of it twice: for limits that
// the kernel holds (a container's), where bare it is killed.
//   inthread_filled MIB
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE_WORDS = 512 };

static uint64_t word_at(uint64_t page, unsigned i) { return i % 32 ? page * 7 + i / 64 : (page * 0x9e3779b97f4a7c15u) ^ (i << 20); }

int main(int argc, char **argv) {
    uint64_t pages = (argc > 1 ? strtoull(argv[1], NULL, 10) : 200) << 8;
    uint64_t *words = malloc(pages * PAGE_WORDS * 8);
    if (!words)
        return 2;
    for (uint64_t page = 0; page < pages; page++)
        for (unsigned i = 0; i < PAGE_WORDS; i++)
            words[page * PAGE_WORDS + i] = word_at(page, i);
    for (int turn = 0; turn < 2; turn++)
        for (uint64_t page = 0; page < pages; page++)
            for (unsigned i = 0; i < PAGE_WORDS; i++)
                if (words[page * PAGE_WORDS + i] != word_at(page, i)) {
                    fprintf(stderr, "page %llu, word %u: %#llx\n", (unsigned long long)page, i, (unsigned long long)words[page * PAGE_WORDS + i]);
                    return 1;
                }
    puts("right");
    return 0;
}
