// Touches a page here and there of a large reservation, and gives each back before the next: what has been
// given back is to cost nothing.
//
//   given_back SPOTS     2 MiB apart
#include "check.h"

enum { APART = 512, BEFORE = 20480 };

int main(int argc, char **argv) {
    SETUP(argc == 2);
    size_t spots = strtoul(argv[1], NULL, 10);
    // (Memory is short from here on.)
    char *before = map_new(BEFORE * PAGE);
    fill_range(before, BEFORE, 1);
    char *at = mmap(NULL, spots * APART * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        die(2, "mmap", NULL, "is refused");
    for (size_t i = 0; i < spots; i++) {
        char *spot = at + (i * APART + i % APART) * PAGE;
        if (*(volatile uint64_t *)spot != 0)
            die(1, "the reservation", spot, "is not zeros");
        fill_page(spot, i + 1);
        check_page(spot, i + 1, "of the reservation");
        if (madvise(spot, PAGE, MADV_DONTNEED) != 0)
            die(1, "madvise", spot, "is refused");
    }
    for (size_t i = 0; i < spots; i += 7) {
        char *spot = at + (i * APART + i % APART) * PAGE;
        if (*(volatile uint64_t *)spot != 0)
            die(1, "what was given back", spot, "is not zeros");
    }
    check_range(before, BEFORE, 1, "filled before");
    return 0;
}
