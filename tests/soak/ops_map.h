// Operations that map, unmap, move and protect.
#ifndef OPS_MAP_H
#define OPS_MAP_H
#include "calls.h"

static int plain(const page_t *p) { return p->kind == ANON && !p->guard; }
static int movable(const page_t *p) { return p->kind != NONE && !p->shm; }
static int unlocked_anon(const page_t *p) { return p->kind == ANON && !p->guard && !p->locked; }
static int is_shm(const page_t *p) { return p->shm != 0; }

static size_t clip(const area_t *a, size_t from, size_t len) { return from + len > a->pages ? a->pages - from : len; }

static int file_of(size_t pages) {
    int fd = memfd_create("soak", MFD_CLOEXEC);
    SETUP(fd >= 0 && ftruncate(fd, pages * PAGE) == 0);
    return fd;
}

static void write_fit(worker_t *w, area_t *a, size_t from, size_t len) {
    for (size_t i = from; i < from + len; i++)
        if (writable(&a->model[i]))
            write_page(w, a, i);
}

static void op_map(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = clip(a, from, op->len), clear = 1;
    for (size_t i = from; i < from + len; i++)
        clear &= is_free(&a->model[i]);
    page_t as = {.kind = ANON, .prot = PROT_READ | PROT_WRITE};
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
    switch (op->x % 20) {
    case 0: as.prot = PROT_NONE; break;
    case 1: as.prot = PROT_READ; break;
    case 2: as.kind = PRIVATE_FILE, flags = MAP_PRIVATE; break;
    case 3: as.kind = SHARED, flags = MAP_SHARED; break;
    case 4: as.kind = SHARED, flags = MAP_SHARED | MAP_ANONYMOUS; break;
    case 5:
    case 6: as.prot |= PROT_EXEC; break;
    }
    if (!(flags & MAP_ANONYMOUS))
        fd = file_of(len);
    flags |= (op->y & 16 ? MAP_NORESERVE : 0) | (op->y & 32 ? MAP_STACK : 0);
    if (op->y % 8 == 1)
        flags |= MAP_POPULATE;
    if (op->y % 8 == 2 && len <= 16)
        flags |= MAP_LOCKED, as.locked = 1;
    int noreplace = op->y % 8 == 3;
    void *got = do_mmap(at_page(a, from), len * PAGE, as.prot, flags | (noreplace ? MAP_FIXED_NOREPLACE : MAP_FIXED), fd);
    if (fd >= 0)
        close(fd);
    if (noreplace && !clear) {
        EXPECT(got == MAP_FAILED && errno == EEXIST, "mmap(NOREPLACE) over something: %p, errno %d", got, errno);
        return;
    }
    EXPECT(got == at_page(a, from), "mmap: %p, errno %d", got, errno);
    set_pages(a, from, len, as);
    check_some(a, from, len, "just mapped");
    if (op->y % 4)
        write_fit(w, a, from, len);
}

static void op_unmap(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = clip(a, from, op->len);
    EXPECT(do_munmap(at_page(a, from), len * PAGE) == 0, "munmap: errno %d", errno);
    set_pages(a, from, len, (page_t){.kind = NONE});
}

static void op_write(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len, writable);
    for (size_t i = from; i < from + len; i++) {
        if (op->x % 3) {
            write_page(w, a, i);
            continue;
        }
        settle(a, i); // a sector of each page
        unsigned s = (op->y + i) % SECTORS;
        fill_sector(at_page(a, i) + s * SECTOR, a->model[i].tags[s] = w->next);
        w->next += SECTORS;
    }
}

static void op_check(worker_t *w, const op_t *op) {
    size_t from = op->at % w->window.pages;
    check(&w->window, from, clip(&w->window, from, op->len * 2), "checked");
}

static void op_protect(worker_t *w, const op_t *op) {
    enum { USED = PROT_READ | PROT_WRITE };
    static const int prots[] = {PROT_NONE, PROT_READ, USED, USED, USED, USED | PROT_EXEC, USED | PROT_EXEC, PROT_READ | PROT_EXEC};
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len, mapped);
    if (!len)
        return;
    int prot = prots[op->x % 8];
    EXPECT(do_mprotect(at_page(a, from), len * PAGE, prot) == 0, "mprotect: errno %d", errno);
    for (size_t i = from; i < from + len; i++)
        a->model[i].prot = prot;
    check_some(a, from, len, "just protected");
}

// To another place of the window, over whatever is there.
static void op_move(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = like_run(a, &from, op->len, movable), to = op->y % a->pages;
    len = len ? clip(a, to, len) : 0;
    if (!len || (to < from + len && from < to + len) || !one_mapping(at_page(a, from), len * PAGE))
        return;
    int dont_unmap = op->x % 4 == 0 && unlocked_anon(&a->model[from]);
    void *got = do_mremap(at_page(a, from), len * PAGE, len * PAGE,
                          MREMAP_MAYMOVE | MREMAP_FIXED | (dont_unmap ? MREMAP_DONTUNMAP : 0), at_page(a, to));
    EXPECT(got == at_page(a, to), "mremap to %p: %p, errno %d", at_page(a, to), got, errno);
    memcpy(a->model + to, a->model + from, len * sizeof(page_t));
    if (dont_unmap)
        set_zero(a, from, len);
    else
        set_pages(a, from, len, (page_t){.kind = NONE});
    check_some(a, to, len, "just moved");
    check_some(a, from, len, "where it was moved from");
}

// Grows in place where the next pages are free, or is refused where they are not.
static void op_grow(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = like_run(a, &from, op->len, plain), free = 0;
    size_t more = op->x % 64 + 1;
    while (free < more && from + len + free < a->pages && is_free(&a->model[from + len + free]))
        free++;
    if (!len || from + len + more > a->pages || (free && free < more) || !one_mapping(at_page(a, from), len * PAGE))
        return;
    void *got = do_mremap(at_page(a, from), len * PAGE, (len + more) * PAGE, 0, NULL);
    if (!free) {
        EXPECT(got == MAP_FAILED && errno == ENOMEM, "mremap that has no room: %p, errno %d", got, errno);
        return;
    }
    EXPECT(got == at_page(a, from), "mremap in place: %p, errno %d", got, errno);
    page_t as = a->model[from];
    as.lazy = 0;
    memset(as.tags, 0, sizeof as.tags);
    set_pages(a, from + len, more, as);
    check_some(a, from, len + more, "just grown");
}

static void op_shrink(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = like_run(a, &from, op->len, movable), left = op->x % 32 + 1;
    if (len <= left || !one_mapping(at_page(a, from), len * PAGE))
        return;
    void *got = do_mremap(at_page(a, from), len * PAGE, left * PAGE, op->y & 1 ? MREMAP_MAYMOVE : 0, NULL);
    EXPECT(got == at_page(a, from), "mremap, shorter: %p, errno %d", got, errno);
    set_pages(a, from + left, len - left, (page_t){.kind = NONE});
    check_some(a, from, len, "just shrunk");
}

// To where the kernel likes, grown, and back.
static void op_away(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = like_run(a, &from, op->len, plain), more = op->x % 32 + 1;
    if (!len || from + len >= a->pages || is_free(&a->model[from + len]) || !one_mapping(at_page(a, from), len * PAGE))
        return;
    char *got = do_mremap(at_page(a, from), len * PAGE, (len + more) * PAGE, MREMAP_MAYMOVE, NULL);
    EXPECT(got != MAP_FAILED && got != at_page(a, from), "mremap away: %p, errno %d", got, errno);
    check_pages(got, a->model + from, len, from, "moved away");
    page_t zero = {.kind = ANON, .prot = a->model[from].prot};
    for (size_t i = 0; i < more; i++)
        check_pages(got + (len + i) * PAGE, &zero, 1, i, "grown while moved away");
    char *back = do_mremap(got, (len + more) * PAGE, len * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at_page(a, from));
    EXPECT(back == at_page(a, from), "mremap back: %p, errno %d", back, errno);
    check_some(a, from, len, "moved away and back");
}

static void op_attach(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = clip(a, from, op->len > 256 ? 256 : op->len);
    if (w->shm_count + 1 >= SHMS)
        return;
    int id = shmget(IPC_PRIVATE, len * PAGE, 0600);
    SETUP(id >= 0);
    void *got = is_raw() ? (void *)syscall(SYS_shmat, id, at_page(a, from), SHM_REMAP) : shmat(id, at_page(a, from), SHM_REMAP);
    shmctl(id, IPC_RMID, NULL);
    EXPECT(got == at_page(a, from), "shmat(SHM_REMAP): %p, errno %d", got, errno);
    unsigned shm = ++w->shm_count;
    w->shms[shm].at = from, w->shms[shm].pages = len;
    set_pages(a, from, len, (page_t){.kind = SHARED, .prot = PROT_READ | PROT_WRITE, .shm = shm});
    check_some(a, from, len, "just attached");
    if (op->y % 2)
        write_fit(w, a, from, len);
}

static void op_detach(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages;
    if (!run_of(a, &from, 1, is_shm))
        return;
    unsigned shm = a->model[from].shm;
    size_t begin = w->shms[shm].at, len = w->shms[shm].pages;
    // The kernel begins with the first mapping at or after the address.
    EXPECT(shmdt(at_page(a, begin)) == 0, "shmdt: errno %d", errno);
    for (size_t i = begin; i < begin + len; i++)
        if (a->model[i].shm == shm)
            a->model[i] = (page_t){.kind = NONE};
    check_some(a, begin, len, "just detached");
}

static void op_brk(worker_t *w, const op_t *op) {
    area_t *a = &w->heap;
    if (!a->pages)
        return;
    size_t now = 0, pages = op->at % (a->pages + 1);
    while (now < a->pages && mapped(&a->model[now]))
        now++;
    if (brk(at_page(a, pages) - (pages ? op->x % PAGE : 0)) != 0)
        return; // something else lies there
    page_t as = {.kind = ANON, .prot = PROT_READ | PROT_WRITE}, none = {.kind = NONE};
    if (pages > now)
        set_pages(a, now, pages - now, as);
    else
        set_pages(a, pages, now - pages, none);
    check(a, 0, pages, "after brk");
    for (size_t i = 0; i < pages; i++)
        if (op->y % 2 || i >= now)
            write_page(w, a, i);
    if (op->y % 5 == 0 && pages > 4) {
        EXPECT(do_madvise(at_page(a, 1), (pages - 2) * PAGE, MADV_DONTNEED) == 0, "discarding of the heap: errno %d", errno);
        set_zero(a, 1, pages - 2);
    }
}

// A mapping that grows downwards as it is touched, page by page.
enum { STACK_FIRST = 32, STACK_GAP = 600 };

static void op_stack(worker_t *w, const op_t *op) {
    area_t *a = &w->stack;
    page_t as = {.kind = ANON, .prot = PROT_READ | PROT_WRITE};
    if (w->grown == 0 || op->x % 6 == 0 || w->grown + op->len > a->pages - STACK_GAP) {
        if (w->grown)
            EXPECT(do_munmap(at_page(a, 0), a->pages * PAGE) == 0, "munmap of a stack: errno %d", errno);
        set_pages(a, 0, a->pages, (page_t){.kind = NONE});
        w->grown = STACK_FIRST;
        void *at = at_page(a, a->pages - w->grown);
        void *got = do_mmap(at, w->grown * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1);
        EXPECT(got == at, "mmap of a stack: %p, errno %d", got, errno);
        set_pages(a, a->pages - w->grown, w->grown, as);
        write_fit(w, a, a->pages - w->grown, w->grown);
    }
    for (size_t i = 0; i < op->len && w->grown < a->pages - STACK_GAP; i++) {
        w->grown++;
        set_pages(a, a->pages - w->grown, 1, as);
        write_page(w, a, a->pages - w->grown);
    }
    check(a, a->pages - w->grown, w->grown, "of a stack");
}
#endif
