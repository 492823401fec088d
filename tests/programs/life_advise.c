// Advice, protection and locks on memory in every state.
#include "life.h"
#include <setjmp.h>
#include <sys/prctl.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static size_t part(area_t *a, size_t *pages) {
    size_t from = 1 + roll(a->pages - 2);
    *pages = 1 + roll(a->pages - 1 - from);
    return from;
}

static int advise(area_t *a, size_t from, size_t pages, int advice) {
    return madvise(a->at + from * PAGE, pages * PAGE, advice);
}

static void dontneed(area_t *a) {
    for (int n = 0; n < 3; n++) {
        size_t pages, from = part(a, &pages);
        SETUP(advise(a, from, pages, MADV_DONTNEED) == 0);
        expect_tag(a, from, pages, 0);
        check_part(a, from, pages / 2, "discarded");
        if (n == 1)
            write_area(a, from, (pages + 2) / 3);
    }
    settle(a, "discarded in part");
}

static void advise_free(area_t *a) {
    size_t pages, from = part(a, &pages);
    SETUP(advise(a, from, pages, MADV_FREE) == 0);
    for (size_t i = from; i < from + pages; i++)
        a->tags[i] |= OR_ZERO;
    check_part(a, from, pages / 3, "freed");
    write_area(a, from, pages / 2);
    check_part(a, from, pages / 2, "freed, then written");
    settle(a, "freed, then written");
}

// A byte written to a freed page keeps the rest either old or zero, not mixed.
static void free_then_one_byte(area_t *a) {
    SETUP(advise(a, 0, a->pages, MADV_FREE) == 0);
    for (size_t i = 0; i < a->pages; i += 3) {
        char *page = a->at + i * PAGE;
        page[8] = 0x5a;
        uint64_t *words = (uint64_t *)page;
        tag_t tag = words[0] ? a->tags[i] : 0;
        for (unsigned k = 0; k < WORDS; k++) {
            uint64_t want = word_of(tag, k);
            if (k == 1)
                want = (want & ~(uint64_t)0xff) | 0x5a;
            if (words[k] != want)
                die(1, "freed, one byte written", &words[k], "old and zero are mixed");
        }
        a->tags[i] = NOTHING;
    }
    for (size_t i = 0; i < a->pages; i++)
        if (a->tags[i] != NOTHING)
            a->tags[i] |= OR_ZERO;
    settle(a, "beside freed pages");
}

// MADV_REMOVE is for shared memory: refused here, and what it does next door
// changes nothing here.
static void advise_remove(area_t *a) {
    size_t pages, from = part(a, &pages);
    if (advise(a, from, pages, MADV_REMOVE) == 0 || errno != EINVAL)
        die(1, "MADV_REMOVE", a->at, "not refused with EINVAL");
    check_part(a, 0, 7, "after MADV_REMOVE was refused");
    int fd = syscall(SYS_memfd_create, "life", 0);
    SETUP(fd >= 0 && ftruncate(fd, 32 * PAGE) == 0);
    char *shared = mmap(a->at + from * PAGE, (pages < 32 ? pages : 32) * PAGE,
                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    SETUP(shared != MAP_FAILED);
    size_t over = pages < 32 ? pages : 32;
    expect_tag(a, from, over, 0);
    write_area(a, from, over);
    SETUP(madvise(shared, (over + 1) / 2 * PAGE, MADV_REMOVE) == 0);
    expect_tag(a, from, (over + 1) / 2, 0);
    settle(a, "with shared memory in the middle");
    close(fd);
}

// Advice that must not change a byte.
static void keeping(area_t *a) {
    static const int advice[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_PAGEOUT,
                                 MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_WILLNEED, MADV_RANDOM,
                                 MADV_SEQUENTIAL, MADV_NORMAL, MADV_DONTDUMP, MADV_DODUMP,
                                 MADV_COLLAPSE};
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
        size_t pages, from = part(a, &pages);
        (void)!advise(a, from, pages, advice[i]); // some kernels lack some
        check_part(a, roll(a->pages - 8), 8, "after advice that keeps");
        if (i % 4 == 3)
            write_area(a, from, 1);
    }
    settle(a, "after advice that keeps");
}

// Has the kernel itself fault every page in; where memory is short some leave
// again at once.
static void populate(area_t *a) {
    SETUP(advise(a, 0, a->pages / 2, MADV_POPULATE_READ) == 0);
    SETUP(advise(a, a->pages / 2, a->pages - a->pages / 2, MADV_POPULATE_WRITE) == 0);
    settle(a, "populated");
}

static sigjmp_buf back;
static volatile sig_atomic_t faults, barrier_faults;
static char *volatile barrier_at;
static size_t barrier_len;

static void jump_out(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if (info->si_code != SEGV_ACCERR)
        die(1, "SIGSEGV", info->si_addr, "not for access rights");
    faults++;
    siglongjmp(back, 1);
}

static struct sigaction on_segv(void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK}, old;
    SETUP(sigaction(SIGSEGV, &action, &old) == 0);
    return old;
}

// Touching without the right raises SIGSEGV; the right given back, all is there.
static void no_access(area_t *a) {
    struct sigaction old = on_segv(jump_out);
    size_t pages, from = part(a, &pages);
    volatile char *page = a->at + (from + roll(pages)) * PAGE + roll(PAGE);
    for (int prot = PROT_NONE; prot <= PROT_READ; prot += PROT_READ) {
        SETUP(mprotect(a->at + from * PAGE, pages * PAGE, prot) == 0);
        faults = 0;
        if (sigsetjmp(back, 1) == 0) {
            *page = 1;
            die(1, "mprotect", (void *)page, "a write was let through");
        }
        if (prot == PROT_NONE && sigsetjmp(back, 1) == 0) {
            (void)*page;
            die(1, "mprotect", (void *)page, "a read was let through");
        }
        if (faults != (prot == PROT_NONE ? 2 : 1))
            die(1, "mprotect", (void *)page, "wrong number of signals");
        if (a->state == STORED)
            press_on(512); // while no rights let nobody move it
        if (prot == PROT_READ)
            check_area(a, "read-only in part");
    }
    SETUP(mprotect(a->at + from * PAGE, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
    sigaction(SIGSEGV, &old, NULL);
    write_area(a, from, (pages + 1) / 2);
    settle(a, "rights taken and given back");
}

// A collector's write barrier: the handler notes the page and gives the right.
static void barrier(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    if (page < barrier_at || page >= barrier_at + barrier_len)
        die(1, "SIGSEGV", info->si_addr, "outside what is protected");
    barrier_faults++;
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE))
        die(1, "mprotect", page, "refused in a handler");
}

static void write_barrier(area_t *a) {
    struct sigaction old = on_segv(barrier);
    barrier_at = a->at, barrier_len = a->pages * PAGE;
    for (int round = 0; round < 2; round++) {
        SETUP(mprotect(a->at, a->pages * PAGE, PROT_READ) == 0);
        barrier_faults = 0;
        int written = 0;
        for (size_t i = roll(3); i < a->pages; i += 1 + roll(4), written++)
            write_area(a, i, 1);
        if (barrier_faults != written)
            die(1, "a write barrier", a->at, "pages written and signals differ");
        check_area(a, "behind a write barrier");
        if (round == 0)
            press_on(2048);
    }
    SETUP(mprotect(a->at, a->pages * PAGE, PROT_READ | PROT_WRITE) == 0);
    sigaction(SIGSEGV, &old, NULL);
    settle(a, "behind a write barrier");
}

static void locked(area_t *a) {
    size_t pages, from = part(a, &pages);
    char *at = a->at + from * PAGE;
    SETUP(mlock(at, pages * PAGE) == 0);
    for (int n = 0; n < 2; n++) {
        if (resident(at, pages) != pages)
            die(1, "mlock", at, "a locked page is absent");
        press_on(6 * 1024);
    }
    check_area(a, "locked in part");
    write_area(a, from, pages / 2);
    SETUP(munlock(at, pages * PAGE) == 0);
    settle(a, "unlocked");
}

// What comes in by itself stays; the rest may come when it likes.
static void locked_on_fault(area_t *a) {
    SETUP(mlock2(a->at, a->pages * PAGE, MLOCK_ONFAULT) == 0);
    if (a->state == STORED && absent_of(a) < a->absent / 2)
        die(1, "mlock2", a->at, "MLOCK_ONFAULT brought what nobody touched");
    // Pages on their way out when the lock came may still leave.
    for (size_t i = 0; i < a->pages; i += 5)
        check_part(a, i, 1, "locked on fault");
    size_t there = resident(a->at, a->pages);
    press_on(6 * 1024);
    if (resident(a->at, a->pages) < there)
        die(1, "mlock2", a->at, "a page locked on fault was moved out");
    check_area(a, "locked on fault");
    SETUP(munlock(a->at, a->pages * PAGE) == 0);
    settle(a, "unlocked");
}

int main(int argc, char **argv) {
    static const case_t cases[] = {
        {"dontneed", dontneed}, {"free", advise_free}, {"free_then_one_byte", free_then_one_byte},
        {"remove", advise_remove}, {"keeping", keeping}, {"populate", populate},
        {"no_access", no_access}, {"write_barrier", write_barrier}, {"locked", locked},
        {"locked_on_fault", locked_on_fault},
    };
    return life_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
