// Mappings that come and go, each a little elsewhere in the same room, while the manager
// learns of them: none is cut in two, so each can be moved as one.
#include "check.h"

enum { ROOM = 600, LEAST = 200, STEP = 7 };

int main(void) {
    // Two rooms that nobody else takes; what is not used of them nobody may touch.
    char *room = mmap(NULL, 2 * ROOM * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(room != MAP_FAILED);
    char *other = room + ROOM * PAGE;
    pthread_t thread = press_beside();
    double until = seconds() + 5;
    for (unsigned n = 1; seconds() < until; n++) {
        size_t before = n * STEP % (ROOM - LEAST), pages = LEAST + n * 11 % (ROOM - LEAST - before);
        char *at = map_at(room + before * PAGE, pages * PAGE, MAP_FIXED);
        fill_range(at, 3, n);
        fill_page(at + (pages - 1) * PAGE, n + 3);
        // Longer than it takes to make a mapping whole that was cut.
        usleep(2000 + n * 37 % 900);
        if (mremap(at, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                   other + before * PAGE) == MAP_FAILED)
            die(1, "mremap", at, "a mapping made by one call was refused");
        check_range(other + before * PAGE, 3, n, "moved");
        check_page(other + (before + pages - 1) * PAGE, n + 3, "moved");
        SETUP(mmap(room, 2 * ROOM * PAGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == room);
    }
    end_press_beside(thread);
    return 0;
}
