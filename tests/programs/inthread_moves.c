// mremap of more than one mapping, to a place where others lie: since Linux 6.17 what there is moves, what lies
// at the target opposite a hole stays, and where a later mapping may not move the first ones have moved all the
// same. (Before, nothing moves.) What the program finds then must be what it is bare.
#include "inthread_kit.h"
#include <sys/shm.h>

enum { PAGES_ = 600, SOURCE = 0x1000, TARGET = 0x9000, FOREIGN = 0x5000 };
static char *from, *to;

static int is_there(char *at) {
    unsigned char present;
    return mincore(at, PAGE, &present) == 0;
}

// Two ranges with room between them, the second one out.
static void two_ranges(int is_out) {
    from = map_new(PAGES_ * PAGE);
    SETUP(mmap(NULL, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    to = map_new(PAGES_ * PAGE);
    fill_range(from, PAGES_, SOURCE);
    fill_range(to, PAGES_, TARGET);
    if (is_out)
        out_of_memory(to, PAGES_, 16);
}

static void *moves(int how) {
    void *at = mremap(from, PAGES_ * PAGE, PAGES_ * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | how, to);
    return at == MAP_FAILED ? NULL : at;
}

// Pages first .. first + count of the target are the source's, or the target's still; looked at by
// calls, then by touching them, again and again as they leave and come back.
static void is_right(size_t first, size_t count, tag_t tag) {
    int ends[2];
    char got[PAGE];
    SETUP(pipe(ends) == 0);
    for (size_t i = first; i < first + count; i += 3) {
        RIGHT(write(ends[1], to + i * PAGE, PAGE) == PAGE && read(ends[0], got, PAGE) == PAGE);
        check_page(got, tag + i, "by a call");
    }
    close(ends[0]), close(ends[1]);
    check_range(to + first * PAGE, count, tag + first, "at the target");
}

static void over_a_hole(size_t hole, size_t count) {
    for (int is_out = 0; is_out < 2; is_out++) {
        two_ranges(is_out);
        SETUP(munmap(from + hole * PAGE, count * PAGE) == 0);
        void *at = moves(0);
        for (int round = 0; round < 3; round++) {
            is_right(0, hole, at ? SOURCE : TARGET);
            is_right(hole, count, TARGET);
            is_right(hole + count, PAGES_ - hole - count, at ? SOURCE : TARGET);
            squeeze();
        }
        // (Where it has moved from lies nothing, or something else by now.)
        if (!at)
            munmap(from, hole * PAGE), munmap(from + (hole + count) * PAGE, (PAGES_ - hole - count) * PAGE);
        munmap(to, PAGES_ * PAGE);
    }
}

static void over_a_hole_between(void) { over_a_hole(200, 200); }
static void over_a_hole_behind(void) { over_a_hole(400, 200); }

// The source is none that can leave, and keeps its addresses.
static void of_what_is_not_managed(void) {
    squeeze();
    two_ranges(1);
    SETUP(munmap(from, PAGES_ * PAGE) == 0);
    from = map_at(from, 400 * PAGE, MAP_FIXED | MAP_STACK);
    fill_range(from, 400, SOURCE);
    void *at = moves(MREMAP_DONTUNMAP);
    is_right(0, 400, at ? SOURCE : TARGET);
    is_right(400, 200, TARGET);
    if (at)
        check_zeros(from, 400, "what stays of the source");
    else
        check_range(from, 400, SOURCE, "the source");
}

// Shared memory behind the first 200 pages does not move.
static void refused(int read_only, int is_out) {
    squeeze();
    two_ranges(is_out);
    int id = shmget(IPC_PRIVATE, 400 * PAGE, IPC_CREAT | 0600);
    SETUP(shmat(id, from + 200 * PAGE, SHM_REMAP) == from + 200 * PAGE);
    shmctl(id, IPC_RMID, NULL);
    fill_range(from + 200 * PAGE, 400, FOREIGN);
    if (read_only)
        SETUP(mprotect(from, 100 * PAGE, PROT_READ) == 0);
    RIGHT(moves(0) == NULL && errno == EFAULT);
    int moved = !is_there(from);
    for (int round = 0; round < 3; round++) {
        is_right(0, 200, moved ? SOURCE : TARGET);
        is_right(200, 400, TARGET);
        check_range(from + 200 * PAGE, 400, FOREIGN, "the shared memory");
        squeeze();
    }
    munmap(moved ? from + 200 * PAGE : from, (moved ? 400 : PAGES_) * PAGE), munmap(to, PAGES_ * PAGE);
}

static void refused_in_part(void) {
    for (int how = 0; how < 4; how++)
        refused(how & 1, how & 2);
}

// Sealed memory does not move.
static void sealed_in_part(void) {
    two_ranges(0);
    if (syscall(462, from + 400 * PAGE, 100 * PAGE, 0) != 0) // mseal, Linux 6.10
        return;
    out_of_memory(to, PAGES_, 16);
    RIGHT(moves(0) == NULL && errno == EPERM);
    int moved = !is_there(from);
    for (int round = 0; round < 3; round++) {
        is_right(0, 400, moved ? SOURCE : TARGET);
        is_right(400, 200, TARGET);
        squeeze();
    }
}

// Twice in a row.
static void from_one_to_the_next(void) {
    for (int turn = 0; turn < 6; turn++) {
        two_ranges(turn & 1);
        SETUP(munmap(from + 300 * PAGE, 7 * PAGE) == 0);
        int moved = moves(0) != NULL;
        squeeze();
        if (moved) {
            // (The hole is where the target's own pages are now.)
            SETUP(munmap(to + 300 * PAGE, 7 * PAGE) == 0);
            from = to, to = map_new(PAGES_ * PAGE);
            fill_range(to, PAGES_, TARGET);
            RIGHT(moves(0) == to);
        }
        is_right(0, 300, moved ? SOURCE : TARGET);
        is_right(300, 7, TARGET);
        is_right(307, PAGES_ - 307, moved ? SOURCE : TARGET);
        munmap(to, PAGES_ * PAGE);
        if (!moved)
            munmap(from, 300 * PAGE), munmap(from + 307 * PAGE, (PAGES_ - 307) * PAGE);
    }
}

// Advice about what is cold is refused where a part is locked.
static void cold_and_locked(void) {
    char *memory = map_new(PAGES_ * PAGE);
    fill_range(memory, PAGES_, 1);
    out_of_memory(memory, PAGES_, 16);
    SETUP(mlock(memory + 100 * PAGE, PAGE) == 0);
    for (int advice = MADV_COLD; advice <= MADV_PAGEOUT; advice++)
        RIGHT(madvise(memory, PAGES_ * PAGE, advice) == -1 && errno == EINVAL);
    SETUP(munlock(memory + 100 * PAGE, PAGE) == 0);
    for (int advice = MADV_COLD; advice <= MADV_PAGEOUT; advice++)
        RIGHT(madvise(memory, PAGES_ * PAGE, advice) == 0);
    SETUP(munmap(memory + 50 * PAGE, PAGE) == 0);
    for (int advice = MADV_COLD; advice <= MADV_PAGEOUT; advice++)
        RIGHT(madvise(memory, PAGES_ * PAGE, advice) == -1 && errno == ENOMEM);
    check_range(memory + 51 * PAGE, PAGES_ - 51, 1 + 51, "advised as cold");
}

CASES({"over_a_hole_between", over_a_hole_between}, {"over_a_hole_behind", over_a_hole_behind},
      {"of_what_is_not_managed", of_what_is_not_managed}, {"refused_in_part", refused_in_part},
      {"sealed_in_part", sealed_in_part}, {"from_one_to_the_next", from_one_to_the_next}, {"cold_and_locked", cold_and_locked})
