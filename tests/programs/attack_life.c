// Processes, threads, signals and sandboxes at odd moments, with memory out.
#include "inthread_kit.h"
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <spawn.h>
#include <stddef.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/socket.h>

#define RAW(...) syscall(__VA_ARGS__)
enum { MANY = 64, TAG = 400000 };
extern char **environ;

static char *fresh(size_t pages) {
    char *at = map_new(pages * PAGE);
    fill_range(at, pages, TAG);
    out_of_memory(at, pages, 4);
    return at;
}

// --- forks ----------------------------------------------------------------------------------

// Each generation has what its parent had, writes a page of it, and forks while all is out.
static void generations(void) {
    enum { DEEP = 7 };
    char *at = fresh(MANY);
    for (int depth = 0; depth < DEEP; depth++) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child > 0) {
            squeeze();
            expect_child(child, "a generation");
            for (int i = 0; i < MANY; i++)
                check_page(at + i * PAGE, i < depth ? 2 * TAG + i : TAG + i, "after the child of a generation");
            if (depth > 0)
                _exit(0);
            munmap(at, MANY * PAGE);
            return;
        }
        fill_page(at + depth * PAGE, 2 * TAG + depth);
        if (depth % 2)
            squeeze();
        for (int i = 0; i < MANY; i += 5)
            check_page(at + i * PAGE, i <= depth ? 2 * TAG + i : TAG + i, "in a generation");
    }
    _exit(0);
}

// The one thread of a process ends by a call of its own.
static void last_thread_ends(void) {
    char *at = fresh(MANY);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        check_range(at, MANY, TAG, "of a child");
        RAW(SYS_exit, 0L);
    }
    expect_child(child, "by exit of its last thread");
    munmap(at, MANY * PAGE);
}

// A child of posix_spawn that puts descriptors where others of ours may be.
static void spawned_over_descriptors(void) {
    char *at = fresh(MANY);
    struct rlimit files;
    SETUP(getrlimit(RLIMIT_NOFILE, &files) == 0);
    int most = files.rlim_cur < 1100 ? (int)files.rlim_cur : 1100;
    for (int first = 400; first < most; first += 200) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        for (int fd = first < 3 ? 3 : first; fd < first + 200 && fd < most; fd++)
            posix_spawn_file_actions_adddup2(&actions, 0, fd);
        char *argv[] = {(char *)"true", NULL};
        pid_t child;
        int got = posix_spawn(&child, "/bin/true", &actions, NULL, argv, environ);
        RIGHT(got == 0 || (managed() && got == EBUSY));
        if (got == 0)
            expect_child(child, "spawned with descriptors");
        check_range(at, MANY, TAG, "after a child was spawned");
        posix_spawn_file_actions_destroy(&actions);
        out_of_memory(at, MANY, 4);
    }
    squeeze();
    check_range(at, MANY, TAG, "at the end");
    munmap(at, MANY * PAGE);
}

static int strict_in_child(void *unused) {
    (void)unused;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        _exit(3);
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, all};
    if (RAW(SYS_seccomp, 1L, 0L, &program) != 0)
        _exit(4);
    RAW(SYS_exit_group, 0L);
    return 0;
}

// A child that shares the memory as long as its parent waits, and has a sandbox of its own.
static void sandboxed_while_sharing(void) {
    char *at = fresh(MANY), *more = map_new(200 * PAGE);
    fill_page(more, TAG);
    squeeze();
    static char stack[64 << 10] __attribute__((aligned(16)));
    pid_t child = clone(strict_in_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    RIGHT(child > 0);
    expect_child(child, "in a sandbox while sharing");
    check_range(at, MANY, TAG, "after a sandbox");
    check_zeros(more + PAGE, 199, "untouched before a sandbox");
    fill_range(more, 200, 3 * TAG);
    squeeze();
    check_range(more, 200, 3 * TAG, "after a sandbox");
    char *new = map_new(4 << 20);
    fill_range(new, (4 << 20) / PAGE, 5 * TAG);
    squeeze();
    check_range(new, (4 << 20) / PAGE, 5 * TAG, "new after a sandbox");
    munmap(new, 4 << 20), munmap(more, 200 * PAGE), munmap(at, MANY * PAGE);
}

// --- sandboxes ------------------------------------------------------------------------------

static void strict(void) {
    char *at = fresh(MANY);
    int fds[2];
    SETUP(pipe(fds) == 0);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        SETUP(RAW(SYS_prctl, 0x5eed00000000L | PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0); // (of 32 bits)
        for (int i = 0; i < MANY; i++)
            if (!page_is(at + i * PAGE, TAG + i))
                RAW(SYS_exit, 1L);
        RAW(SYS_write, fds[1], at, 8L * PAGE);
        RAW(SYS_exit, 0L);
    }
    close(fds[1]);
    char *to = map_new(MANY * PAGE);
    for (size_t done = 0; done < 8 * PAGE;) {
        ssize_t got = read(fds[0], to + done, 8 * PAGE - done);
        RIGHT(got > 0);
        done += got;
    }
    check_range(to, 8, TAG, "written in a strict sandbox");
    expect_child(child, "in a strict sandbox");
    close(fds[0]);
    munmap(to, MANY * PAGE), munmap(at, MANY * PAGE);
}

#define LOAD_NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define LET(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter(struct sock_filter *code, size_t count) {
    struct sock_fprog program = {(unsigned short)count, put(code, count * sizeof *code)}, *at = put(&program, sizeof program);
    out();
    RIGHT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && RAW(SYS_seccomp, 1L, 0L, at) == 0);
}

// The program is killed for any call but a few, which are all that it makes.
static void few_calls(void) {
    char *at = fresh(MANY);
    int fds[2];
    SETUP(pipe(fds) == 0);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        struct sock_filter code[] = {LOAD_NUMBER, LET(SYS_read), LET(SYS_write), LET(SYS_exit_group), LET(SYS_rt_sigreturn), LET(SYS_exit),
                                     LET(SYS_mmap), LET(SYS_munmap), LET(SYS_madvise),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
        filter(code, sizeof code / sizeof *code);
        for (int i = 0; i < MANY; i++)
            if (!page_is(at + i * PAGE, TAG + i))
                RAW(SYS_exit_group, 1L);
        char *more = (char *)RAW(SYS_mmap, NULL, 64L * PAGE, 3L, (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
        fill_range(more, 64, TAG);
        RAW(SYS_madvise, more, 64L * PAGE, (long)MADV_DONTNEED);
        RAW(SYS_munmap, more, 64L * PAGE);
        RAW(SYS_write, fds[1], at, 8L * PAGE);
        RAW(SYS_exit_group, 0L);
    }
    close(fds[1]);
    char *to = map_new(MANY * PAGE);
    for (size_t done = 0; done < 8 * PAGE;) {
        ssize_t got = read(fds[0], to + done, 8 * PAGE - done);
        if (got <= 0)
            break;
        done += got;
    }
    expect_child(child, "with few calls");
    check_range(to, 8, TAG, "written with few calls");
    close(fds[0]);
    munmap(to, MANY * PAGE), munmap(at, MANY * PAGE);
}

// A filter for all threads, others than the program's included, that kills for a call which the program
// does not make: while it lasts nobody makes it. (Longer than a look of whoever looks now and then.)
static void filter_for_all(void) {
    char *at = fresh(MANY);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        struct sock_filter code[] = {LOAD_NUMBER, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigpending, 1, 0),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
        struct sock_fprog program = {sizeof code / sizeof *code, code};
        fill_range(at, MANY, TAG);
        RIGHT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        RIGHT(RAW(SYS_seccomp, 1L, (long)SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
        for (int i = 0; i < 25; i++) {
            check_range(at, MANY, TAG, "with a filter for all threads");
            usleep(100000);
        }
        _exit(0);
    }
    expect_child(child, "with a filter for all threads");
    munmap(at, MANY * PAGE);
}

static volatile int trapped;
static void emulates(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    if (signal != SIGSYS || info->si_code != 1 || info->si_syscall != SYS_getppid)
        RAW(SYS_exit_group, 9L);
    trapped++;
    at->uc_mcontext.gregs[REG_RAX] = 4711;
}

// Calls that a filter turns into signals, which the program answers (as browsers do).
static void answered_by_a_handler(void) {
    char *at = fresh(MANY);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = emulates, .sa_flags = SA_SIGINFO};
        SETUP(sigaction(SIGSYS, &action, NULL) == 0);
        struct sock_filter code[] = {LOAD_NUMBER, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        filter(code, sizeof code / sizeof *code);
        for (int i = 0; i < 50; i++)
            RIGHT(RAW(SYS_getppid) == 4711 && getppid() == 4711);
        RIGHT(trapped == 100 && prctl(PR_GET_DUMPABLE) == -1);
        check_range(at, MANY, TAG, "in a sandbox");
        _exit(0);
    }
    expect_child(child, "answered by a handler");
    munmap(at, MANY * PAGE);
}

// --- ends -----------------------------------------------------------------------------------

// A lock that processes share is behind one that this process alone knows, in its owner's list.
static void shared_lock_behind_a_cold_one(void) {
    pthread_mutex_t *shared = mmap(NULL, PAGE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(shared != MAP_FAILED);
    char *cold = map_new(MANY * PAGE);
    for (int how = 0; how < 3; how++) {
        pthread_mutexattr_t as;
        pthread_mutexattr_init(&as);
        pthread_mutexattr_setrobust(&as, PTHREAD_MUTEX_ROBUST), pthread_mutexattr_setpshared(&as, PTHREAD_PROCESS_SHARED);
        fill_range(cold, MANY, TAG);
        pthread_mutex_t *own = (pthread_mutex_t *)(cold + 33 * PAGE);
        SETUP(pthread_mutex_init(shared, &as) == 0 && pthread_mutex_init(own, &as) == 0);
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            SETUP(pthread_mutex_lock(shared) == 0 && pthread_mutex_lock(own) == 0);
            squeeze(), squeeze();
            if (how == 0)
                _exit(0);
            raise(how == 1 ? SIGKILL : SIGTERM);
        }
        int status;
        RIGHT(waitpid(child, &status, 0) == child);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until), until.tv_sec += 3;
        RIGHT(pthread_mutex_timedlock(shared, &until) == EOWNERDEAD);
        pthread_mutex_consistent(shared), pthread_mutex_unlock(shared), pthread_mutex_destroy(shared);
    }
    munmap(cold, MANY * PAGE);
}

// The word that the kernel clears as a thread ends lies in memory that nobody touches.
static volatile int *ended_word;
static void *ends_with_word(void *unused) {
    RAW(SYS_set_tid_address, ended_word);
    usleep(100000);
    return unused;
}

static void cleared_word(void) {
    char *at = map_new(MANY * PAGE);
    fill_range(at, MANY, TAG);
    ended_word = (int *)(at + 30 * PAGE + 8);
    *ended_word = 77;
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, ends_with_word, NULL) == 0);
    pthread_detach(thread);
    usleep(20000);
    squeeze(), squeeze();
    double until = seconds() + 5;
    while (*ended_word == 77 && seconds() < until)
        squeeze();
    RIGHT(*ended_word == 0);
    check_range(at, 30, TAG, "before a word"), check_range(at + 31 * PAGE, MANY - 31, TAG + 31, "behind a word");
    munmap(at, MANY * PAGE);
}

// --- limits ---------------------------------------------------------------------------------

// Memory until there is no more by RLIMIT_DATA; then all of it is read.
static void data_limit(void) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        struct rlimit now = {160 << 20, 160 << 20};
        squeeze();
        SETUP(setrlimit(RLIMIT_DATA, &now) == 0);
        static char *blocks[400];
        int count = 0;
        for (; count < 400; count++) {
            char *at = mmap(NULL, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at == MAP_FAILED)
                break;
            blocks[count] = at;
            fill_range(at, 256, TAG + 256 * count);
        }
        for (int i = 0; i < count; i++)
            check_range(blocks[i], 256, TAG + 256 * i, "within a limit");
        for (int i = 0; i < count; i++)
            fill_range(blocks[i], 256, 3 * TAG + 256 * i);
        for (int i = count - 1; i >= 0; i--)
            check_range(blocks[i], 256, 3 * TAG + 256 * i, "within a limit, written");
        _exit(0);
    }
    expect_child(child, "within a limit of data");
}

// No descriptor, file size, process or lock more: memory goes on.
static void nothing_allowed(void) {
    char *at = fresh(MANY);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_NOFILE, &none), setrlimit(RLIMIT_FSIZE, &none), setrlimit(RLIMIT_NPROC, &none);
        setrlimit(RLIMIT_MEMLOCK, &none), setrlimit(RLIMIT_CORE, &none), setrlimit(RLIMIT_SIGPENDING, &none);
        setrlimit(RLIMIT_STACK, &(struct rlimit){1 << 20, 1 << 20});
        for (int i = 0; i < 3; i++) {
            squeeze();
            check_range(at, MANY, TAG, "with nothing allowed");
        }
        _exit(0);
    }
    expect_child(child, "with nothing allowed");
    munmap(at, MANY * PAGE);
}

// Namespaces and descriptor tables of its own, from a child that then forks.
static void unshared(void) {
    char *at = fresh(MANY);
    const int of[] = {CLONE_FILES, CLONE_FS, CLONE_SYSVSEM, CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWPID};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            int done = unshare(of[i]);
            (void)done;
            check_range(at, MANY / 2, TAG, "unshared");
            squeeze();
            pid_t grandchild = fork();
            if (grandchild == 0) {
                check_range(at, MANY, TAG, "of a child of who unshared");
                squeeze();
                check_range(at, MANY, TAG, "of a child of who unshared");
                _exit(0);
            }
            expect_child(grandchild, "of who unshared");
            squeeze();
            check_range(at, MANY, TAG, "unshared");
            _exit(0);
        }
        expect_child(child, "unshared");
    }
    munmap(at, MANY * PAGE);
}

// --- signals --------------------------------------------------------------------------------

static volatile long steps;
static void stepped(int signal) { (void)signal, steps++; }

static inline void trap_flag(int on) {
    if (on)
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    else
        __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}

// A signal at every instruction: of calls, faults, mappings.
static void single_steps(void) {
    char *at = fresh(MANY);
    int fds[2];
    SETUP(pipe(fds) == 0);
    struct sigaction action = {.sa_handler = stepped};
    SETUP(sigaction(SIGTRAP, &action, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        char *page = at + (9 * i) * PAGE;
        long done[6];
        trap_flag(1);
        done[0] = write(fds[1], page + 100, 16);
        done[1] = read(fds[0], page + PAGE + 100, 16);
        char *new = mmap(NULL, 16 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        new[0] = page[200], new[5 * PAGE] = page[2 * PAGE + 200];
        done[2] = madvise(new, 16 * PAGE, MADV_DONTNEED);
        done[3] = munmap(new, 16 * PAGE);
        done[4] = getppid() > 0;
        trap_flag(0);
        RIGHT(done[0] == 16 && done[1] == 16 && done[2] == 0 && done[3] == 0);
        check_page(page, TAG + 9 * i, "single-stepped");
        RIGHT(memcmp(page + 100, page + PAGE + 100, 16) == 0);
    }
    RIGHT(steps > 1000);
    signal(SIGTRAP, SIG_DFL);
    close(fds[0]), close(fds[1]);
    munmap(at, MANY * PAGE);
}

static volatile int came;
static void comes(int signal) { (void)signal, came++; }

// Signals that are ignored (way 0), whose handlers restart calls (1), or that are blocked (2; whose handlers would end
// calls) do not end a call.
static void sent_in_a_call(int first, int last) {
    for (int signal_ = 0; signal_ < 3; signal_++) {
        int number = (int[]){SIGSEGV, SIGBUS, SIGSYS}[signal_];
        for (int way = first; way <= last; way++) {
            struct sigaction action = {.sa_handler = way == 0 ? SIG_IGN : comes, .sa_flags = way == 2 ? 0 : SA_RESTART}, before;
            int fds[2];
            SETUP(pipe(fds) == 0 && sigaction(number, &action, &before) == 0);
            sigset_t set;
            sigemptyset(&set), sigaddset(&set, number);
            came = 0;
            if (way == 2)
                sigprocmask(SIG_BLOCK, &set, NULL);
            pid_t parent = getpid(), child = fork();
            SETUP(child >= 0);
            if (child == 0) {
                usleep(50000), kill(parent, number), usleep(50000);
                SETUP(write(fds[1], "x", 1) == 1);
                _exit(0);
            }
            char byte;
            ssize_t got = read(fds[0], &byte, 1);
            RIGHT(got == 1);
            if (way == 2) {
                RIGHT(came == 0);
                sigprocmask(SIG_UNBLOCK, &set, NULL);
            }
            RIGHT(came == (way > 0));
            expect_child(child, "who sends");
            sigaction(number, &before, NULL), close(fds[0]), close(fds[1]);
        }
    }
}

static void calls_go_on(void) {
    squeeze();
    sent_in_a_call(0, 1);
}
static void calls_go_on_blocked(void) {
    squeeze();
    sent_in_a_call(2, 2);
}

static sigjmp_buf back;
static void jumps(int signal) { (void)signal, siglongjmp(back, 1); }

// Handlers leave calls of every kind, thousands of times; nothing of them stays.
static void left_calls(void) {
    char *at = fresh(MANY);
    int fds[2];
    SETUP(pipe(fds) == 0);
    struct sigaction action = {.sa_handler = jumps};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    static uint32_t word;
    for (volatile int i = 0; i < 3000; i++) {
        struct timespec second = {1, 0}, *slept = (struct timespec *)(at + (i % MANY) * PAGE + 4000);
        struct pollfd one = {fds[0], POLLIN, 0};
        sigset_t none;
        sigemptyset(&none);
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval soon = {{0, 0}, {0, 50 + i % 200}};
            setitimer(ITIMER_REAL, &soon, NULL);
            switch (i % 5) {
            case 0: RAW(SYS_read, fds[0], at + (i % MANY) * PAGE + 4040, 8L); break;
            case 1: RAW(SYS_ppoll, &one, 1L, &second, &none, 8L); break;
            case 2: RAW(SYS_futex, &word, FUTEX_WAIT, 0L, &second, 0L, 0L); break;
            case 3: RAW(SYS_nanosleep, &second, slept); break;
            default: RAW(SYS_rt_sigsuspend, &none, 8L);
            }
        }
    }
    signal(SIGALRM, SIG_DFL);
    fill_range(at, MANY, 2 * TAG);
    out_of_memory(at, MANY, 4);
    check_range(at, MANY, 2 * TAG, "after calls that were left");
    close(fds[0]), close(fds[1]);
    munmap(at, MANY * PAGE);
}

// A stack for signals, taken in a handler; one in memory that is out; given back again.
static volatile int stack_set;
static char *volatile nowhere = (char *)16;
static char *own_stack;
static void takes_a_stack(int signal) {
    (void)signal;
    stack_set = sigaltstack(&(stack_t){.ss_sp = own_stack + 4 * PAGE, .ss_size = 32 * PAGE}, NULL) == 0;
    siglongjmp(back, 1);
}
static volatile uintptr_t ran_at;
static void runs_there(int signal) {
    (void)signal;
    char here;
    ran_at = (uintptr_t)&here;
}

static void stacks_of_signals(void) {
    stack_t before;
    own_stack = fresh(MANY);
    SETUP(sigaltstack(NULL, &before) == 0);
    SETUP(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    struct sigaction action = {.sa_handler = takes_a_stack}, was, there = {.sa_handler = runs_there, .sa_flags = SA_ONSTACK};
    SETUP(sigaction(SIGSEGV, &action, &was) == 0);
    if (sigsetjmp(back, 1) == 0)
        *(volatile char *)nowhere = 1;
    RIGHT(stack_set);
    SETUP(sigaction(SIGUSR1, &there, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        squeeze();
        raise(SIGUSR1);
        RIGHT(ran_at >= (uintptr_t)own_stack + 4 * PAGE && ran_at < (uintptr_t)own_stack + 36 * PAGE);
    }
    check_range(own_stack, 4, TAG, "below a stack"), check_range(own_stack + 36 * PAGE, MANY - 36, TAG + 36, "above a stack");
    SETUP(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    munmap(own_stack, MANY * PAGE);
    SETUP(sigaction(SIGSEGV, &was, NULL) == 0 && sigaltstack(&before, NULL) == 0);
}

// A signal stack that is no longer one while a handler runs on it: another may be set there, as long as it
// runs.
static int told[3];

static void sets_another(int signal) {
    static char other[64 << 10];
    stack_t now;
    (void)signal;
    SETUP(sigaltstack(NULL, &now) == 0);
    told[0] = now.ss_flags;
    told[1] = sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, NULL);
    SETUP(sigaltstack(NULL, &now) == 0);
    told[2] = now.ss_sp == other && now.ss_flags == 0;
    squeeze();
}

static void disarmed_stack(void) {
    stack_t before, now;
    char *at = fresh(MANY);
    SETUP(sigaltstack(NULL, &before) == 0);
    stack_t own = {.ss_sp = at, .ss_size = MANY * PAGE, .ss_flags = (int)(1u << 31)};
    RIGHT(sigaltstack(&own, NULL) == 0);
    struct sigaction action = {.sa_handler = sets_another, .sa_flags = SA_ONSTACK}, was;
    SETUP(sigaction(SIGUSR1, &action, &was) == 0);
    for (int i = 0; i < 3; i++) {
        RIGHT(sigaltstack(NULL, &now) == 0 && now.ss_sp == at && now.ss_flags == own.ss_flags && now.ss_size == own.ss_size);
        squeeze();
        raise(SIGUSR1);
        RIGHT(told[0] == SS_DISABLE && told[1] == 0 && told[2]);
    }
    SETUP(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    RIGHT(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_DISABLE);
    munmap(at, MANY * PAGE);
    SETUP(sigaction(SIGUSR1, &was, NULL) == 0 && sigaltstack(&before, NULL) == 0);
}

// What the kernel writes about restartable sequences lies in managed memory.
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

static void sequences_elsewhere(void) {
    enum { UNREGISTER = 1, SIGNATURE = 0x53053053 };
    char *at = fresh(MANY);
    uint32_t *area = (void *)(at + 7 * PAGE);
    memset(area, 0, 64);
    out_of_memory(at, MANY, 8);
    if (!&__rseq_offset || __rseq_size == 0)
        return;
    char *libcs = (char *)__builtin_thread_pointer() + __rseq_offset;
    if (syscall(SYS_rseq, libcs, 32, UNREGISTER, SIGNATURE) != 0)
        return;
    RIGHT(syscall(SYS_rseq, area, 32, 0, SIGNATURE) == 0);
    for (int i = 0; i < 3; i++) {
        squeeze();
        for (int j = 0; j < 100; j++)
            sched_yield();
        usleep(1000);
        RIGHT(area[0] < 4096 && area[0] == area[1]);
    }
    RIGHT(syscall(SYS_rseq, area, 32, UNREGISTER, SIGNATURE) == 0);
    SETUP(syscall(SYS_rseq, libcs, 32, 0, SIGNATURE) == 0);
    munmap(at, MANY * PAGE);
}

// The stack of a thread overflows, in memory that is managed; its handler jumps out.
static __attribute__((noinline)) long deeper(volatile char *above) {
    volatile char here[512];
    here[0] = above[0], here[511] = 1;
    return above == (volatile char *)8 ? 0 : deeper(here) + here[511];
}

static void *overflows(void *unused) {
    char *stack = malloc(64 << 10);
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = 64 << 10}, NULL);
    for (volatile int i = 0; i < 20; i++) {
        volatile char first = 1;
        if (sigsetjmp(back, 1) == 0)
            deeper(&first);
        if (i % 5 == 0)
            squeeze();
    }
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    free(stack);
    return unused;
}

static void overflown_stacks(void) {
    struct sigaction action = {.sa_handler = jumps, .sa_flags = SA_ONSTACK}, was, was_bus;
    SETUP(sigaction(SIGSEGV, &action, &was) == 0 && sigaction(SIGBUS, &action, &was_bus) == 0);
    char *stack = map_new(80 * PAGE);
    SETUP(mprotect(stack, PAGE, PROT_NONE) == 0);
    pthread_attr_t attr;
    pthread_attr_init(&attr), pthread_attr_setstack(&attr, stack + PAGE, 79 * PAGE);
    pthread_t thread;
    SETUP(pthread_create(&thread, &attr, overflows, NULL) == 0);
    pthread_join(thread, NULL);
    SETUP(sigaction(SIGSEGV, &was, NULL) == 0 && sigaction(SIGBUS, &was_bus, NULL) == 0);
    munmap(stack, 80 * PAGE);
}

// The processor's modes of arithmetic are the program's, and so are its errors.
static void arithmetic(void) {
    char *at = fresh(MANY);
    int fds[2];
    SETUP(pipe(fds) == 0);
    uint32_t before, unmasked = 0x0040 | 0x8000 | 0x4000 | 0x2000, after; // nothing masked, zeros, rounding up
    uint16_t x87_before, x87 = 0x0360, x87_after;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(before), "=m"(x87_before));
    __asm__ volatile("ldmxcsr %0; fldcw %1; fld1; fldpi" ::"m"(unmasked), "m"(x87));
    long wrote = 0, got = 0;
    for (int i = 0; i < MANY - 1; i++) {
        wrote += write(fds[1], at + i * PAGE, 100);
        got += read(fds[0], at + i * PAGE, 100);
        *(volatile char *)(at + (i + 1) * PAGE) += 0;
    }
    squeeze();
    double pi;
    __asm__ volatile("fstpl %0; fstp %%st(0); stmxcsr %1; fnstcw %2" : "=m"(pi), "=m"(after), "=m"(x87_after));
    __asm__ volatile("fnclex; ldmxcsr %0; fldcw %1" ::"m"(before), "m"(x87_before));
    RIGHT(wrote == 100 * (MANY - 1) && got == wrote && (after & ~0x3fu) == unmasked && x87_after == x87);
    RIGHT(pi > 3.14159 && pi < 3.1416);
    check_range(at, MANY, TAG, "beside arithmetic");
    close(fds[0]), close(fds[1]);
    munmap(at, MANY * PAGE);
}

// A sandbox's or debugger's handler changes where the program goes on, while its memory is out.
static char *skipped_to;
static void skips(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    (void)signal, (void)info;
    at->uc_mcontext.gregs[REG_RDI] = (greg_t)skipped_to;
    came++;
}

static void changed_context(void) {
    char *at = fresh(MANY);
    struct sigaction action = {.sa_sigaction = skips, .sa_flags = SA_SIGINFO}, was;
    SETUP(sigaction(SIGSEGV, &action, &was) == 0);
    came = 0;
    for (int i = 0; i < MANY; i += 7) {
        uint64_t word, from = 64;
        skipped_to = at + i * PAGE + 8 * 5;
        __asm__ volatile("movq (%%rdi), %0" : "=r"(word), "+D"(from)::"memory");
        RIGHT(word == word_of(TAG + i, 5) && from == (uintptr_t)skipped_to);
    }
    RIGHT(came == (MANY + 6) / 7);
    SETUP(sigaction(SIGSEGV, &was, NULL) == 0);
    munmap(at, MANY * PAGE);
}

CASES({"generations", generations}, {"last_thread_ends", last_thread_ends}, {"spawned_over_descriptors", spawned_over_descriptors},
      {"sandboxed_while_sharing", sandboxed_while_sharing}, {"strict", strict}, {"few_calls", few_calls}, {"filter_for_all", filter_for_all},
      {"answered_by_a_handler", answered_by_a_handler}, {"shared_lock_behind_a_cold_one", shared_lock_behind_a_cold_one},
      {"cleared_word", cleared_word}, {"data_limit", data_limit}, {"nothing_allowed", nothing_allowed}, {"unshared", unshared},
      {"single_steps", single_steps}, {"calls_go_on", calls_go_on}, {"calls_go_on_blocked", calls_go_on_blocked}, {"left_calls", left_calls},
      {"stacks_of_signals", stacks_of_signals}, {"overflown_stacks", overflown_stacks}, {"arithmetic", arithmetic},
      {"changed_context", changed_context}, {"disarmed_stack", disarmed_stack},
      {"sequences_elsewhere", sequences_elsewhere})
