// Children of every kind, and what of the memory is theirs.
#include "inthread_kit.h"
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/time.h>

extern char **environ;
enum { TAG = 300000 };
#define CLEAR_SIGHAND 0x100000000 // CLONE_CLEAR_SIGHAND

static void double_fork(void) {
    int fds[2];
    SETUP(pipe(fds) == 0);
    fill_range(area, AREA, TAG);
    out();
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        if (fork() == 0) { // nobody waits for it
            fill_range(area, AREA / 2, 2 * TAG);
            squeeze(), squeeze();
            check_range(area, AREA / 2, 2 * TAG, "of a grandchild"), check_range(area + AREA / 2 * PAGE, AREA / 2, TAG + AREA / 2, "of a grandchild");
            SETUP(write(fds[1], "right", 5) == 5);
            _exit(0);
        }
        squeeze();
        check_range(area, AREA, TAG, "of a child that forked");
        _exit(0);
    }
    fill_range(area, AREA, 3 * TAG);
    expect_child(child, "that forks");
    char word[5];
    RIGHT(read(fds[0], word, 5) == 5 && memcmp(word, "right", 5) == 0);
    squeeze();
    check_range(area, AREA, 3 * TAG, "of a parent");
    close(fds[0]), close(fds[1]);
}

static int storm_ends;

static void *storms(void *arg) {
    size_t id = (size_t)arg, part = AREA / 4;
    char *mine = area + id * part * PAGE;
    for (int turn = 0; turn < 12; turn++) {
        fill_range(mine, part, TAG * (id + 1) + turn * 1000);
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            check_range(mine, part, TAG * (id + 1) + turn * 1000, "of a child in a storm");
            fill_range(mine, part, TAG * 9);
            check_range(mine, part, TAG * 9, "of a child in a storm");
            _exit(0);
        }
        check_range(mine, part, TAG * (id + 1) + turn * 1000, "of a parent in a storm");
        expect_child(child, "in a storm");
    }
    __atomic_add_fetch(&storm_ends, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void storm(void) {
    pthread_t threads[4];
    squeeze();
    storm_ends = 0;
    for (size_t i = 0; i < 4; i++)
        SETUP(pthread_create(&threads[i], NULL, storms, (void *)i) == 0);
    while (__atomic_load_n(&storm_ends, __ATOMIC_SEQ_CST) < 4)
        squeeze();
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static int maps_on;

static void *maps(void *arg) {
    while (__atomic_load_n(&maps_on, __ATOMIC_SEQ_CST)) {
        char *memory = map_new(64 * PAGE);
        memory[0] = 1;
        SETUP(munmap(memory, 64 * PAGE) == 0);
    }
    return arg;
}

static void *comes_and_goes(void *arg) {
    while (__atomic_load_n(&maps_on, __ATOMIC_SEQ_CST))
        squeeze();
    return arg;
}

static void *ends_at_once(void *arg) { return arg; }

// Threads wait until nothing is on its way in or out, one of them to fork: the child, which has
// threads of its own by and by, waits for none of the others.
static void forks_beside_maps(void) {
    enum { OWN = 20 << 8 }; // pages: more than it may have
    pthread_t threads[4];
    maps_on = 1;
    for (int i = 0; i < 4; i++)
        SETUP(pthread_create(&threads[i], NULL, i ? maps : comes_and_goes, NULL) == 0);
    for (int turn = 0; turn < 12; turn++) {
        fill_range(area, AREA, TAG + turn);
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            pthread_t thread;
            SETUP(pthread_create(&thread, NULL, ends_at_once, NULL) == 0);
            pthread_join(thread, NULL);
            char *own = map_new(OWN * PAGE);
            fill_range(own, OWN, 2 * TAG);
            check_range(own, OWN, 2 * TAG, "of a child with threads");
            check_range(area, AREA, TAG + turn, "of a child with threads");
            _exit(0);
        }
        expect_child(child, "beside maps");
    }
    maps_on = 0;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static volatile int forked_in_handlers;

static void forks_here(int signal) {
    (void)signal;
    int error = errno;
    pid_t child = fork();
    if (child == 0) {
        check_range(area + 10 * PAGE, 8, TAG + 10, "of the child of a handler");
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        SETUP(errno == EINTR);
    RIGHT(status == 0);
    forked_in_handlers++;
    errno = error;
}

static void in_handlers(void) {
    struct sigaction action = {.sa_handler = forks_here, .sa_flags = SA_RESTART}, old;
    fill_range(area, AREA, TAG);
    squeeze();
    SETUP(sigaction(SIGALRM, &action, &old) == 0);
    for (int i = 0; i < 20; i++) { // each time somewhere else in it
        struct itimerval once = {{0}, {0, 500 + 700 * i}};
        SETUP(setitimer(ITIMER_REAL, &once, NULL) == 0);
        while (forked_in_handlers <= i)
            squeeze();
    }
    SETUP(sigaction(SIGALRM, &old, NULL) == 0);
    check_range(area, AREA, TAG, "after forks in handlers");
}

static void spawned(void) {
    char **argv = (char **)(area + 10 * PAGE);
    argv[0] = strcpy(area + 30 * PAGE - 4, "/bin/sh"), argv[1] = strcpy(area + 33 * PAGE - 1, "-c");
    argv[2] = strcpy(area + 36 * PAGE - 3, "exit 5"), argv[3] = NULL;
    for (int i = 0; i < 6; i++) {
        posix_spawnattr_t *attr = (posix_spawnattr_t *)(area + 50 * PAGE);
        posix_spawn_file_actions_t *actions = (posix_spawn_file_actions_t *)(area + 60 * PAGE);
        sigset_t set;
        sigfillset(&set);
        SETUP(posix_spawnattr_init(attr) == 0 && posix_spawn_file_actions_init(actions) == 0);
        SETUP(posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK) == 0);
        SETUP(posix_spawnattr_setsigdefault(attr, &set) == 0);
        sigemptyset(&set);
        SETUP(posix_spawnattr_setsigmask(attr, &set) == 0);
        SETUP(posix_spawn_file_actions_addopen(actions, 7, "/dev/null", O_RDONLY, 0) == 0);
        SETUP(posix_spawn_file_actions_adddup2(actions, 7, 0) == 0);
        out();
        pid_t *child = (pid_t *)(area + 70 * PAGE);
        RIGHT(posix_spawn(child, argv[0], actions, attr, argv, environ) == 0);
        int status;
        RIGHT(waitpid(*child, &status, 0) == *child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
        out();
        RIGHT(posix_spawn(child, "/does/not/exist", actions, attr, argv, environ) == ENOENT);
        squeeze(); // handlers are still what they were
        posix_spawnattr_destroy(attr), posix_spawn_file_actions_destroy(actions);
    }
    RIGHT(WEXITSTATUS(system("exit 6")) == 6);
    FILE *from = popen("echo piped", "r");
    char line[20];
    RIGHT(from && fgets(line, sizeof line, from) && strcmp(line, "piped\n") == 0 && pclose(from) == 0);
}

static void vforked(void) {
    fill_range(area, AREA, TAG);
    for (volatile int i = 0; i < 10; i++) {
        out();
        pid_t child = vfork();
        SETUP(child >= 0);
        if (child == 0) {
            if (i % 2)
                execl("/bin/true", "true", (char *)NULL);
            _exit(0);
        }
        expect_child(child, "of vfork");
        check_range(area, AREA, TAG, "after vfork");
    }
}

// The memory of a vfork is its parent's, and the parent waits.
static void vfork_shares(void) {
    volatile int changed = 0;
    pid_t child = vfork();
    SETUP(child >= 0);
    if (child == 0) {
        usleep(20000);
        changed = 1;
        _exit(0);
    }
    RIGHT(changed == 1);
    expect_child(child, "of vfork");
}

static void raw_ones(void) {
    fill_range(area, AREA, TAG);
    int *parent_id = place(4), *child_id = place(4), *pidfd = place(4);
    const unsigned long flags[] = {0, CLONE_FILES, CLONE_FS, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID,
                                   CLONE_CHILD_CLEARTID, CLONE_PIDFD, CLONE_SYSVSEM | CLONE_IO};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        *parent_id = *child_id = *pidfd = -7;
        check_range(area + 40 * PAGE, AREA - 40, TAG + 40, "before a raw clone");
        out();
        int *at = flags[i] & CLONE_PIDFD ? pidfd : parent_id;
        pid_t child = (pid_t)syscall(SYS_clone, flags[i] | SIGCHLD, 0, at, child_id, 0);
        SETUP(child >= 0);
        if (child == 0) {
            RIGHT(!(flags[i] & CLONE_CHILD_SETTID) || *child_id == (int)syscall(SYS_gettid));
            check_range(area + 40 * PAGE, AREA - 40, TAG + 40, "of a raw clone");
            fill_range(area + 40 * PAGE, 60, 2 * TAG);
            squeeze();
            check_range(area + 40 * PAGE, 60, 2 * TAG, "of a raw clone");
            syscall(SYS_exit_group, 0);
        }
        RIGHT(!(flags[i] & CLONE_PARENT_SETTID) || *parent_id == child);
        RIGHT(!(flags[i] & CLONE_PIDFD) || *pidfd >= 0);
        if (flags[i] & CLONE_PIDFD)
            close(*pidfd);
        expect_child(child, "of a raw clone");
    }
    uint64_t *args = place(88);
    for (int i = 0; i < 3; i++) {
        memset(args, 0, 88);
        args[0] = i == 1 ? CLONE_PIDFD | CLONE_PARENT_SETTID : i == 2 ? CLEAR_SIGHAND : 0, args[4] = SIGCHLD;
        args[1] = (uintptr_t)pidfd, args[3] = (uintptr_t)parent_id;
        out();
        pid_t child = (pid_t)syscall(SYS_clone3, args, 88L);
        if (child < 0 && (errno == ENOSYS || errno == EPERM))
            return;
        SETUP(child >= 0);
        if (child == 0) {
            check_range(area + 40 * PAGE, AREA - 40, TAG + 40, "of a clone3");
            squeeze();
            struct sigaction now;
            RIGHT(i != 2 || (sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_DFL));
            syscall(SYS_exit_group, 0);
        }
        RIGHT(i != 1 || (*pidfd >= 0 && *parent_id == child && close(*pidfd) == 0));
        expect_child(child, "of a clone3");
    }
    RIGHT(syscall(SYS_clone3, args, 8L) == -1 && errno == EINVAL);
    args[4] = 999;
    RIGHT(syscall(SYS_clone3, args, 64L) == -1 && errno == EINVAL);
    RIGHT(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, 0, 0, 0, 0) == -1 && errno == EINVAL);
}

static int runs_beside(void *arg) {
    *(volatile int *)arg = 77;
    check_range(area + 40 * PAGE, 100, TAG + 40, "of a task beside");
    return 9;
}

// A task that shares the memory while its parent waits, or does not.
static void sharing(void) {
    fill_range(area, AREA, TAG);
    char *stack = map_new(64 * PAGE);
    int *shared = (int *)(area + 10 * PAGE), status;
    out();
    pid_t child = clone(runs_beside, stack + 64 * PAGE, CLONE_VM | CLONE_VFORK | SIGCHLD, shared);
    RIGHT(child > 0 && *shared == 77);
    RIGHT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    squeeze();
    check_range(area + 40 * PAGE, AREA - 40, TAG + 40, "after a task beside");
}

static void sharing_and_running(void) {
    fill_range(area, AREA, TAG);
    char *stack = map_new(64 * PAGE);
    int *shared = (int *)(area + 10 * PAGE), status;
    *shared = 0;
    pid_t child = clone(runs_beside, stack + 64 * PAGE, CLONE_VM | CLONE_FILES | SIGCHLD, shared);
    RIGHT(child > 0);
    squeeze();
    RIGHT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9 && *shared == 77);
}

// clone3 as newer libcs use it for posix_spawn: handlers are cleared in the child.
static void cleared_and_sharing(void) {
    fill_range(area, AREA, TAG);
    char *stack = map_new(64 * PAGE);
    struct sigaction action = {.sa_handler = forks_here}, now;
    SETUP(sigaction(SIGUSR2, &action, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        uint64_t *args = place(88);
        memset(args, 0, 88);
        args[0] = CLEAR_SIGHAND | CLONE_VM | CLONE_VFORK, args[4] = SIGCHLD;
        args[5] = (uintptr_t)stack, args[6] = 64 * PAGE;
        out();
        long child = SYS_clone3;
        __asm__ volatile("syscall\n"
                         "test %%rax, %%rax\n"
                         "jnz 1f\n"
                         "mov (%%rdx), %%rcx\n" // a page that is out
                         "mov %[exits], %%eax\n mov $3, %%edi\n syscall\n hlt\n"
                         "1:\n"
                         : "+a"(child)
                         : "D"(args), "S"(88L), "d"(area + 100 * PAGE), [exits] "i"(SYS_exit)
                         : "rcx", "r11", "memory");
        if (child == -ENOSYS || child == -EPERM)
            return;
        int status;
        RIGHT(child > 0 && waitpid((pid_t)child, &status, 0) == child);
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 3);
        RIGHT(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == forks_here);
        squeeze();
        check_range(area + 100 * PAGE, 100, TAG + 100, "after a task beside");
    }
}

static void *executes(void *arg) {
    execl("/bin/sh", "sh", "-c", "exit 8", (char *)NULL);
    return arg;
}

static void exec_in_a_thread(void) {
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            for (int k = 0; k < 3; k++) // and those that fail before
                RIGHT(execl("/does/not/exist", "x", (char *)NULL) == -1 && errno == ENOENT);
            fill_range(area, AREA, TAG);
            squeeze();
            check_range(area, AREA, TAG, "after an exec that failed");
            SETUP(pthread_create(&thread, NULL, executes, NULL) == 0);
            for (;;)
                squeeze();
        }
        int status;
        RIGHT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 8);
    }
}

static void not_dumpable(void) {
    fill_range(area, AREA, TAG);
    out();
    pid_t child = fork();
    if (child == 0) {
        SETUP(prctl(PR_SET_DUMPABLE, 0) == 0);
        squeeze();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            RIGHT(prctl(PR_GET_DUMPABLE) == 0);
            check_range(area, AREA, TAG, "of a child that is not dumpable");
            squeeze();
            check_range(area, AREA, TAG, "of a child that is not dumpable");
            _exit(0);
        }
        expect_child(grandchild, "that is not dumpable");
        _exit(0);
    }
    expect_child(child, "that is not dumpable");
}

static _Atomic int spawns_on;

static void *spawns(void *arg) {
    char *const argv[] = {"true", NULL};
    posix_spawnattr_t attributes;
    sigset_t all;
    sigfillset(&all);
    SETUP(posix_spawnattr_init(&attributes) == 0 && posix_spawnattr_setsigdefault(&attributes, &all) == 0);
    SETUP(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF) == 0);
    for (int i = 0; i < 150; i++) {
        pid_t child;
        SETUP(posix_spawn(&child, "/bin/true", NULL, &attributes, argv, NULL) == 0);
        expect_child(child, "that was spawned");
    }
    spawns_on = 0;
    return arg;
}

static char *forbidden;
static void allows(int signal) {
    (void)signal;
    SETUP(mprotect(forbidden, PAGE, 3) == 0);
}

// The child of posix_spawn has signals of its own; the program's handlers stay, for the threads
// that fault meanwhile.
static void spawned_beside_faults(void) {
    forbidden = mmap(NULL, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = allows}, before;
    SETUP(sigaction(SIGSEGV, &action, &before) == 0);
    pthread_t thread;
    spawns_on = 1;
    SETUP(pthread_create(&thread, NULL, spawns, NULL) == 0);
    while (spawns_on) {
        SETUP(mprotect(forbidden, PAGE, 0) == 0);
        *(volatile char *)forbidden = 1;
        touches(NULL);
    }
    SETUP(pthread_join(thread, NULL) == 0 && sigaction(SIGSEGV, &before, NULL) == 0);
}

// Of the memory that MADV_DONTFORK names a child has nothing, whether it was out or not, and what
// comes to lie there is new.
static void dropped_at_fork(void) {
    char *memory = map_new(AREA * PAGE);
    fill_range(memory, AREA, TAG);
    out_of_memory(memory, AREA, 16);
    RIGHT(madvise(memory, AREA / 2 * PAGE, MADV_DONTFORK) == 0);
    squeeze();
    check_range(memory, AREA / 4, TAG, "that a child will not have");
    out_of_memory(memory, AREA / 2, 8);
    for (int page = 0; page < AREA / 2; page += AREA / 2 - 1) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL), signal(SIGBUS, SIG_DFL);
            squeeze();
            *(volatile char *)(memory + page * PAGE) = 1;
            _exit(0);
        }
        int status;
        RIGHT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        RIGHT(mmap(memory, AREA / 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory);
        check_zeros(memory, AREA / 2, "mapped by a child where it had nothing");
        fill_range(memory, AREA / 2, 2 * TAG);
        squeeze();
        check_range(memory, AREA / 2, 2 * TAG, "of a child that had nothing there");
        check_range(memory + AREA / 2 * PAGE, AREA / 2, TAG + AREA / 2, "beside it");
        _exit(0);
    }
    expect_child(child, "without a part of the memory");
    // A child of vfork has it; moved and grown it is what it was; and it can be had again.
    child = vfork();
    SETUP(child >= 0);
    if (child == 0) {
        check_range(memory, AREA / 2, TAG, "of a child of vfork");
        _exit(0);
    }
    expect_child(child, "of vfork");
    char *grown = mremap(memory, AREA / 4 * PAGE, AREA * PAGE, MREMAP_MAYMOVE);
    RIGHT(grown != MAP_FAILED);
    out_of_memory(grown, AREA, 8);
    child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL), signal(SIGBUS, SIG_DFL);
        *(volatile char *)(grown + (AREA - 1) * PAGE) = 1;
        _exit(0);
    }
    int status;
    RIGHT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    RIGHT(madvise(grown, AREA * PAGE, MADV_DOFORK) == 0);
    child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        check_range(grown, AREA / 4, TAG, "that a child has again");
        check_zeros(grown + AREA / 4 * PAGE, AREA - AREA / 4, "that grew");
        _exit(0);
    }
    expect_child(child, "that has it again");
    check_range(grown, AREA / 4, TAG, "of the parent");
    SETUP(munmap(grown, AREA * PAGE) == 0);
    SETUP(munmap(memory + AREA / 4 * PAGE, (AREA - AREA / 4) * PAGE) == 0);
}

// Of the memory that MADV_WIPEONFORK names a child has zeros.
static void wiped_at_fork(void) {
    char *memory = map_new(AREA * PAGE);
    fill_range(memory, AREA, TAG);
    RIGHT(madvise(memory, AREA * PAGE, MADV_WIPEONFORK) == 0);
    out_of_memory(memory, AREA, 16);
    check_range(memory, 10, TAG, "that a child will not have");
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        check_zeros(memory, AREA / 2, "wiped");
        fill_range(memory, AREA, 2 * TAG);
        out_of_memory(memory, AREA, 16);
        if (fork() == 0) {
            check_zeros(memory, AREA, "wiped again");
            _exit(0);
        }
        int status;
        RIGHT(wait(&status) > 0 && status == 0);
        check_range(memory, AREA, 2 * TAG, "of a child that was wiped");
        RIGHT(madvise(memory, AREA * PAGE, MADV_KEEPONFORK) == 0);
        out_of_memory(memory, AREA, 16);
        if (fork() == 0) {
            check_range(memory, AREA, 2 * TAG, "kept");
            _exit(0);
        }
        RIGHT(wait(&status) > 0 && status == 0);
        _exit(0);
    }
    expect_child(child, "that was wiped");
    check_range(memory, AREA, TAG, "of a parent");
    SETUP(munmap(memory, AREA * PAGE) == 0);
}

// The same of memory that is closed from the start, and of which little has been touched.
static void wiped_untouched(void) {
    squeeze();
    char *memory = map_new(AREA * PAGE);
    RIGHT(madvise(memory, AREA * PAGE, MADV_WIPEONFORK) == 0);
    fill_range(memory + 10 * PAGE, 5, TAG);
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        check_zeros(memory, AREA, "wiped, and never touched");
        fill_range(memory, AREA, 2 * TAG);
        squeeze();
        check_range(memory, AREA, 2 * TAG, "of a child that was wiped");
        _exit(0);
    }
    expect_child(child, "that was wiped");
    check_range(memory + 10 * PAGE, 5, TAG, "of a parent");
    check_zeros(memory + 20 * PAGE, 20, "of a parent, never touched");
    SETUP(munmap(memory, AREA * PAGE) == 0);
}

static volatile int told;
static void tells(int signal) { told = signal; }

// (No function is left in the child of a clone that shares the stack.)
static inline __attribute__((always_inline)) long clone_here(unsigned long flags) {
    long result;
    register long child asm("r10") = 0, tls asm("r8") = 0;
    asm volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\tcmp $0, %[waits]\n\tje 1f\n\tmov %[end], %%eax\n\txor %%edi, %%edi\n\tsyscall\n1:"
                 : "=a"(result)
                 : "a"(SYS_clone), "D"(flags), "S"(0L), "d"(0L), "r"(child), "r"(tls), [end] "i"(SYS_exit_group),
                   [waits] "r"(flags & CLONE_VFORK)
                 : "rcx", "r11", "memory");
    return result;
}

// The kernel takes 32 bits of a raw clone's flags; and one that shares handlers needs the memory, which a
// child without a stack of its own is given as its own.
static void odd_flags(void) {
    struct sigaction action = {.sa_handler = tells}, before;
    SETUP(sigaction(SIGUSR1, &action, &before) == 0);
    const unsigned long flags[] = {1ul << 32 | SIGCHLD, (unsigned long)(int)CLONE_IO | SIGCHLD,
                                   CLONE_VM | CLONE_VFORK | CLONE_SIGHAND | SIGCHLD};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        pid_t child = (pid_t)clone_here(flags[i]);
        if (child == 0) {
            SETUP(kill((pid_t)syscall(SYS_getpid), SIGUSR1) == 0);
            RIGHT(told == SIGUSR1);
            syscall(SYS_exit_group, 0);
        }
        RIGHT(child > 0);
        expect_child(child, "of odd flags");
    }
    SETUP(sigaction(SIGUSR1, &before, NULL) == 0);
}

CASES({"spawned_beside_faults", spawned_beside_faults}, {"double_fork", double_fork}, {"storm", storm}, {"forks_beside_maps", forks_beside_maps}, {"in_handlers", in_handlers}, {"spawned", spawned}, {"vforked", vforked},
      {"vfork_shares", vfork_shares}, {"raw_ones", raw_ones}, {"sharing", sharing},
      {"cleared_and_sharing", cleared_and_sharing},
      {"sharing_and_running", sharing_and_running}, {"exec_in_a_thread", exec_in_a_thread}, {"not_dumpable", not_dumpable},
      {"dropped_at_fork", dropped_at_fork}, {"wiped_at_fork", wiped_at_fork},
      {"wiped_untouched", wiped_untouched}, {"odd_flags", odd_flags})
