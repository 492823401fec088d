// A program that makes its surroundings hostile, before its memory is managed
// or after, and then looks at all of its memory, in a child of a fork as well.
//
//     hostile SETTING before|after|unmanaged [ARGUMENT]
//
// "unmanaged" is "before", with memory that nobody moves.
#include "check.h"
#include "refuse.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { STEADY = 6144, BASE = 0x4000 };
static char *steady, *argument;
static bool moves = true, managed_before;
static int generations = 2; // of children
extern char **environ;

static void limit(int which, rlim_t to) {
    SETUP(setrlimit(which, &(struct rlimit){to, to}) == 0);
}

static void close_all(void) {
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
    syscall(SYS_close_range, 3, ~0u, 0);
}

static void dup_over_all(void) {
    int null = open("/dev/null", O_RDWR);
    SETUP(null >= 0);
    for (int fd = 0; fd < 512; fd++)
        if (fd != null)
            SETUP(dup2(null, fd) == fd);
}

// Descriptor 2 becomes a file of data.
static void replace_stderr(void) {
    close(2);
    SETUP(open(argument, O_RDWR | O_CREAT | O_TRUNC, 0600) == 2);
    SETUP(write(2, "data\n", 5) == 5);
}

static void no_descriptors(void) { limit(RLIMIT_NOFILE, 0); }
static void few_descriptors(void) { limit(RLIMIT_NOFILE, 5); }
static void no_files(void) { limit(RLIMIT_FSIZE, 0); }

static void few_addresses(void) { limit(RLIMIT_AS, 500 << 20); }

static void some_addresses(void) { limit(RLIMIT_AS, 6ull << 30); }
static void little_data(void) { limit(RLIMIT_DATA, 500 << 20); }
static void lock_future(void) { SETUP(mlockall(MCL_FUTURE) == 0); }

static void change_root(void) {
    char dir[] = "/tmp/zfolio-hostile-XXXXXX";
    SETUP(mkdtemp(dir) && chroot(dir) == 0 && chdir("/") == 0);
}

// A mount namespace of its own: what is mounted there nobody else sees.
static void new_mounts(void) {
    SETUP(unshare(CLONE_NEWNS) == 0);
    SETUP(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
}

// The pids control group of the argument, with room for so many tasks more.
static void leave_tasks(long room) {
    char name[300], text[40];
    const char *files[] = {"cgroup.procs", "pids.current", "pids.max"};
    long tasks = 0;
    for (int n = 0; n < 3; n++) {
        snprintf(name, sizeof name, "%s/%s", argument, files[n]);
        int fd = open(name, n == 1 ? O_RDONLY : O_WRONLY);
        SETUP(fd >= 0);
        if (n == 1) {
            SETUP(read(fd, text, sizeof text) > 0);
            tasks = atol(text);
        } else {
            int len = snprintf(text, sizeof text, "%ld", n ? tasks + room : 0);
            SETUP(write(fd, text, len) == len);
        }
        close(fd);
    }
}

// For a child and nothing else; for a child, and its child or a thread.
static void one_task(void) { leave_tasks(generations = 1); }
static void two_tasks(void) { leave_tasks(generations = 2); }

static void hide_proc(void) {
    new_mounts();
    SETUP(mount("none", "/proc", "tmpfs", 0, NULL) == 0);
    SETUP(access("/proc/self", F_OK) == -1);
}

// The old root goes away altogether, not only for this thread's names.
static void move_root(void) {
    new_mounts();
    SETUP(mount("none", "/tmp", "tmpfs", 0, NULL) == 0 && chdir("/tmp") == 0);
    SETUP(syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0);
    SETUP(chdir("/") == 0 && access("/proc", F_OK) == -1 && access("/dev/shm", F_OK) == -1);
}

static void remove_directory(void) {
    char dir[] = "/tmp/zfolio-hostile-XXXXXX";
    SETUP(mkdtemp(dir) && chdir(dir) == 0 && rmdir(dir) == 0);
}

static void overwrite_environment(void) {
    char *start = environ[0], *end = start;
    for (char **entry = environ; *entry; entry++)
        end = *entry + strlen(*entry);
    memset(start, 'x', end - start);
    static char control[] = "ZFOLIO_CONTROL=overwritten", *rest[] = {control, NULL};
    environ = managed_before ? rest : NULL; // what `managed` looks at
}

static void new_user_namespace(void) { SETUP(unshare(CLONE_NEWUSER) == 0); }

// The next child is process 1 of a namespace of its own.
static void new_process_namespace(void) { SETUP(unshare(CLONE_NEWPID) == 0); }

// What /proc has of this process belongs to root from here on.
static void undumpable(void) { SETUP(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0); }

static void forbid_userfaultfd(void) { SETUP(refuse_userfaultfd() == 0); }

// Every call that only a manager makes kills, in this thread and its children.
static void sandbox(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 323, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    SETUP(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    SETUP(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
}

// All signals blocked here; none may be taken by a thread of the manager.
static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    SETUP(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
}

static void ignore_children(void) { signal(SIGCHLD, SIG_IGN); }
static void own_session(void) { setsid(); }
static void nothing(void) {}

// A fork that cannot be followed, with a file of data in the place of stderr.
static void lose_both(void) {
    replace_stderr();
    no_descriptors();
}

static const struct {
    const char *name;
    void (*make)(void);
} SETTINGS[] = {
    {"nothing", nothing},
    {"close_all", close_all},
    {"dup_over_all", dup_over_all},
    {"replace_stderr", replace_stderr},
    {"no_descriptors", no_descriptors},
    {"few_descriptors", few_descriptors},
    {"no_files", no_files},
    {"few_addresses", few_addresses},
    {"some_addresses", some_addresses},
    {"little_data", little_data},
    {"lock_future", lock_future},
    {"change_root", change_root},
    {"one_task", one_task},
    {"two_tasks", two_tasks},
    {"hide_proc", hide_proc},
    {"move_root", move_root},
    {"remove_directory", remove_directory},
    {"overwrite_environment", overwrite_environment},
    {"new_user_namespace", new_user_namespace},
    {"new_process_namespace", new_process_namespace},
    {"undumpable", undumpable},
    {"forbid_userfaultfd", forbid_userfaultfd},
    {"sandbox", sandbox},
    {"block_signals", block_signals},
    {"ignore_children", ignore_children},
    {"own_session", own_session},
    {"lose_both", lose_both},
};

static void make(const char *name) {
    for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++)
        if (strcmp(SETTINGS[i].name, name) == 0)
            return SETTINGS[i].make();
    die(2, "setup", NULL, name);
}

static void look(const char *what) {
    if (moves)
        push_out(steady, STEADY);
    else
        press();
    check_range(steady, STEADY, BASE, what);
}

// The child looks, changes what it has, and forks itself.
static void in_children(int depth) {
    pid_t pid = fork();
    if (pid == 0) {
        check_range(steady, STEADY, BASE, "in the child");
        press();
        check_range(steady, STEADY, BASE, "in the child, later");
        fill_page(steady, BASE + 99);
        fill_page(steady, BASE);
        if (depth > 1)
            in_children(depth - 1);
        _exit(0);
    }
    SETUP(pid > 0);
    int status = 0;
    if (waitpid(pid, &status, 0) < 0)
        return; // reaped by the kernel, where SIGCHLD is ignored
    char more[40];
    snprintf(more, sizeof more, "status %#x", status);
    if (status)
        die(1, "a child of a fork", NULL, more);
}

// Threads that libc does not know must have every signal blocked.
__attribute__((unused)) static void check_signals(void) {
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], line[200];
        unsigned long blocked = 0;
        if (atoi(task->d_name) == 0 || atoi(task->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status))
            sscanf(line, "SigBlk: %lx", &blocked);
        if (status)
            fclose(status);
        if (status && blocked != 0xfffffffe7ffbfeff && blocked != 0xfffffffffffbfeff)
            die(1, "signals are not blocked", (void *)blocked, path);
    }
    if (tasks)
        closedir(tasks);
}

int main(int argc, char **argv) {
    SETUP(argc >= 3);
    managed_before = managed();
    char setting[64];
    snprintf(setting, sizeof setting, "%s", argv[1]);
    bool after = strcmp(argv[2], "after") == 0;
    moves = strcmp(argv[2], "unmanaged") != 0;
    argument = argc > 3 ? strdup(argv[3]) : NULL;
    bool daemon = argument && strcmp(argument, "daemon") == 0;
    if (daemon) { // twice, as daemons do; whoever started it waits
        int ends[2];
        char told = 0;
        SETUP(pipe(ends) == 0);
        pid_t pid = fork();
        if (pid > 0) {
            close(ends[1]);
            SETUP(read(ends[0], &told, 1) >= 0 && waitpid(pid, NULL, 0) == pid);
            return told == 'y' ? 0 : 1;
        }
        setsid();
        if (fork() > 0)
            _exit(0);
        SETUP(dup2(ends[1], 700) == 700);
        close(ends[0]);
        close(ends[1]);
    }
    if (!after)
        make(setting);
    steady = map_new((size_t)STEADY * PAGE);
    fill_range(steady, STEADY, BASE);
    look("in the beginning");
    if (after)
        make(setting);
    look("later");
#ifndef __SANITIZE_THREAD__ // it has a thread of its own
    check_signals();
#endif
    in_children(generations);
    look("in the end");
    if (daemon)
        SETUP(write(700, "y", 1) == 1);
    return 0;
}
