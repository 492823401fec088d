// Addresses that a program had, unmapped, and still counts as its own: while nobody but itself makes mappings it may
// unmap them once more, or map over them. What zfolio maps meanwhile must not lie there. A process a case: the holes
// are made before anything of it is managed.
#include "inthread_kit.h"
#include <sys/wait.h>

enum { COUNT = 96 };
static char *holes[COUNT];
static size_t bytes[COUNT];

// Holes of 8 KiB to 64 GiB, the highest that there are; each has a mapping below it that stays.
static void make_holes(void) {
    for (int i = 0; i < COUNT; i++) {
        bytes[i] = (size_t)PAGE << (1 + i % 24);
        holes[i] = mmap(NULL, bytes[i], PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        SETUP(holes[i] != MAP_FAILED);
        SETUP(mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    }
    for (int i = 0; i < COUNT; i++)
        SETUP(munmap(holes[i], bytes[i]) == 0);
}

static void unmap_again(void) {
    for (int i = 0; i < COUNT; i++)
        RIGHT(munmap(holes[i], bytes[i]) == 0);
}

static void map_over(void) {
    for (int i = 0; i < COUNT; i++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        RIGHT(mmap(holes[i], bytes[i], PROT_NONE, flags, -1, 0) == holes[i]);
    }
}

// More than `high`: going over it moves pages out and in. Mapped before the holes are made, filled after that.
static char *range;
enum { RANGE = 8 << 10, TAG = 0x7000 };

static void with(void (*what)(void)) {
    range = map_new(RANGE * PAGE);
    make_holes();
    fill_range(range, RANGE, TAG);
    for (int round = 0; round < 3; round++) {
        check_range(range, RANGE, TAG, "beside the holes");
        what();
    }
    check_range(range, RANGE, TAG, "in the end");
}

static void unmapped_again(void) { with(unmap_again); }
static void mapped_over(void) { with(map_over); }

static void *checks(void *arg) {
    for (int round = 0; round < 2; round++)
        check_range(range, RANGE, TAG, "by a thread");
    return arg;
}

static void *sleeps(void *arg) {
    usleep(100000);
    return arg;
}

static void by_threads(void *(*what)(void *)) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        SETUP(pthread_create(&threads[i], NULL, what, NULL) == 0);
    for (int i = 0; i < 3; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
}

// What is mapped for the second and third thread that has pages in transit.
static void in_threads(void) {
    range = map_new(RANGE * PAGE);
    // (The stacks of the threads that follow are there then.)
    by_threads(sleeps);
    make_holes();
    fill_range(range, RANGE, TAG);
    for (int round = 0; round < 2; round++) {
        by_threads(checks);
        unmap_again();
    }
    check_range(range, RANGE, TAG, "in the end");
}

static void in_a_child(void) {
    range = map_new(RANGE * PAGE);
    make_holes();
    fill_range(range, RANGE, TAG);
    pid_t child = fork();
    SETUP(child >= 0);
    for (int round = 0; round < 3; round++) {
        check_range(range, RANGE, TAG, child ? "in a parent" : "in a child");
        map_over();
        unmap_again();
    }
    if (child == 0)
        _exit(0);
    int status;
    SETUP(waitpid(child, &status, 0) == child);
    RIGHT(status == 0);
}

CASES({"unmapped_again", unmapped_again}, {"mapped_over", mapped_over}, {"in_threads", in_threads},
      {"in_a_child", in_a_child})
