// Calls that few programs make, and calls with arguments that are wrong, huge or overlap, with
// what they point to out of memory.
#include "inthread_kit.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#define RAW(...) syscall(__VA_ARGS__)

static void scheduling(void) {
    cpu_set_t *set = place(sizeof *set);
    out();
    RIGHT(RAW(SYS_sched_getaffinity, 0, sizeof *set, set) > 0 && CPU_COUNT(set) > 0);
    out();
    RIGHT(RAW(SYS_sched_setaffinity, 0, sizeof *set, set) == 0);
    unsigned char *large = (unsigned char *)area + 9 * PAGE - 3000;
    memset(large, 0xff, 6000);
    out();
    RIGHT(RAW(SYS_sched_getaffinity, 0, 6000, large) > 0);
    out();
    RIGHT(RAW(SYS_sched_setaffinity, 0, 6000, large) == 0);
    struct sched_param *param = place(sizeof *param);
    out();
    RIGHT(sched_getparam(0, param) == 0 && param->sched_priority == 0);
    out();
    RIGHT(sched_setscheduler(0, SCHED_OTHER, param) == 0);
    struct timespec *slice = place(sizeof *slice);
    out();
    RIGHT(sched_rr_get_interval(0, slice) == 0);
    uint32_t *attr = place(64);
    out();
    RIGHT(RAW(SYS_sched_getattr, 0, attr, 48, 0) == 0 && attr[0] >= 48);
    unsigned *cpu = place(4), *node = place(4);
    out();
    RIGHT(RAW(SYS_getcpu, cpu, node, NULL) == 0 && *cpu < 4096);
}

static void processes(void) {
    char *name = text("its-new-name"), *back = place(16);
    out();
    RIGHT(prctl(PR_SET_NAME, name) == 0 && prctl(PR_GET_NAME, back) == 0 && strcmp(back, name) == 0);
    int *number = place(4);
    out();
    RIGHT(prctl(PR_SET_PDEATHSIG, 0) == 0 && prctl(PR_GET_PDEATHSIG, number) == 0 && *number == 0);
    out();
    RIGHT(prctl(PR_GET_CHILD_SUBREAPER, number) == 0);
    out();
    RIGHT(prctl(PR_GET_TSC, number) == 0 && *number == PR_TSC_ENABLE);
    // The vector that a process began with is longer than a guess.
    char *vector = area + 5 * PAGE - 280;
    long bare = prctl(0x41555856, vector, 4096, 0, 0);
    if (bare > 0) {
        memset(vector, 0, 4096);
        out();
        RIGHT(prctl(0x41555856, vector, 4096, 0, 0) == bare);
    }
    struct __user_cap_header_struct *head = place(sizeof *head);
    struct __user_cap_data_struct *data = place(2 * sizeof *data);
    *head = (struct __user_cap_header_struct){_LINUX_CAPABILITY_VERSION_3, 0};
    out();
    RIGHT(RAW(SYS_capget, head, data) == 0);
    out();
    RIGHT(RAW(SYS_capset, head, data) == 0);
    gid_t *groups = place(65536 * sizeof(gid_t) < 64 * PAGE ? 1 : 4000);
    out();
    RIGHT(getgroups(1000, groups) >= 0);
    uid_t *ids[3] = {place(4), place(4), place(4)};
    out();
    RIGHT(getresuid(ids[0], ids[1], ids[2]) == 0 && *ids[0] == getuid() && *ids[2] == *ids[1]);
    unsigned *action = put(&(unsigned){0x00050000}, 4); // SECCOMP_RET_ERRNO: whether there is
    out();
    RIGHT(RAW(SYS_seccomp, 2, 0, action) == 0);
    uint16_t *sizes = place(8);
    out();
    RIGHT(RAW(SYS_seccomp, 3, 0, sizes) == 0 && sizes[2] == 64);
    unsigned long *base = place(8);
    out();
    RIGHT(RAW(SYS_arch_prctl, 0x1003, base) == 0 && *base > 4096);
}

static void memory_seen(void) {
    // Of many pages, more than a guess has room for.
    enum { MANY = 400 };
    void **pages = (void **)(area + 4 * PAGE - 1000);
    int *status = (int *)(area + 12 * PAGE - 900);
    static char others[MANY * PAGE];
    for (int i = 0; i < MANY; i++)
        others[i * PAGE] = 1, pages[i] = others + i * PAGE, status[i] = 77;
    out();
    long asked = RAW(SYS_move_pages, 0, (long)MANY, pages, NULL, status, 0);
    RIGHT(asked == 0 || (asked == -1 && (errno == ENOSYS || errno == EPERM)));
    for (int i = 0; asked == 0 && i < MANY; i++)
        RIGHT(status[i] != 77 && status[i] != -EFAULT);
    int *mode = place(4);
    unsigned long *nodes = (unsigned long *)(area + 20 * PAGE - 500);
    out();
    asked = RAW(SYS_get_mempolicy, mode, nodes, 8192L, NULL, 0);
    RIGHT(asked == 0 || errno == ENOSYS || errno == EPERM);
    memset(nodes, 0, 1024), nodes[0] = 1;
    out();
    asked = RAW(SYS_set_mempolicy, 1, nodes, 8192L);
    RIGHT(asked == 0 || errno == ENOSYS || errno == EPERM || errno == EINVAL);
    if (asked == 0)
        RIGHT(RAW(SYS_set_mempolicy, 0, NULL, 0L) == 0);
    char *range = map_new(9000L * PAGE);
    unsigned char *seen = (unsigned char *)area + 30 * PAGE - 5000;
    out();
    RIGHT(mincore(range, 9000L * PAGE, seen) == 0);
    RIGHT(mincore(range, 9000L * PAGE, (void *)16) == -1 && errno == EFAULT);
    SETUP(munmap(range, 9000L * PAGE) == 0);
    RIGHT(mincore(range, 9000L * PAGE, seen) == -1 && errno == ENOMEM);
}

// A process that reads and writes its own memory by way of the kernel.
static void own_memory(void) {
    fill_range(area, 200, 5000);
    struct iovec *local = (struct iovec *)(area + 220 * PAGE - 24), *remote = (struct iovec *)(area + 230 * PAGE - 24);
    for (int i = 0; i < 16; i++) {
        local[i] = (struct iovec){area + (100 + i) * PAGE, PAGE};
        remote[i] = (struct iovec){area + i * PAGE, PAGE};
    }
    out();
    ssize_t got = process_vm_readv(getpid(), local, 16, remote, 16, 0);
    if (got == -1 && (errno == ENOSYS || errno == EPERM))
        return;
    RIGHT(got == 16 * PAGE);
    check_range(area + 100 * PAGE, 16, 5000, "read from itself");
    fill_range(area, 16, 7000);
    out();
    RIGHT(process_vm_writev(getpid(), local, 16, remote, 16, 0) == 16 * PAGE);
    check_range(area, 16, 5000, "written to itself");
}

static void own_memory_as_a_file(void) {
    fill_range(area, 64, 5000);
    int file = open("/proc/self/mem", O_RDWR);
    SETUP(file >= 0);
    static char page[PAGE];
    for (int i = 0; i < 64; i += 9) {
        out();
        RIGHT(pread(file, page, PAGE, (off_t)(uintptr_t)(area + i * PAGE)) == PAGE);
        check_page(page, 5000 + i, "read from /proc/self/mem");
        fill_page(page, 8000 + i);
        out();
        RIGHT(pwrite(file, page, PAGE, (off_t)(uintptr_t)(area + i * PAGE)) == PAGE);
        out();
        check_page(area + i * PAGE, 8000 + i, "written to /proc/self/mem");
    }
    close(file);
}

// Waits for a child that is traced to stop itself; hands on what else it is sent, as a debugger
// does.
static int stops_itself(pid_t child, int *status) {
    for (;;) {
        RIGHT(waitpid(child, status, 0) == child);
        if (!WIFSTOPPED(*status) || WSTOPSIG(*status) == SIGSTOP)
            return WIFSTOPPED(*status);
        SETUP(ptrace(PTRACE_CONT, child, 0, (long)WSTOPSIG(*status)) == 0);
    }
}

// A debugger that is managed, and one whose program is.
static void traced(void) {
    fill_range(area, 64, 5000);
    // (On the stack, which is not managed: static data is.)
    volatile int ready = 0;
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(77);
        ready = 4711;
        out();
        raise(SIGSTOP);
        check_page(area + 8 * PAGE, 5008, "of who was traced");
        RIGHT(*(long *)(area + 9 * PAGE) == 0x123456789);
        _exit(0);
    }
    int *status = place(4);
    if (!stops_itself(child, status)) {
        RIGHT(WIFEXITED(*status) && WEXITSTATUS(*status) == 77);
        return;
    }
    struct user_regs_struct *registers = place(sizeof *registers);
    struct user_fpregs_struct *vectors = (struct user_fpregs_struct *)(area + 3 * PAGE - 260);
    out();
    RIGHT(ptrace(PTRACE_GETREGS, child, 0, registers) == 0 && registers->rsp > 4096);
    out();
    RIGHT(ptrace(PTRACE_GETFPREGS, child, 0, vectors) == 0);
    struct iovec *set = put(&(struct iovec){area + 5 * PAGE - 100, 8192}, sizeof *set);
    out();
    RIGHT(ptrace(PTRACE_GETREGSET, child, 0x202L, set) == 0 && set->iov_len > 512);
    errno = 0;
    RIGHT((int)ptrace(PTRACE_PEEKDATA, child, &ready, 0) == 4711 && errno == 0);
    RIGHT(ptrace(PTRACE_CONT, child, 0, SIGKILL) == 0);
    waitpid(child, status, 0);
}

static void memory_of_who_is_traced(void) {
    fill_range(area, 64, 5000);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(77);
        out();
        raise(SIGSTOP);
        RIGHT(*(long *)(area + 9 * PAGE) == 0x123456789);
        _exit(0);
    }
    int status;
    if (!stops_itself(child, &status)) {
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 77);
        return;
    }
    errno = 0;
    long word = ptrace(PTRACE_PEEKDATA, child, area + 8 * PAGE + 800, 0);
    RIGHT(errno == 0 && (uint64_t)word == word_of(5008, 100));
    static char page[PAGE];
    struct iovec local = {page, PAGE}, remote = {area + 11 * PAGE, PAGE};
    RIGHT(process_vm_readv(child, &local, 1, &remote, 1, 0) == PAGE);
    check_page(page, 5011, "read from a child");
    RIGHT(ptrace(PTRACE_POKEDATA, child, area + 9 * PAGE, 0x123456789) == 0);
    RIGHT(ptrace(PTRACE_CONT, child, 0, 0) == 0);
    RIGHT(!stops_itself(child, &status) && status == 0);
}

static void unknown_ones(void) {
    // statmount and listmount: buffers longer than a guess, and a request.
    struct {
        uint32_t size, spare;
        uint64_t mount, param, more;
    } request = {24, 0, UINT64_MAX, 0, 0}, *asked = put(&request, sizeof request);
    uint64_t *mounts = (uint64_t *)(area + 4 * PAGE - 200);
    static uint64_t plain[300];
    request.size = 24;
    long bare = RAW(458, &request, plain, 300, 0);
    out();
    RIGHT(RAW(458, asked, mounts, 300, 0) == bare);
    if (bare > 0) {
        RIGHT(memcmp(mounts, plain, bare * 8) == 0);
        asked->mount = mounts[0], asked->param = 0x1 | 0x2 | 0x8 | 0x10 | 0x20;
        char *told = area + 9 * PAGE - 300;
        out();
        RIGHT(RAW(457, asked, told, 4096, 0) == 0);
    }
    // bpf: what is nested in its argument.
    if (geteuid() == 0) {
        union bpf_attr *attr = place(sizeof *attr);
        memset(attr, 0, sizeof *attr);
        attr->map_type = BPF_MAP_TYPE_ARRAY, attr->key_size = 4, attr->value_size = 3000, attr->max_entries = 4;
        out();
        int map = (int)RAW(SYS_bpf, BPF_MAP_CREATE, attr, sizeof *attr);
        if (map >= 0) {
            int *key = put(&(int){2}, 4);
            char *value = area + 20 * PAGE - 1000;
            memset(value, 'b', 3000);
            memset(attr, 0, sizeof *attr);
            attr->map_fd = map, attr->key = (uintptr_t)key, attr->value = (uintptr_t)value;
            out();
            RIGHT(RAW(SYS_bpf, BPF_MAP_UPDATE_ELEM, attr, sizeof *attr) == 0);
            memset(value, 0, 3000);
            out();
            RIGHT(RAW(SYS_bpf, BPF_MAP_LOOKUP_ELEM, attr, sizeof *attr) == 0);
            RIGHT(value[0] == 'b' && value[2999] == 'b');
            close(map);
        }
    }
    char *type = text("user"), *name = text("zfolio-inthread"), *payload = area + 30 * PAGE - 1000;
    memset(payload, 'k', 2000);
    out();
    long key = RAW(SYS_add_key, type, name, payload, 2000L, -2);
    if (key > 0) {
        memset(payload, 0, 2000);
        out();
        RIGHT(RAW(SYS_keyctl, 11, key, payload, 2000L) == 2000 && payload[0] == 'k' && payload[1999] == 'k');
        RIGHT(RAW(SYS_keyctl, 9, key, -2) == 0);
    }
    RIGHT(RAW(600, area, area, area, area, area, area) == -1 && errno == ENOSYS);
    RIGHT(RAW(-1L) == -1 && errno == ENOSYS);
    RIGHT(RAW(SYS_write | 0x40000000, 1, area, 0) == -1 && errno == ENOSYS);
}

static void wrong_ones(void) {
    int fds[2];
    SETUP(pipe(fds) == 0);
    char *hole = map_new(4 * PAGE);
    SETUP(munmap(hole + 2 * PAGE, 2 * PAGE) == 0);
    const uintptr_t bad[] = {8,           4096,         (uintptr_t)hole + 2 * PAGE, 0x7fffffffe000, 1ul << 47,
                             1ul << 62,   ~0ul - 4095,  ~0ul};
    struct timespec zero = {0, 0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uintptr_t at = bad[i];
        RIGHT(RAW(SYS_write, fds[1], at, 8L) == -1 && errno == EFAULT);
        SETUP(write(fds[1], "12345678", 8) == 8);
        RIGHT(RAW(SYS_read, fds[0], at, 8L) == -1 && errno == EFAULT);
        static char rest[64];
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
        SETUP(read(fds[0], rest, 64) == 8 || errno == EAGAIN);
        fcntl(fds[0], F_SETFL, 0);
        RIGHT(RAW(SYS_open, at, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_openat, AT_FDCWD, at, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_uname, at) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_pipe2, at, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_poll, at, 1L, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_ppoll, 0L, 0L, at, 0L, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_ppoll, 0L, 0L, &zero, at, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_pselect6, 0L, 0L, 0L, 0L, &zero, at) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_nanosleep, at, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigaction, SIGUSR1, at, 0L, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigaction, SIGUSR1, 0L, at, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigaction, SIGSEGV, at, 0L, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigprocmask, SIG_BLOCK, at, 0L, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigprocmask, SIG_BLOCK, 0L, at, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigtimedwait, at, 0L, &zero, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigsuspend, at, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_rt_sigpending, at, 8L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_sigaltstack, at, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_sigaltstack, 0L, at) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_signalfd4, -1L, at, 8L, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_futex, at & ~3ul, 0L, 0L, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_execve, at, 0L, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_execve, "/bin/true", at, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_clone3, at, 88L) == -1 && (errno == EFAULT || errno == ENOSYS || errno == EPERM));
        RIGHT(RAW(SYS_getrandom, at, 16L, 0L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_writev, fds[1], at, 1L) == -1 && errno == EFAULT);
        RIGHT(RAW(SYS_sendmsg, fds[1], at, 0L) == -1 && errno == ENOTSOCK);
        RIGHT(RAW(SYS_set_robust_list, at, 8L) == -1 && errno == EINVAL);
        RIGHT(RAW(SYS_rt_sigaction, 65L, 0L, at, 8L) == -1 && errno == EINVAL);
        RIGHT(RAW(SYS_rt_sigaction, SIGKILL, 0L, 0L, 4L) == -1 && errno == EINVAL);
    }
    // Over the end of what is there: what the kernel can, it does.
    SETUP(write(fds[1], "12345678", 8) == 8);
    ssize_t got = read(fds[0], hole + 2 * PAGE - 4, 8);
    RIGHT(got == 4 || (got == -1 && errno == EFAULT));
    // Sizes that are no sizes.
    RIGHT(RAW(SYS_write, fds[1], area, -1L) == -1 && (errno == EFAULT || errno == EINVAL));
    RIGHT(RAW(SYS_writev, fds[1], area, 5000L) == -1 && errno == EINVAL);
    RIGHT(RAW(SYS_poll, area, 1L << 31, 0L) == -1 && errno == EINVAL);
    int nothing = open("/dev/null", O_WRONLY);
    RIGHT(RAW(SYS_write, nothing, area, 1L << 40) == 0x7ffff000 || errno == EFAULT);
    struct iovec huge[2] = {{area, PAGE}, {area, 1ul << 62}};
    RIGHT(writev(nothing, huge, 2) > 0 || errno == EINVAL || errno == EFAULT);
    // The same memory twice in a call.
    uint64_t *both = place(64);
    *both = 0;
    out();
    RIGHT(RAW(SYS_rt_sigprocmask, SIG_SETMASK, both, both, 8L) == 0);
    struct timespec *sleeps = place(16);
    *sleeps = (struct timespec){0, 1000};
    out();
    RIGHT(nanosleep(sleeps, sleeps) == 0);
    close(nothing), close(fds[0]), close(fds[1]);
    SETUP(munmap(hole, 2 * PAGE) == 0);
}

CASES({"scheduling", scheduling}, {"processes", processes}, {"memory_seen", memory_seen},
      {"own_memory", own_memory}, {"own_memory_as_a_file", own_memory_as_a_file}, {"traced", traced},
      {"memory_of_who_is_traced", memory_of_who_is_traced}, {"unknown_ones", unknown_ones},
      {"wrong_ones", wrong_ones})
