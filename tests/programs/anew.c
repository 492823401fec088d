// Mappings of which the first half is unmapped and mapped anew, then half of that and so on,
// while the manager learns of them: it looked before, registered what was left, and looks
// again after. The new half is not registered, and nobody would bring what was moved out.
#include "check.h"

enum { AREAS = 24, AREA = 256, LEAST = 16 };

int main(void) {
    // Areas with a page between them that nobody may touch, so that none becomes one with
    // the next.
    enum { ROOM = AREA + 1 };
    char *room = mmap(NULL, AREAS * ROOM * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(room != MAP_FAILED);
    tag_t tags[AREAS] = {0};
    pthread_t thread = press_beside();
    double until = seconds() + 5;
    for (unsigned n = 1; seconds() < until; n++) {
        char *area = room + n % AREAS * ROOM * PAGE;
        tag_t *tag = &tags[n % AREAS];
        if (*tag)
            check_range(area, AREA, *tag, "an area");
        *tag = (tag_t)n * AREA;
        map_at(area, AREA * PAGE, MAP_FIXED);
        fill_range(area, AREA, *tag);
        for (size_t part = AREA / 2; part >= LEAST; part /= 2) {
            usleep(n * 131 % 3000);
            SETUP(munmap(area, part * PAGE) == 0);
            usleep(500 + n * 37 % 2000);
            map_at(area, part * PAGE, MAP_FIXED);
            fill_range(area, part, *tag);
        }
    }
    end_press_beside(thread);
    for (unsigned i = 0; i < AREAS; i++)
        if (tags[i])
            check_range(room + i * ROOM * PAGE, AREA, tags[i], "an area at the end");
    return 0;
}
