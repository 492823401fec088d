// life_odd SEED HOW: what few programs do, and what becomes of it.
#include "life.h"
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static area_t a;

static size_t status_kib(const char *name) {
    char line[200];
    size_t kib = 0, len = strlen(name);
    FILE *file = fopen("/proc/self/status", "r");
    SETUP(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, len) == 0)
            kib = strtoul(line + len + 1, NULL, 10);
    fclose(file);
    return kib;
}

// Locks all there is and will be. The reservations are locked with the rest.
static void lock_all(int flags) {
    size_t before = status_kib("VmRSS:");
    int got = mlockall(flags), why = errno;
    printf("mlockall %d errno %d VmRSS %zu -> %zu KiB VmLck %zu KiB\n", got, got ? why : 0, before,
           status_kib("VmRSS:"), status_kib("VmLck:"));
    fflush(stdout);
    check_area(&a, "all locked");
    write_area(&a, 0, 50);
    press_on(3000);
    settle(&a, "all locked");
    SETUP(munlockall() == 0);
    press_on(3000);
    settle(&a, "all unlocked");
    printf("VmRSS %zu KiB in the end\n", status_kib("VmRSS:"));
}

// With RLIMIT_MEMLOCK it is refused, or goes as far as it may.
static void lock_limited(void) {
    struct rlimit small = {8 << 20, 8 << 20};
    SETUP(setrlimit(RLIMIT_MEMLOCK, &small) == 0);
    SETUP(setgid(54321) == 0 && setuid(54321) == 0); // CAP_IPC_LOCK knows no limit
    lock_all(MCL_CURRENT | MCL_FUTURE);
}

// A userfaultfd of the program's own.
static int own;
static _Atomic size_t served;

static int open_own(void) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        die(2, "setup", NULL, "no userfaultfd here");
    struct uffdio_api api = {.api = UFFD_API};
    SETUP(ioctl(fd, UFFDIO_API, &api) == 0);
    return fd;
}

static void *serve(void *arg) {
    static char page[PAGE];
    struct uffd_msg message;
    struct pollfd wait = {.fd = own, .events = POLLIN};
    char *base = arg;
    for (;;) {
        poll(&wait, 1, -1);
        if (read(own, &message, sizeof message) != sizeof message)
            continue;
        uintptr_t at = message.arg.pagefault.address & ~(uintptr_t)(PAGE - 1);
        fill_page(page, 0x4000 + (at - (uintptr_t)base) / PAGE);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        served++;
        SETUP(ioctl(own, UFFDIO_COPY, &copy) == 0 || errno == EEXIST);
    }
    return NULL;
}

enum { SMALLEST = 64 << 10 }; // of mappings that are managed

static void own_uffd(size_t pages, int before) {
    char *at = map_at(NULL, (pages + 2) * PAGE, 0);
    SETUP(mprotect(at, PAGE, PROT_NONE) == 0);
    SETUP(mprotect(at + (pages + 1) * PAGE, PAGE, PROT_NONE) == 0);
    at += PAGE;
    if (!before) {
        int to_be_managed = managed() && pages * PAGE >= SMALLEST;
        if (to_be_managed)
            fill_range(at, pages, 1);
        press_on(4000);
        double until = seconds() + 30;
        while (to_be_managed && resident(at, pages) * 10 > pages) { // (What is out is managed.)
            press_on(4000);
            if (seconds() > until)
                die(2, "setup", at, "it was not moved out in 30 s");
        }
    }
    own = open_own();
    struct uffdio_register range = {.range = {(uintptr_t)at, pages * PAGE},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    int got = ioctl(own, UFFDIO_REGISTER, &range), why = errno;
    printf("register %d errno %d\n", got, got ? why : 0);
    fflush(stdout);
    if (got == 0) {
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, serve, at) == 0);
        for (int round = 0; round < 3; round++) {
            for (size_t i = 0; i < pages; i++)
                check_page(at + i * PAGE, 0x4000 + i, "served by the program's own userfaultfd");
            if (managed())
                press_on(3000);
        }
        if (served < pages)
            die(1, "userfaultfd", at, "the program's own did not serve every page");
    }
    settle(&a, "beside the program's own userfaultfd");
}

static void filter(const struct sock_filter *program, unsigned short len, unsigned flags) {
    struct sock_fprog all = {.len = len, .filter = (struct sock_filter *)program};
    SETUP(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    SETUP(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &all) == 0);
}

#define SYSCALL_NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define IF(number, what) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), ANSWER(what)
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)

// Refuses what programs in a sandbox do without.
static void sandbox(const char *how, unsigned action, unsigned flags) {
    const struct sock_filter refuse_uffd[] = {SYSCALL_NUMBER, IF(SYS_userfaultfd, action),
                                              ANSWER(SECCOMP_RET_ALLOW)};
    const struct sock_filter refuse_ioctl[] = {SYSCALL_NUMBER, IF(SYS_ioctl, action),
                                               ANSWER(SECCOMP_RET_ALLOW)};
    // What every thread of the manager waits in, the watchdog too.
    const struct sock_filter refuse_waits[] = {
        SYSCALL_NUMBER, IF(SYS_ppoll, action), IF(SYS_poll, action), IF(SYS_ioctl, action),
        ANSWER(SECCOMP_RET_ALLOW)};
    const struct sock_filter refuse_madvise[] = {SYSCALL_NUMBER, IF(SYS_madvise, action),
                                                 ANSWER(SECCOMP_RET_ALLOW)};
    // What this program needs, and no more: but for `needs`, what the manager does.
    const struct sock_filter strict[] = {
        SYSCALL_NUMBER, IF(SYS_write, SECCOMP_RET_ALLOW), IF(SYS_read, SECCOMP_RET_ALLOW),
        IF(SYS_mmap, SECCOMP_RET_ALLOW), IF(SYS_munmap, SECCOMP_RET_ALLOW),
        IF(SYS_mincore, SECCOMP_RET_ALLOW), IF(SYS_clock_gettime, SECCOMP_RET_ALLOW),
        IF(SYS_futex, SECCOMP_RET_ALLOW), IF(SYS_exit_group, SECCOMP_RET_ALLOW),
        IF(SYS_getpid, SECCOMP_RET_ALLOW), IF(SYS_gettid, SECCOMP_RET_ALLOW),
        IF(SYS_sched_yield, SECCOMP_RET_ALLOW), IF(SYS_newfstatat, SECCOMP_RET_ALLOW),
        ANSWER(action)};
    if (!strcmp(how, "uffd"))
        filter(refuse_uffd, sizeof refuse_uffd / 8, flags);
    else if (!strcmp(how, "ioctl"))
        filter(refuse_ioctl, sizeof refuse_ioctl / 8, flags);
    else if (!strcmp(how, "waits"))
        filter(refuse_waits, sizeof refuse_waits / 8, flags);
    else if (!strcmp(how, "madvise"))
        filter(refuse_madvise, sizeof refuse_madvise / 8, flags);
    else
        filter(strict, sizeof strict / 8, flags);
    check_area(&a, "in a sandbox");
    write_area(&a, 0, 60);
    press_on(3000);
    settle(&a, "in a sandbox");
    syscall(SYS_exit_group, 0);
}

static void dump_core(void) {
    SETUP(setrlimit(RLIMIT_CORE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
    signal(SIGABRT, SIG_DFL);
    abort();
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    seed_state = strtoull(argv[1], NULL, 0);
    const char *how = argv[2];
    if (!strcmp(how, "uffd_before")) { // created before there is pressure
        new_area(&a, PRESENT);
        own_uffd(600, 1);
        return 0;
    }
    if (managed())
        press_on(2 * CHUNK * CHUNKS);
    new_area(&a, STORED);
    printf("absent %zu of %d\n", a.absent, AREA);
    fflush(stdout);
    unsigned tsync = SECCOMP_FILTER_FLAG_TSYNC;
    const char *filters = argc > 3 ? argv[3] : "";
    if (!strcmp(how, "mlockall"))
        lock_all(MCL_CURRENT | MCL_FUTURE);
    else if (!strcmp(how, "mlockall_onfault"))
        lock_all(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
    else if (!strcmp(how, "mlockall_limited"))
        lock_limited();
    else if (!strcmp(how, "uffd_small"))
        own_uffd(8, 0);
    else if (!strcmp(how, "uffd_large"))
        own_uffd(600, 0);
    else if (!strcmp(how, "seccomp"))
        sandbox(filters, REFUSE, 0);
    else if (!strcmp(how, "seccomp_tsync"))
        sandbox(filters, REFUSE, tsync);
    else if (!strcmp(how, "seccomp_kill"))
        sandbox(filters, SECCOMP_RET_KILL_PROCESS, tsync);
    else if (!strcmp(how, "seccomp_kill_thread"))
        sandbox(filters, SECCOMP_RET_KILL_THREAD, tsync);
    else if (!strcmp(how, "core"))
        dump_core();
    else
        return 2;
    return 0;
}
