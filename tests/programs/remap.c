// mremap of moved-out ranges: in place, moved by odd offsets, shrunk, over
// other data, and leaving the old range mapped.
#include "check.h"

enum { PAGES = 1800 };

static char *moved_out(size_t offset, tag_t base) {
    char *at = map_aligned((size_t)PAGES * PAGE, offset);
    fill_range(at, PAGES, base);
    push_out(at, PAGES);
    // Some present, some standing by, most stored.
    check_range(at + 100 * PAGE, 100, base + 100, "before mremap");
    return at;
}

// Reads part, has the rest moved out again, reads all.
static void check_moved(char *at, size_t pages, tag_t base, const char *what) {
    check_range(at + 40 * PAGE, 300, base + 40, what);
    push_out(at, pages);
    check_range(at, pages, base, what);
}

int main(void) {
    static const size_t offsets[] = {0, 4096, 7 * 4096, 65536, 65536 + 3 * 4096, (1 << 20) + 8192};
    enum { OFFSETS = sizeof offsets / sizeof *offsets };
    tag_t tag = 1;
    for (int i = 0; i < OFFSETS; i++, tag += PAGES) {
        // To another place with another alignment, over data that is out too.
        char *from = moved_out(offsets[i], tag);
        char *to = moved_out(offsets[(i + 2) % OFFSETS], 0x1000000 + tag);
        char *got = mremap(from, (size_t)PAGES * PAGE, (size_t)PAGES * PAGE,
                           MREMAP_MAYMOVE | MREMAP_FIXED, to);
        if (got != to)
            die(1, "mremap", from, "MREMAP_FIXED refused");
        check_moved(to, PAGES, tag, "moved over other data");
        // A part from the middle, to an address of the kernel's choice.
        got = mmap(NULL, 900 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SETUP(got != MAP_FAILED);
        char *part = mremap(to + 333 * PAGE, 600 * PAGE, 900 * PAGE,
                            MREMAP_MAYMOVE | MREMAP_FIXED, got);
        if (part != got)
            die(1, "mremap", to, "part refused");
        check_range(part, 600, tag + 333, "part of a range");
        check_zeros(part + 600 * PAGE, 300, "grown while moved");
        check_range(to, 333, tag, "before the part that was moved");
        check_range(to + 933 * PAGE, PAGES - 933, tag + 933, "behind the part that was moved");
        // The gap mapped anew is fresh.
        map_at(to + 333 * PAGE, 600 * PAGE, MAP_FIXED);
        check_zeros(to + 333 * PAGE, 600, "where the part was");
        SETUP(munmap(to, (size_t)PAGES * PAGE) == 0 && munmap(part, 900 * PAGE) == 0);
    }
    // In place: shrink, then grow again.
    char *at = moved_out(4096, tag);
    if (mremap(at, (size_t)PAGES * PAGE, 1000 * PAGE, 0) != at)
        die(1, "mremap", at, "shrinking refused");
    if (mremap(at, 1000 * PAGE, (size_t)PAGES * PAGE, 0) != at)
        die(1, "mremap", at, "growing in place refused");
    check_zeros(at + 1000 * PAGE, PAGES - 1000, "shrunk and grown in place");
    check_range(at, 1000, tag, "what was kept");
    fill_range(at + 1000 * PAGE, PAGES - 1000, tag + 1000);
    push_out(at, PAGES);
    check_moved(at, PAGES, tag, "grown in place");
    // Grown with something in the way: it must move.
    char *wall = mmap(at + (size_t)PAGES * PAGE, PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    SETUP(wall != MAP_FAILED || errno == EEXIST);
    char *grown = mremap(at, (size_t)PAGES * PAGE, 2 * (size_t)PAGES * PAGE, MREMAP_MAYMOVE);
    if (grown == MAP_FAILED)
        die(1, "mremap", at, "growing refused");
    check_range(grown, PAGES, tag, "grown and moved");
    check_zeros(grown + (size_t)PAGES * PAGE, PAGES, "the new end");
    SETUP(munmap(grown, 2 * (size_t)PAGES * PAGE) == 0);
    tag += PAGES;
    // The old range stays mapped and is empty.
    at = moved_out(7 * 4096, tag);
    char *away = mremap(at, (size_t)PAGES * PAGE, (size_t)PAGES * PAGE,
                        MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (away == MAP_FAILED)
        die(1, "mremap", at, "MREMAP_DONTUNMAP refused");
    check_zeros(at, PAGES / 2, "the old range");
    fill_range(at, PAGES / 2, 0x2000000);
    check_moved(away, PAGES, tag, "moved, the old range kept");
    push_out(at, PAGES / 2);
    check_range(at, PAGES / 2, 0x2000000, "the old range, rewritten");
    check_zeros(at + PAGES / 2 * PAGE, PAGES - PAGES / 2, "the old range");
    check_range(away, PAGES, tag, "moved, the old range kept");
    return 0;
}
