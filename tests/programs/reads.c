// Pages read here and there, then all of them in order: the few that are present
// already must not stop who reads on.
#include "check.h"

enum { PAGES = 24576, TOUCHED = 2000 };

int main(void) {
    char *memory = map_new((size_t)PAGES * PAGE);
    fill_range(memory, PAGES, 1);
    push_out(memory, PAGES);
    for (uint64_t n = 0; n < TOUCHED; n++) {
        size_t i = mix(n) % PAGES;
        check_page(memory + i * PAGE, 1 + i, "read at random");
    }
    check_range(memory, PAGES, 1, "read in order");
    return 0;
}
