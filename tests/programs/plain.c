// Fills memory and checks it, several times over, whether any of it was moved
// out or not: for runs that may be unmanaged.
#include "check.h"

enum { PAGES = 24576, ROUNDS = 4 };

int main(void) {
    char *at = map_new((size_t)PAGES * PAGE);
    for (tag_t round = 1; round <= ROUNDS; round++) {
        tag_t tag = round * PAGES;
        fill_range(at, PAGES, tag);
        usleep(100000); // time to look at it
        check_range(at, PAGES, tag, "memory of a plain program");
    }
    return 0;
}
