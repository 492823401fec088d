// Mapping calls on memory in every state: mremap, munmap, mmap over, brk.
#include "life.h"

// A part that begins and ends anywhere, but is not all.
static size_t part(area_t *a, size_t *pages) {
    size_t from = 1 + roll(a->pages - 2);
    *pages = 1 + roll(a->pages - 1 - from);
    return from;
}

static void unmap_part(area_t *a) {
    size_t pages, from = part(a, &pages);
    SETUP(munmap(a->at + from * PAGE, pages * PAGE) == 0);
    expect_tag(a, from, pages, NOTHING);
    settle(a, "beside an unmapped part");
    map_at(a->at + from * PAGE, pages * PAGE, MAP_FIXED_NOREPLACE);
    expect_tag(a, from, pages, 0);
    check_area(a, "a part mapped anew");
    write_area(a, from, (pages + 1) / 2);
    settle(a, "a part mapped anew and written");
}

// Every other page, so that each folio is cut to pieces.
static void unmap_comb(area_t *a) {
    for (size_t i = roll(2); i < a->pages; i += 2) {
        SETUP(munmap(a->at + i * PAGE, PAGE) == 0);
        a->tags[i] = NOTHING;
    }
    settle(a, "beside single unmapped pages");
}

static void map_over(area_t *a) {
    size_t pages, from = part(a, &pages);
    map_at(a->at + from * PAGE, pages * PAGE, MAP_FIXED);
    expect_tag(a, from, pages, 0);
    write_area(a, from, pages / 2);
    settle(a, "mapped over");
}

// Over stored pages: other kinds of memory, which are not managed.
static void map_shared_over(area_t *a) {
    size_t pages, from = part(a, &pages);
    SETUP(mmap(a->at + from * PAGE, pages * PAGE, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    expect_tag(a, from, pages, 0);
    check_area(a, "shared memory mapped over");
    write_area(a, from, pages);
    press_on(1500); // which does not move the shared part
    check_area(a, "shared memory mapped over");
    map_at(a->at + from * PAGE, pages * PAGE, MAP_FIXED);
    expect_tag(a, from, pages, 0);
    settle(a, "private memory mapped over shared");
}

static void *elsewhere(size_t pages) {
    void *at = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(at != MAP_FAILED);
    return at;
}

static void remap_move(area_t *a) {
    char *to = elsewhere(a->pages);
    if (mremap(a->at, a->pages * PAGE, a->pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
        die(1, "mremap", a->at, "refused");
    char *old = a->at;
    a->at = to;
    check_part(a, a->pages / 2, 5, "moved");
    // At once something else where it was.
    if (map_at(old, AREA * PAGE, MAP_FIXED_NOREPLACE) == old) {
        check_zeros(old, AREA, "where a mapping was");
        fill_range(old, AREA, 0x99000);
        settle(a, "moved");
        check_range(old, AREA, 0x99000, "mapped where a mapping was");
        SETUP(munmap(old, AREA * PAGE) == 0);
    }
}

static void remap_part(area_t *a) {
    size_t pages, from = part(a, &pages);
    char *to = elsewhere(pages);
    if (mremap(a->at + from * PAGE, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
               to) != to)
        die(1, "mremap", a->at, "a part refused");
    for (size_t i = 0; i < pages; i++) {
        check_page(to + i * PAGE, a->tags[from + i], "a part that was moved");
        a->tags[from + i] = NOTHING;
    }
    settle(a, "beside a part that was moved");
    // And back to where it came from.
    if (mremap(to, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
               a->at + from * PAGE) != a->at + from * PAGE)
        die(1, "mremap", to, "the way back refused");
    settle(a, "with a part moved away");
}

static void remap_grow(area_t *a) {
    size_t more = 1 + roll(AREA);
    SETUP(a->pages + more <= ROOM);
    char *got = mremap(a->at, a->pages * PAGE, (a->pages + more) * PAGE, MREMAP_MAYMOVE);
    if (got == MAP_FAILED)
        die(1, "mremap", a->at, "growing refused");
    a->at = got;
    expect_tag(a, a->pages, more, 0);
    a->pages += more;
    check_area(a, "grown");
    write_area(a, a->pages - more, more);
    settle(a, "grown");
}

static void remap_shrink(area_t *a) {
    size_t keep = 1 + roll(a->pages - 1);
    if (mremap(a->at, a->pages * PAGE, keep * PAGE, 0) != a->at)
        die(1, "mremap", a->at, "shrinking refused");
    size_t before = a->pages;
    a->pages = keep;
    check_area(a, "shrunk");
    if (mremap(a->at, keep * PAGE, before * PAGE, 0) == a->at) {
        expect_tag(a, keep, before - keep, 0);
        a->pages = before;
    }
    settle(a, "shrunk and grown");
}

static void remap_dontunmap(area_t *a) {
    char *old = a->at;
    char *got = mremap(old, a->pages * PAGE, a->pages * PAGE,
                       MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (got == MAP_FAILED)
        die(1, "mremap", old, "MREMAP_DONTUNMAP refused");
    a->at = got;
    check_zeros(old, AREA, "the source of MREMAP_DONTUNMAP");
    check_part(a, 3, 40, "the target of MREMAP_DONTUNMAP");
    fill_range(old, AREA / 2, 0x88000);
    settle(a, "the target of MREMAP_DONTUNMAP");
    check_range(old, AREA / 2, 0x88000, "the source, written");
    check_zeros(old + AREA / 2 * PAGE, AREA / 2, "the source, not written");
    SETUP(munmap(old, AREA * PAGE) == 0);
    check_area(a, "the source unmapped");
    if (map_at(old, AREA * PAGE, MAP_FIXED_NOREPLACE) == old) {
        check_zeros(old, AREA, "mapped where the source was");
        SETUP(munmap(old, AREA * PAGE) == 0);
    }
    settle(a, "the source unmapped");
}

// The heap's end. The area is used for its tags only; libc does not allocate.
static void brk_ends(area_t *a) {
    static area_t heap;
    char *end = sbrk(0), *start = end + -(uintptr_t)end % PAGE;
    heap.at = start, heap.pages = AREA;
    stop_pressing();
    SETUP(brk(start + AREA * PAGE) == 0);
    write_area(&heap, 0, AREA);
    make_state(&heap, a->state);
    a->absent = heap.absent;
    size_t keep = 1 + roll(AREA - 1);
    SETUP(brk(start + keep * PAGE - roll(PAGE)) == 0);
    heap.pages = keep;
    check_area(&heap, "below the heap's end");
    SETUP(brk(start + AREA * PAGE) == 0);
    heap.pages = AREA;
    expect_tag(&heap, keep, AREA - keep, 0);
    check_part(&heap, keep, (AREA - keep) / 2, "the heap, grown again");
    write_area(&heap, keep, (AREA - keep) / 2);
    settle(&heap, "the heap, grown again");
    SETUP(brk(end) == 0);
    check_area(a, "beside the heap");
}

int main(int argc, char **argv) {
    static const case_t cases[] = {
        {"unmap_part", unmap_part}, {"unmap_comb", unmap_comb}, {"map_over", map_over},
        {"map_shared_over", map_shared_over}, {"remap_move", remap_move},
        {"remap_part", remap_part}, {"remap_grow", remap_grow}, {"remap_shrink", remap_shrink},
        {"remap_dontunmap", remap_dontunmap}, {"brk", brk_ends},
    };
    return life_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
