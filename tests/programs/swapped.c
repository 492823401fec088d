// Memory that the kernel has in its own swap before any of it is managed: it is absent, and not empty.
// Says what somebody else is to move there (process, address, pages), and once a line has come how much of
// it is absent.
#include "check.h"

enum { SWAPPED = 32 << 8, MORE = 96 << 8 }; // pages

int main(void) {
    char *at = map_new(SWAPPED * PAGE);
    fill_range(at, SWAPPED, 1);
    printf("%d %p %d\n", getpid(), (void *)at, SWAPPED);
    fflush(stdout);
    SETUP(getchar() == '\n');
    printf("absent %zu\n", SWAPPED - resident(at, SWAPPED));
    fflush(stdout);
    char *more = map_new(MORE * PAGE);
    for (int round = 0; round < 2; round++) {
        fill_range(more, MORE, 100000);
        check_range(more, MORE, 100000, "beside what is swapped");
    }
    check_range(at, SWAPPED, 1, "what was in the kernel's swap");
    return 0;
}
