// Pages read here and there, then all of them in order: those that are present already must not
// stop who reads on.
//
// reads [how many]
#include "check.h"

enum { PAGES = 24576 };

int main(int argc, char **argv) {
    uint64_t touched = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    char *memory = map_new((size_t)PAGES * PAGE);
    fill_range(memory, PAGES, 1);
    push_out(memory, PAGES);
    for (uint64_t n = 0; n < touched; n++) {
        size_t i = mix(n) % PAGES;
        check_page(memory + i * PAGE, 1 + i, "read at random");
    }
    check_range(memory, PAGES, 1, "read in order");
    return 0;
}
