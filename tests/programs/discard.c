// Parts of moved-out ranges are unmapped, replaced, discarded, locked and
// protected; the heap's end moves up and down.
#include "check.h"
#include <sys/prctl.h>

enum { PAGES = 3072 };

// Runs that begin and end inside folios and extents.
static const struct { size_t from, pages; } parts[] = {
    {3, 1}, {13, 5}, {30, 40}, {500, 30}, {1001, 700}, {2047, 2}, {2500, 512},
};
enum { PARTS = sizeof parts / sizeof *parts };

static int in_a_part(size_t page) {
    for (int i = 0; i < PARTS; i++)
        if (page >= parts[i].from && page < parts[i].from + parts[i].pages)
            return 1;
    return 0;
}

static void check_rest(char *at, tag_t base, const char *what) {
    for (size_t i = 0; i < PAGES; i++)
        if (!in_a_part(i))
            check_page(at + i * PAGE, base + i, what);
}

static char *moved_out(tag_t base) {
    char *at = map_new((size_t)PAGES * PAGE);
    fill_range(at, PAGES, base);
    push_out(at, PAGES);
    return at;
}

static void unmapped(void) {
    char *at = moved_out(1);
    for (int i = 0; i < PARTS; i++)
        SETUP(munmap(at + parts[i].from * PAGE, parts[i].pages * PAGE) == 0);
    check_rest(at, 1, "beside an unmapped part");
    // The same addresses anew must be zeros, now and after moving out.
    for (int i = 0; i < PARTS; i++)
        map_at(at + parts[i].from * PAGE, parts[i].pages * PAGE, MAP_FIXED_NOREPLACE);
    for (int i = 0; i < PARTS; i++)
        check_zeros(at + parts[i].from * PAGE, parts[i].pages, "mapped anew");
    for (int i = 0; i < PARTS; i++)
        fill_range(at + parts[i].from * PAGE, parts[i].pages, 70000 + parts[i].from);
    push_out(at, PAGES);
    check_rest(at, 1, "beside a part mapped anew");
    for (int i = 0; i < PARTS; i++)
        check_range(at + parts[i].from * PAGE, parts[i].pages, 70000 + parts[i].from, "mapped anew");
    SETUP(munmap(at, (size_t)PAGES * PAGE) == 0);
}

static void mapped_over(void) {
    char *at = moved_out(100000);
    for (int i = 0; i < PARTS; i++)
        map_at(at + parts[i].from * PAGE, parts[i].pages * PAGE, MAP_FIXED);
    for (int i = 0; i < PARTS; i++)
        check_zeros(at + parts[i].from * PAGE, parts[i].pages, "mapped over");
    check_rest(at, 100000, "beside a part mapped over");
    SETUP(munmap(at, (size_t)PAGES * PAGE) == 0);
}

static void discarded(void) {
    char *at = moved_out(200000);
    for (int i = 0; i < PARTS; i++)
        SETUP(madvise(at + parts[i].from * PAGE, parts[i].pages * PAGE, MADV_DONTNEED) == 0);
    // The first half of each part stays untouched for now.
    for (int i = 0; i < PARTS; i++)
        for (size_t k = parts[i].pages / 2; k < parts[i].pages; k++) {
            char *page = at + (parts[i].from + k) * PAGE;
            check_page(page, 0, "discarded");
            fill_page(page, 300000 + k);
        }
    push_out(at, PAGES);
    check_rest(at, 200000, "beside a discarded part");
    for (int i = 0; i < PARTS; i++)
        for (size_t k = 0; k < parts[i].pages; k++)
            check_page(at + (parts[i].from + k) * PAGE,
                       k < parts[i].pages / 2 ? 0 : 300000 + k, "discarded, then rewritten");
    SETUP(munmap(at, (size_t)PAGES * PAGE) == 0);
}

// MADV_FREE: a page reads as it was or as zeros until it is written.
static void freed(void) {
    // What is present when it is freed stays, as long as nobody faults there; where the
    // system makes all memory huge pages that is most of it, and never nine pages of ten go.
    SETUP(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    char *at = moved_out(400000);
    check_range(at + 1001 * PAGE, 200, 400000 + 1001, "before being freed"); // some present
    for (int i = 0; i < PARTS; i++)
        SETUP(madvise(at + parts[i].from * PAGE, parts[i].pages * PAGE, MADV_FREE) == 0);
    for (int i = 0; i < PARTS; i++)
        for (size_t k = 0; k < parts[i].pages; k++) {
            char *page = at + (parts[i].from + k) * PAGE;
            if (!page_is(page, 0))
                check_page(page, 400000 + parts[i].from + k, "freed");
            fill_page(page, 500000 + k);
        }
    // What is written after being freed is ordinary memory again: it must
    // also move out again.
    push_out(at, PAGES);
    check_rest(at, 400000, "beside a freed part");
    for (int i = 0; i < PARTS; i++)
        check_range(at + parts[i].from * PAGE, parts[i].pages, 500000, "freed, then rewritten");
    SETUP(munmap(at, (size_t)PAGES * PAGE) == 0);
}

static void protect(char *at, int prot) {
    for (int i = 0; i < PARTS; i++)
        SETUP(mprotect(at + parts[i].from * PAGE, parts[i].pages * PAGE, prot) == 0);
}

static void protected(void) {
    char *at = moved_out(600000);
    protect(at, PROT_READ);
    check_range(at, PAGES, 600000, "in part read-only");
    press(); // while parts cannot be moved
    protect(at, PROT_NONE);
    check_rest(at, 600000, "beside a part without access");
    press();
    protect(at, PROT_READ);
    check_range(at, PAGES, 600000, "read-only after no access");
    protect(at, PROT_READ | PROT_WRITE);
    check_range(at, PAGES, 600000, "writable again");
    fill_range(at, PAGES, 610000);
    push_out(at, PAGES);
    protect(at, PROT_NONE);
    protect(at, PROT_READ | PROT_WRITE);
    check_range(at, PAGES, 610000, "protected while moved out");
    SETUP(munmap(at, (size_t)PAGES * PAGE) == 0);
}

static void locked(void) {
    char *at = moved_out(700000);
    char *part = at + parts[4].from * PAGE;
    size_t pages = parts[4].pages;
    if (mlock(part, pages * PAGE))
        return; // not allowed here
    if (resident(part, pages) != pages)
        die(1, "mlock", part, "locked pages are not present");
    press();
    if (resident(part, pages) != pages)
        die(1, "mlock", part, "a locked page was moved out");
    check_range(at, PAGES, 700000, "in part locked");
    SETUP(munlock(part, pages * PAGE) == 0);
    push_out(at, PAGES / 2);
    check_range(at, PAGES, 700000, "unlocked again");
    SETUP(munmap(at, (size_t)PAGES * PAGE) == 0);
}

// The heap's end. No allocation of libc's happens in between.
static void heap_end(void) {
    char *start = sbrk(0);
    start += -(uintptr_t)start % PAGE;
    SETUP(brk(start + (size_t)PAGES * PAGE) == 0);
    fill_range(start, PAGES, 800000);
    push_out(start, PAGES);
    check_range(start + 7 * PAGE, 900, 800007, "the heap");
    SETUP(brk(start + 1000 * PAGE) == 0);
    SETUP(brk(start + (size_t)PAGES * PAGE) == 0);
    check_zeros(start + 1000 * PAGE, PAGES - 1000, "the heap, shrunk and grown");
    check_range(start, 1000, 800000, "below the heap's end");
    fill_range(start + 1000 * PAGE, PAGES - 1000, 900000);
    push_out(start, PAGES);
    check_range(start, 1000, 800000, "the heap");
    check_range(start + 1000 * PAGE, PAGES - 1000, 900000, "the heap, grown");
    SETUP(brk(start) == 0);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } cases[] = {
        {"unmapped", unmapped}, {"mapped_over", mapped_over}, {"discarded", discarded},
        {"freed", freed}, {"protected", protected}, {"locked", locked}, {"heap", heap_end},
    };
    int ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 2 || strcmp(argv[1], cases[i].name) == 0)
            cases[i].run(), ran++;
    return ran ? 0 : 2;
}
