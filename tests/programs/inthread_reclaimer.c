// A thread of ours reclaims beside the program's (--background-reclaim): what the program sees of it,
// and what must not see it. Each case runs while memory runs short.
#include "inthread_kit.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

extern char **environ;
enum { TAG = 700000 };

// A number that a line of a file in /proc begins with.
static long in_file(const char *path, const char *line) {
    char text[4096], *at;
    int file = open(path, O_RDONLY);
    if (file < 0)
        return -1; // a thread that has ended
    ssize_t len = read(file, text, sizeof text - 1);
    close(file);
    if (len <= 0)
        return -1;
    text[len] = 0;
    at = strstr(text, line);
    SETUP(at != NULL);
    return strtol(at + strlen(line), NULL, 10);
}

static long threads_now(void) { return in_file("/proc/self/status", "\nThreads:"); }

// Calls `see` with the id of each thread.
static void each_thread(void (*see)(int)) {
    DIR *all = opendir("/proc/self/task");
    struct dirent *one;
    SETUP(all != NULL);
    while ((one = readdir(all)))
        if (one->d_name[0] != '.')
            see(atoi(one->d_name));
    closedir(all);
}

// A moment in which memory runs short, just before.
static void run_short(void) {
    fill_range(area, AREA, TAG);
    squeeze();
    check_range(area, AREA, TAG, "of a program under pressure");
}

// The child of a fork, and the fork itself, have one thread.
static void forked(void) {
    for (int turn = 0; turn < 8; turn++) {
        run_short();
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            RIGHT(threads_now() == 1);
            check_range(area, AREA, TAG, "of a child");
            run_short();
            _exit(0);
        }
        run_short();
        expect_child(child, "of a fork under pressure");
    }
}

// Only a process of one thread may do this; nobody may keep it from being one.
static void in_a_namespace(void) {
    for (int turn = 0; turn < 4; turn++) {
        run_short();
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            run_short();
            int result = unshare(CLONE_NEWUSER);
            RIGHT(result == 0 || errno != EINVAL);
            run_short();
            RIGHT(unshare(CLONE_FS | CLONE_FILES) == 0);
            run_short();
            _exit(0);
        }
        expect_child(child, "in a namespace");
    }
}

static void privileges_are_given_up(int thread) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    long is = in_file(path, "\nNoNewPrivs:");
    RIGHT(is != 0);
}

// What a program gives up no thread of ours keeps.
static void given_up(void) {
    run_short();
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        run_short();
        RIGHT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        for (int turn = 0; turn < 5; turn++) {
            each_thread(privileges_are_given_up);
            run_short();
        }
        each_thread(privileges_are_given_up);
        _exit(0);
    }
    expect_child(child, "without new privileges");
}

static void is_nice(int thread) {
    errno = 0;
    int is = getpriority(PRIO_PROCESS, thread);
    RIGHT(is == 7 || errno == ESRCH);
}

static void made_nice(void) {
    run_short();
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        run_short();
        RIGHT(setpriority(PRIO_PROCESS, 0, 7) == 0);
        each_thread(is_nice);
        run_short();
        each_thread(is_nice);
        _exit(0);
    }
    expect_child(child, "that is nice");
}

static volatile int told;

static void is_told(int signal) {
    (void)signal;
    __atomic_add_fetch(&told, 1, __ATOMIC_SEQ_CST);
}

static int sent;

static void send_to(int thread) {
    int result = syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
    RIGHT(result == 0 || errno == ESRCH);
    sent += result == 0;
}

// Who signals every thread, and waits for each, is answered by each.
static void told_each(void) {
    struct sigaction action = {.sa_handler = is_told, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int turn = 0; turn < 8; turn++) {
        run_short();
        told = sent = 0;
        each_thread(send_to);
        RIGHT(sent == 1 && told == sent);
    }
}

static void *ends_at_once(void *arg) { return arg; }

static void *ends_the_process(void *arg) {
    if (arg)
        usleep(20000);
    check_range(area, AREA, TAG, "of a thread that ends");
    syscall(SYS_exit, 23);
    return arg;
}

// The process ends with its last thread, by that one's status.
static void last_exit(void) {
    for (int kind = 0; kind < 3; kind++) {
        run_short();
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            run_short();
            if (kind > 0) {
                pthread_t thread;
                SETUP(pthread_create(&thread, NULL, ends_the_process, (void *)(size_t)(kind - 1)) == 0);
            }
            check_range(area, AREA, TAG, "of a thread that ends");
            syscall(SYS_exit, 23);
        }
        int status;
        double begun = seconds();
        SETUP(waitpid(child, &status, 0) == child);
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 23);
        RIGHT(seconds() - begun < 20);
    }
}

// A table of descriptors of its own: what is closed there is closed.
static void descriptors_apart(void) {
    for (int turn = 0; turn < 4; turn++) {
        int fds[2];
        run_short();
        SETUP(pipe(fds) == 0);
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            close(fds[0]);
            run_short();
            // CLOSE_RANGE_UNSHARE
            RIGHT(syscall(SYS_close_range, fds[1], fds[1], 2) == 0);
            run_short();
            for (;;) // the other end sees that nobody has it
                run_short();
        }
        close(fds[1]);
        char byte;
        RIGHT(read(fds[0], &byte, 1) == 0);
        close(fds[0]);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

static void spawned(void) {
    char *const argv[] = {"true", NULL};
    for (int turn = 0; turn < 8; turn++) {
        pid_t child;
        run_short();
        SETUP(posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ) == 0);
        run_short();
        expect_child(child, "that was spawned");
    }
}

// An exec that fails, and one that does not.
static void replaced(void) {
    for (int turn = 0; turn < 4; turn++) {
        run_short();
        RIGHT(execl("/does/not/exist", "x", (char *)NULL) == -1 && errno == ENOENT);
        run_short();
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            run_short();
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        expect_child(child, "that is another program");
    }
}

// Under a filter that ends the program for what a fork does not need, forks go on: no call is made
// beside them for a thread that is not there.
static void filtered(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 2, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    run_short();
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, ends_at_once, NULL) == 0);
        pthread_join(thread, NULL);
        run_short();
        RIGHT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        for (int turn = 0; turn < 3; turn++) {
            pid_t other = fork();
            SETUP(other >= 0);
            if (other == 0) {
                check_range(area, AREA, TAG, "of a child under a filter");
                syscall(SYS_exit, 0);
            }
            expect_child(other, "of a fork under a filter");
        }
        syscall(SYS_exit, 0);
    }
    expect_child(child, "under a filter");
}

static void *works(void *arg) {
    size_t id = (size_t)arg, part = AREA / 4;
    for (int turn = 0; turn < 10; turn++) {
        fill_range(area + id * part * PAGE, part, TAG * (id + 2) + turn);
        check_range(area + id * part * PAGE, part, TAG * (id + 2) + turn, "of a thread under pressure");
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, ends_at_once, NULL) == 0);
        pthread_join(thread, NULL);
    }
    return NULL;
}

// Threads of the program's come and go beside it, and map, discard and move memory.
static void beside_threads(void) {
    pthread_t threads[4];
    run_short();
    for (size_t i = 0; i < 4; i++)
        SETUP(pthread_create(&threads[i], NULL, works, (void *)i) == 0);
    for (int turn = 0; turn < 10; turn++) {
        squeeze();
        char *mapped = map_new(64 * PAGE);
        fill_range(mapped, 64, TAG);
        SETUP(madvise(mapped, 16 * PAGE, MADV_DONTNEED) == 0);
        check_zeros(mapped, 16, "discarded under pressure");
        mapped = mremap(mapped, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
        SETUP(mapped != MAP_FAILED);
        check_range(mapped + 16 * PAGE, 48, TAG + 16, "moved under pressure");
        SETUP(munmap(mapped, 128 * PAGE) == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

CASES({"forked", forked}, {"in_a_namespace", in_a_namespace}, {"given_up", given_up}, {"made_nice", made_nice},
      {"told_each", told_each}, {"last_exit", last_exit}, {"descriptors_apart", descriptors_apart},
      {"spawned", spawned}, {"replaced", replaced}, {"filtered", filtered}, {"beside_threads", beside_threads})
