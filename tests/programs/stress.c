// stress SECONDS SEED THREADS [WITHOUT...]: random operations on memory in every state,
// checked against a model: the tag of each page.
//
// A thread works on regions of its own, so its model is exact; what threads
// share is the address space: what one unmaps, another is given next.
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

extern char **environ;
enum { REGIONS = 10, LARGEST = 2048, SHARED = 4096 };
static const tag_t FREED = (tag_t)1 << 63; // with MADV_FREE: as before, or zeros

typedef struct {
    char *at; // NULL: none
    size_t pages;
    tag_t *tags;
} region_t;

typedef struct {
    uint64_t state;
    tag_t next;
    int id;
    region_t regions[REGIONS];
} worker_t;

static atomic_int stop;
static double until;
// What is left out, to narrow a failure down.
static int no_raw, no_fork, no_libc, no_move, no_discard;
static char *shared;
static atomic_ulong operations, uneven, forks_refused;

static uint64_t roll(worker_t *w, uint64_t below) {
    return (w->state = mix(w->state + 0x9e3779b97f4a7c15u)) % below;
}

static void verify(region_t *r, size_t from, size_t pages, const char *what) {
    for (size_t i = from; i < from + pages; i++) {
        tag_t tag = r->tags[i];
        char *page = r->at + i * PAGE;
        if (tag & FREED) {
            if (page_is(page, 0))
                continue;
            tag &= ~FREED;
        }
        check_page(page, tag, what);
    }
}

static void set_tags(region_t *r, size_t from, size_t pages, tag_t tag) {
    for (size_t i = from; i < from + pages; i++)
        r->tags[i] = tag;
}

static void write_pages(worker_t *w, region_t *r, size_t from, size_t pages) {
    for (size_t i = from; i < from + pages; i++) {
        r->tags[i] = ++w->next;
        fill_page(r->at + i * PAGE, r->tags[i]);
    }
}

static region_t *empty_slot(worker_t *w) {
    for (int i = 0; i < REGIONS; i++)
        if (!w->regions[i].at)
            return &w->regions[i];
    return NULL;
}

// Model memory lies in private mappings too, so it is moved out like the rest.
static void adopt_range(region_t *r, char *at, size_t pages, const tag_t *tags) {
    r->at = at, r->pages = pages;
    r->tags = malloc(pages * sizeof *r->tags);
    SETUP(r->tags);
    if (tags)
        memcpy(r->tags, tags, pages * sizeof *tags);
    else
        set_tags(r, 0, pages, 0);
}

static void forget(region_t *r) {
    free(r->tags);
    *r = (region_t){0};
}

static void drop(region_t *r) {
    SETUP(munmap(r->at, r->pages * PAGE) == 0);
    forget(r);
}

static void make(worker_t *w) {
    region_t *r = empty_slot(w);
    if (!r)
        return drop(&w->regions[roll(w, REGIONS)]);
    size_t pages = 1 + roll(w, roll(w, 3) ? LARGEST / 8 : LARGEST);
    char *at;
    if (roll(w, 4) == 0) {
        pages = (1 + roll(w, 4)) * 512;
        at = map_aligned(pages * PAGE, 0);
        SETUP(madvise(at, pages * PAGE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    } else {
        at = map_new(pages * PAGE);
    }
    adopt_range(r, at, pages, NULL);
    if (roll(w, 8))
        write_pages(w, r, 0, pages);
}

// Whether a range lies in one mapping. Linux 6.17 also moves several at once,
// unless userfaultfd is used on one, and then stops half-way: programs that
// run on older kernels do not ask for it, and this one does not either.
static int is_one_mapping(char *at, size_t pages) {
    static int fd = -1;
    if (fd < 0)
        fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    uint64_t query[13] = {sizeof query, 0, (uintptr_t)at};
    if (ioctl(fd, 0xc0686611, query) < 0)
        return 0;
    return query[4] >= (uintptr_t)at + pages * PAGE;
}

static void move(worker_t *w, region_t *r) {
    if (no_move)
        return;
    size_t from = 0, pages = r->pages, want = pages;
    region_t *other = empty_slot(w);
    int part = other && pages > 2 && roll(w, 2);
    if (part)
        from = roll(w, pages - 1), want = pages = 1 + roll(w, pages - from);
    if (roll(w, 2))
        want += roll(w, 300);
    if (!is_one_mapping(r->at + from * PAGE, pages)) {
        uneven++;
        return;
    }
    int flags = MREMAP_MAYMOVE;
    char *to = NULL;
    if (roll(w, 2)) {
        to = mmap(NULL, want * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SETUP(to != MAP_FAILED);
        flags |= MREMAP_FIXED;
    } else if (!part && want == pages && roll(w, 3) == 0) {
        flags |= MREMAP_DONTUNMAP;
    }
    char *got = mremap(r->at + from * PAGE, pages * PAGE, want * PAGE, flags, to);
    if (got == MAP_FAILED)
        die(1, "mremap", r->at + from * PAGE, "refused");
    if (flags & MREMAP_DONTUNMAP) {
        check_zeros(r->at, r->pages, "left behind by MREMAP_DONTUNMAP");
        SETUP(munmap(r->at, r->pages * PAGE) == 0);
        r->at = got;
        return;
    }
    region_t old = *r;
    *r = (region_t){0};
    adopt_range(r, got, want, NULL);
    memcpy(r->tags, old.tags + from, pages * sizeof(tag_t));
    size_t behind = from + pages;
    if (part && from)
        adopt_range(other, old.at, from, old.tags), other = empty_slot(w);
    if (part && behind < old.pages) {
        if (other)
            adopt_range(other, old.at + behind * PAGE, old.pages - behind, old.tags + behind);
        else
            SETUP(munmap(old.at + behind * PAGE, (old.pages - behind) * PAGE) == 0);
    }
    free(old.tags);
}

// Cuts a piece off either end, or maps fresh memory over a piece.
static void cut(worker_t *w, region_t *r) {
    size_t piece = 1 + roll(w, r->pages);
    if (piece == r->pages)
        return drop(r);
    size_t rest = r->pages - piece;
    switch (roll(w, 3)) {
    case 0:
        SETUP(munmap(r->at, piece * PAGE) == 0);
        r->at += piece * PAGE, r->pages = rest;
        memmove(r->tags, r->tags + piece, rest * sizeof *r->tags);
        break;
    case 1:
        if (mremap(r->at, r->pages * PAGE, rest * PAGE, 0) != r->at)
            die(1, "mremap", r->at, "shrinking refused");
        r->pages = rest;
        break;
    default: {
        size_t from = roll(w, rest);
        map_at(r->at + from * PAGE, piece * PAGE, MAP_FIXED);
        set_tags(r, from, piece, 0);
    }
    }
}

static void protect(worker_t *w, region_t *r, size_t from, size_t pages) {
    char *at = r->at + from * PAGE;
    if (roll(w, 2)) {
        SETUP(mprotect(at, pages * PAGE, PROT_READ) == 0);
        verify(r, from, pages, "read-only");
    } else {
        SETUP(mprotect(at, pages * PAGE, PROT_NONE) == 0);
        sched_yield();
    }
    SETUP(mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
}

// Through a pipe, by system calls, from one region into another.
static void pass(worker_t *w, region_t *r, size_t from, size_t pages) {
    region_t *to = &w->regions[roll(w, REGIONS)];
    int ends[2];
    if (!to->at || pages > 16)
        return;
    SETUP(pipe(ends) == 0);
    for (size_t i = 0; i < pages; i++) {
        size_t k = roll(w, to->pages);
        // FREED pages may change in between: rewritten first.
        if (r->tags[from + i] & FREED)
            write_pages(w, r, from + i, 1);
        tag_t tag = r->tags[from + i];
        if (write(ends[1], r->at + (from + i) * PAGE, PAGE) != PAGE)
            die(1, "write", r->at + (from + i) * PAGE, "refused");
        if (read(ends[0], to->at + k * PAGE, PAGE) != PAGE)
            die(1, "read", to->at + k * PAGE, "refused");
        to->tags[k] = tag;
    }
    close(ends[0]), close(ends[1]);
}

static void verify_all(worker_t *w, const char *what) {
    for (int i = 0; i < REGIONS; i++)
        if (w->regions[i].at)
            verify(&w->regions[i], 0, w->regions[i].pages, what);
}

static void child(worker_t *w, int raw, int depth);

static void fork_one(worker_t *w, int depth) {
    int raw = roll(w, 3) == 0;
    if (no_fork || (raw && no_raw) || (!raw && no_libc))
        return;
    pid_t pid = raw ? syscall(SYS_fork) : fork();
    if (pid == 0)
        child(w, raw, depth + 1);
    if (pid < 0) {
        forks_refused++;
        return;
    }
    // Meanwhile this thread goes on with its own.
    for (int i = 0; i < REGIONS; i++)
        if (w->regions[i].at && roll(w, 3) == 0)
            write_pages(w, &w->regions[i], 0, 1 + roll(w, w->regions[i].pages));
    expect_child(pid, raw ? "raw fork" : "fork");
}

static void child(worker_t *w, int raw, int depth) {
    verify_all(w, raw ? "in a raw child" : "in a child");
    check_range(shared, 500, 1, "shared, in a child");
    for (int i = 0; i < REGIONS; i++)
        if (w->regions[i].at && roll(w, 2))
            write_pages(w, &w->regions[i], 0, w->regions[i].pages);
    if (depth < 3 && roll(w, 4) == 0 && !raw)
        fork_one(w, depth);
    verify_all(w, raw ? "in a raw child, rewritten" : "in a child, rewritten");
    syscall(SYS_exit_group, 0);
}

static void spawn(void) {
    char *argv[] = {"true", NULL};
    pid_t pid;
    SETUP(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0);
    expect_child(pid, "posix_spawn");
}

static void step(worker_t *w) {
    region_t *r = &w->regions[roll(w, REGIONS)];
    if (!r->at)
        return make(w);
    size_t from = roll(w, r->pages), pages = 1 + roll(w, r->pages - from);
    if (roll(w, 3))
        pages = 1 + roll(w, pages < 40 ? pages : 40);
    unsigned what = roll(w, 40);
    if (no_discard && what >= 19 && what <= 21)
        return;
    switch (what) {
    case 0 ... 7: write_pages(w, r, from, pages); break;
    case 8 ... 15: verify(r, from, pages, "verified"); break;
    case 16 ... 18: verify(r, 0, r->pages, "a whole region"); break;
    case 19 ... 20:
        SETUP(madvise(r->at + from * PAGE, pages * PAGE, MADV_DONTNEED) == 0);
        set_tags(r, from, pages, 0);
        if (roll(w, 2))
            verify(r, from, pages, "discarded");
        break;
    case 21:
        SETUP(madvise(r->at + from * PAGE, pages * PAGE, MADV_FREE) == 0);
        for (size_t i = from; i < from + pages; i++)
            r->tags[i] |= FREED;
        break;
    case 22 ... 23: cut(w, r); break;
    case 24 ... 26: move(w, r); break;
    case 27: protect(w, r, from, pages); break;
    case 28:
        if (mlock(r->at + from * PAGE, pages * PAGE) == 0) {
            verify(r, from, pages, "locked");
            SETUP(munlock(r->at + from * PAGE, pages * PAGE) == 0);
        }
        break;
    case 29 ... 30: pass(w, r, from, pages); break;
    case 31: if (roll(w, 3) == 0) fork_one(w, 0); break;
    case 32: if (roll(w, 4) == 0) spawn(); break;
    case 33 ... 34: {
        size_t at = roll(w, SHARED - 300);
        check_range(shared + at * PAGE, 300, 1 + at, "shared by all threads");
        break;
    }
    default: make(w); break;
    }
    operations++;
}

static void *work(void *arg) {
    worker_t *w = arg;
    while (!stop)
        step(w);
    verify_all(w, "at the end");
    for (int i = 0; i < REGIONS; i++)
        if (w->regions[i].at)
            drop(&w->regions[i]);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    for (int i = 4; i < argc; i++) {
        no_raw |= !strcmp(argv[i], "raw");
        no_fork |= !strcmp(argv[i], "fork");
        no_libc |= !strcmp(argv[i], "libc");
        no_move |= !strcmp(argv[i], "move");
        no_discard |= !strcmp(argv[i], "discard");
    }
    until = seconds() + atof(argv[1]);
    uint64_t seed = strtoull(argv[2], NULL, 0);
    size_t threads = strtoul(argv[3], NULL, 0);
    shared = map_new((size_t)SHARED * PAGE);
    fill_range(shared, SHARED, 1);
    worker_t *workers = calloc(threads, sizeof *workers);
    pthread_t *ids = calloc(threads, sizeof *ids);
    SETUP(workers && ids);
    for (size_t t = 0; t < threads; t++) {
        workers[t] = (worker_t){.state = mix(seed * 1000 + t + 1), .id = t, .next = (t + 1) << 40};
        SETUP(pthread_create(&ids[t], NULL, work, &workers[t]) == 0);
    }
    do
        press();
    while (seconds() < until);
    stop = 1;
    for (size_t t = 0; t < threads; t++)
        pthread_join(ids[t], NULL);
    printf("operations %lu, mremap left out %lu, fork refused %lu\n", operations, uneven,
           forks_refused);
    return 0;
}
