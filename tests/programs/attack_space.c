// The address space, with memory out: lengths of nothing and of everything, huge pages, protection
// on the way to code, limits, sealed parts, other users of the same mechanisms.
#include "inthread_kit.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define RAW(...) syscall(__VA_ARGS__)
enum { MANY = 64, TAG = 500000, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static char *fresh(size_t pages) {
    char *at = map_new(pages * PAGE);
    fill_range(at, pages, TAG);
    out_of_memory(at, pages, 4);
    return at;
}

// A child does it, which may change what cannot be changed back.
static void in_child(void (*what)(void), const char *name) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        what();
        _exit(0);
    }
    expect_child(child, name);
}

static void no_and_all_lengths(void) {
    char *at = fresh(MANY);
    // Lengths by which the end is before the start, or nowhere; and none.
    const size_t lengths[] = {0, -4096ul, -8192ul, -(size_t)at};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t len = lengths[i];
        for (long advice = 0; advice < 27; advice++)
            RIGHT(RAW(SYS_madvise, at, len, advice) == -1 || len == 0);
        RIGHT(RAW(SYS_mprotect, at, len, 0L) == (len == 0 ? 0 : -1));
        RIGHT(RAW(SYS_munmap, at, len) == -1 && errno == EINVAL);
        RIGHT(RAW(SYS_mmap, at, len, 3L, (long)(ANON | MAP_FIXED), -1L, 0L) == -1);
        RIGHT(RAW(SYS_mremap, at, (long)PAGE, len, 1L, 0L) == -1);
        RAW(SYS_mlock, at, len), RAW(SYS_munlock, at, len), RAW(SYS_msync, at, len, (long)MS_ASYNC);
        RIGHT(RAW(SYS_mincore, at, len, area) == (len == 0 ? 0 : -1));
        check_range(at, MANY, TAG, "after a length");
        out_of_memory(at, MANY, 4);
    }
    RIGHT(RAW(SYS_munmap, at, 1ul << 63) == -1 && RAW(SYS_mmap, at, 1ul << 47, 3L, (long)(ANON | MAP_FIXED), -1L, 0L) == -1);
    RIGHT(RAW(SYS_mremap, at, (long)PAGE, 1ul << 46, 1L, 0L) == -1 && RAW(SYS_mremap, at, 1ul << 63, (long)PAGE, 1L, 0L) == -1);
    check_range(at, MANY, TAG, "after lengths");
    munmap(at, MANY * PAGE);
}

// Huge pages: advised, in part discarded, collapsed, forked, each time out before.
static void huge_ones(void) {
    enum { PAGES = 2048 };
    char *at = map_aligned(PAGES * PAGE, 0);
    madvise(at, PAGES * PAGE, MADV_HUGEPAGE);
    fill_range(at, PAGES, TAG);
    squeeze();
    for (int i = 0; i < PAGES; i += 128)
        RIGHT(madvise(at + (i + 3) * PAGE, 40 * PAGE, MADV_DONTNEED) == 0);
    squeeze();
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < PAGES; i++)
            check_page(at + i * PAGE, i % 128 >= 3 && i % 128 < 43 ? 0 : TAG + i, "of huge pages");
        madvise(at, PAGES * PAGE, 25), squeeze();
        pid_t child = fork();
        if (child == 0) {
            madvise(at + PAGES / 2 * PAGE, PAGES / 4 * PAGE, MADV_DONTNEED);
            squeeze();
            for (int i = 0; i < PAGES; i++)
                check_page(at + i * PAGE, (i >= PAGES / 2 && i < PAGES / 4 * 3) || (i % 128 >= 3 && i % 128 < 43) ? 0 : TAG + i, "of a child's huge pages");
            _exit(0);
        }
        expect_child(child, "huge pages");
        madvise(at, PAGES * PAGE, turn == 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    }
    munmap(at, PAGES * PAGE);
}

// Code is written, goes out, becomes executable, and runs.
static void written_then_run(void) {
    unsigned char *at = map_new(MANY * PAGE);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < MANY; i++) {
            fill_page(at + i * PAGE, TAG + i);
            unsigned char code[] = {0xb8, (unsigned char)i, (unsigned char)turn, 0, 0, 0xc3}; // mov $i, %eax; ret
            memcpy(at + i * PAGE + 64, code, sizeof code);
        }
        if (turn == 0)
            out_of_memory(at, MANY, 4);
        else // (What was code once may be left alone.)
            squeeze();
        RIGHT(mprotect(at, MANY * PAGE, PROT_READ | PROT_EXEC) == 0);
        for (int i = 0; i < MANY; i++)
            RIGHT(((int (*)(void))(at + i * PAGE + 64))() == i + 256 * turn);
        squeeze();
        RIGHT(mprotect(at + 8 * PAGE, 8 * PAGE, 7) == 0 && ((int (*)(void))(at + 9 * PAGE + 64))() == 9 + 256 * turn);
        RIGHT(mprotect(at, MANY * PAGE, 3) == 0);
    }
    munmap(at, MANY * PAGE);
}

// What may be read may be run, from here on: protections are not what was asked for.
static void all_executable_now(void) {
    char *at = fresh(MANY), *more;
    if (personality(0x0400000) == -1)
        return;
    more = map_new(MANY * PAGE);
    fill_range(more, MANY, 2 * TAG);
    squeeze();
    check_range(at, MANY, TAG, "from before"), check_range(more, MANY, 2 * TAG, "from after");
    RIGHT(mprotect(at, MANY * PAGE, PROT_READ) == 0 && mprotect(at, MANY * PAGE, 3) == 0);
    squeeze();
    check_range(at, MANY, TAG, "from before, protected since"), check_range(more, MANY, 2 * TAG, "from after");
    RIGHT(mremap(more, MANY * PAGE, 2 * MANY * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
    squeeze();
    check_range(at, MANY, TAG, "from before");
}
static void all_executable(void) { in_child(all_executable_now, "all executable"); }

// Memory may not become executable after it was written to (PR_SET_MDWE), and calls of new sites.
static void never_executable_now(void) {
    char *at = fresh(MANY);
    if (prctl(65, 1, 0, 0, 0) != 0)
        return;
    int fds[2];
    RIGHT(pipe2(fds, O_CLOEXEC) == 0 && fcntl(fds[0], F_SETPIPE_SZ, 1 << 16) > 0);
    RIGHT(write(fds[1], at + PAGE, 100) == 100 && read(fds[0], at + 2 * PAGE, 100) == 100);
    RIGHT(getpgid(0) > 0 && getsid(0) >= 0 && sched_yield() == 0);
    fill_page(at + 2 * PAGE, TAG + 2);
    squeeze();
    check_range(at, MANY, TAG, "never executable");
    RIGHT(mprotect(at, PAGE, 7) == -1);
    check_range(at, MANY, TAG, "never executable");
}
static void never_executable(void) { in_child(never_executable_now, "never executable"); }

// A lock that the limit forbids brings nothing in.
static void lock_refused_now(void) {
    enum { LARGE = 8192 };
    char *at = map_new(LARGE * PAGE);
    fill_range(at, LARGE, TAG);
    squeeze();
    struct rlimit small = {1 << 20, 1 << 20};
    SETUP(setrlimit(RLIMIT_MEMLOCK, &small) == 0);
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
        return;
    prctl(PR_SET_DUMPABLE, 1);
    size_t before = resident(at, LARGE);
    RIGHT(mlock(at, LARGE * PAGE) == -1 && (errno == ENOMEM || errno == EPERM));
    RIGHT(!managed() || resident(at, LARGE) <= before + LARGE / 4);
    check_range(at, LARGE, TAG, "not locked");
    squeeze();
    RIGHT(!managed() || resident(at, LARGE) <= LARGE / 2);
    check_range(at, LARGE, TAG, "not locked");
}
static void lock_refused(void) { in_child(lock_refused_now, "a lock refused"); }

// A part is sealed: what goes over all of it is refused whole, or done in part, as bare.
static void sealed_part_now(void) {
    char *at = fresh(MANY);
    if (RAW(462, at + 20 * PAGE, 10 * PAGE, 0L) != 0)
        return;
    RIGHT(munmap(at, MANY * PAGE) == -1 && errno == EPERM);
    RIGHT(mmap(at, MANY * PAGE, 3, ANON | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EPERM);
    check_range(at + 20 * PAGE, MANY - 20, TAG + 20, "behind what was refused");
    squeeze();
    check_range(at, MANY, TAG, "sealed in part");
    int done = mprotect(at, MANY * PAGE, PROT_READ);
    RIGHT(done == -1 && errno == EPERM);
    check_range(at, MANY, TAG, "sealed in part");
    squeeze();
    check_range(at, MANY, TAG, "sealed in part");
    RIGHT(madvise(at, 20 * PAGE, MADV_DONTNEED) == 0);
    check_zeros(at, 20, "discarded beside a seal");
    pid_t child = fork();
    if (child == 0) {
        squeeze();
        check_range(at + 20 * PAGE, MANY - 20, TAG + 20, "a child's, sealed in part");
        _exit(0);
    }
    expect_child(child, "sealed in part");
}
static void sealed_part(void) { in_child(sealed_part_now, "sealed in part"); }

// What is to be mapped over it is refused once the kernel has looked at what would go.
static void refused_late_now(void) {
    char *at = (char *)(1UL << 36);
    SETUP(mmap(at, MANY * PAGE, 3, ANON | MAP_FIXED_NOREPLACE, -1, 0) == at);
    fill_range(at, MANY, TAG);
    out_of_memory(at, MANY, 4);
    // (More than any machine has, which the kernel does not promise.)
    SETUP(mmap(at, 1UL << 43, 3, ANON | MAP_FIXED, -1, 0) == MAP_FAILED);
    if (msync(at, PAGE, MS_ASYNC) != 0)
        return; // this kernel has unmapped it before
    check_range(at + 8 * PAGE, 8, TAG + 8, "what a mapping was refused over");
    squeeze();
    check_range(at, MANY, TAG, "what a mapping was refused over");
}
static void refused_late(void) { in_child(refused_late_now, "refused late"); }

// Memory from address 0 on (by messages less than 4 MiB of it would be left alone), which is given to calls by addresses that are less than a page.
enum { LOW = 1500 };
static char *at_0(size_t offset) {
    uintptr_t at = offset;
    __asm__("" : "+r"(at)); // (To the compiler nothing is there.)
    return (char *)at;
}

static void all_right_at_0(tag_t tag, const char *what) {
    for (size_t i = 0; i < LOW; i++)
        check_page(at_0(i * PAGE), tag + i, what);
}

static void address_0_now(void) {
    const size_t all = LOW * PAGE;
    char *zero = at_0(0);
    if (mmap(zero, all, 3, ANON | MAP_FIXED, -1, 0) != zero) {
        SAY("SKIP: no memory may be mapped at address 0 (errno %d)\n", errno);
        return;
    }
    for (size_t i = 0; i < LOW; i++)
        fill_page(at_0(i * PAGE), TAG + i);
    out_of_memory(at_0(PAGE), LOW - 1, 4);
    squeeze();
    all_right_at_0(TAG, "from address 0 on");
    // Calls: a whole buffer from 0 on, one across the end of the page, a vector, a path, a pointer within a structure.
    int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    SETUP(file >= 0);
    squeeze();
    RIGHT(RAW(SYS_pwrite64, file, zero, all, 0L) == (long)all);
    squeeze();
    RIGHT(RAW(SYS_pread64, file, zero, all, 0L) == (long)all);
    all_right_at_0(TAG, "read to address 0");
    squeeze();
    RIGHT(RAW(SYS_pwrite64, file, at_0(100), all - 100, 0L) == (long)all - 100);
    squeeze();
    struct iovec vectors[2] = {{at_0(100), 9 * PAGE - 100}, {at_0(9 * PAGE), all - 9 * PAGE}};
    RIGHT(RAW(SYS_preadv, file, vectors, 2L, 0L, 0L) == (long)all - 100);
    all_right_at_0(TAG, "read by vectors at address 0");
    squeeze();
    char *path = at_0(PAGE - 3);
    memcpy(path, "/dev/null", 10);
    squeeze();
    int null = (int)RAW(SYS_openat, AT_FDCWD, path, (long)O_RDONLY);
    RIGHT(null >= 0);
    fill_page(at_0(0), TAG), fill_page(at_0(PAGE), TAG + 1);
    // (SIOCGIFCONF's structure: bytes, and where.)
    int socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    SETUP(socket_ >= 0);
    struct {
        int bytes, filler;
        char *buffer;
    } *asked = (void *)at_0(64);
    asked->bytes = 2048, asked->buffer = at_0(20 * PAGE - 40);
    squeeze();
    RIGHT(ioctl(socket_, 0x8912, asked) == 0 && asked->bytes > 0 && asked->bytes < 2048);
    fill_page(at_0(0), TAG), fill_page(at_0(19 * PAGE), TAG + 19), fill_page(at_0(20 * PAGE), TAG + 20);
    close(socket_);
    // It moves away and back, is protected, discarded in part, and inherited.
    squeeze();
    char *moved = mremap(zero, all, all, MREMAP_MAYMOVE | MREMAP_FIXED, map_new(all));
    RIGHT(moved != MAP_FAILED);
    check_range(moved, LOW, TAG, "moved from address 0");
    squeeze();
    RIGHT(mremap(moved, all, all, MREMAP_MAYMOVE | MREMAP_FIXED, zero) == zero);
    all_right_at_0(TAG, "moved to address 0");
    char *managed_one = map_new(all);
    fill_range(managed_one, LOW, TAG);
    squeeze();
    RIGHT(mremap(managed_one, all, all, MREMAP_MAYMOVE | MREMAP_FIXED, zero) == zero);
    squeeze();
    all_right_at_0(TAG, "moved over address 0");
    RIGHT(munmap(zero, all) == 0 && mmap(zero, all, 0, ANON | MAP_FIXED, -1, 0) == zero);
    RIGHT(mprotect(zero, all, 3) == 0);
    for (size_t i = 0; i < LOW; i++)
        fill_page(at_0(i * PAGE), 2 * TAG + i);
    squeeze();
    all_right_at_0(2 * TAG, "reserved at address 0");
    RIGHT(mprotect(zero, all, PROT_READ) == 0);
    squeeze();
    all_right_at_0(2 * TAG, "read-only at address 0");
    RIGHT(mprotect(zero, all, 3) == 0);
    squeeze();
    pid_t child = fork();
    if (child == 0) {
        squeeze();
        all_right_at_0(2 * TAG, "a child's from address 0 on");
        _exit(0);
    }
    expect_child(child, "address 0");
    RIGHT(madvise(zero, 8 * PAGE, MADV_DONTNEED) == 0);
    check_page(zero, 0, "discarded at address 0"), check_page(at_0(7 * PAGE), 0, "discarded");
    check_page(at_0(8 * PAGE), 2 * TAG + 8, "behind what was discarded");
    RIGHT(munmap(zero, all) == 0);
    close(file), close(null);
}
static void address_0(void) { in_child(address_0_now, "address 0"); }

// Advice to itself by a descriptor of a thread; and where there is no /proc.
static void *advises_itself(void *at) {
    struct {
        void *base;
        size_t len;
    } vector = {(char *)at + 8 * PAGE, 16 * PAGE};
    int thread = (int)RAW(SYS_pidfd_open, RAW(SYS_gettid), 0200L);
    if (thread < 0)
        return NULL;
    if (RAW(440, thread, &vector, 1L, 4L, 0L) == 16 * PAGE) {
        check_range(at, 8, TAG, "before"), check_zeros((char *)at + 8 * PAGE, 16, "discarded by a thread's descriptor");
        check_range((char *)at + 24 * PAGE, MANY - 24, TAG + 24, "behind");
    } else
        check_range(at, MANY, TAG, "not discarded");
    close(thread);
    return NULL;
}

static void without_proc(void) {
    char *at = fresh(MANY);
    unshare(CLONE_NEWUSER);
    if (chroot("/usr/share") != 0)
        return;
    struct {
        void *base;
        size_t len;
    } vector = {at + 8 * PAGE, 16 * PAGE};
    int self = (int)RAW(SYS_pidfd_open, getpid(), 0L);
    if (RAW(440, self, &vector, 1L, 4L, 0L) == 16 * PAGE)
        check_zeros(at + 8 * PAGE, 16, "discarded where there is no /proc");
    check_range(at, 8, TAG, "before");
    squeeze();
    check_range(at + 24 * PAGE, MANY - 24, TAG + 24, "where there is no /proc");
}

static void advised_otherwise(void) {
    char *at = fresh(MANY);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, advises_itself, at) == 0);
    pthread_join(thread, NULL);
    munmap(at, MANY * PAGE);
    in_child(without_proc, "without /proc");
}

// More is populated than may be resident.
static void populated(void) {
    enum { LARGE = 5000 };
    char *at = map_new(LARGE * PAGE);
    fill_range(at, LARGE / 2, TAG);
    squeeze();
    int done = madvise(at, LARGE * PAGE, 23);
    RIGHT(done == 0 || errno == EINVAL);
    check_range(at, LARGE / 2, TAG, "populated"), check_zeros(at + LARGE / 2 * PAGE, LARGE / 2, "populated");
    done = madvise(at, LARGE * PAGE, 22);
    RIGHT(done == 0 || errno == EINVAL);
    char *more = mmap(NULL, LARGE * PAGE, 3, ANON | MAP_POPULATE, -1, 0);
    RIGHT(more != MAP_FAILED);
    check_zeros(more, LARGE, "mapped and populated");
    fill_range(more, LARGE, 2 * TAG);
    check_range(at, LARGE / 2, TAG, "populated"), check_range(more, LARGE, 2 * TAG, "mapped and populated");
    munmap(at, LARGE * PAGE), munmap(more, LARGE * PAGE);
}

// The program has a userfaultfd of its own, beside memory that is out.
static int own_faults;
static char *served;
static void *serves(void *unused) {
    struct uffd_msg message;
    static char page[PAGE] __attribute__((aligned(PAGE)));
    for (int i = 0; i < 32; i++) {
        if (read(own_faults, &message, sizeof message) != sizeof message)
            break;
        uintptr_t at = message.arg.pagefault.address & -(uintptr_t)PAGE;
        fill_page(page, 7 * TAG + (at - (uintptr_t)served) / PAGE);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        ioctl(own_faults, UFFDIO_COPY, &copy);
    }
    return unused;
}

static void with_its_own_faults_now(void) {
    char *at = fresh(MANY);
    own_faults = (int)RAW(SYS_userfaultfd, (long)(O_CLOEXEC | 1));
    if (own_faults < 0) {
        own_faults = open("/dev/userfaultfd", O_RDWR);
        if (own_faults >= 0)
            own_faults = ioctl(own_faults, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    }
    if (own_faults < 0)
        return;
    served = mmap(NULL, 32 * PAGE, 3, ANON | MAP_STACK, -1, 0);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)served, 32 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    SETUP(served != MAP_FAILED && ioctl(own_faults, UFFDIO_API, &api) == 0);
    if (ioctl(own_faults, UFFDIO_REGISTER, &range) != 0)
        return;
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, serves, NULL) == 0);
    for (int i = 0; i < 32; i++) {
        if (i % 8 == 0)
            squeeze();
        check_page(served + i * PAGE, 7 * TAG + i, "served by the program");
    }
    pthread_join(thread, NULL);
    check_range(at, MANY, TAG, "beside");
}
static void with_its_own_faults(void) { in_child(with_its_own_faults_now, "its own faults"); }

// The same by the device, over memory that it has already.
static void faults_by_the_device_now(void) {
    char *at = fresh(MANY);
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    own_faults = device < 0 ? -1 : ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | 1);
    if (own_faults < 0)
        return;
    served = at + 16 * PAGE;
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)served, 32 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    SETUP(ioctl(own_faults, UFFDIO_API, &api) == 0);
    if (ioctl(own_faults, UFFDIO_REGISTER, &range) != 0)
        return; // (somebody else has it: EBUSY)
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, serves, NULL) == 0);
    pthread_detach(thread);
    for (int i = 0; i < MANY; i++)
        check_page(at + i * PAGE, TAG + i, "registered by the program");
    SETUP(madvise(served, 32 * PAGE, MADV_DONTNEED) == 0);
    for (int i = 0; i < 32; i++)
        check_page(served + i * PAGE, 7 * TAG + i, "served by the program");
    squeeze();
    check_range(at, 16, TAG, "beside"), check_range(at + 48 * PAGE, MANY - 48, TAG + 48, "beside");
}
static void faults_by_the_device(void) { in_child(faults_by_the_device_now, "faults by the device"); }

// The end of the heap goes down into what is out, within a page, and up again.
static void heap_end_within_pages(void) {
    char *end = sbrk(0), *base = (char *)(((uintptr_t)end + PAGE - 1) & -(uintptr_t)PAGE);
    for (int turn = 0; turn < 4; turn++) {
        SETUP(brk(base + MANY * PAGE) == 0);
        fill_range(base, MANY, TAG + turn);
        out_of_memory(base, MANY, 2);
        SETUP(brk(base + 30 * PAGE + 100) == 0 && brk(base + 31 * PAGE - 8) == 0);
        check_range(base, 31, TAG + turn, "of a heap that shrank");
        squeeze();
        SETUP(brk(base + 2 * MANY * PAGE) == 0);
        check_range(base, 31, TAG + turn, "of a heap that grew");
        check_zeros(base + 31 * PAGE, 2 * MANY - 31, "new in the heap");
        SETUP(brk(base) == 0);
    }
    SETUP(brk(end) == 0);
}

// Pages that are the same are one (KSM), are written to, and go out.
static void merged(void) {
    char *at = map_new(MANY * PAGE);
    madvise(at, MANY * PAGE, MADV_MERGEABLE);
    prctl(67, 1, 0, 0, 0);
    for (int i = 0; i < MANY; i++)
        fill_page(at + i * PAGE, TAG + i % 4);
    usleep(200000);
    squeeze();
    for (int i = 0; i < MANY; i++)
        check_page(at + i * PAGE, TAG + i % 4, "merged");
    fill_range(at, MANY, TAG);
    squeeze();
    madvise(at, MANY * PAGE, MADV_UNMERGEABLE);
    check_range(at, MANY, TAG, "not merged any more");
    prctl(67, 0, 0, 0, 0);
    munmap(at, MANY * PAGE);
}

// Another watcher of pages: soft-dirty bits are cleared and read.
static void watched(void) {
    char *at = fresh(MANY);
    int clear = open("/proc/self/clear_refs", O_WRONLY);
    for (int turn = 0; turn < 3 && clear >= 0; turn++) {
        for (const char *what = "1234"; *what; what++) {
            ssize_t done = pwrite(clear, what, 1, 0);
            (void)done;
        }
        check_range(at, MANY, TAG + turn, "watched");
        fill_range(at, MANY, TAG + turn + 1);
        out_of_memory(at, MANY, 2);
    }
    munmap(at, MANY * PAGE);
}

// A mapping moves round through gaps, growing and shrinking, advised in parts, with forks.
static void round_and_round(void) {
    char *room = mmap(NULL, 16 * MANY * PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    SETUP(room != MAP_FAILED);
    char *at = mmap(room, MANY * PAGE, 3, ANON | MAP_FIXED, -1, 0);
    size_t pages = MANY;
    fill_range(at, MANY, TAG);
    for (int turn = 0; turn < 24; turn++) {
        char *to = room + (size_t)(turn % 5 * 3 + 1) * MANY * PAGE;
        if (turn % 3 == 0)
            squeeze();
        if (turn % 4 == 1)
            madvise(at + 10 * PAGE, 20 * PAGE, turn % 8 == 1 ? MADV_DONTDUMP : MADV_DODUMP);
        if (turn % 4 == 2)
            madvise(at + 30 * PAGE, 4 * PAGE, turn % 8 == 2 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
        size_t len = turn % 6 == 5 ? 2 * MANY : MANY;
        char *moved = mremap(at, pages * PAGE, len * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        if (moved == MAP_FAILED) { // (several mappings, for some kernels)
            RIGHT(errno == EFAULT);
            madvise(at, pages * PAGE, MADV_DODUMP), madvise(at, pages * PAGE, MADV_NOHUGEPAGE);
            moved = mremap(at, pages * PAGE, len * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            RIGHT(moved == to);
        }
        if (len > MANY)
            check_zeros(to + MANY * PAGE, len - MANY, "grown");
        SETUP(mmap(at, (pages > len ? pages : len) * PAGE, PROT_NONE, ANON | MAP_NORESERVE | (at == to ? 0 : MAP_FIXED), -1, 0) != MAP_FAILED);
        at = to, pages = len;
        if (turn % 5 == 4) {
            pid_t child = fork();
            if (child == 0) {
                check_range(at, MANY, TAG, "a child's, moved round");
                _exit(0);
            }
            expect_child(child, "moved round");
        }
    }
    check_range(at, MANY, TAG, "moved round");
    munmap(room, 16 * MANY * PAGE);
}

// A mapping moves and stays mapped, empty (MREMAP_DONTUNMAP), after parts of it were touched far from one
// another: the kernel may have several mappings of it by then.
static void moved_and_kept(void) {
    for (int turn = 0; turn < 2; turn++) {
        enum { LARGE = 2048 };
        char *at = map_new(LARGE * PAGE), *to = turn % 2 ? map_new(LARGE * PAGE) : NULL;
        int flags = MREMAP_MAYMOVE | MREMAP_DONTUNMAP | (to ? MREMAP_FIXED : 0);
        for (int i = 0; i < 16; i++)
            fill_range(at + (size_t)(mix(i + turn) % 16 * 128) * PAGE, 20, TAG + i);
        squeeze();
        tag_t tags[LARGE / 128] = {0};
        for (int i = 0; i < 16; i++)
            tags[mix(i + turn) % 16] = TAG + i;
        out_of_memory(at, LARGE, 16);
        char *moved = mremap(at, LARGE * PAGE, LARGE * PAGE, flags, to);
        RIGHT(moved != MAP_FAILED && (!to || moved == to));
        for (int i = 0; i < 16; i++) {
            if (tags[i])
                check_range(moved + (size_t)i * 128 * PAGE, 20, tags[i], "moved");
            else
                check_zeros(moved + (size_t)i * 128 * PAGE, 20, "moved");
            check_zeros(moved + ((size_t)i * 128 + 20) * PAGE, 108, "moved");
        }
        check_zeros(at, LARGE, "what stayed");
        fill_range(at, LARGE, TAG);
        squeeze();
        check_range(at, LARGE, TAG, "what stayed, used again");
        munmap(at, LARGE * PAGE), munmap(moved, LARGE * PAGE);
    }
}

CASES({"no_and_all_lengths", no_and_all_lengths}, {"huge_ones", huge_ones}, {"written_then_run", written_then_run},
      {"all_executable", all_executable}, {"never_executable", never_executable}, {"lock_refused", lock_refused},
      {"sealed_part", sealed_part}, {"refused_late", refused_late}, {"address_0", address_0}, {"advised_otherwise", advised_otherwise}, {"populated", populated},
      {"with_its_own_faults", with_its_own_faults}, {"faults_by_the_device", faults_by_the_device},
      {"heap_end_within_pages", heap_end_within_pages}, {"merged", merged}, {"watched", watched},
      {"round_and_round", round_and_round}, {"moved_and_kept", moved_and_kept})
