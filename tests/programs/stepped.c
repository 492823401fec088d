// stepped MIB: does what its standard input says, a line each, and says "done" after each:
//   fill N     all of memory gets contents that N names
//   check      every byte is looked at, in order
//   random N   N pages, taken at random, are looked at
// and ends with 0 at the end of input.
#include "check.h"

int main(int argc, char **argv) {
    SETUP(argc == 2);
    size_t pages = atol(argv[1]) << 8;
    char *at = map_new(pages * PAGE);
    tag_t tag = 1;
    uint64_t seed = 1;
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        size_t n = 0;
        if (sscanf(line, "fill %zu", &n) == 1) {
            tag = 1 + n * pages;
            fill_range(at, pages, tag);
        } else if (sscanf(line, "random %zu", &n) == 1) {
            while (n--) {
                size_t page = mix(seed++) % pages;
                check_range(at + page * PAGE, 1, tag + page, "a page at random");
            }
        } else if (strcmp(line, "check\n") == 0) {
            check_range(at, pages, tag, "memory that is far away");
        } else {
            die(2, "setup", line, "not a step");
        }
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
