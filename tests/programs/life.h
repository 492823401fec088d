// What the life_*.c programs share: a small area whose pages are brought into a
// known state, an operation on it, and what every page must hold afterwards.
//
//     life_x SEED STATE CASE [ROUNDS]      STATE and CASE may be `all`
//
// prints for each case and state how many pages were absent at the moment of the
// operation. Pressure comes from memory that is written once and never read, so
// what the manager counts as brought back is the area's.
#ifndef LIFE_H
#define LIFE_H
#include "check.h"
#include <stdatomic.h>

// present:  just written
// standby:  acted on the moment the pages are found absent
// storing:  the same, a little later, while another thread keeps pressing
// stored:   after more that was written later was moved out than may stand by
// partly:   stored, then one page of each folio (of some folios all) touched
enum state { PRESENT, STANDBY, STORING, STORED, PARTLY, STATES };
static const char *const state_names[] = {"present", "standby", "storing", "stored", "partly"};

enum { AREA = 192, ROOM = 1024 };
static const tag_t NOTHING = ~(tag_t)0;        // not mapped, or not to be looked at
static const tag_t OR_ZERO = (tag_t)1 << 63;   // with a tag: zeros are right as well

typedef struct {
    char *at;
    size_t pages, absent;
    tag_t tags[ROOM];
    enum state state;
} area_t;

static uint64_t seed_state;
static tag_t next_tag = 1;

static inline uint64_t roll(uint64_t below) {
    return (seed_state = mix(seed_state + 0x9e3779b97f4a7c15u)) % below;
}

static inline void write_area(area_t *a, size_t from, size_t pages) {
    for (size_t i = from; i < from + pages; i++)
        fill_page(a->at + i * PAGE, a->tags[i] = ++next_tag);
}

static inline void expect_tag(area_t *a, size_t from, size_t pages, tag_t tag) {
    for (size_t i = from; i < from + pages; i++)
        a->tags[i] = tag;
}

static inline void check_part(area_t *a, size_t from, size_t pages, const char *what) {
    for (size_t i = from; i < from + pages; i++) {
        tag_t tag = a->tags[i];
        char *page = a->at + i * PAGE;
        if (tag == NOTHING || ((tag & OR_ZERO) && page_is(page, 0)))
            continue;
        check_page(page, tag & ~OR_ZERO, what);
    }
}

static inline void check_area(area_t *a, const char *what) { check_part(a, 0, a->pages, what); }

static inline size_t absent_of(area_t *a) { return a->pages - resident(a->at, a->pages); }

// Pressure: a ring of chunks at addresses of its own, so that nothing is ever
// mapped into a hole that a case makes.
enum { CHUNK = 16, CHUNKS = 512 };
static char *ring;
static size_t chunks_made;
static tag_t ring_tag = (tag_t)1 << 40;
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void press_on(size_t pages) {
    pthread_mutex_lock(&ring_lock);
    if (!ring) {
        ring = mmap(NULL, (size_t)CHUNK * CHUNKS * PAGE, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        SETUP(ring != MAP_FAILED);
    }
    for (size_t done = 0; done < pages; done += CHUNK) {
        char *at = ring + chunks_made++ * 77 % CHUNKS * CHUNK * PAGE;
        map_at(at, CHUNK * PAGE, MAP_FIXED);
        // Out of order: a sequential writer's memory would go first, and only it.
        for (size_t i = 0; i < CHUNK; i++)
            fill_page(at + i * 5 % CHUNK * PAGE, ++ring_tag);
    }
    pthread_mutex_unlock(&ring_lock);
}

static atomic_int pressing;
static pthread_t presser;

static inline void *press_on_and_on(void *arg) {
    (void)arg;
    // Signals are the main thread's, whatever that is doing.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (pressing)
        press_on(CHUNK);
    return NULL;
}

static inline void start_pressing(void) {
    pressing = 1;
    SETUP(pthread_create(&presser, NULL, press_on_and_on, NULL) == 0);
}

static inline void stop_pressing(void) {
    if (pressing) {
        pressing = 0;
        pthread_join(presser, NULL);
    }
}

// Presses until nine pages of ten that are mapped are absent.
static inline void out(area_t *a) {
    if (!managed())
        return;
    double until = seconds() + 30;
    while (absent_of(a) * 10 < a->pages * 9) {
        press_on(CHUNK);
        if (seconds() > until)
            die(2, "setup", a->at, "the area was not moved out in 30 s");
    }
}

// What stands by is stored in the order it was moved out, and is a tenth of the
// limit at most (of 16M in these tests). So once more than that, written when the
// area was out already, is out as well, the area is stored.
enum { MARKS = 768 };

static inline void let_it_be_stored(void) {
    static char *marks;
    if (!marks)
        marks = mmap(NULL, (size_t)MARKS * PAGE, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(marks != MAP_FAILED);
    map_at(marks, (size_t)MARKS * PAGE, MAP_FIXED);
    for (size_t i = 0; i < MARKS; i++)
        fill_page(marks + i * PAGE, ++ring_tag);
    area_t a = {.at = marks, .pages = MARKS};
    out(&a);
}

static inline void make_state(area_t *a, enum state state) {
    a->state = state;
    if (managed() && state != PRESENT) {
        out(a);
        if (state == STORING) {
            start_pressing();
            usleep(roll(4000));
        } else if (state >= STORED) {
            let_it_be_stored();
        }
        for (size_t i = roll(16); state == PARTLY && i < a->pages; i += 17) {
            check_part(a, i, 1, "while made partly present");
            if (roll(4) == 0 && i + 3 < a->pages)
                check_part(a, i + 2, 1, "while made partly present");
        }
    }
    a->absent = absent_of(a);
}

// An area of known pages anywhere in an extent.
static inline void new_area(area_t *a, enum state state) {
    a->pages = AREA;
    a->at = map_aligned(AREA * PAGE, roll(512) * PAGE);
    write_area(a, 0, AREA);
    make_state(a, state);
}

// What every case ends with: right now, and after having been out once more.
static inline void settle(area_t *a, const char *what) {
    check_area(a, what);
    stop_pressing();
    if (!managed())
        return;
    double until = seconds() + 30;
    // Parts may be unmapped or locked by now: most of what is left must go.
    for (size_t n = 0; n < 100; n++) {
        press_on(8 * CHUNK);
        size_t left = 0, could = 0;
        for (size_t i = 0; i < a->pages; i++)
            if (a->tags[i] != NOTHING)
                could++, left += resident(a->at + i * PAGE, 1);
        if (left * 10 <= could || seconds() > until)
            break;
    }
    check_area(a, what);
}

typedef struct {
    const char *name;
    void (*run)(area_t *);
} case_t;

// Runs what the command line asks for; a line for each case and state.
static inline int life_main(int argc, char **argv, const case_t *cases, size_t count) {
    if (argc < 4)
        return 2;
    size_t rounds = argc > 4 ? strtoul(argv[4], NULL, 0) : 1, ran = 0;
    // The manager's own mappings must not come to lie in a hole that a case makes.
    if (managed())
        press_on(2 * CHUNK * CHUNKS);
    for (size_t c = 0; c < count; c++)
        for (enum state s = 0; s < STATES; s++) {
            if ((strcmp(argv[2], "all") && strcmp(argv[2], state_names[s])) ||
                (strcmp(argv[3], "all") && strcmp(argv[3], cases[c].name)))
                continue;
            size_t absent = 0, pages = 0;
            for (size_t round = 0; round < rounds; round++) {
                static area_t a;
                seed_state = strtoull(argv[1], NULL, 0) * 1000 + round + 1;
                new_area(&a, s);
                cases[c].run(&a);
                stop_pressing();
                absent += a.absent, pages += AREA;
                SETUP(munmap(a.at, a.pages * PAGE) == 0);
                ran++;
            }
            printf("%s %s absent %zu of %zu\n", cases[c].name, state_names[s], absent, pages);
            fflush(stdout);
        }
    return ran ? 0 : 2;
}

#endif
