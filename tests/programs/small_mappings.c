// Many small mappings, of each of which three pages are touched, as the stacks of coroutines
// are, each mapping above a page that nobody may touch; or the same pages in one mapping. Beside them
// other memory, all of it gone over in turn: more than `high`.
#include "check.h"

enum { STACKS = 6000, STACK = 128 << 10, TOUCHED = 1, OTHER = STACKS * PAGE, TURNS = 3 };

static char *stacks;

// (The last page of a mapping above a guard may be a thread's descriptor, and stays.)
static char *top_of(size_t n) { return stacks + (n + 1) * (size_t)STACK - (TOUCHED + 1) * PAGE; }

int main(int argc, char **argv) {
    int apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    stacks = map_new((size_t)STACKS * STACK);
    SETUP(madvise(stacks, (size_t)STACKS * STACK, MADV_NOHUGEPAGE) == 0);
    for (size_t n = 0; apart && n < STACKS; n++)
        SETUP(mprotect(stacks + n * STACK, PAGE, PROT_NONE) == 0);
    char *other = map_new(OTHER);
    size_t pages = OTHER / PAGE, per_stack = pages / STACKS;
    fill_range(other, pages, 1 << 20);
    for (size_t n = 0; n < STACKS; n++)
        fill_range(top_of(n), TOUCHED, n * TOUCHED + 1);
    for (int turn = 0; turn < TURNS; turn++) {
        for (size_t k = 0; k < STACKS; k++) {
            size_t n = mix(turn + 1) % STACKS;
            n = (n + k * 1009) % STACKS; // (1009 and STACKS have no common divisor.)
            for (int i = 0; i < TOUCHED; i++) {
                check_page(top_of(n) + i * PAGE, n * TOUCHED + 1 + i, "the top of a stack");
                fill_page(top_of(n) + i * PAGE, n * TOUCHED + 1 + i);
            }
            size_t from = n * per_stack;
            check_range(other + from * PAGE, per_stack, (1 << 20) + from, "other memory");
        }
    }
    return 0;
}
