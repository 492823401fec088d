// Fills memory and checks it, several times over, whether any of it was moved
// out or not: for runs that may be unmanaged.
#include "check.h"

enum { ROUNDS = 4 };

int main(int argc, char **argv) {
    size_t pages = argc > 1 ? atol(argv[1]) << 8 : 24576; // MiB
    unsigned pause = argc > 2 ? atoi(argv[2]) : 100;      // ms: time to look at it
    char *at = map_new(pages * PAGE);
    for (tag_t round = 1; round <= ROUNDS; round++) {
        tag_t tag = round * pages;
        fill_range(at, pages, tag);
        usleep(pause * 1000);
        check_range(at, pages, tag, "memory of a plain program");
    }
    return 0;
}
