// Memory calls by libc or, in some operations, as raw system calls, which no
// interception of libc's functions sees.
#ifndef CALLS_H
#define CALLS_H
#include "model.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/uio.h>

enum { GUARD_INSTALL = 102, GUARD_REMOVE = 103, POPULATE_READ = 22, POPULATE_WRITE = 23, DONTNEED_LOCKED = 24, COLLAPSE = 25 };

static inline int is_raw(void) {
    const op_t *op = myself->now;
    return raw_percent && mix(op->at * 31ull + op->len * 7 + op->x * 131ull + op->y) % 100 < raw_percent;
}

static void *do_mmap(void *at, size_t len, int prot, int flags, int fd) {
    return is_raw() ? (void *)syscall(SYS_mmap, at, len, prot, flags, fd, 0) : mmap(at, len, prot, flags, fd, 0);
}
static int do_munmap(void *at, size_t len) { return is_raw() ? syscall(SYS_munmap, at, len) : munmap(at, len); }
static void *do_mremap(void *at, size_t old, size_t new, int flags, void *to) {
    return is_raw() ? (void *)syscall(SYS_mremap, at, old, new, flags, to) : mremap(at, old, new, flags, to);
}
static int do_mprotect(void *at, size_t len, int prot) {
    return is_raw() ? syscall(SYS_mprotect, at, len, prot) : mprotect(at, len, prot);
}
// WIPEONFORK and guards are as bare by libc's function only (docs/address-space.md).
static int do_madvise(void *at, size_t len, int advice) {
    int by_libc = advice == MADV_WIPEONFORK || advice == GUARD_INSTALL || advice == GUARD_REMOVE;
    return is_raw() && !by_libc ? syscall(SYS_madvise, at, len, advice) : madvise(at, len, advice);
}
static long do_io(long number, int fd, void *at, size_t len) {
    if (is_raw())
        return syscall(number, fd, at, len, 0L);
    return number == SYS_pread64 ? pread(fd, at, len, 0) : pwrite(fd, at, len, 0);
}

// What is expected of a call.
#define EXPECT(condition, ...) \
    do { \
        if (!(condition)) { \
            int errno_ = errno; \
            FAIL(REFUSED, __VA_ARGS__); \
            (void)errno_; \
        } \
    } while (0)

// Whether a range lies in one mapping (PROCMAP_QUERY): moving it is refused otherwise.
static int one_mapping(const void *at, size_t len) {
    struct {
        uint64_t size, flags, addr, start, end, vma_flags, page, offset, inode;
        uint32_t major, minor, name_size, id_size;
        uint64_t name, id;
    } query = {.size = sizeof query, .addr = (uintptr_t)at};
    static int fd_pid, fd = -1;
    if (fd_pid != getpid()) // a forked child's descriptor is of its parent's memory
        fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), fd_pid = getpid();
    if (ioctl(fd, _IOWR('f', 17, char[104]), &query) != 0)
        return 0;
    return query.start <= (uintptr_t)at && query.end >= (uintptr_t)at + len;
}
#endif
