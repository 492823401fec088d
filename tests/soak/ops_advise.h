// Operations that advise and lock.
#ifndef OPS_ADVISE_H
#define OPS_ADVISE_H
#include "ops_map.h"

// Over holes and locked memory: the kernel goes on past a hole (ENOMEM at the end), and
// stops at what is locked (EINVAL).
static void op_discard(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = clip(a, from, op->len);
    int even_locked = op->x % 8 == 0, hole = 0, refused = 0;
    errno = 0;
    int got = do_madvise(at_page(a, from), len * PAGE, even_locked ? DONTNEED_LOCKED : MADV_DONTNEED) ? errno : 0;
    for (size_t i = from; i < from + len && !refused; i++) {
        const page_t *p = &a->model[i];
        if (is_free(p))
            hole = 1;
        else if (p->locked && !even_locked)
            refused = 1;
        else if (p->kind != SHARED)
            set_zero(a, i, 1);
    }
    int want = refused ? EINVAL : hole ? ENOMEM : 0;
    EXPECT(got == want, "discarding: errno %d, not %d", got, want);
    check_some(a, from, len, "just discarded");
}

static void op_free(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len, unlocked_anon);
    if (!len)
        return;
    EXPECT(do_madvise(at_page(a, from), len * PAGE, MADV_FREE) == 0, "MADV_FREE: errno %d", errno);
    for (size_t i = from; i < from + len; i++)
        a->model[i].lazy = 1;
    check_some(a, from, len, "just freed");
    for (size_t i = from; op->x % 2 && i < from + len; i += op->y % 5 + 1)
        if (writable(&a->model[i]))
            settle(a, i);
}

// Advice that keeps every byte, whatever the answer.
static void op_advise(worker_t *w, const op_t *op) {
    static const int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT,
                                 MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE, COLLAPSE, COLLAPSE,
                                 MADV_DONTDUMP, MADV_DODUMP, POPULATE_READ, POPULATE_WRITE, POPULATE_READ, POPULATE_WRITE};
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = clip(a, from, op->len);
    if (op->y % 3) {
        len = run_of(a, &from, op->len, writable);
        if (!len)
            return;
    }
    int which = advice[op->x % (sizeof advice / sizeof *advice)];
    int got = do_madvise(at_page(a, from), len * PAGE, which);
    if (op->y % 3 && (which == POPULATE_READ || which == POPULATE_WRITE))
        EXPECT(got == 0, "populating (%d): errno %d", which, errno);
    check_some(a, from, len, "after advice");
}

static void op_forkwise(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len, unlocked_anon);
    if (!len)
        return;
    int wipe = op->x & 1, on = op->y % 3 != 0;
    int advice = wipe ? (on ? MADV_WIPEONFORK : MADV_KEEPONFORK) : on ? MADV_DONTFORK : MADV_DOFORK;
    EXPECT(do_madvise(at_page(a, from), len * PAGE, advice) == 0, "madvise(%d): errno %d", advice, errno);
    for (size_t i = from; i < from + len; i++)
        *(wipe ? &a->model[i].wipe : &a->model[i].dontfork) = on;
    check_some(a, from, len, "after advice on forks");
}

static int guarded(const page_t *p) { return p->guard; }

static void op_guard(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    int install = op->x % 2;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len, install ? unlocked_anon : guarded);
    if (!len)
        return;
    if (do_madvise(at_page(a, from), len * PAGE, install ? GUARD_INSTALL : GUARD_REMOVE) != 0) {
        EXPECT(errno == EINVAL, "guards: errno %d", errno); // before Linux 6.13
        return;
    }
    if (install)
        set_zero(a, from, len);
    for (size_t i = from; i < from + len; i++)
        a->model[i].guard = install;
    check_some(a, from, len, "after guards");
}

static int lockable(const page_t *p) { return writable(p) && p->kind != SHARED; }
static int is_locked(const page_t *p) { return p->locked; }

static void op_lock(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    int on = op->x % 3 != 0;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len % 64 + 1, on ? lockable : is_locked);
    if (!len)
        return;
    int got = !on ? munlock(at_page(a, from), len * PAGE)
              : op->x % 3 == 1 ? mlock(at_page(a, from), len * PAGE)
                               : mlock2(at_page(a, from), len * PAGE, MLOCK_ONFAULT);
    if (got != 0 && on && (errno == ENOMEM || errno == EPERM || errno == EAGAIN))
        on = -1; // RLIMIT_MEMLOCK
    EXPECT(got == 0 || on < 0, "locking: errno %d", errno);
    for (size_t i = from; i < from + len && on >= 0; i++)
        a->model[i].locked = on;
    check_some(a, from, len, "after locking");
}

// Everything at once, as it is touched, and nothing again.
static void op_lock_all(worker_t *w, const op_t *op) {
    if (worker_count > 1 || mlockall(MCL_CURRENT | MCL_ONFAULT) != 0)
        return;
    check_some(&w->window, op->at % w->window.pages, 1, "all is locked");
    EXPECT(munlockall() == 0, "munlockall: errno %d", errno);
    for (size_t i = 0; i < w->window.pages; i++)
        w->window.model[i].locked = 0;
}

static int shared_writable(const page_t *p) { return p->kind == SHARED && writable(p) && !p->locked; }

static void op_remove(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len, op->x % 4 ? shared_writable : plain);
    if (!len)
        return;
    int private = a->model[from].kind != SHARED;
    int got = do_madvise(at_page(a, from), len * PAGE, MADV_REMOVE);
    if (private) {
        EXPECT(got != 0 && errno == EINVAL, "MADV_REMOVE of private memory: errno %d", got ? errno : 0);
    } else {
        EXPECT(got == 0, "MADV_REMOVE: errno %d", errno);
        set_zero(a, from, len);
    }
    check_some(a, from, len, "after MADV_REMOVE");
}
#endif
