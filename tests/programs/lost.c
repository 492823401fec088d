// shmat with SHM_REMAP unmaps managed memory, and no event says so. Something else is mapped
// at the same addresses then: what leaves must come back from there, and nothing of what
// was kept of the old mapping may.
//   lost present|out fill|leave      whether the old pages were out; whether the new are touched
#include "check.h"
#include <sys/shm.h>

enum { AREA = 4096, PART = 1024, FIRST = 1536 };

static void replace_by_shared(char *at, int detach) {
    int id = shmget(IPC_PRIVATE, PART * PAGE, IPC_CREAT | 0600);
    SETUP(id >= 0);
    char *shared = shmat(id, at, SHM_REMAP);
    SETUP(shmctl(id, IPC_RMID, NULL) == 0);
    SETUP(shared == at);
    check_zeros(shared, PART, "a shared page");
    fill_range(shared, PART, 0x5000000);
    if (detach)
        SETUP(shmdt(shared) == 0);
}

int main(int argc, char **argv) {
    SETUP(argc > 2);
    int out = !strcmp(argv[1], "out"), fill = !strcmp(argv[2], "fill");
    char *area = map_new(AREA * PAGE), *part = area + FIRST * PAGE;
    for (unsigned round = 0; round < 3; round++) {
        tag_t old = 0x1000000 + round * 0x10000, new = 0x2000000 + round * 0x10000;
        fill_range(area, AREA, old);
        if (out || round == 0)
            push_out(area, AREA);
        if (!out)
            check_range(area, AREA, old, "the area before");
        replace_by_shared(part, 0);
        press();
        check_range(part, PART, 0x5000000, "a shared page after pressure");
        SETUP(shmdt(part) == 0);
        map_at(part, PART * PAGE, MAP_FIXED);
        if (fill)
            fill_range(part, PART, new);
        for (int i = 0; i < 3; i++) {
            press();
            usleep(150000); // the list of mappings is read again
        }
        if (fill)
            check_range(part, PART, new, "a page mapped anew");
        else
            check_zeros(part, PART, "a page mapped anew");
        check_range(area, FIRST, old, "before the part");
        check_range(part + PART * PAGE, AREA - FIRST - PART, old + FIRST + PART, "after the part");
    }
    return 0;
}
