// Huge pages: moved out whole and back whole, then discarded in part.
#include "check.h"

enum { EXTENTS = 40, PAGES = EXTENTS * 512 };

int main(void) {
    char *at = map_aligned((size_t)PAGES * PAGE, 0);
    SETUP(madvise(at, (size_t)PAGES * PAGE, MADV_HUGEPAGE) == 0);
    fill_range(at, PAGES, 1);
    check_range(at, PAGES, 1, "read in order");
    push_out(at, PAGES);
    // One page of each: the rest must not be disturbed.
    for (size_t i = 0; i < EXTENTS; i++)
        check_page(at + (i * 512 + i * 11) * PAGE, 1 + i * 512 + i * 11, "one page of a huge one");
    push_out(at, PAGES);
    check_range(at, PAGES, 1, "after single pages");
    // Written while some of it is out.
    for (size_t i = 0; i < PAGES; i += 5)
        fill_page(at + i * PAGE, 0x100000 + i);
    push_out(at, PAGES);
    for (size_t i = 0; i < PAGES; i++)
        check_page(at + i * PAGE, i % 5 ? 1 + i : 0x100000 + i, "rewritten in part");
    // Discarded in part, at the start, in the middle and across two.
    fill_range(at, PAGES, 0x200000);
    push_out(at, PAGES);
    for (size_t i = 0; i + 2 < EXTENTS; i += 3) {
        SETUP(madvise(at + i * 512 * PAGE, 7 * PAGE, MADV_DONTNEED) == 0);
        SETUP(madvise(at + (i * 512 + 200) * PAGE, 50 * PAGE, MADV_DONTNEED) == 0);
        SETUP(madvise(at + (i * 512 + 900) * PAGE, 300 * PAGE, MADV_DONTNEED) == 0);
    }
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < PAGES; i++) {
            size_t in = i % (3 * 512);
            int gone = i / (3 * 512) * 3 + 2 < EXTENTS &&
                       (in < 7 || (in >= 200 && in < 250) || (in >= 900 && in < 1200));
            check_page(at + i * PAGE, gone ? 0 : 0x200000 + i, "discarded in part");
        }
        push_out(at, PAGES);
    }
    // Whole extents go, come back as huge pages, and go again.
    SETUP(madvise(at + 512 * PAGE, 4 * 512 * PAGE, MADV_DONTNEED) == 0);
    fill_range(at, PAGES, 0x300000);
    push_out(at, PAGES);
    check_range(at, PAGES, 0x300000, "huge again");
    return 0;
}
