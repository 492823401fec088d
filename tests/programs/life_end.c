// life_end HOW: ways to end with memory out and stores under way. The status is
// the program's own.
#include "life.h"
#include <signal.h>
#include <sys/resource.h>

static area_t a;

// A child that is in the middle of it, and says so when it begins.
static int began[2];

static void busy_child(void) {
    SETUP(write(began[1], "b", 1) == 1);
    for (;;) {
        check_part(&a, roll(a.pages - 30), 30, "in a child");
        write_area(&a, roll(a.pages - 10), 10);
        press_on(500);
    }
}

static pid_t start_child(pid_t (*make)(void)) {
    SETUP(pipe(began) == 0);
    pid_t pid = make();
    if (pid == 0) {
        pressing = 0;
        pthread_mutex_init(&ring_lock, NULL);
        busy_child();
    }
    char b;
    SETUP(read(began[0], &b, 1) == 1);
    return pid;
}

static pid_t libc_fork(void) { return fork(); }
static pid_t raw_fork(void) { return syscall(SYS_fork); }

static void killed_children(void) {
    for (int n = 0; n < 12; n++) {
        pid_t pid = start_child(n % 3 == 2 ? raw_fork : libc_fork);
        usleep(roll(20000));
        SETUP(kill(pid, SIGKILL) == 0);
        check_part(&a, roll(a.pages - 60), 60, "beside a child that was killed");
        int status;
        SETUP(waitpid(pid, &status, 0) == pid);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            die(1, "SIGKILL", NULL, "the child ended otherwise");
        close(began[0]), close(began[1]);
    }
    settle(&a, "after children that were killed");
    exit(33);
}

// The parent is killed while it serves the child's first moments; the child
// says whether it got all of its memory. (A raw fork's child has nobody but its
// parent to fill it, and is not asked for this.)
static void killed_parent(void) {
    int result[2];
    SETUP(pipe(result) == 0);
    for (int n = 0; n < 8; n++) {
        pid_t middle = fork();
        if (middle == 0) {
            pressing = 0;
            pthread_mutex_init(&ring_lock, NULL);
            pid_t here = getpid(), pid = fork();
            if (pid == 0) {
                kill(here, SIGKILL);
                check_area(&a, "in a child whose parent was killed");
                write_area(&a, 0, 30);
                press_on(1500);
                check_area(&a, "in a child whose parent was killed");
                SETUP(write(result[1], "k", 1) == 1);
                syscall(SYS_exit_group, 0);
            }
            for (;;)
                press_on(100);
        }
        int status;
        SETUP(waitpid(middle, &status, 0) == middle);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            die(1, "SIGKILL", NULL, "the parent ended otherwise");
    }
    close(result[1]);
    char k[16];
    size_t fine = 0;
    for (ssize_t got; (got = read(result[0], k, sizeof k)) > 0;)
        fine += got;
    // A child that lost its parent before it was given all ends with status 70
    // rather than read a wrong byte: it says nothing here.
    printf("children that lived on %zu of 8\n", fine);
    settle(&a, "after parents that were killed");
    exit(34);
}

static void *exits(void *arg) {
    (void)arg;
    syscall(SYS_exit_group, 35);
    return NULL;
}

static void *outlives(void *arg) {
    usleep(30000);
    check_area(arg, "after the main thread ended");
    press_on(3000);
    check_area(arg, "after the main thread ended");
    exit(36);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    seed_state = strtoull(argv[1], NULL, 0);
    const char *how = argv[2];
    if (managed())
        press_on(2 * CHUNK * CHUNKS);
    new_area(&a, STORING); // the presser goes on: stores are pending
    printf("absent %zu of %d\n", a.absent, AREA);
    fflush(stdout);
    SETUP(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
    pthread_t thread;
    if (!strcmp(how, "exit"))
        exit(31);
    if (!strcmp(how, "_exit"))
        _exit(32);
    if (!strcmp(how, "return"))
        return 37;
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "segv")) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile int *)NULL = 1;
    }
    if (!strcmp(how, "killed_children"))
        killed_children();
    if (!strcmp(how, "killed_parent"))
        killed_parent();
    if (!strcmp(how, "exit_group")) {
        SETUP(pthread_create(&thread, NULL, exits, NULL) == 0);
        for (;;)
            check_part(&a, roll(a.pages - 20), 20, "until a thread ends it all");
    }
    if (!strcmp(how, "pthread_exit")) {
        SETUP(pthread_create(&thread, NULL, outlives, &a) == 0);
        pthread_exit(NULL);
    }
    return 2;
}
