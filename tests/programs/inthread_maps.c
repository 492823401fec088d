// The address space: every flag and advice, with what it is applied to out of memory, and its
// bytes afterwards.
#include "inthread_kit.h"
#include <fcntl.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { MANY = 96, TAG = 100000 };
#define RAW(...) syscall(__VA_ARGS__)

static char *fresh(void) {
    char *at = map_new(MANY * PAGE);
    fill_range(at, MANY, TAG);
    out_of_memory(at, MANY, 4);
    return at;
}

static void drop(void *at, size_t pages) { SETUP(munmap(at, pages * PAGE) == 0); }

static void mapping(void) {
    char *at = fresh();
    RIGHT(mmap(at + PAGE, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    check_range(at, MANY, TAG, "after NOREPLACE");
    out_of_memory(at, MANY, 4);
    RIGHT(mmap(at + 8 * PAGE, 8 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 8 * PAGE);
    check_range(at, 8, TAG, "before FIXED");
    check_zeros(at + 8 * PAGE, 8, "mapped FIXED");
    check_range(at + 16 * PAGE, MANY - 16, TAG + 16, "behind FIXED");
    RIGHT(mmap(at + PAGE, 0, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL);
    RIGHT(mmap(at + 1, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL);
    RIGHT(mmap(at, PAGE, 3, MAP_PRIVATE | MAP_FIXED, 999, 0) == MAP_FAILED && errno == EBADF);
    check_page(at, TAG, "after a call that failed");
    // A file over it, a file's private copy, shared memory.
    int file = memfd_create("maps", 0);
    SETUP(file >= 0 && ftruncate(file, 16 * PAGE) == 0);
    out_of_memory(at, MANY, 4);
    RIGHT(mmap(at + 24 * PAGE, 16 * PAGE, 3, MAP_SHARED | MAP_FIXED, file, 0) == at + 24 * PAGE);
    check_range(at + 16 * PAGE, 8, TAG + 16, "before a file");
    check_zeros(at + 24 * PAGE, 16, "a new file");
    fill_range(at + 24 * PAGE, 16, 7 * TAG);
    char *own = mmap(NULL, 16 * PAGE, 3, MAP_PRIVATE, file, 0);
    RIGHT(own != MAP_FAILED);
    fill_range(own, 8, 8 * TAG);
    squeeze();
    check_range(own, 8, 8 * TAG, "changed of a file"), check_range(own + 8 * PAGE, 8, 7 * TAG + 8, "not changed of a file");
    check_range(at + 24 * PAGE, 16, 7 * TAG, "a shared file");
    drop(own, 16);
    RIGHT(mmap(at + 24 * PAGE, 16 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 24 * PAGE);
    check_zeros(at + 24 * PAGE, 16, "where a file was");
    close(file);
    drop(at, MANY);
    for (int i = 0; i < 4; i++) {
        const int flags[] = {MAP_POPULATE, MAP_LOCKED, MAP_NORESERVE, MAP_STACK};
        at = mmap(NULL, MANY * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | flags[i], -1, 0);
        if (at == MAP_FAILED && flags[i] == MAP_LOCKED)
            continue;
        RIGHT(at != MAP_FAILED);
        check_zeros(at, MANY, "new");
        fill_range(at, MANY, TAG + i);
        squeeze();
        check_range(at, MANY, TAG + i, "of a flag");
        drop(at, MANY);
    }
    char *shared = mmap(NULL, MANY * PAGE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    RIGHT(shared != MAP_FAILED);
    fill_range(shared, MANY, TAG);
    pid_t child = fork();
    if (child == 0) {
        squeeze();
        check_range(shared, MANY, TAG, "of a parent, shared");
        fill_range(shared, MANY, 2 * TAG);
        _exit(0);
    }
    expect_child(child, "shared memory");
    check_range(shared, MANY, 2 * TAG, "of a child, shared");
    drop(shared, MANY);
}

static void growing_down(void) {
    char *room = mmap(NULL, 600 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(room != MAP_FAILED && munmap(room + 460 * PAGE, 120 * PAGE) == 0);
    char *at = mmap(room + 560 * PAGE, 20 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
    RIGHT(at == room + 560 * PAGE);
    for (int i = 0; i < 100; i++)
        *(volatile long *)(at + (19 - i) * PAGE) = i;
    squeeze();
    for (int i = 0; i < 100; i++)
        RIGHT(*(volatile long *)(at + (19 - i) * PAGE) == i);
    SETUP(munmap(room, 600 * PAGE) == 0);
}

static void moving(void) {
    for (int way = 0; way < 7; way++) {
        char *at = fresh(), *to = map_new(3 * MANY * PAGE), *moved;
        fill_range(to, 3 * MANY, 5 * TAG);
        out_of_memory(at, MANY, 4);
        switch (way) {
        case 0: // shrinks in place
            RIGHT(mremap(at, MANY * PAGE, 40 * PAGE, 0) == at);
            check_range(at, 40, TAG, "shrunk");
            drop(at, 40);
            break;
        case 1: // grows where there is no room
            SETUP(mmap(at + MANY * PAGE, PAGE, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED ||
                  errno == EEXIST);
            RIGHT(mremap(at, MANY * PAGE, 2 * MANY * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
            check_range(at, MANY, TAG, "not grown");
            out_of_memory(at, MANY, 4);
            moved = mremap(at, MANY * PAGE, 2 * MANY * PAGE, MREMAP_MAYMOVE);
            RIGHT(moved != MAP_FAILED && moved != at);
            check_range(moved, MANY, TAG, "moved to grow"), check_zeros(moved + MANY * PAGE, MANY, "grown");
            drop(moved, 2 * MANY);
            break;
        case 2: // to a place, growing, over what is out
            out_of_memory(to, 3 * MANY, 4);
            RIGHT(mremap(at, MANY * PAGE, 2 * MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE) == to + PAGE);
            check_page(to, 5 * TAG, "before what was moved");
            check_range(to + PAGE, MANY, TAG, "moved"), check_zeros(to + (1 + MANY) * PAGE, MANY, "grown");
            check_range(to + (1 + 2 * MANY) * PAGE, MANY - 1, 5 * TAG + 1 + 2 * MANY, "behind what was moved");
            break;
        case 3: // part of it, from the middle
            RIGHT(mremap(at + 10 * PAGE, 30 * PAGE, 20 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
            check_range(to, 20, TAG + 10, "moved from the middle"), check_range(to + 20 * PAGE, 20, 5 * TAG + 20, "behind it");
            check_range(at, 10, TAG, "left"), check_range(at + 40 * PAGE, MANY - 40, TAG + 40, "left behind");
            RIGHT(msync(at + 10 * PAGE, PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
            drop(at, MANY);
            break;
        case 4: // leaving the old mapping
            moved = mremap(at, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | 4, NULL);
            RIGHT(moved != MAP_FAILED && moved != at);
            squeeze();
            check_range(moved, MANY, TAG, "moved and left"), check_zeros(at, MANY, "left");
            fill_range(at, MANY, 3 * TAG);
            squeeze();
            check_range(at, MANY, 3 * TAG, "written again"), check_range(moved, MANY, TAG, "moved and left");
            drop(at, MANY), drop(moved, MANY);
            break;
        case 5: // wrong ones
            RIGHT(mremap(at, MANY * PAGE, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
            RIGHT(mremap(at + 1, PAGE, PAGE, 0) == MAP_FAILED && errno == EINVAL);
            RIGHT(mremap(at, PAGE, PAGE, MREMAP_FIXED, to) == MAP_FAILED && errno == EINVAL);
            RIGHT(mremap(at, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 4 * PAGE) == MAP_FAILED && errno == EINVAL);
            RIGHT(mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE | 4, NULL) == MAP_FAILED && errno == EINVAL);
            RIGHT(mremap((char *)64 + 4096 * 3, PAGE, PAGE, 32) == MAP_FAILED && errno == EINVAL);
            drop(to + 60 * PAGE, 1);
            RIGHT(mremap(to, 80 * PAGE, 90 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
            check_range(at, MANY, TAG, "after calls that failed"), check_range(to, 60, 5 * TAG, "after a call that failed");
            drop(at, MANY);
            break;
        default: // there and back, in parts that were closed and opened
            for (int i = 0; i < MANY; i += 3)
                check_page(at + i * PAGE, TAG + i, "in parts");
            RIGHT(mremap(at, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
            out_of_memory(to, MANY, 4);
            for (int i = 1; i < MANY; i += 5)
                check_page(to + i * PAGE, TAG + i, "in parts");
            RIGHT(mremap(to, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
            check_range(at, MANY, TAG, "there and back");
            drop(at, MANY);
        }
        SETUP(munmap(to, 3 * MANY * PAGE) == 0);
    }
}

static void advising(void) {
    static const int keeps[] = {0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 25};
    for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) {
        char *at = fresh();
        int done = madvise(at + 5 * PAGE, 50 * PAGE, keeps[i]);
        RIGHT(done == 0 || errno == EINVAL || (keeps[i] == 25 && (errno == EAGAIN || errno == ENOMEM || errno == EBUSY)));
        check_range(at, MANY, TAG, "advised");
        out_of_memory(at, MANY, 2);
        check_range(at, MANY, TAG, "advised and out");
        drop(at, MANY);
    }
    static const int drops[] = {MADV_DONTNEED, 24};
    for (int i = 0; i < 2; i++) {
        char *at = fresh();
        RIGHT(madvise(at + 5 * PAGE, 50 * PAGE, drops[i]) == 0);
        for (int turn = 0; turn < 2; turn++) {
            check_range(at, 5, TAG, "before what was dropped"), check_zeros(at + 5 * PAGE, 50, "dropped");
            check_range(at + 55 * PAGE, MANY - 55, TAG + 55, "behind what was dropped");
            squeeze();
        }
        drop(at, MANY);
    }
    char *at = fresh();
    RIGHT(madvise(at, MANY * PAGE, MADV_FREE) == 0);
    for (int i = 0; i < MANY; i++)
        RIGHT(page_is(at + i * PAGE, TAG + i) || page_is(at + i * PAGE, 0));
    fill_range(at, MANY, 2 * TAG);
    squeeze();
    check_range(at, MANY, 2 * TAG, "written after it was free");
    RIGHT(madvise(at + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    RIGHT(madvise(at, PAGE, 99) == -1 && errno == EINVAL);
    RIGHT(madvise(at, PAGE, MADV_REMOVE) == -1 && errno == EINVAL);
    RIGHT(madvise(at, 0, MADV_DONTNEED) == 0);
    check_range(at, MANY, 2 * TAG, "advised wrongly");
    drop(at, MANY);
    // In children: not there, or zeros.
    at = fresh();
    RIGHT(madvise(at + 8 * PAGE, 8 * PAGE, MADV_DONTFORK) == 0 && madvise(at + 32 * PAGE, 8 * PAGE, MADV_WIPEONFORK) == 0);
    pid_t child = fork();
    if (child == 0) {
        RIGHT(msync(at + 8 * PAGE, 8 * PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
        check_zeros(at + 32 * PAGE, 8, "wiped"), check_range(at, 8, TAG, "of a child"), check_range(at + 40 * PAGE, 8, TAG + 40, "of a child");
        squeeze();
        check_range(at + 48 * PAGE, 8, TAG + 48, "of a child");
        _exit(0);
    }
    expect_child(child, "wiped and left out");
    check_range(at, MANY, TAG, "of a parent");
    RIGHT(madvise(at + 8 * PAGE, 8 * PAGE, MADV_DOFORK) == 0 && madvise(at + 32 * PAGE, 8 * PAGE, MADV_KEEPONFORK) == 0);
    if ((child = fork()) == 0) {
        check_range(at, MANY, TAG, "of a child");
        _exit(0);
    }
    expect_child(child, "neither wiped nor left out");
    drop(at, MANY);
}

static sigjmp_buf back;
static volatile uintptr_t fault_at;
static volatile int fault_code;

static void jumps(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fault_at = (uintptr_t)info->si_addr, fault_code = info->si_code;
    siglongjmp(back, 1);
}

static int faults(volatile char *at, int writes) {
    if (sigsetjmp(back, 1) == 0) {
        if (writes)
            *at = *at;
        else
            (void)*at;
        return 0;
    }
    RIGHT(fault_at == (uintptr_t)at);
    return fault_code;
}

static void catch(void) {
    struct sigaction action = {.sa_sigaction = jumps, .sa_flags = SA_SIGINFO};
    SETUP(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
}

static void protecting(void) {
    catch();
    char *at = fresh();
    RIGHT(mprotect(at + 10 * PAGE, 10 * PAGE, PROT_READ) == 0 && mprotect(at + 20 * PAGE, 10 * PAGE, PROT_NONE) == 0);
    RIGHT(mprotect(at + 30 * PAGE, 10 * PAGE, PROT_READ | PROT_EXEC) == 0);
    squeeze();
    for (int i = 0; i < 4; i++) {
        int code = i == 0 ? 0 : SEGV_ACCERR;
        RIGHT(faults(at + (10 * i + 3) * PAGE + 77, 1) == code);
        RIGHT(faults(at + (10 * i + 9) * PAGE + 4095, 0) == (i == 2 ? SEGV_ACCERR : 0));
    }
    check_range(at, 20, TAG, "readable");
    RIGHT(mprotect(at + 10 * PAGE, 30 * PAGE, PROT_READ | PROT_WRITE) == 0);
    check_range(at, MANY, TAG, "writable again");
    out_of_memory(at, MANY, 2);
    RIGHT(mprotect(at, MANY * PAGE, PROT_NONE) == 0 && mprotect(at, MANY * PAGE, 3) == 0);
    check_range(at, MANY, TAG, "writable again");
    RIGHT(mprotect(at + 1, PAGE, 3) == -1 && errno == EINVAL);
    RIGHT(mprotect(at, PAGE, 0x100) == -1 && errno == EINVAL);
    drop(at + 50 * PAGE, 1);
    RIGHT(mprotect(at + 40 * PAGE, 20 * PAGE, 3) == -1 && errno == ENOMEM);
    RIGHT(faults(at + 50 * PAGE, 0) == SEGV_MAPERR && faults(at + 51 * PAGE, 1) == 0);
    // Behind the end of a file.
    int file = memfd_create("maps", 0);
    SETUP(file >= 0 && ftruncate(file, PAGE) == 0);
    char *mapped = mmap(NULL, 2 * PAGE, 3, MAP_SHARED, file, 0);
    SETUP(mapped != MAP_FAILED);
    RIGHT(faults(mapped + PAGE + 8, 0) == BUS_ADRERR && faults(mapped + 8, 1) == 0);
    close(file), drop(mapped, 2);
    // Protection keys, where there are any.
    int key = (int)RAW(SYS_pkey_alloc, 0, 0);
    if (key > 0) {
        out_of_memory(at, 40, 2);
        RIGHT(RAW(SYS_pkey_mprotect, at, 20 * PAGE, 3, key) == 0);
        check_range(at, 40, TAG, "with a key");
        squeeze();
        check_range(at, 40, TAG, "with a key");
        RIGHT(RAW(SYS_pkey_mprotect, at, 20 * PAGE, 3, 0) == 0 && RAW(SYS_pkey_free, key) == 0);
    }
    SETUP(munmap(at, MANY * PAGE) == 0);
}

static void guards(void) {
    catch();
    char *at = fresh();
    if (madvise(at + 10 * PAGE, 10 * PAGE, 102) == 0) {
        squeeze();
        RIGHT(faults(at + 12 * PAGE + 5, 0) == SEGV_MAPERR || fault_code == SEGV_ACCERR);
        RIGHT(faults(at + 12 * PAGE + 5, 1) != 0);
        check_range(at, 10, TAG, "before guards"), check_range(at + 20 * PAGE, MANY - 20, TAG + 20, "behind guards");
        RIGHT(madvise(at + 5 * PAGE, 30 * PAGE, 103) == 0);
        check_range(at, 10, TAG, "before guards"), check_zeros(at + 10 * PAGE, 10, "where guards were");
        check_range(at + 20 * PAGE, MANY - 20, TAG + 20, "behind guards");
    }
    drop(at, MANY);
}

static void locking(void) {
    char *at = fresh();
    if (mlock(at, 20 * PAGE) == 0) {
        squeeze();
        check_range(at, MANY, TAG, "locked in part");
        RIGHT(!managed() || resident(at, 20) == 20);
        RIGHT(munlock(at, 20 * PAGE) == 0);
    }
    if (RAW(SYS_mlock2, at + 30 * PAGE, 10 * PAGE, 1) == 0)
        check_range(at, MANY, TAG, "locked on fault");
    RIGHT(mlock((void *)(1ul << 46), PAGE) == -1);
    drop(at, MANY);
    // Not for long, and in a child: it ends management.
    pid_t child = fork();
    if (child == 0) {
        char *mine = map_new(MANY * PAGE);
        fill_range(mine, MANY, TAG);
        RIGHT(munlockall() == 0);
        check_range(mine, MANY, TAG, "unlocked");
        _exit(0);
    }
    expect_child(child, "locks");
}

// Sealed memory may not be unmapped, moved or protected, by anybody.
static void sealing(void) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        char *at = fresh();
        if (RAW(462, at, MANY * PAGE, 0) == 0) {
            RIGHT(mprotect(at, PAGE, PROT_READ) == -1 && errno == EPERM);
            RIGHT(munmap(at, PAGE) == -1 && errno == EPERM);
            check_range(at, MANY, TAG, "sealed while out");
            squeeze(), squeeze();
            check_range(at, MANY, TAG, "sealed");
            fill_range(at, MANY, 2 * TAG);
            squeeze(), squeeze();
            check_range(at, MANY, 2 * TAG, "sealed and written");
        }
        _exit(0);
    }
    expect_child(child, "sealed");
}

// Advice for itself as if for another process.
static void advising_itself(void) {
    int self = (int)RAW(SYS_pidfd_open, getpid(), 0);
    if (self < 0)
        return;
    char *at = fresh();
    struct {
        void *base;
        size_t len;
    } vectors[2] = {{at, 10 * PAGE}, {at + 20 * PAGE, 10 * PAGE}};
    long cold = RAW(440, self, vectors, 2, 20, 0);
    RIGHT(cold == 20 * PAGE || errno == EPERM || errno == ENOSYS || errno == EINVAL);
    check_range(at, MANY, TAG, "cold");
    out_of_memory(at, MANY, 4);
    long done = RAW(440, self, vectors, 2, 4, 0);
    if (done == 20 * PAGE) {
        check_zeros(at, 10, "dropped by itself"), check_range(at + 10 * PAGE, 10, TAG + 10, "not dropped");
        check_zeros(at + 20 * PAGE, 10, "dropped by itself"), check_range(at + 30 * PAGE, MANY - 30, TAG + 30, "not dropped");
    } else
        check_range(at, MANY, TAG, "not dropped");
    close(self);
    drop(at, MANY);
}

static void naming(void) {
    char *at = fresh(), *to;
    char *name = text("a part of it");
    int named = prctl(0x53564d41, 0, at + 20 * PAGE, 20 * PAGE, name);
    (void)named;
    check_range(at, 10, TAG, "named in part");
    out_of_memory(at, MANY, 4);
    check_range(at, MANY, TAG, "named in part");
    out_of_memory(at, MANY, 4);
    to = mremap(at, 20 * PAGE, 400 * PAGE, MREMAP_MAYMOVE);
    RIGHT(to != MAP_FAILED);
    check_range(to, 20, TAG, "moved beside a name"), check_range(at + 20 * PAGE, MANY - 20, TAG + 20, "not moved");
    SETUP(munmap(to, 400 * PAGE) == 0 && munmap(at, MANY * PAGE) == 0);
}

static void heap_end(void) {
    char *end = sbrk(0);
    SETUP(sbrk(MANY * PAGE + 100) == end);
    char *at = (char *)(((uintptr_t)end + PAGE - 1) & -(uintptr_t)PAGE);
    fill_range(at, MANY - 1, TAG);
    out_of_memory(at, MANY - 1, 2);
    check_range(at, MANY - 1, TAG, "of the heap");
    out_of_memory(at, MANY - 1, 2);
    SETUP(brk(at + 20 * PAGE) == 0);
    check_range(at, 20, TAG, "of a smaller heap");
    SETUP(brk(at + MANY * PAGE) == 0);
    check_zeros(at + 20 * PAGE, MANY - 20, "of a larger heap");
    check_range(at, 20, TAG, "of a larger heap");
    RIGHT((char *)RAW(SYS_brk, 1L << 46) == at + MANY * PAGE);
    SETUP(brk(end) == 0);
}

// A great reservation of which little is used.
static void sparse(void) {
    size_t bytes = 64ul << 30;
    char *at = mmap(NULL, bytes, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return;
    for (size_t i = 0; i < 3000; i++)
        fill_page(at + (mix(i) % (bytes / PAGE)) * PAGE, TAG + i);
    squeeze();
    for (size_t i = 0; i < 3000; i++)
        check_page(at + (mix(i) % (bytes / PAGE)) * PAGE, TAG + i, "sparse");
    RIGHT(madvise(at, bytes / 2, MADV_DONTNEED) == 0);
    for (size_t i = 0; i < 3000; i++) {
        size_t page = mix(i) % (bytes / PAGE);
        check_page(at + page * PAGE, page < bytes / PAGE / 2 ? 0 : TAG + i, "sparse, half dropped");
    }
    SETUP(munmap(at, bytes) == 0);
}

// Calls that fail after they have done a part: a discard that stops at locked memory, calls that
// unmap a range before they find that they cannot put anything there.
static void failing_halfway(void) {
    for (int turn = 0; turn < 6; turn++) {
        char *at = map_new(64 * PAGE);
        for (int i = 0; i < 64; i++)
            fill_page(at + i * PAGE, TAG + i);
        squeeze();
        if (turn < 3) {
            if (mlock(at + 32 * PAGE, PAGE) != 0)
                return;
            int advice = turn == 0 ? MADV_DONTNEED : turn == 1 ? MADV_FREE : MADV_DONTNEED;
            char *from = turn == 2 ? at + 8 * PAGE : at;
            if (turn == 2)
                SETUP(munmap(at + 20 * PAGE, PAGE) == 0);
            errno = 0;
            RIGHT(madvise(from, 64 * PAGE - (from - at), advice) == -1 && errno == EINVAL);
            for (int i = 0; i < 64; i++) {
                if (turn == 2 && i == 20)
                    continue;
                int gone = i < 32 && at + i * PAGE >= from;
                if (turn == 1 && gone) // (May be gone.)
                    continue;
                check_page(at + i * PAGE, gone ? 0 : TAG + i, "beside locked memory");
            }
        } else {
            // What is not aligned or has no length changes nothing.
            RIGHT(madvise(at + 1, 64 * PAGE, MADV_DONTNEED) == -1);
            RIGHT(madvise(at, 0, MADV_DONTNEED) == 0);
            // A hole in the middle is gone over.
            SETUP(munmap(at + 30 * PAGE, 2 * PAGE) == 0);
            errno = 0;
            RIGHT(madvise(at, 40 * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM);
            // From where nothing is: refused, whether the target is gone by then or not.
            char *to = map_new(16 * PAGE);
            for (int i = 0; i < 16; i++)
                fill_page(to + i * PAGE, TAG + 100 + i);
            squeeze();
            unsigned char present[16];
            if (mremap(at + 30 * PAGE, 2 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
                if (mincore(to, 16 * PAGE, present) == 0)
                    check_range(to, 16, TAG + 100, "of a target that stayed");
                else
                    SETUP(mmap(to, 16 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == to);
            }
            for (int i = 0; i < 64; i++)
                if (i < 30 || i >= 32)
                    check_page(at + i * PAGE, i < 40 ? 0 : TAG + i, "around a hole");
            squeeze();
        }
        SETUP(munmap(at, 64 * PAGE) == 0);
    }
}

// A mapping grows and shrinks where it is while calls of another thread are under way in it.
enum { LOW = 64, RESIZED = 1024 };
static int feed[2];
static volatile int stop;

static void *feeds(void *arg) {
    static char bytes[PAGE];
    while (!stop && write(feed[1], bytes, PAGE) > 0)
        ;
    close(feed[1]);
    return arg;
}

static void *reads_into(void *at) {
    uint64_t turn = 0;
    for (ssize_t got = 1; got > 0;) {
        got = read(feed[0], (char *)at + mix(++turn) % ((LOW - 1) * PAGE), PAGE);
        RIGHT(got >= 0);
    }
    return NULL;
}

static void resizing_beside_calls(void) {
    pthread_t threads[2];
    size_t pages = RESIZED, resizes = 0;
    uint64_t turn = 0;
    char *room = mmap(NULL, 4 * RESIZED * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(room != MAP_FAILED && munmap(room, 4 * RESIZED * PAGE) == 0);
    char *at = map_at(room, RESIZED * PAGE, MAP_FIXED);
    fill_range(at, RESIZED, TAG);
    squeeze();
    stop = 0;
    SETUP(pipe(feed) == 0 && pthread_create(&threads[0], NULL, feeds, NULL) == 0);
    SETUP(pthread_create(&threads[1], NULL, reads_into, at) == 0);
    for (double until = seconds() + 1; seconds() < until;) {
        size_t wanted = 2 * LOW + mix(++turn) % RESIZED;
        void *is = mremap(at, pages * PAGE, wanted * PAGE, turn % 2 ? MREMAP_MAYMOVE : 0);
        RIGHT(is == at || (is == MAP_FAILED && errno == ENOMEM));
        if (is != at)
            continue;
        if (wanted > pages) {
            check_zeros(at + pages * PAGE, wanted - pages, "what it grew by");
            fill_range(at + pages * PAGE, wanted - pages, TAG + pages);
        }
        pages = wanted, resizes++;
        check_range(at + LOW * PAGE, pages - LOW, TAG + LOW, "of a mapping that was resized");
        if (turn % 8 == 0)
            squeeze();
    }
    RIGHT(resizes > 3);
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    close(feed[0]);
    drop(at, pages);
}

// Reads whatever it may, as a collector does that does not know where its pointers are.
static void reads_all_that_is_named(void) {
    enum { MOST = 4000 };
    static struct { uintptr_t from, to; } ranges[MOST];
    int count = 0;
    char line[512], mode[8];
    volatile uint64_t sum = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    SETUP(maps != NULL);
    while (count < MOST && fgets(line, sizeof line, maps)) {
        SETUP(sscanf(line, "%lx-%lx %7s", &ranges[count].from, &ranges[count].to, mode) == 3);
        count += mode[0] == 'r' && mode[3] == 'p' && !strstr(line, "[v") && ranges[count].to - ranges[count].from < 1ul << 30;
    }
    fclose(maps);
    for (int i = 0; i < count; i++)
        for (uintptr_t at = ranges[i].from; at < ranges[i].to; at += PAGE)
            sum += *(volatile uint64_t *)at;
}

static volatile int beside_too;
static void *squeezes_beside(void *arg) {
    char *own = map_new(RESIZED * PAGE);
    for (int turn = 0; beside_too; turn++) {
        fill_range(own, RESIZED, TAG + turn);
        check_range(own, RESIZED, TAG + turn, "beside who reads all");
    }
    return arg;
}

static void reading_all(void) {
    for (int beside = 0; beside < 2; beside++) {
        pthread_t thread;
        char *at = fresh();
        beside_too = beside;
        if (beside)
            SETUP(pthread_create(&thread, NULL, squeezes_beside, NULL) == 0);
        for (int turn = 0; turn < 4; turn++) {
            squeeze();
            reads_all_that_is_named();
            check_range(at, MANY, TAG, "after all was read");
        }
        beside_too = 0;
        if (beside)
            pthread_join(thread, NULL);
        drop(at, MANY);
    }
}

CASES({"reading_all", reading_all}, {"failing_halfway", failing_halfway}, {"mapping", mapping}, {"growing_down", growing_down}, {"moving", moving}, {"advising", advising},
      {"protecting", protecting}, {"guards", guards}, {"locking", locking}, {"sealing", sealing},
      {"advising_itself", advising_itself}, {"naming", naming}, {"heap_end", heap_end}, {"sparse", sparse},
      {"resizing_beside_calls", resizing_beside_calls})
