// strides STEP THREADS: 48 MiB, of which each thread has a part, read three times: a page every STEP pages, then from the
// one beside that on (STEP below 0: from the end to the beginning).
#include "check.h"

enum { PAGES = 12288, TAG = 0x3000, MOST = 4 };
static char *memory;
static int step, threads;

static void *walks(void *number) {
    int part = PAGES / threads, begin = part * (int)(intptr_t)number;
    for (int round = 0; round < 3; round++)
        for (int first = 0; first < abs(step); first++)
            for (int at = first; at < part; at += abs(step)) {
                int page = begin + (step > 0 ? at : part - 1 - at);
                check_page(memory + (size_t)page * PAGE, TAG + page, "in a walk");
            }
    return NULL;
}

int main(int argc, char **argv) {
    SETUP(argc == 3);
    step = atoi(argv[1]), threads = atoi(argv[2]);
    SETUP(step != 0 && threads > 0 && threads <= MOST);
    memory = map_new((size_t)PAGES * PAGE);
    fill_range(memory, PAGES, TAG);
    pthread_t others[MOST];
    for (int i = 1; i < threads; i++)
        SETUP(pthread_create(&others[i], NULL, walks, (void *)(intptr_t)i) == 0);
    walks(NULL);
    for (int i = 1; i < threads; i++)
        SETUP(pthread_join(others[i], NULL) == 0);
    return 0;
}
