// The main thread ends by pthread_exit and another goes on. The kernel has no sizes for the
// main thread then (/proc/self/statm reads zeros): the manager must ask elsewhere.
//   mainexit before|after    before the process is managed, or once it is
#include "check.h"

enum { AREA = 160 << 20, ROUNDS = 3, EARLY = 4 << 20 };

// Pages of the process, asked of a thread that lives.
static long now_resident(void) {
    FILE *file = fopen("/proc/thread-self/statm", "r");
    long size, pages;
    SETUP(file && fscanf(file, "%ld %ld", &size, &pages) == 2);
    fclose(file);
    return pages;
}

static void *life(void *arg) {
    usleep(100000); // the main thread has ended
    char *area = map_new(AREA);
    long most = 0;
    for (tag_t round = 1; round <= ROUNDS; round++) {
        fill_range(area, AREA / PAGE, round * (AREA / PAGE));
        long pages = now_resident();
        most = pages > most ? pages : most;
    }
    printf("%ld\n", most >> 8);
    check_range(area, AREA / PAGE, ROUNDS * (tag_t)(AREA / PAGE), "memory of the thread that went on");
    exit(0);
    return arg;
}

int main(int argc, char **argv) {
    SETUP(argc > 1);
    char *early = map_new(EARLY);
    fill_range(early, EARLY / PAGE, 1);
    if (!strcmp(argv[1], "after"))
        push_out(early, EARLY / PAGE);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, life, NULL) == 0);
    pthread_exit(NULL);
}
