// Operations in which the kernel, or another process, reads and writes the memory.
#ifndef OPS_IO_H
#define OPS_IO_H
#include "ops_advise.h"

static int sure(const page_t *p) { return readable(p) && !p->lazy; }

// Sectors that can be read, and others, not of the same pages, that can be written to.
typedef struct { char *from, *to; size_t page_from, page_to, first, sectors; } pair_t;

static int pair_of(worker_t *w, const op_t *op, size_t most, int whole, pair_t *pair) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len < most ? op->len : most, sure);
    size_t to = op->y % a->pages, room = len ? run_of(a, &to, len, writable) : 0;
    if (!room || (from < to + room && to < from + room))
        return 0;
    size_t first = whole ? 0 : op->x % SECTORS, last = whole ? 0 : op->x / 16 % SECTORS;
    if (first + last >= room * SECTORS)
        first = last = 0;
    for (size_t i = to; i < to + room; i++)
        settle(a, i);
    *pair = (pair_t){at_page(a, from) + first * SECTOR, at_page(a, to) + first * SECTOR, from, to, first, room * SECTORS - first - last};
    return 1;
}

static void copied(worker_t *w, const pair_t *pair, const char *what) {
    area_t *a = &w->window;
    for (size_t s = pair->first; s < pair->first + pair->sectors; s++)
        a->model[pair->page_to + s / SECTORS].tags[s % SECTORS] = a->model[pair->page_from + s / SECTORS].tags[s % SECTORS];
    check(a, pair->page_to, (pair->first + pair->sectors + SECTORS - 1) / SECTORS, what);
}

static void op_file(worker_t *w, const op_t *op) {
    pair_t pair;
    int direct = op->x % 2 && w->direct >= 0, fd = direct ? w->direct : w->copy;
    if (!pair_of(w, op, 512, direct, &pair))
        return;
    long bytes = pair.sectors * SECTOR;
    long out = do_io(SYS_pwrite64, fd, pair.from, bytes);
    EXPECT(out == bytes, "pwrite%s: %ld of %ld, errno %d", direct ? " (O_DIRECT)" : "", out, bytes, errno);
    long in = do_io(SYS_pread64, fd, pair.to, bytes);
    EXPECT(in == bytes, "pread%s: %ld of %ld, errno %d", direct ? " (O_DIRECT)" : "", in, bytes, errno);
    copied(w, &pair, direct ? "through a file, O_DIRECT" : "through a file");
}

static void op_pipe(worker_t *w, const op_t *op) {
    pair_t pair;
    int ends[2];
    if (!pair_of(w, op, 8, op->x & 1, &pair))
        return;
    SETUP(pipe2(ends, O_CLOEXEC) == 0);
    long bytes = pair.sectors * SECTOR, out;
    if (op->x & 1) // as a raw system call it is not as bare
        out = vmsplice(ends[1], &(struct iovec){pair.from, bytes}, 1, op->x & 2 ? SPLICE_F_GIFT : 0);
    else
        out = write(ends[1], pair.from, bytes);
    EXPECT(out == bytes, "into a pipe: %ld of %ld, errno %d", out, bytes, errno);
    for (long in = 0, got; in < bytes; in += got) {
        got = read(ends[0], pair.to + in, bytes - in);
        EXPECT(got > 0, "out of a pipe: %ld, errno %d", got, errno);
    }
    close(ends[0]), close(ends[1]);
    copied(w, &pair, "through a pipe");
}

static void op_remote(worker_t *w, const op_t *op) {
    pair_t pair;
    if (!pair_of(w, op, 512, 0, &pair))
        return;
    long bytes = pair.sectors * SECTOR;
    struct iovec from = {pair.from, bytes}, to = {pair.to, bytes};
    long got = op->x & 1 ? process_vm_readv(getpid(), &to, 1, &from, 1, 0) : process_vm_writev(getpid(), &from, 1, &to, 1, 0);
    EXPECT(got == bytes, "process_vm_%s: %ld of %ld, errno %d", op->x & 1 ? "readv" : "writev", got, bytes, errno);
    copied(w, &pair, "copied by process_vm");
}

// What cannot be read is refused, and kills nobody.
static int unreadable(const page_t *p) { return p->kind == NONE || p->guard || !p->prot; }

static void op_probe(worker_t *w, const op_t *op) {
    area_t *a = &w->window;
    size_t from = op->at % a->pages;
    if (!run_of(a, &from, 1, unreadable))
        return;
    long got = write(w->copy, at_page(a, from), 64);
    EXPECT(got < 0 && errno == EFAULT, "what cannot be read was: %ld, errno %d", got, errno);
}

static void op_stones(worker_t *w, const op_t *op) {
    (void)w;
    size_t from = op->at % stones.pages;
    check(&stones, from, clip(&stones, from, op->len), "of what nobody writes to");
}

// Another thread's window, between two of its operations.
static void op_other(worker_t *w, const op_t *op) {
    if (worker_count < 2 || depth)
        return;
    worker_t *other = &workers[(w->id + 1 + op->x % (worker_count - 1)) % worker_count];
    if (pthread_mutex_trylock(&other->lock) != 0)
        return;
    size_t from = op->at % other->window.pages;
    check(&other->window, from, clip(&other->window, from, op->len), "of another thread's");
    pthread_mutex_unlock(&other->lock);
}
#endif
