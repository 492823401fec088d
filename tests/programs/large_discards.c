// Discards that are large, and of sizes that differ each time; and one page in each 2 MiB of
// a large reservation. What the manager keeps for them must not grow with their number.
//   large_discards sizes N     N discards of 200 to 800 MiB that were touched once
//   large_discards sparse N    one page in each of N times 2 MiB, checked at the end
//   large_discards vanish N    the same, each page discarded as soon as it is touched
#include "check.h"

static unsigned next_random(void) {
    static uint64_t state = 1;
    return mix(++state) >> 33;
}

static void sizes(unsigned count) {
    enum { MOST = 800, LEAST = 200 };
    char *area = map_new((size_t)MOST << 20);
    for (size_t page = 0; page < ((size_t)MOST << 20) / PAGE; page++)
        *(uint64_t *)(area + page * PAGE) = page;
    SETUP(madvise(area, (size_t)MOST << 20, MADV_DONTNEED) == 0);
    for (unsigned i = 0; i < count; i++)
        SETUP(madvise(area, (size_t)(LEAST + next_random() % (MOST - LEAST)) << 20, MADV_DONTNEED) == 0);
    check_zeros(area, 64, "a discarded page");
}

static void sparse(size_t count, int discards) {
    press();
    char *area = map_at(NULL, count * HUGE_PAGE, MAP_NORESERVE);
    for (size_t i = 0; i < count; i++) {
        *(uint64_t *)(area + i * HUGE_PAGE) = i + 1;
        if (discards)
            SETUP(madvise(area + i * HUGE_PAGE, PAGE, MADV_DONTNEED) == 0);
    }
    for (size_t i = 0; i < count; i += discards ? 97 : 1) {
        uint64_t want = discards ? 0 : i + 1;
        if (*(volatile uint64_t *)(area + i * HUGE_PAGE) != want)
            die(1, "sparse", area + i * HUGE_PAGE, discards ? "not zero" : "another value");
    }
}

int main(int argc, char **argv) {
    SETUP(argc > 2);
    unsigned count = atoi(argv[2]);
    if (!strcmp(argv[1], "sizes"))
        sizes(count);
    else
        sparse(count, !strcmp(argv[1], "vanish"));
    return 0;
}
