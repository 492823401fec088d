// What the programs `inthread_*.c` share: each is a list of cases, for the ways of managing in
// which the thread that faults serves itself.
//
//   inthread_X            every case, one after another
//   inthread_X list       their names
//   inthread_X CASE...    these
//
// As all programs here each case passes bare; it ends the process with 1 where something is not
// what it is bare, and says which case it was.
#ifndef INTHREAD_KIT_H
#define INTHREAD_KIT_H
#include "check.h"
#include <sys/resource.h>

enum { AREA = 256, KIT_BALLAST = 40 << 20 };
static char *area;           // memory for calls to point into: AREA pages
static const char *case_now; // name of the case that runs

// What must hold, as it does bare.
#define RIGHT(condition) \
    do { \
        if (!(condition)) { \
            int errno_ = errno; \
            SAY("case %s, line %d (errno %d)\n", case_now, __LINE__, errno_); \
            die(1, #condition, area, "is not so, as it is bare"); \
        } \
    } while (0)

static inline void *touches(void *arg) {
    static char *ballast_here;
    static uint64_t round;
    if (!ballast_here) {
        // (Its end is never touched: reading ahead stops there, before its neighbour.)
        ballast_here = map_new(KIT_BALLAST + 64 * PAGE);
        for (size_t at = 0; at < KIT_BALLAST; at += PAGE)
            *(uint64_t *)(ballast_here + at) = at;
    }
    round++;
    for (size_t at = 0; at < KIT_BALLAST; at += PAGE) {
        uint64_t *word = (uint64_t *)(ballast_here + at);
        if (word[0] != at || word[1] != (round > 1 ? round - 1 : 0))
            die(1, "ballast", word, "a wrong byte");
        word[1] = round;
    }
    return arg;
}

// Who computes until a signal comes is ended once it is clear that none does.
static inline void bound_time(void) {
    struct rlimit limit;
    SETUP(getrlimit(RLIMIT_CPU, &limit) == 0);
    limit.rlim_cur = 60;
    SETUP(setrlimit(RLIMIT_CPU, &limit) == 0);
}

// Goes over more memory than `high` (12 MiB): what is not touched meanwhile is out then.
static inline void squeeze(void) { touches(NULL); }

// Returns once one page of `spare` of the range is present at most. Bare, at once.
static inline void out_of_memory(void *at, size_t pages, size_t spare) {
    if (!managed())
        return;
    double until = seconds() + 20;
    do {
        squeeze();
        if (resident(at, pages) <= pages / spare)
            return;
    } while (seconds() < until);
    die(2, "setup", at, "the range was not moved out in 20 s");
}

static inline void out(void) { out_of_memory(area, AREA, 16); }

// Pages are given out one after another, so that no two things share one. Half of the places
// lie over the end of a page.
static size_t taken;

static inline void *place(size_t bytes) {
    size_t pages = bytes / PAGE + 2, over = taken % 2 ? PAGE - bytes / 2 % PAGE / 8 * 8 : 64;
    if (taken + pages > AREA)
        taken = 0;
    char *at = area + taken * PAGE + over % PAGE;
    taken += pages;
    return at;
}

// The same with what is to be in it.
static inline void *put(const void *what, size_t bytes) { return memcpy(place(bytes), what, bytes); }
static inline char *text(const char *what) { return put(what, strlen(what) + 1); }

struct one_case {
    const char *name;
    void (*run)(void);
};

static inline int run_cases(const struct one_case *cases, int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "list") == 0) {
        for (; cases->name; cases++)
            puts(cases->name);
        return 0;
    }
    area = map_new(AREA * PAGE);
    int done = 0;
    for (; cases->name; cases++) {
        int wanted = argc < 2;
        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], cases->name) == 0;
        if (!wanted)
            continue;
        case_now = cases->name;
        taken = 0;
        cases->run();
        done++;
    }
    SETUP(done > 0);
    return 0;
}

#define CASES(...) \
    int main(int argc, char **argv) { \
        static const struct one_case cases[] = {__VA_ARGS__, {NULL, NULL}}; \
        return run_cases(cases, argc, argv); \
    }
#endif
