// beyond noise | half | locked: more than fits in `high` whatever is done. Data that does
// not compress, or to half, or locked memory with other memory beside it: usage goes
// beyond, bytes stay.
#include "check.h"

enum { PAGES = 12288, LOCKED = 6144 };

static size_t noisy = PAGE / 8;

static uint64_t word(uint64_t seed, size_t i) { return mix(seed * 1024 + (i < noisy ? i : 0)); }

// A page of noise of its own.
static void noise(uint64_t *page, uint64_t seed) {
    for (size_t i = 0; i < PAGE / 8; i++)
        page[i] = word(seed, i);
}

static int is_noise(const uint64_t *page, uint64_t seed) {
    for (size_t i = 0; i < PAGE / 8; i++)
        if (page[i] != word(seed, i))
            return 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    char *locked = NULL;
    if (!strcmp(argv[1], "half"))
        noisy /= 2;
    if (!strcmp(argv[1], "locked")) {
        locked = map_new((size_t)LOCKED * PAGE);
        SETUP(mlock(locked, (size_t)LOCKED * PAGE) == 0);
        fill_range(locked, LOCKED, 1);
    }
    char *memory = map_new((size_t)PAGES * PAGE);
    for (size_t i = 0; i < PAGES; i++) {
        char *page = memory + i * PAGE;
        if (locked)
            fill_page(page, i + 1);
        else
            noise((uint64_t *)page, i + 1);
    }
    double begin = seconds();
    for (int round = 0; round < 2 || seconds() < begin + 3; round++) {
        for (size_t i = 0; i < PAGES; i++) {
            char *page = memory + (round ? mix(i) % PAGES : i) * PAGE;
            size_t seed = (page - memory) / PAGE + 1;
            if (locked)
                check_page(page, seed, "beside locked memory");
            else if (!is_noise((uint64_t *)page, seed))
                die(1, "noise", page, "other bytes");
        }
    }
    if (locked)
        check_range(locked, LOCKED, 1, "locked");
    return 0;
}
