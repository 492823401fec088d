// mremap that makes locked memory larger: the kernel touches what is new within the call, before
// it reports the change.
#include "check.h"

enum { PAGES = 40, STEPS = 6, BESIDE = 12000 };

// Something lies behind a mapping, so that it cannot grow where it is.
static void wall_behind(char *end) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    char *wall = mmap(end, PAGE, PROT_NONE, flags, -1, 0);
    SETUP(wall == end || (wall == MAP_FAILED && errno == EEXIST));
}

int main(void) {
    char *ballast = map_new((size_t)BESIDE * PAGE);
    fill_range(ballast, BESIDE, 0x1000000);
    push_out(ballast, BESIDE);
    size_t pages = PAGES;
    char *at = map_new(pages * PAGE);
    fill_range(at, pages, 0x2000000);
    push_out(at, pages); // so it is known to the manager
    SETUP(mlock(at, pages * PAGE) == 0);
    for (int step = 0; step < STEPS; step++) {
        size_t larger = pages + PAGES;
        wall_behind(at + pages * PAGE);
        char *now = mremap(at, pages * PAGE, larger * PAGE, MREMAP_MAYMOVE);
        if (now == MAP_FAILED)
            die(1, "mremap", at, "locked memory could not be made larger");
        check_range(now, pages, 0x2000000, "locked, and moved");
        check_zeros(now + pages * PAGE, PAGES, "locked, and new");
        fill_range(now + pages * PAGE, PAGES, 0x2000000 + pages);
        at = now, pages = larger;
    }
    SETUP(munlock(at, pages * PAGE) == 0);
    check_range(ballast, BESIDE, 0x1000000, "beside locked memory");
    press();
    check_range(at, pages, 0x2000000, "locked once");
    return 0;
}
