// Processes made, replaced and left while memory is in every state.
#include "life.h"
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>

extern char **environ;

static pid_t libc_fork(void) { return fork(); }
static pid_t sys_fork(void) { return syscall(SYS_fork); }
static pid_t sys_clone(void) { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static pid_t sys_clone3(void) {
    uint64_t args[8] = {0};
    args[4] = SIGCHLD;
    return syscall(SYS_clone3, args, sizeof args);
}

// The thread that presses does not exist in a child; its lock may be held.
static void alone(void) {
    pressing = 0;
    pthread_mutex_init(&ring_lock, NULL);
}

static void in_child(area_t *a, int raw) {
    alone();
    check_area(a, raw ? "in a raw child" : "in a child");
    write_area(a, roll(a->pages / 2), a->pages / 2);
    check_area(a, raw ? "in a raw child, rewritten" : "in a child, rewritten");
    syscall(SYS_exit_group, 0);
}

static void forked(area_t *a, pid_t (*make)(void), int raw) {
    pid_t pid = make();
    if (pid == 0)
        in_child(a, raw);
    size_t from = roll(a->pages / 2);
    check_part(a, from, a->pages / 4, "in the parent");
    write_area(a, from, a->pages / 4);
    expect_child(pid, "a child");
    settle(a, "in the parent");
}

static void by_libc(area_t *a) { forked(a, libc_fork, 0); }
static void by_fork(area_t *a) { forked(a, sys_fork, 1); }
static void by_clone(area_t *a) { forked(a, sys_clone, 1); }
static void by_clone3(area_t *a) { forked(a, sys_clone3, 1); }

// From a thread that is not the first.
static void *forks_here(void *arg) {
    area_t *a = arg;
    pid_t pid = roll(2) ? fork() : sys_clone();
    if (pid == 0)
        in_child(a, 0);
    expect_child(pid, "the child of a thread");
    return NULL;
}

static void by_thread(area_t *a) {
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, forks_here, a) == 0);
    check_part(a, 11, 60, "beside a thread that forks");
    pthread_join(thread, NULL);
    settle(a, "beside a thread that forks");
}

// Three generations; each changes something before it makes the next, and the
// second is made by a raw fork half of the time.
static void generations(area_t *a) {
    int raw = roll(2);
    for (int depth = 0; depth < 3; depth++) {
        pid_t pid = depth == 1 && raw ? sys_clone() : fork();
        if (pid > 0) {
            expect_child(pid, "a descendant");
            check_area(a, "an ancestor");
            if (depth)
                syscall(SYS_exit_group, 0);
            settle(a, "the ancestor");
            return;
        }
        SETUP(pid == 0);
        alone();
        check_part(a, roll(100), 60, "a descendant");
        write_area(a, roll(100), 40);
        if (depth == 0)
            press_on(3000);
    }
    check_area(a, "the last descendant");
    syscall(SYS_exit_group, 0);
}

// Both sides press at once: what they share must be told apart.
static void under_pressure(area_t *a) {
    if (!pressing)
        start_pressing();
    pid_t pid = fork();
    if (pid == 0) {
        alone();
        for (int n = 0; n < 8; n++) {
            write_area(a, roll(a->pages - 20), 20);
            press_on(700);
            check_part(a, roll(a->pages - 60), 60, "in a child that presses");
        }
        check_area(a, "in a child that presses");
        _exit(0);
    }
    for (int n = 0; n < 8; n++) {
        write_area(a, roll(a->pages - 20), 20);
        press_on(500);
        check_part(a, roll(a->pages - 60), 60, "in a parent that presses");
    }
    expect_child(pid, "a child that presses");
    settle(a, "in a parent that presses");
}

static volatile sig_atomic_t segv_ok;
static char *volatile segv_from;
static char *volatile segv_to;

static void expected_segv(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *at = info->si_addr;
    _exit(at >= segv_from && at < segv_to && info->si_code == SEGV_MAPERR ? 0 : 1);
}

static void dontfork(area_t *a) {
    size_t from = 1 + roll(a->pages / 2), pages = 1 + roll(a->pages / 2 - 1);
    SETUP(madvise(a->at + from * PAGE, pages * PAGE, MADV_DONTFORK) == 0);
    for (int raw = 0; raw < 2; raw++) {
        pid_t pid = raw ? sys_fork() : fork();
        if (pid == 0) {
            alone();
            check_part(a, 0, from, "in a child, before what it was not given");
            check_part(a, from + pages, a->pages - from - pages, "in a child, behind it");
            segv_from = a->at + from * PAGE, segv_to = segv_from + pages * PAGE;
            struct sigaction action = {.sa_sigaction = expected_segv, .sa_flags = SA_SIGINFO};
            sigaction(SIGSEGV, &action, NULL);
            (void)*(volatile char *)(segv_from + roll(pages) * PAGE);
            die(1, "MADV_DONTFORK", segv_from, "the child can read it");
        }
        expect_child(pid, "a child of MADV_DONTFORK");
    }
    SETUP(madvise(a->at + from * PAGE, pages * PAGE, MADV_DOFORK) == 0);
    settle(a, "MADV_DONTFORK, in the parent");
}

// In a mapping of its own below 64 KiB, as programs use it: such are not managed.
static void wipeonfork(area_t *a) {
    enum { SMALL = 15 };
    char *small = map_at(NULL, (SMALL + 2) * PAGE, 0);
    SETUP(mprotect(small, PAGE, PROT_NONE) == 0 &&
          mprotect(small + (SMALL + 1) * PAGE, PAGE, PROT_NONE) == 0);
    area_t own = {.at = small + PAGE, .pages = SMALL};
    write_area(&own, 0, SMALL);
    SETUP(madvise(small + PAGE, SMALL * PAGE, MADV_WIPEONFORK) == 0);
    for (int round = 0; round < 3; round++) {
        if (round == 2)
            SETUP(madvise(own.at, SMALL * PAGE, MADV_KEEPONFORK) == 0);
        pid_t pid = round == 1 ? sys_fork() : fork();
        if (pid == 0) {
            alone();
            if (round < 2)
                expect_tag(&own, 0, SMALL, 0);
            check_area(&own, round < 2 ? "MADV_WIPEONFORK" : "MADV_KEEPONFORK");
            write_area(&own, 0, SMALL);
            check_area(&own, "written after MADV_WIPEONFORK");
            check_area(a, "beside MADV_WIPEONFORK, in the child");
            _exit(0);
        }
        expect_child(pid, "a child of MADV_WIPEONFORK");
        press_on(1500);
        check_area(&own, "MADV_WIPEONFORK, in the parent");
    }
    SETUP(munmap(small, (SMALL + 2) * PAGE) == 0);
    settle(a, "MADV_WIPEONFORK, in the parent");
}

// A process that shares the memory, and is served by this one's manager.
static int sharer(void *arg) {
    area_t *a = arg;
    check_part(a, 0, a->pages / 2, "in a process that shares the memory");
    write_area(a, 30, 50);
    return 0;
}

static void clone_vm(area_t *a) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    pid_t pid = clone(sharer, stack + sizeof stack, CLONE_VM | SIGCHLD, a);
    expect_child(pid, "a process that shares the memory");
    check_area(a, "written by a process that shares the memory");
    pid = vfork();
    if (pid == 0) {
        check_part(a, a->pages / 2, a->pages / 2, "in the child of a vfork");
        fill_page(a->at, 0x1234567);
        _exit(0);
    }
    expect_child(pid, "vfork");
    a->tags[0] = 0x1234567;
    settle(a, "after vfork");
}

// Arguments and environment lie in the area, moved out; the new image says
// whether they came through.
static void exec_with(area_t *a) {
    enum { STRINGS = 24 };
    char *argv[STRINGS + 3], *envp[STRINGS + 8];
    char seed[32], at[32];
    snprintf(seed, sizeof seed, "%lu", roll(1 << 30));
    snprintf(at, sizeof at, "%d", STRINGS);
    argv[0] = "life_fork", argv[1] = "judge", argv[2] = seed;
    size_t kept = 0;
    for (char **e = environ; *e && kept < 7; e++)
        if (strncmp(*e, "ZFOLIO", 6) == 0 || strncmp(*e, "LD_PRELOAD", 10) == 0)
            envp[kept++] = *e;
    for (int i = 0; i < STRINGS; i++) {
        // Across a page's end each; one of each pair is left as it was.
        char *text = a->at + (size_t)(i * 4 + 1) * PAGE - 40;
        int len = snprintf(text, 100, "LIFE%d=%s.%016lx.%016lx.%016lx", i, seed, mix(i),
                           mix(i + 1), mix(i + 2));
        SETUP(len > 60);
        envp[kept + i] = text;
        a->tags[i * 4] = a->tags[i * 4 + 1] = NOTHING;
    }
    envp[kept + STRINGS] = NULL, argv[3] = NULL;
    if (a->state != PRESENT)
        make_state(a, a->state == STORING ? STORED : a->state);
    for (int how = 0; how < 3; how++) {
        pid_t pid;
        if (how == 0)
            SETUP(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, envp) == 0);
        else if ((pid = how == 1 ? fork() : vfork()) == 0) {
            execve("/proc/self/exe", argv, envp);
            _exit(2);
        }
        expect_child(pid, "exec with arguments that are moved out");
    }
    settle(a, "beside arguments of exec");
}

static int judge(const char *seed) {
    for (int i = 0; i < 24; i++) {
        char name[16], want[120];
        snprintf(name, sizeof name, "LIFE%d", i);
        snprintf(want, sizeof want, "%s.%016lx.%016lx.%016lx", seed, mix(i), mix(i + 1),
                 mix(i + 2));
        const char *got = getenv(name);
        if (!got || strcmp(got, want))
            die(1, "exec", got, "the environment was changed");
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "judge") == 0)
        return judge(argv[2]);
    static const case_t cases[] = {
        {"libc", by_libc}, {"sys_fork", by_fork}, {"sys_clone", by_clone},
        {"sys_clone3", by_clone3}, {"thread", by_thread}, {"generations", generations},
        {"under_pressure", under_pressure}, {"dontfork", dontfork}, {"wipeonfork", wipeonfork},
        {"clone_vm", clone_vm}, {"exec", exec_with},
    };
    return life_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
