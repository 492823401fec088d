// Calls whose pointers are easily overlooked: nested in structures, of new calls, with arguments
// of 32 bits in registers of 64; and what becomes of memory while calls sleep in it.
#include "inthread_kit.h"
#include <arpa/inet.h>
#include <asm/ldt.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define RAW(...) syscall(__VA_ARGS__)
enum { MANY = 64, TAG = 300000 };
// A call that not every kernel or container has.
#define THERE(result) ((result) != -1 || (errno != ENOSYS && errno != EPERM))

static char *fresh(size_t pages) {
    char *at = map_new(pages * PAGE);
    fill_range(at, pages, TAG);
    out_of_memory(at, pages, 4);
    return at;
}

// futex_wait, futex_wake, futex_requeue of Linux 6.7.
struct waiter {
    uint64_t value, word;
    uint32_t flags, spare;
};
enum { FUTEX_U32 = 2, FUTEX_PRIVATE = 128 };
static uint32_t *two_words[2];
static volatile int woken;

static void *waits_once(void *word) {
    while (RAW(455, word, 0L, 0xffffffffL, (long)(FUTEX_U32 | FUTEX_PRIVATE), 0L, 0L) == -1 && errno == EINTR)
        ;
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return word;
}

static void new_futexes(void) {
    two_words[0] = put(&(uint32_t){0}, 4), two_words[1] = put(&(uint32_t){0}, 4);
    struct timespec soon, *until = place(sizeof *until);
    clock_gettime(CLOCK_MONOTONIC, &soon);
    *until = soon;
    out();
    long got = RAW(455, two_words[0], 0L, 0xffffffffL, (long)(FUTEX_U32 | FUTEX_PRIVATE), until, (long)CLOCK_MONOTONIC);
    if (!THERE(got))
        return;
    RIGHT(got == -1 && errno == ETIMEDOUT);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, waits_once, two_words[0]) == 0);
    usleep(50000);
    struct waiter both[2] = {{0, (uintptr_t)two_words[0], FUTEX_U32 | FUTEX_PRIVATE, 0},
                             {0, (uintptr_t)two_words[1], FUTEX_U32 | FUTEX_PRIVATE, 0}};
    struct waiter *waiters = put(both, sizeof both);
    long moved = 0;
    for (int turn = 0; turn < 1000 && moved == 0; turn++) { // (On a busy machine it does not wait yet.)
        out();
        moved = RAW(456, waiters, 0L, 0L, 1L);
        usleep(moved == 0 ? 10000 : 0);
    }
    RIGHT(moved == 1);
    out();
    RIGHT(!woken && RAW(454, two_words[0], 0xffffffffL, 1L, (long)(FUTEX_U32 | FUTEX_PRIVATE)) == 0);
    RIGHT(RAW(454, two_words[1], 0xffffffffL, 1L, (long)(FUTEX_U32 | FUTEX_PRIVATE)) == 1);
    pthread_join(thread, NULL);
}

// The kernel looks at 32 bits of what is an int; what is above is whatever was in the register.
#define DIRTY(value) (0x5eed000000000000L | (value))
static void upper_halves(void) {
    char *at = fresh(MANY);
    RIGHT(RAW(SYS_madvise, at + 8 * PAGE, 16 * PAGE, DIRTY(MADV_DONTNEED)) == 0);
    check_range(at, 8, TAG, "before"), check_zeros(at + 8 * PAGE, 16, "discarded"), check_range(at + 24 * PAGE, MANY - 24, TAG + 24, "behind");
    struct sigaction before;
    memset(&before, 0, sizeof before);
    RIGHT(RAW(SYS_rt_sigaction, DIRTY(SIGSEGV), 0L, &before, 8L) == 0);
    uint64_t *set = put(&(uint64_t){1ul << (SIGSEGV - 1)}, 8), *old = place(8);
    out();
    RIGHT(RAW(SYS_rt_sigprocmask, DIRTY(SIG_BLOCK), set, old, 8L) == 0);
    RIGHT(RAW(SYS_rt_sigprocmask, DIRTY(SIG_UNBLOCK), set, old, 8L) == 0 && *old & *set);
    int sockets[2], one = 1;
    SETUP(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
    struct {
        uint16_t code;
        uint8_t yes, no;
        uint32_t k;
    } *accepts = put((uint64_t[]){0x0000ffff00000006ull}, 8);
    struct {
        uint16_t count;
        void *code;
    } *program = put((uint64_t[]){1, (uintptr_t)accepts}, 16);
    out();
    RIGHT(RAW(SYS_setsockopt, sockets[0], DIRTY(SOL_SOCKET), DIRTY(SO_ATTACH_FILTER), program, 16L) == 0);
    RIGHT(RAW(SYS_setsockopt, sockets[0], DIRTY(SOL_SOCKET), DIRTY(SO_PASSCRED), &one, 4L) == 0);
    close(sockets[0]), close(sockets[1]);
    SETUP(munmap(at, MANY * PAGE) == 0);
}

static void maps_asked(void) {
    struct {
        uint64_t size, flags, address, start, end, vma_flags, page_size, offset, inode;
        uint32_t major, minor, name_size, id_size;
        uint64_t name, id;
    } query = {.size = 104, .flags = 0x10};
    int file = open("/proc/self/maps", O_RDONLY);
    char plain[512], *name = area + 3 * PAGE - 4;
    query.address = (uintptr_t)&maps_asked, query.name = (uintptr_t)plain, query.name_size = sizeof plain;
    if (file < 0 || ioctl(file, 0xc0686611, &query) != 0)
        return;
    query.name = (uintptr_t)name, query.name_size = 512;
    memset(name, 'x', 512);
    void *asked = put(&query, sizeof query);
    taken = 20, asked = put(&query, sizeof query);
    out();
    RIGHT(ioctl(file, 0xc0686611, asked) == 0 && strcmp(name, plain) == 0);
    close(file);
}

// PAGEMAP_SCAN: an array that a structure points to.
static void pages_asked(void) {
    enum { REGIONS = 600 };
    struct region {
        uint64_t start, end, categories;
    } *regions = (void *)(area + 40 * PAGE - 100);
    struct {
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, returned;
    } scan = {.size = 96, .vec_len = REGIONS, .mask = 1u << 3, .returned = 1u << 3}; // present
    char *of = mmap(NULL, 2 * REGIONS * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    SETUP(of != MAP_FAILED && madvise(of, 2 * REGIONS * PAGE, MADV_NOHUGEPAGE) == 0);
    for (int i = 0; i < REGIONS; i++)
        of[2L * i * PAGE] = 1;
    scan.start = (uintptr_t)of, scan.end = scan.start + 2 * REGIONS * PAGE, scan.vec = (uintptr_t)regions;
    int file = open("/proc/self/pagemap", O_RDONLY);
    if (file < 0)
        return;
    memset(regions, 0, REGIONS * sizeof *regions);
    long bare = ioctl(file, 0xc0606610, &scan);
    if (bare <= 0)
        return;
    memset(regions, 0, REGIONS * sizeof *regions);
    void *asked = put(&scan, sizeof scan);
    out();
    RIGHT(ioctl(file, 0xc0606610, asked) == bare);
    for (int i = 0; i < bare; i++)
        RIGHT(regions[i].start == (uintptr_t)of + 2L * i * PAGE && regions[i].end == regions[i].start + PAGE);
    close(file);
    SETUP(munmap(of, 2 * REGIONS * PAGE) == 0);
}

static void larger_clone(void) {
    uint64_t args[16] = {0};
    args[4] = SIGCHLD;
    uint64_t *given = put(args, sizeof args);
    fill_range(area + 30 * PAGE, 8, TAG);
    out();
    pid_t child = (pid_t)RAW(SYS_clone3, given, sizeof args);
    if (child == 0) {
        check_range(area + 30 * PAGE, 8, TAG, "of a clone");
        RAW(SYS_exit_group, 0);
    }
    if (child == -1 && (errno == ENOSYS || errno == EPERM))
        return;
    RIGHT(child > 0);
    expect_child(child, "a child by a larger structure");
    given[15] = 1;
    RIGHT(RAW(SYS_clone3, given, sizeof args) == -1 && errno == E2BIG);
}

static void descriptor_table(void) {
    struct user_desc entry = {.entry_number = 500, .limit = 0xfff, .seg_32bit = 1, .limit_in_pages = 1};
    if (RAW(SYS_modify_ldt, 1L, &entry, sizeof entry) != 0)
        return;
    char plain[8192], *told = area + 5 * PAGE - 800;
    long bare = RAW(SYS_modify_ldt, 0L, plain, sizeof plain);
    out();
    RIGHT(bare > 4000 && RAW(SYS_modify_ldt, 0L, told, sizeof plain) == bare && memcmp(told, plain, bare) == 0);
}

// mq_notify by a thread's socket: the kernel reads a cookie.
static void cookie(void) {
    char name[32];
    snprintf(name, sizeof name, "/attack-%d", getpid());
    long queue = RAW(SYS_mq_open, name + 1, O_CREAT | O_RDWR | O_NONBLOCK, 0600, NULL);
    int socket_ = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, 0);
    if (queue < 0 || socket_ < 0)
        return;
    char *secret = place(32), got[64];
    memcpy(secret, "0123456789abcdef0123456789abcdef", 32);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD, event.sigev_signo = socket_, event.sigev_value.sival_ptr = secret;
    struct sigevent *told = put(&event, sizeof event);
    out();
    RIGHT(RAW(SYS_mq_notify, queue, told) == 0);
    RIGHT(RAW(SYS_mq_timedsend, queue, "x", 1L, 0L, NULL) == 0);
    RIGHT(recv(socket_, got, sizeof got, 0) == 32 && memcmp(got, secret, 31) == 0);
    close((int)queue), close(socket_);
    RAW(SYS_mq_unlink, name + 1);
}

static void interfaces(void) {
    int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    SETUP(socket_ >= 0);
    struct ifreq plain[200], *names = (void *)(area + 6 * PAGE - 20);
    struct ifconf all = {.ifc_len = sizeof plain, .ifc_req = plain};
    if (ioctl(socket_, SIOCGIFCONF, &all) != 0)
        return;
    int bare = all.ifc_len;
    struct ifconf *asked = put(&(struct ifconf){.ifc_len = sizeof plain, .ifc_req = names}, sizeof all);
    out();
    RIGHT(ioctl(socket_, SIOCGIFCONF, asked) == 0 && asked->ifc_len == bare);
    RIGHT(memcmp(names, plain, bare) == 0);
    close(socket_);
}

// Its own memory by other names and calls than open and pread.
static void own_memory_otherwise(void) {
    fill_range(area, 64, TAG);
    static char page[PAGE];
    int file = open("/proc/self/mem", O_RDWR), directory = open("/proc/self", O_RDONLY | O_DIRECTORY);
    SETUP(file >= 0 && directory >= 0);
    int files[4] = {dup(file), fcntl(file, F_DUPFD, 40), dup2(file, 60), openat(directory, "mem", O_RDWR)};
    for (int i = 0; i < 4; i++) {
        SETUP(files[i] >= 0);
        out();
        RIGHT(pread(files[i], page, PAGE, (off_t)(uintptr_t)(area + (5 + i) * PAGE)) == PAGE);
        check_page(page, TAG + 5 + i, "read by a copy of a descriptor");
    }
    out();
    struct iovec vector = {page, PAGE};
    RIGHT(preadv(file, &vector, 1, (off_t)(uintptr_t)(area + 33 * PAGE)) == PAGE);
    check_page(page, TAG + 33, "read by a vector");
    out();
    RIGHT(lseek(file, (off_t)(uintptr_t)(area + 44 * PAGE), SEEK_SET) > 0 && readv(file, &vector, 1) == PAGE);
    check_page(page, TAG + 44, "read by a vector");
    for (int i = 0; i < 4; i++)
        close(files[i]);
    close(directory);
    // Opened and closed in every way, many times.
    for (int i = 0; i < 40; i++) {
        int again = open("/proc/self/mem", O_RDWR);
        RIGHT(again >= 0);
        if (i % 3 == 0)
            close(again);
        else if (i % 3 == 1)
            RAW(SYS_close_range, again, again, 0);
        else
            dup2(directory >= 0 ? 0 : 0, again), close(again);
    }
    out();
    RIGHT(pread(file, page, PAGE, (off_t)(uintptr_t)(area + 50 * PAGE)) == PAGE);
    check_page(page, TAG + 50, "read after many");
    close(file);
}

// PR_SET_MM_MAP: all addresses of the process anew, as they are, with its vector from memory.
static void addresses_set(void) {
    char text_[4096];
    int file = open("/proc/self/stat", O_RDONLY);
    SETUP(file >= 0);
    ssize_t len = read(file, text_, sizeof text_ - 1);
    close(file);
    SETUP(len > 0);
    text_[len] = 0;
    uint64_t field[53] = {0};
    char *at = strrchr(text_, ')') + 2;
    for (int i = 3; i <= 52 && at; i++) {
        field[i] = strtoull(at, NULL, 10);
        at = strchr(at, ' '), at = at ? at + 1 : NULL;
    }
    struct {
        uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start, arg_end, env_start,
            env_end;
        uint64_t *auxv;
        uint32_t auxv_size;
        int exe;
    } map = {field[26], field[27], field[45], field[46], field[47], (uintptr_t)sbrk(0), field[28], field[48], field[49],
             field[50], field[51], NULL, 0, -1};
    uint64_t *vector = (uint64_t *)(area + 7 * PAGE - 160);
    long bytes = prctl(0x41555856, vector, 4096, 0, 0);
    if (bytes <= 0 || prctl(PR_SET_MM, 14, &map, sizeof map, 0) != 0)
        return;
    map.auxv = vector, map.auxv_size = (uint32_t)bytes;
    void *given = put(&map, sizeof map);
    taken = 30, given = put(&map, sizeof map);
    out();
    RIGHT(prctl(PR_SET_MM, 14, given, sizeof map, 0) == 0);
}

static void old_gate(void) {
    char text_[1 << 16];
    int file = open("/proc/self/maps", O_RDONLY);
    ssize_t len = 0, got;
    while ((got = read(file, text_ + len, sizeof text_ - 1 - len)) > 0)
        len += got;
    text_[len] = 0;
    close(file);
    if (!strstr(text_, "[vsyscall]"))
        return;
    struct timeval *now = place(sizeof *now);
    now->tv_sec = 0;
    out();
    int (*of)(struct timeval *, void *) = (void *)0xffffffffff600000ul;
    RIGHT(of(now, NULL) == 0 && now->tv_sec > 1000000000);
}

// As many buffers as there may be, each on a page of its own, and their array over pages.
static void most_vectors(void) {
    enum { MOST = 1024 };
    char *buffers = map_new(MOST * PAGE), *check = map_new(MOST * PAGE);
    fill_range(buffers, MOST, TAG);
    struct iovec *vectors = (struct iovec *)(area + 10 * PAGE - 40), *others = (struct iovec *)(area + 30 * PAGE - 72);
    for (int i = 0; i < MOST; i++) // from the last to the first
        vectors[i] = (struct iovec){buffers + (MOST - 1 - i) * PAGE + 1000, 700}, others[i] = (struct iovec){check + i * PAGE, 700};
    int file = memfd_create("vectors", 0);
    SETUP(file >= 0);
    out_of_memory(buffers, MOST, 2), out();
    RIGHT(pwritev(file, vectors, MOST, 0) == 700 * MOST);
    out();
    RIGHT(preadv(file, others, MOST, 0) == 700 * MOST);
    for (int i = 0; i < MOST; i++)
        RIGHT(memcmp(check + i * PAGE, buffers + (MOST - 1 - i) * PAGE + 1000, 700) == 0);
    memset(check, 0, MOST * PAGE);
    out_of_memory(buffers, MOST, 2), out();
    ssize_t got = process_vm_readv(getpid(), others, MOST, vectors, MOST, 0);
    RIGHT(got == 700 * MOST || (got == -1 && (errno == ENOSYS || errno == EPERM)));
    for (int i = 0; got > 0 && i < MOST; i++)
        RIGHT(memcmp(check + i * PAGE, buffers + (MOST - 1 - i) * PAGE + 1000, 700) == 0);
    close(file);
    munmap(buffers, MOST * PAGE), munmap(check, MOST * PAGE);
}

// One thread sleeps in a call with a buffer at each end of memory; what lies between can go.
static int far_pipe[2];
static struct iovec far_apart[2];

static void *reads_far(void *unused) {
    RIGHT(readv(far_pipe[0], far_apart, 2) == 10);
    return unused;
}

static void far_buffers(void) {
    char *at = map_new((MANY + 512) * PAGE);
    SETUP(pipe(far_pipe) == 0);
    fill_range(at, MANY + 512, TAG);
    // One in the heap, far below, and one at the top of all mappings.
    char *low = malloc(64), *high = mmap(NULL, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *lower = mmap((void *)(1ul << 40), 64 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(low && high != MAP_FAILED && lower != MAP_FAILED);
    far_apart[0] = (struct iovec){lower, 5};
    far_apart[1] = (struct iovec){at + (MANY + 511) * PAGE + 100, 64};
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, reads_far, NULL) == 0);
    usleep(100000);
    out_of_memory(at, MANY, 4);
    SETUP(write(far_pipe[1], "0123456789", 10) == 10);
    pthread_join(thread, NULL);
    RIGHT(memcmp(lower, "01234", 5) == 0 && memcmp(at + (MANY + 511) * PAGE + 100, "56789", 5) == 0);
    check_range(at, MANY + 511, TAG, "between");
    close(far_pipe[0]), close(far_pipe[1]), free(low);
    munmap(at, (MANY + 512) * PAGE), munmap(lower, 64 * PAGE), munmap(high, PAGE);
}

// Hundreds of threads sleep in calls, each with several buffers; memory can go all the same.
static int crowd_sockets[2];

static void *receives(void *buffer) {
    struct iovec vectors[2] = {{buffer, 10}, {(char *)buffer + 100, 10}};
    char name[100], control[100];
    struct msghdr message = {name, sizeof name, vectors, 2, control, sizeof control, 0};
    RIGHT(recvmsg(crowd_sockets[0], &message, 0) == 8);
    return buffer;
}

static void crowd_in_calls(void) {
    enum { CROWD = 400 };
    static pthread_t threads[CROWD];
    SETUP(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, crowd_sockets) == 0);
    char *buffers = map_new(CROWD * PAGE), *at = map_new(MANY * PAGE);
    fill_range(at, MANY, TAG);
    pthread_attr_t small;
    pthread_attr_init(&small), pthread_attr_setstacksize(&small, 64 << 10);
    int made = 0;
    while (made < CROWD && pthread_create(&threads[made], &small, receives, buffers + made * PAGE) == 0)
        made++;
    usleep(200000);
    out_of_memory(at, MANY, 4);
    for (int i = 0; i < made; i++)
        SETUP(send(crowd_sockets[1], "01234567", 8, 0) == 8);
    for (int i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < made; i++)
        RIGHT(memcmp(buffers + i * PAGE, "01234567", 8) == 0);
    check_range(at, MANY, TAG, "beside many in calls");
    close(crowd_sockets[0]), close(crowd_sockets[1]);
    munmap(buffers, CROWD * PAGE), munmap(at, MANY * PAGE);
}

// A call sleeps while its buffer is discarded, or replaced by a new mapping.
static char *under;
static int under_pipe[2];

static void *reads_under(void *unused) {
    RIGHT(read(under_pipe[0], under + 20 * PAGE, 100) == 8);
    return unused;
}

static void changed_under_a_call(void) {
    for (int way = 0; way < 3; way++) {
        under = fresh(MANY);
        SETUP(pipe(under_pipe) == 0);
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, reads_under, NULL) == 0);
        usleep(100000);
        squeeze();
        if (way == 0)
            RIGHT(madvise(under, MANY * PAGE, MADV_DONTNEED) == 0);
        else if (way == 1)
            RIGHT(mmap(under, MANY * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == under);
        else {
            char *other = fresh(MANY);
            RIGHT(mremap(other, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, under) == under);
        }
        squeeze();
        SETUP(write(under_pipe[1], "01234567", 8) == 8);
        pthread_join(thread, NULL);
        RIGHT(memcmp(under + 20 * PAGE, "01234567", 8) == 0);
        if (way == 2)
            check_range(under + 21 * PAGE, MANY - 21, TAG + 21, "moved under a call");
        else
            check_zeros(under + 21 * PAGE, MANY - 21, "new under a call");
        close(under_pipe[0]), close(under_pipe[1]);
        munmap(under, MANY * PAGE);
    }
}

// Reads and writes that go past the page cache, and asynchronous ones, with buffers out.
static void direct(void) {
    char *at = fresh(MANY), *from = map_new(MANY * PAGE);
    int file = open("/tmp", O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (file < 0 || write(file, at, 8 * PAGE) != 8 * PAGE)
        return;
    out_of_memory(at, MANY, 4);
    RIGHT(pwrite(file, at, MANY * PAGE, 0) == MANY * PAGE);
    fill_range(from, MANY, 2 * TAG);
    out_of_memory(from, MANY, 4);
    RIGHT(pread(file, from, MANY * PAGE, 0) == MANY * PAGE);
    squeeze();
    check_range(from, MANY, TAG, "read past the cache");
    struct iovec vectors[2] = {{from + 8 * PAGE, 8 * PAGE}, {from + 40 * PAGE, 8 * PAGE}};
    out_of_memory(from, MANY, 4);
    RIGHT(preadv2(file, vectors, 2, 16 * PAGE, 0) == 16 * PAGE);
    squeeze();
    check_range(from + 8 * PAGE, 8, TAG + 16, "read by vectors"), check_range(from + 40 * PAGE, 8, TAG + 24, "read by vectors");
    aio_context_t ring = 0;
    if (RAW(SYS_io_setup, 8L, &ring) == 0) {
        fill_range(from, MANY, 2 * TAG);
        struct iocb blocks[4], *list[4];
        memset(blocks, 0, sizeof blocks);
        for (int i = 0; i < 4; i++) {
            blocks[i] = (struct iocb){.aio_fildes = file, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_nbytes = 16 * PAGE,
                                      .aio_buf = (uintptr_t)(from + i * 16 * PAGE), .aio_offset = i * 16 * PAGE};
            list[i] = &blocks[i];
        }
        out_of_memory(from, MANY, 4);
        RIGHT(RAW(SYS_io_submit, ring, 4L, list) == 4);
        squeeze();
        struct io_event events[4];
        RIGHT(RAW(SYS_io_getevents, ring, 4L, 4L, events, NULL) == 4);
        squeeze();
        check_range(from, MANY, TAG, "read asynchronously");
        RAW(SYS_io_destroy, ring);
    } else
        RIGHT(errno == ENOSYS);
    close(file);
    munmap(at, MANY * PAGE), munmap(from, MANY * PAGE);
}

// What a sandbox is described by lies in memory that is out.
static void landlocked(void) {
    uint64_t *attr = put((uint64_t[]){4}, 8); // reads of files
    out();
    long rules = RAW(444, attr, 8L, 0L);
    if (!THERE(rules))
        return;
    char *at = fresh(MANY);
    pid_t child = fork();
    if (child == 0) {
        char packed[12];
        uint64_t allowed = 4;
        int directory = open("/usr", O_PATH | O_DIRECTORY);
        memcpy(packed, &allowed, 8), memcpy(packed + 8, &directory, 4);
        char *rule = put(packed, 12);
        out();
        if (rules >= 0)
            RIGHT(RAW(445, rules, 1L, rule, 0L) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && RAW(446, rules, 0L) == 0);
        check_range(at, MANY, TAG, "in a sandbox");
        RIGHT(rules < 0 || open("/etc/passwd", O_RDONLY) == -1);
        squeeze(), fill_range(at, MANY, 2 * TAG), squeeze();
        check_range(at, MANY, 2 * TAG, "in a sandbox");
        _exit(0);
    }
    expect_child(child, "in a sandbox");
    close((int)rules);
    munmap(at, MANY * PAGE);
}

// Long messages: what is not read or written in one piece is whole.
static int long_sockets[2];
enum { LONG = 6000 };

static void *sends_long(void *at) {
    for (size_t done = 0; done < LONG * PAGE;) {
        ssize_t sent = send(long_sockets[1], (char *)at + done, LONG * PAGE - done, 0);
        RIGHT(sent > 0);
        done += sent;
    }
    return at;
}

static void long_ones(void) {
    char *from = map_new(LONG * PAGE), *to = map_new(LONG * PAGE);
    fill_range(from, LONG, TAG);
    SETUP(socketpair(AF_UNIX, SOCK_STREAM, 0, long_sockets) == 0);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, sends_long, from) == 0);
    ssize_t got = recv(long_sockets[0], to, LONG * PAGE, MSG_WAITALL);
    RIGHT(got == LONG * PAGE);
    pthread_join(thread, NULL);
    check_range(to, LONG, TAG, "received"), check_range(from, LONG, TAG, "sent");
    close(long_sockets[0]), close(long_sockets[1]);
    munmap(from, LONG * PAGE), munmap(to, LONG * PAGE);
}

// The signals that a traced process has waiting, nearly 200 of them.
struct peek_args {
    uint64_t from;
    uint32_t flags;
    int32_t count;
};

static void signals_peeked(void) {
    enum { WAITING = 190, BYTES = 128 };
    char *at = fresh(MANY);
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGRTMIN);
    SETUP(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        for (int i = 0; i < WAITING; i++)
            sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
        raise(SIGSTOP);
        _exit(0);
    }
    // (Whatever serves its faults is a stop too.)
    int status;
    for (;;) {
        SETUP(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            break;
        SETUP(ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status)) == 0);
    }
    struct peek_args *args = (void *)(at + 60 * PAGE - 8);
    *args = (struct peek_args){0, 1, WAITING};
    out_of_memory(at, MANY, 8);
    RIGHT(ptrace(PTRACE_PEEKSIGINFO, child, args, at + 10 * PAGE + 8) == WAITING);
    for (int i = 0; i < WAITING; i++)
        RIGHT(((siginfo_t *)(at + 10 * PAGE + 8 + i * BYTES))->si_value.sival_int == i);
    check_range(at, 10, TAG, "before what was told");
    kill(child, SIGKILL), waitpid(child, NULL, 0);
    SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    munmap(at, MANY * PAGE);
}

// What cannot be mapped of what has come goes to a buffer that a structure names.
struct zerocopy {
    uint64_t address;
    uint32_t length, hint, inq, error;
    uint64_t copy;
    int32_t copy_len;
    uint32_t flags;
    uint64_t control, control_len;
    uint32_t message_flags, spare;
};

static void mapped_from_a_socket(void) {
    enum { RECEIVE = 35, SENT = 3000 };
    int listening = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof to;
    SETUP(bind(listening, (void *)&to, len) == 0 && listen(listening, 1) == 0 && getsockname(listening, (void *)&to, &len) == 0);
    SETUP(connect(near, (void *)&to, len) == 0);
    int far = accept(listening, NULL, NULL);
    void *map = mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, far, 0);
    if (map != MAP_FAILED) {
        char *at = fresh(MANY), *copy = at + 20 * PAGE - 1000, sent[SENT];
        for (int i = 0; i < SENT; i++)
            sent[i] = i;
        RIGHT(write(near, sent, SENT) == SENT);
        usleep(50000);
        struct zerocopy asked = {.address = (uintptr_t)map, .length = 16 * PAGE, .copy = (uintptr_t)copy, .copy_len = 4096};
        len = sizeof asked;
        RIGHT(getsockopt(far, IPPROTO_TCP, RECEIVE, &asked, &len) == 0 && asked.copy_len == SENT);
        RIGHT(memcmp(copy, sent, SENT) == 0);
        munmap(at, MANY * PAGE), munmap(map, 16 * PAGE);
    }
    close(listening), close(near), close(far);
}

// A program that says which of several sockets has a packet; root's, or a namespace's own root's.
static void fanned_out(void) {
    expect_child(fork() ?: ({
        int packets;
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && (packets = socket(AF_PACKET, SOCK_RAW, 0)) >= 0) {
            enum { LONG_PROGRAM = 3000 };
            int how = PACKET_FANOUT_CBPF << 16 | 7;
            if (setsockopt(packets, SOL_PACKET, PACKET_FANOUT, &how, sizeof how) == 0) {
                char *at = map_new(MANY * PAGE);
                struct sock_filter *program = (void *)(at + PAGE - 16);
                for (int i = 0; i < LONG_PROGRAM; i++)
                    program[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
                struct sock_fprog *given = put(&(struct sock_fprog){LONG_PROGRAM, program}, sizeof *given);
                out_of_memory(at, MANY, 8);
                RIGHT(setsockopt(packets, SOL_PACKET, PACKET_FANOUT_DATA, given, sizeof *given) == 0);
            }
        }
        _exit(0);
        0;
    }), "a namespace");
}

// Values of a map, of more than a page; who may.
static void values_of_maps(void) {
    enum { VALUE = 100000, KEYS = 4 };
    union bpf_attr *made = put(&(union bpf_attr){.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = VALUE, .max_entries = KEYS}, sizeof *made);
    int map = RAW(SYS_bpf, BPF_MAP_CREATE, made, sizeof *made);
    if (map < 0)
        return;
    enum { PAGES = KEYS * VALUE / PAGE + 3 };
    char *at = fresh(PAGES), *to = fresh(PAGES);
    for (uint32_t key = 0; key < KEYS; key++) {
        union bpf_attr change = {.map_fd = map};
        change.key = (uintptr_t)put(&key, sizeof key), change.value = (uintptr_t)(at + key * VALUE);
        union bpf_attr *given = put(&change, sizeof change);
        out();
        RIGHT(RAW(SYS_bpf, BPF_MAP_UPDATE_ELEM, given, sizeof *given) == 0);
        out_of_memory(to, PAGES, 8);
        given->value = (uintptr_t)to;
        RIGHT(RAW(SYS_bpf, BPF_MAP_LOOKUP_ELEM, given, sizeof *given) == 0 && memcmp(to, at + key * VALUE, VALUE) == 0);
    }
    uint32_t *batch = place(64), keys[KEYS] = {0};
    union bpf_attr many = {.batch = {.out_batch = (uintptr_t)batch, .keys = (uintptr_t)keys, .values = (uintptr_t)to, .count = KEYS, .map_fd = map}};
    out_of_memory(to, PAGES, 8);
    RIGHT(RAW(SYS_bpf, BPF_MAP_LOOKUP_BATCH, &many, sizeof many) == 0 || errno == ENOENT);
    RIGHT(many.batch.count == KEYS && memcmp(to, at, KEYS * VALUE) == 0);
    close(map), munmap(at, PAGES * PAGE), munmap(to, PAGES * PAGE);
}

CASES({"new_futexes", new_futexes}, {"upper_halves", upper_halves}, {"maps_asked", maps_asked}, {"pages_asked", pages_asked},
      {"larger_clone", larger_clone}, {"descriptor_table", descriptor_table}, {"cookie", cookie}, {"interfaces", interfaces},
      {"own_memory_otherwise", own_memory_otherwise}, {"addresses_set", addresses_set}, {"old_gate", old_gate},
      {"most_vectors", most_vectors}, {"far_buffers", far_buffers}, {"crowd_in_calls", crowd_in_calls},
      {"changed_under_a_call", changed_under_a_call}, {"direct", direct}, {"landlocked", landlocked}, {"long_ones", long_ones},
      {"signals_peeked", signals_peeked}, {"mapped_from_a_socket", mapped_from_a_socket}, {"fanned_out", fanned_out},
      {"values_of_maps", values_of_maps})
