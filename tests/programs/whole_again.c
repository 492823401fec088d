// Huge pages that left whole and come back page by page, in no order: once all of one is
// there, it may become a huge page again, and no byte changes by that. With a child of a
// fork that holds them, and with pages written and discarded meanwhile.
#include "check.h"

enum { EXTENTS = 8, PAGES = EXTENTS * 512 };

// Page `i` of all, in an order in which neighbours lie far apart.
static size_t scattered(size_t i) { return i * 1283 % PAGES; }

// Has all of it leave, and leaves room for it to come back to.
static void push_out_for_now(void) {
    char *other = map_aligned((size_t)4 * PAGES * PAGE, 0);
    for (int pass = 0; pass < 2; pass++)
        fill_range(other, 4 * PAGES, 0x400000);
    SETUP(munmap(other, (size_t)4 * PAGES * PAGE) == 0);
}

int main(void) {
    char *at = map_aligned((size_t)PAGES * PAGE, 0);
    SETUP(madvise(at, (size_t)PAGES * PAGE, MADV_HUGEPAGE) == 0);
    fill_range(at, PAGES, 1);
    for (int round = 0; round < 4; round++) {
        push_out_for_now();
        for (size_t i = 0; i < PAGES; i++)
            check_page(at + scattered(i) * PAGE, 1 + scattered(i), "come back in no order");
        // While they are made one again.
        for (int turn = 0; turn < 20; turn++) {
            for (size_t i = turn; i < PAGES; i += 37) {
                check_page(at + scattered(i) * PAGE, 1 + scattered(i), "while it is copied");
                fill_page(at + scattered(i) * PAGE, 1 + scattered(i));
            }
            usleep(20000);
        }
        if (round == 1) {
            pid_t child = fork();
            SETUP(child >= 0);
            check_range(at, PAGES, 1, "beside a child");
            if (child == 0)
                _exit(0);
            int status;
            SETUP(waitpid(child, &status, 0) == child);
            if (status != 0)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
        if (round == 2) {
            SETUP(madvise(at + 100 * PAGE, 300 * PAGE, MADV_DONTNEED) == 0);
            for (size_t i = 100; i < 400; i++)
                check_page(at + i * PAGE, 0, "discarded");
            fill_range(at, PAGES, 1);
        }
    }
    check_range(at, PAGES, 1, "in the end");
    return 0;
}
