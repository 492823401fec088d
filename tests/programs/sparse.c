// Touches pages here and there of a large mapping, more than there may be mappings if each page that is
// touched cut it; has mappings of its own meanwhile, and looks at every page again.
//
//   sparse MIB PAGES
#include "check.h"

enum { OWN_EVERY = 500, OWN = 4 };

// A mapping of the program's in two parts: both calls need a mapping that is left.
static void map_own(size_t touched) {
    char *own = mmap(NULL, OWN * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        die(1, "mmap", NULL, "is refused");
    fill_range(own, OWN, 7 + touched);
    if (mprotect(own + PAGE, PAGE, PROT_READ) != 0)
        die(1, "mprotect", own, "is refused");
    check_range(own, OWN, 7 + touched, "of a mapping of its own");
}

int main(int argc, char **argv) {
    SETUP(argc == 3);
    size_t pages = strtoul(argv[1], NULL, 10) * 256, touches = strtoul(argv[2], NULL, 10);
    char *at = map_new(pages * PAGE);
    for (size_t i = 0; i < touches; i++) {
        size_t page = mix(i + 1) % pages;
        fill_page(at + page * PAGE, page + 1);
        if (i % OWN_EVERY == 0)
            map_own(i);
    }
    for (size_t i = 0; i < touches; i++) {
        size_t page = mix(i + 1) % pages;
        check_page(at + page * PAGE, page + 1, "touched here and there");
        check_page(at + (page ^ 1) * PAGE, *(uint64_t *)(at + (page ^ 1) * PAGE) ? (page ^ 1) + 1 : 0,
                   "beside one that was touched");
    }
    return 0;
}
