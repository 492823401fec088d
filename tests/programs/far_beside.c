// far_beside MIB: as stepped, with a thread that waits while others do not. Steps, a line each:
//   fill N     all of memory gets contents that N names
//   ready      all that the other steps need besides is used, so that it is in memory
//   start      a thread of its own begins to look at all of memory
//   beside N   N times: memory is mapped, written, moved, looked at and unmapped, which has
//              nothing to do with the other
//   end        the thread has looked at all of it
//   signals N  looks at memory for ever, while another thread sends it signals
// Says "done" after each; after "signals" when N have been handled.
#include "check.h"

static size_t pages;
static char *at;
static tag_t tag = 1;
static volatile sig_atomic_t handled, wanted;

static void *look(void *unused) {
    (void)unused;
    check_range(at, pages, tag, "memory that is far away");
    return NULL;
}

static void note(int number) {
    (void)number;
    if (++handled == wanted)
        SETUP(write(1, "done\n", 5) == 5);
}

static void beside(size_t n) {
    for (size_t i = 0; i < n; i++) {
        char *mine = map_new(16 * PAGE);
        fill_range(mine, 16, 1000 + i);
        mine = mremap(mine, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
        SETUP(mine != MAP_FAILED);
        check_range(mine, 16, 1000 + i, "memory beside");
        SETUP(munmap(mine, 32 * PAGE) == 0);
        char *block = malloc(300000);
        memset(block, (int)i, 300000);
        free(block);
    }
}

static void *nothing(void *unused) { return unused; }

static void *call(void *of) {
    pthread_t thread = *(pthread_t *)of;
    for (;;) {
        usleep(20000);
        pthread_kill(thread, SIGUSR1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    SETUP(argc == 2);
    pages = atol(argv[1]) << 8;
    at = map_new(pages * PAGE);
    pthread_t thread = 0, caller, self = pthread_self();
    struct sigaction action = {.sa_handler = note};
    sigaction(SIGUSR1, &action, NULL);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        size_t n = 0;
        if (sscanf(line, "fill %zu", &n) == 1) {
            tag = 1 + n * pages;
            fill_range(at, pages, tag);
        } else if (strcmp(line, "ready\n") == 0) {
            for (int turn = 0; turn < 3; turn++) {
                SETUP(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
                beside(2);
            }
        } else if (strcmp(line, "start\n") == 0) {
            SETUP(pthread_create(&thread, NULL, look, NULL) == 0);
        } else if (sscanf(line, "beside %zu", &n) == 1) {
            beside(n);
        } else if (sscanf(line, "signals %zu", &n) == 1) {
            wanted = n;
            SETUP(pthread_create(&caller, NULL, call, &self) == 0);
            for (size_t page = 0;; page = (page + 1) % pages)
                check_range(at + page * PAGE, 1, tag + page, "memory with signals");
        } else if (strcmp(line, "end\n") == 0) {
            SETUP(pthread_join(thread, NULL) == 0);
        } else {
            die(2, "setup", line, "not a step");
        }
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
