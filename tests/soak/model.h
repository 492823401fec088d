// What the random program knows of its memory: for every page what it is, and for
// every sector of it what it must hold. All of it lies in shared memory, which zfolio
// does not manage; the child of a fork gets a copy of its own.
#ifndef MODEL_H
#define MODEL_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SECTOR = 512, SECTORS = PAGE / SECTOR, WORDS = SECTOR / 8, WORKERS = 8, SHMS = 200 };
enum { WRONG = 1, SETUP_FAILED = 2, REFUSED = 3, CRASHED = 4 }; // exit statuses

typedef uint32_t tag_t; // names the contents of a sector; 0: zeros

// PRIVATE_FILE is of a file of zeros. SHARED keeps its contents when it is discarded.
enum kind { NONE, ANON, PRIVATE_FILE, SHARED };

typedef struct {
    tag_t tags[SECTORS];
    uint8_t kind, prot;
    uint8_t lazy;   // MADV_FREE: as the tags say, or zeros
    uint8_t guard;  // MADV_GUARD_INSTALL
    uint8_t wipe, dontfork, locked;
    uint8_t shm;    // of this System V segment of its worker
} page_t;

typedef struct {
    char *base;
    size_t pages;
    page_t *model;
} area_t;

typedef struct {
    uint32_t at, len, x, y;
    uint8_t worker, code;
} op_t;

typedef struct {
    int id;
    pthread_mutex_t lock; // held during an operation; who looks at the window tries it
    area_t window, heap, stack;
    tag_t next;
    struct { size_t at, pages; } shms[SHMS];
    unsigned shm_count;
    pid_t children[4];
    size_t grown;         // pages of the stack that are mapped
    int copy, direct;     // a file that copies go through, and the same with O_DIRECT
    const op_t *now;
    unsigned done;
} worker_t;

static worker_t workers[WORKERS];
static unsigned worker_count = 1, depth, raw_percent;
static area_t stones; // written before the threads start, only read from then on
static const char *op_name(unsigned code);

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t roll(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15u); }

// Of eight pages one is a repeated word, one does not compress, the others do.
static inline uint64_t word_of(tag_t tag, unsigned i) {
    if (tag == 0)
        return 0;
    uint64_t page = mix((tag >> 3) + (1ull << 40));
    switch (page & 7) {
    case 0: return page;
    case 1: return mix((uint64_t)tag * WORDS + i);
    default: return i % 16 ? tag + i / 32 : mix((uint64_t)tag * WORDS + i);
    }
}

#define FAIL(status, ...) \
    do { \
        char said_[700]; \
        int len_ = snprintf(said_, sizeof said_, "random_program: " __VA_ARGS__); \
        fail_with(status, said_, len_ < (int)sizeof said_ ? len_ : (int)sizeof said_ - 1); \
    } while (0)

static __thread worker_t *myself;

// Without libc's locks: in the child of a raw fork another thread may have held them.
static void __attribute__((noreturn)) fail_with(int status, const char *text, int len) {
    char line[1000];
    const op_t *op = myself ? myself->now : NULL;
    int all = op ? snprintf(line, sizeof line, "%.*s [process %d, depth %u, operation %u: %u %s %u %u %u %u]\n",
                            len, text, getpid(), depth, myself->done, op->worker, op_name(op->code),
                            op->at, op->len, op->x, op->y)
                 : snprintf(line, sizeof line, "%.*s [process %d, depth %u]\n", len, text, getpid(), depth);
    syscall(SYS_write, 2, line, all < (int)sizeof line ? all : (int)sizeof line - 1);
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

#define SETUP(condition) ((condition) ? (void)0 : FAILED_SETUP(#condition))
#define FAILED_SETUP(what) ({ FAIL(SETUP_FAILED, "setup: %s: errno %d", what, errno); })

static inline void *shared_memory(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(at != MAP_FAILED);
    return at;
}

static inline char *at_page(const area_t *a, size_t page) { return a->base + page * PAGE; }
static inline int readable(const page_t *p) { return p->kind != NONE && (p->prot & PROT_READ) && !p->guard; }
static inline int writable(const page_t *p) { return readable(p) && (p->prot & PROT_WRITE); }
static inline int mapped(const page_t *p) { return p->kind != NONE; }
static inline int is_free(const page_t *p) { return p->kind == NONE; }

static inline int sector_is(const void *at, tag_t tag) {
    const volatile uint64_t *words = at;
    for (unsigned i = 0; i < WORDS; i++)
        if (words[i] != word_of(tag, i))
            return 0;
    return 1;
}

static inline void fill_sector(void *at, tag_t tag) {
    volatile uint64_t *words = at;
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = word_of(tag, i);
}

static void wrong(const char *what, const void *at, tag_t tag, const page_t *p, size_t page) {
    const volatile uint64_t *words = at;
    unsigned i = 0;
    while (i < WORDS && words[i] == word_of(tag, i))
        i++;
    if (i == WORDS)
        FAIL(WRONG, "%s: page %zu at %p was wrong, and is right when read again", what, page, at);
    FAIL(WRONG, "%s: page %zu at %p, tag %#x%s, word %u is %#llx, not %#llx (%#llx %#llx %#llx %#llx)", what,
         page, at, tag, p->lazy ? " or zeros" : "", i, (long long)words[i], (long long)word_of(tag, i),
         (long long)words[0], (long long)words[1], (long long)words[62], (long long)words[63]);
}

// The pages of a model, looked at where they lie now.
static void check_pages(const char *at, const page_t *model, size_t pages, size_t first, const char *what) {
    for (size_t i = 0; i < pages; i++) {
        const page_t *p = &model[i];
        if (!readable(p))
            continue;
        for (unsigned s = 0; s < SECTORS; s++) {
            const char *sector = at + i * PAGE + s * SECTOR;
            if (!sector_is(sector, p->tags[s]) && !(p->lazy && sector_is(sector, 0)))
                wrong(what, sector, p->tags[s], p, first + i);
        }
    }
}

static void check(const area_t *a, size_t from, size_t pages, const char *what) {
    check_pages(at_page(a, from), a->model + from, pages, from, what);
}

// Borders and some pages between them.
static void check_some(const area_t *a, size_t from, size_t pages, const char *what) {
    size_t begin = from ? from - 1 : 0, end = from + pages < a->pages ? from + pages + 1 : a->pages;
    size_t step = (end - begin) / 8 + 1;
    for (size_t i = begin; i < end; i += step)
        check(a, i, 1, what);
    check(a, end - 1, 1, what);
}

// A page that may have been freed is written to: from then on it is as it was, or zeros.
static void settle(area_t *a, size_t page) {
    page_t *p = &a->model[page];
    if (!p->lazy)
        return;
    volatile uint64_t *last = (uint64_t *)(at_page(a, page) + PAGE) - 1;
    *last = word_of(p->tags[SECTORS - 1], WORDS - 1);
    p->lazy = 0;
    for (unsigned s = 0; s < SECTORS; s++) {
        if (sector_is(at_page(a, page) + s * SECTOR, p->tags[s]))
            continue;
        *last = 0;
        memset(p->tags, 0, sizeof p->tags);
        check(a, page, 1, "freed, then written to: neither as it was nor zeros");
        return;
    }
}

// The first run of at most `most` pages, from `from` on and round, of which all are `fit`.
static size_t run_of(const area_t *a, size_t *from, size_t most, int (*fit)(const page_t *)) {
    size_t i = *from % a->pages, seen = 0, run = 0;
    while (seen < a->pages && !fit(&a->model[i]))
        i = (i + 1) % a->pages, seen++;
    if (seen == a->pages)
        return 0;
    *from = i;
    while (run < most && i + run < a->pages && fit(&a->model[i + run]))
        run++;
    return run;
}

static inline int alike(const page_t *a, const page_t *b) {
    return a->kind == b->kind && a->prot == b->prot && a->guard == b->guard && a->wipe == b->wipe &&
           a->dontfork == b->dontfork && a->locked == b->locked && a->shm == b->shm;
}

// The same, of pages that are alike.
static size_t like_run(const area_t *a, size_t *from, size_t most, int (*fit)(const page_t *)) {
    size_t run = run_of(a, from, most, fit), same = run ? 1 : 0;
    while (same < run && alike(&a->model[*from], &a->model[*from + same]))
        same++;
    return same;
}

static void write_page(worker_t *w, area_t *a, size_t page) {
    page_t *p = &a->model[page];
    for (unsigned s = 0; s < SECTORS; s++)
        fill_sector(at_page(a, page) + s * SECTOR, p->tags[s] = w->next + s);
    w->next += SECTORS;
    p->lazy = 0;
}

static void set_zero(area_t *a, size_t from, size_t pages) {
    for (size_t i = from; i < from + pages; i++) {
        memset(a->model[i].tags, 0, sizeof a->model[i].tags);
        a->model[i].lazy = 0;
    }
}

static void set_pages(area_t *a, size_t from, size_t pages, page_t as) {
    for (size_t i = from; i < from + pages; i++)
        a->model[i] = as;
}

#endif
