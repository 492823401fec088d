// stalled DIR SECONDS MIB: two threads, one reading MIB of memory and one that writes pages anew
// and discards them, while the file system of DIR does not end a write for SECONDS.
#include "check.h"
#include <linux/fs.h>
#include <sys/ioctl.h>

static char *kept, *given_back;
static size_t pages;
static int ends;

static int goes_on(void) {
    usleep(2000);
    return !__atomic_load_n(&ends, __ATOMIC_RELAXED);
}

static void *read_all(void *unused) {
    for (tag_t step = 1; goes_on(); step++) {
        size_t i = mix(step) % pages;
        check_page(kept + i * PAGE, 1 + i, "memory beside a disk that stands still");
    }
    return unused;
}

static void *discard_all(void *unused) {
    enum { RUN = 16 };
    for (tag_t step = 1; goes_on(); step++) {
        char *at = given_back + mix(step) % (pages - RUN) * PAGE;
        fill_range(at, RUN, step);
        check_range(at, RUN, step, "memory written anew");
        SETUP(madvise(at, RUN * PAGE, MADV_DONTNEED) == 0);
        check_zeros(at, RUN, "discarded memory");
    }
    return unused;
}

int main(int argc, char **argv) {
    SETUP(argc == 4);
    pages = atol(argv[3]) << 8;
    int dir = open(argv[1], O_RDONLY | O_DIRECTORY), unused = 0;
    SETUP(dir >= 0);
    kept = map_new(pages * PAGE), given_back = map_new(pages * PAGE);
    fill_range(kept, pages, 1);
    fill_range(given_back, pages, 1);
    pthread_t threads[2];
    SETUP(pthread_create(&threads[0], NULL, read_all, NULL) == 0);
    SETUP(pthread_create(&threads[1], NULL, discard_all, NULL) == 0);
    sleep(1);
    SETUP(ioctl(dir, FIFREEZE, &unused) == 0);
    sleep(atoi(argv[2]));
    SETUP(ioctl(dir, FITHAW, &unused) == 0);
    sleep(1);
    __atomic_store_n(&ends, 1, __ATOMIC_RELAXED);
    SETUP(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    check_range(kept, pages, 1, "memory after a disk that stood still");
    return 0;
}
