// Faults from several threads at once, in the same and in different extents,
// and first touches in ranges that are managed already.
#include "check.h"

enum { THREADS = 6, MB = 96 };
static char *memory;
static const size_t pages = (size_t)MB << 20 >> 12;
static pthread_barrier_t start;

// Everybody reads the same pages in the same order: faults meet.
static void *same(void *arg) {
    (void)arg;
    for (int round = 0; round < 2; round++) {
        pthread_barrier_wait(&start);
        check_range(memory, pages, 1, "read by all threads together");
    }
    return NULL;
}

// Thread t owns every THREADS-th page, so that all work in every extent.
static void *interleaved(void *arg) {
    size_t t = (size_t)arg;
    pthread_barrier_wait(&start);
    for (int round = 0; round < 2; round++)
        for (size_t i = t; i < pages; i += THREADS) {
            char *page = memory + i * PAGE;
            check_page(page, round * pages + 1 + i, "written by one thread of an extent");
            fill_page(page, (round + 1) * pages + 1 + i);
        }
    return NULL;
}

// Random pages of all, read only.
static void *scattered(void *arg) {
    uint64_t state = (uintptr_t)arg + 99;
    pthread_barrier_wait(&start);
    for (int n = 0; n < 12000; n++) {
        size_t i = (state = mix(state + 0x9e3779b97f4a7c15u)) % pages;
        check_page(memory + i * PAGE, 2 * pages + 1 + i, "read at random");
    }
    return NULL;
}

static void run(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        SETUP(pthread_create(&threads[t], NULL, body, (void *)t) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
}

static char *sparse;
enum { SPARSE_PAGES = 16384, STRIDE = 7 };

// Touches every STRIDE-th page of a range nobody has written.
static void *hole_filler(void *arg) {
    size_t t = (size_t)arg;
    pthread_barrier_wait(&start);
    for (size_t i = t * STRIDE; i < SPARSE_PAGES; i += STRIDE * THREADS) {
        check_page(sparse + i * PAGE, 0, "never touched");
        fill_page(sparse + i * PAGE, i + 1);
    }
    return NULL;
}

int main(void) {
    pthread_barrier_init(&start, NULL, THREADS);
    memory = map_new(pages * PAGE);
    fill_range(memory, pages, 1);
    check_range(memory, pages, 1, "read by the writer");
    run(same);
    run(interleaved);
    run(scattered);
    // One untouched page in eight inside pages that are moved out.
    sparse = map_new((size_t)SPARSE_PAGES * PAGE);
    for (size_t i = 0; i < SPARSE_PAGES; i += 64)
        fill_page(sparse + i * PAGE, 0xabc + i);
    push_out(memory, pages / 2);
    for (size_t i = 0; i < SPARSE_PAGES; i++)
        check_page(sparse + i * PAGE, i % 64 ? 0 : 0xabc + i, "sparse");
    for (size_t i = 0; i < SPARSE_PAGES; i += 64)
        SETUP(madvise(sparse + i * PAGE, PAGE, MADV_DONTNEED) == 0);
    run(hole_filler);
    push_out(sparse, SPARSE_PAGES);
    for (size_t i = 0; i < SPARSE_PAGES; i++)
        check_page(sparse + i * PAGE, i % STRIDE ? 0 : i + 1, "after sparse touches");
    return 0;
}
