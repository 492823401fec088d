// The kernel reads and writes memory in every state: direct and vectored I/O,
// splicing, registered buffers.
#include "life.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int data_file(int flags) {
    char name[] = "life-XXXXXX"; // in the current directory: tmpfs knows no O_DIRECT
    int fd = mkostemp(name, flags);
    SETUP(fd >= 0 && unlink(name) == 0);
    return fd;
}

static void expect_io(ssize_t got, size_t want, const char *what, const void *at) {
    if (got != (ssize_t)want)
        die(1, what, at, got < 0 ? "refused" : "short");
}

// Out to a file and in again, rotated by some pages; `whole` areas only.
static void through(area_t *a, int fd, const char *what) {
    expect_io(pwrite(fd, a->at, a->pages * PAGE, 0), a->pages * PAGE, what, a->at);
    size_t shift = 1 + roll(a->pages - 1), rest = a->pages - shift;
    if (managed())
        out(a);
    expect_io(pread(fd, a->at, rest * PAGE, shift * PAGE), rest * PAGE, what, a->at);
    expect_io(pread(fd, a->at + rest * PAGE, shift * PAGE, 0), shift * PAGE, what, a->at);
    tag_t old[AREA];
    memcpy(old, a->tags, sizeof old);
    for (size_t i = 0; i < a->pages; i++)
        a->tags[i] = old[(i + shift) % a->pages];
    settle(a, what);
    close(fd);
}

static void direct(area_t *a) { through(a, data_file(O_DIRECT), "O_DIRECT"); }
static void buffered(area_t *a) { through(a, data_file(0), "write and read"); }

// Pages from all over the area, in an order of their own.
static size_t scatter(area_t *a, struct iovec *parts, size_t *which) {
    size_t count = 0;
    for (size_t i = roll(5); i < a->pages; i += 1 + roll(7))
        which[count++] = i;
    for (size_t i = count - 1; i > 0; i--) {
        size_t k = roll(i + 1), swap = which[i];
        which[i] = which[k], which[k] = swap;
    }
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct iovec){a->at + which[i] * PAGE, PAGE};
    return count;
}

static void vectored(area_t *a) {
    struct iovec parts[AREA];
    size_t which[AREA], count = scatter(a, parts, which);
    int fd = data_file(roll(2) ? O_DIRECT : 0);
    expect_io(pwritev(fd, parts, count, 0), count * PAGE, "pwritev", a->at);
    // Back into other pages of the same list.
    tag_t tags[AREA];
    for (size_t i = 0; i < count; i++)
        tags[i] = a->tags[which[i]];
    for (size_t i = 0; i < count; i++) {
        parts[i].iov_base = a->at + which[(i + 1) % count] * PAGE;
        a->tags[which[(i + 1) % count]] = tags[i];
    }
    expect_io(preadv(fd, parts, count, 0), count * PAGE, "preadv", a->at);
    settle(a, "preadv");
    close(fd);
}

static void messages(area_t *a) {
    int ends[2];
    SETUP(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    for (size_t n = 0; n < 20; n++) {
        size_t from[8], to = roll(a->pages - 8);
        struct iovec parts[8], target = {a->at + to * PAGE, 8 * PAGE};
        tag_t tags[8];
        for (int i = 0; i < 8; i++) {
            from[i] = roll(a->pages), tags[i] = a->tags[from[i]];
            parts[i] = (struct iovec){a->at + from[i] * PAGE, PAGE};
        }
        struct msghdr out = {.msg_iov = parts, .msg_iovlen = 8};
        struct msghdr in = {.msg_iov = &target, .msg_iovlen = 1};
        expect_io(sendmsg(ends[0], &out, 0), 8 * PAGE, "sendmsg", a->at);
        expect_io(recvmsg(ends[1], &in, 0), 8 * PAGE, "recvmsg", a->at);
        memcpy(a->tags + to, tags, sizeof tags);
    }
    settle(a, "sendmsg");
    close(ends[0]), close(ends[1]);
}

// Through a pipe and a file by splice(2), into pages that are out. (vmsplice(2) is
// not as bare: docs/address-space.md.)
static void spliced(area_t *a) {
    int ends[2];
    SETUP(pipe(ends) == 0);
    for (int n = 0; n < 12; n++) {
        size_t pages = 1 + roll(12), from = roll(a->pages / 2 - 12), len = pages * PAGE;
        size_t to = a->pages / 2 + roll(a->pages / 2 - 12);
        char *target = a->at + to * PAGE;
        int fd = data_file(0);
        expect_io(write(ends[1], a->at + from * PAGE, len), len, "write to a pipe", a->at);
        expect_io(splice(ends[0], NULL, fd, NULL, len, 0), len, "splice to a file", a->at);
        if (managed() && n % 3 == 0)
            press_on(1500);
        if (n % 2) {
            expect_io(pread(fd, target, len, 0), len, "pread", target);
        } else {
            off_t start = 0;
            expect_io(splice(fd, &start, ends[1], NULL, len, 0), len, "splice from a file", target);
            expect_io(read(ends[0], target, len), len, "read of a pipe", target);
        }
        memcpy(a->tags + to, a->tags + from, pages * sizeof(tag_t));
        close(fd);
    }
    settle(a, "splice");
    close(ends[0]), close(ends[1]);
}

typedef struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} uring_t;

static int uring_open(uring_t *u) {
    struct io_uring_params p = {0};
    u->fd = syscall(SYS_io_uring_setup, 8, &p);
    if (u->fd < 0)
        return 0;
    size_t sq_len = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq_len = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size_t sqe_len = p.sq_entries * sizeof *u->sqes;
    char *sq = mmap(NULL, sq_len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, cq_len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_CQ_RING);
    u->sqes = mmap(NULL, sqe_len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_SQES);
    SETUP(sq != MAP_FAILED && cq != MAP_FAILED && u->sqes != MAP_FAILED);
    u->sq_tail = (void *)(sq + p.sq_off.tail), u->sq_mask = (void *)(sq + p.sq_off.ring_mask);
    u->sq_array = (void *)(sq + p.sq_off.array);
    u->cq_head = (void *)(cq + p.cq_off.head), u->cq_tail = (void *)(cq + p.cq_off.tail);
    u->cq_mask = (void *)(cq + p.cq_off.ring_mask), u->cqes = (void *)(cq + p.cq_off.cqes);
    return 1;
}

static void uring_do(uring_t *u, int op, int fd, void *at, size_t len, off_t off, int index) {
    unsigned tail = *u->sq_tail, slot = tail & *u->sq_mask;
    u->sqes[slot] = (struct io_uring_sqe){.opcode = op, .fd = fd, .off = off,
                                          .addr = (uintptr_t)at, .len = len, .buf_index = index};
    u->sq_array[slot] = slot;
    __atomic_store_n(u->sq_tail, tail + 1, __ATOMIC_RELEASE);
    SETUP(syscall(SYS_io_uring_enter, u->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    SETUP(__atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE) != *u->cq_head);
    int got = u->cqes[*u->cq_head & *u->cq_mask].res;
    __atomic_store_n(u->cq_head, *u->cq_head + 1, __ATOMIC_RELEASE);
    expect_io(got, len, "io_uring", at);
}

// Buffers registered in this state are pinned: the kernel writes to these pages
// and no others, so they must stay the program's whatever presses.
static void registered(area_t *a) {
    uring_t u;
    if (!uring_open(&u))
        die(2, "setup", NULL, "no io_uring here");
    struct iovec both[2] = {{a->at, a->pages / 2 * PAGE},
                            {a->at + a->pages / 2 * PAGE, a->pages / 2 * PAGE}};
    SETUP(syscall(SYS_io_uring_register, u.fd, IORING_REGISTER_BUFFERS, both, 2) == 0);
    int fd = data_file(roll(2) ? O_DIRECT : 0);
    for (int round = 0; round < 4; round++) {
        press_on(4000);
        if (resident(a->at, a->pages) != a->pages)
            die(1, "io_uring", a->at, "a pinned page was moved out");
        size_t pages = 1 + roll(40), from = roll(a->pages / 2 - 40);
        size_t to = a->pages / 2 + roll(a->pages / 2 - 40);
        write_area(a, from, pages / 2);
        uring_do(&u, IORING_OP_WRITE_FIXED, fd, a->at + from * PAGE, pages * PAGE, 0, 0);
        uring_do(&u, IORING_OP_READ_FIXED, fd, a->at + to * PAGE, pages * PAGE, 0, 1);
        memcpy(a->tags + to, a->tags + from, pages * sizeof(tag_t));
        check_part(a, to, pages, "a fixed read");
        check_area(a, "registered buffers");
    }
    SETUP(syscall(SYS_io_uring_register, u.fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
    // Plain ones, the pages in any state again.
    uring_do(&u, IORING_OP_WRITE, fd, a->at, 30 * PAGE, 0, 0);
    settle(a, "registered buffers, let go");
    uring_do(&u, IORING_OP_READ, fd, a->at + 100 * PAGE, 30 * PAGE, 0, 0);
    memcpy(a->tags + 100, a->tags, 30 * sizeof(tag_t));
    settle(a, "read by io_uring");
    close(fd), close(u.fd);
}

int main(int argc, char **argv) {
    static const case_t cases[] = {
        {"direct", direct}, {"buffered", buffered}, {"vectored", vectored},
        {"messages", messages}, {"spliced", spliced}, {"registered", registered},
    };
    return life_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
