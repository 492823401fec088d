// Descriptors: those that serve faults are in nobody's way, and nobody is in theirs.
#include "inthread_kit.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>

enum { TAG = 500000 };

static void still_right(const char *what) {
    squeeze();
    check_range(area, AREA, TAG, what);
}

// In a child: what is done to descriptors is done for good.
static void in_child(void (*what)(void)) {
    fill_range(area, AREA, TAG);
    out();
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        what();
        still_right("after that");
        pid_t grandchild = fork();
        SETUP(grandchild >= 0);
        if (grandchild == 0) {
            still_right("of a child after that");
            _exit(0);
        }
        expect_child(grandchild, "after that");
        still_right("after that");
        _exit(0);
    }
    expect_child(child, case_now);
}

static void closes_each(void) {
    for (int fd = 3; fd < 70000; fd++)
        RIGHT(close(fd) == 0 || errno == EBADF);
}

static void closes_a_range(void) {
    RIGHT(syscall(436, 3, ~0u, 0) == 0);
    for (int fd = 3; fd < 100; fd++)
        RIGHT(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
}

static void closes_what_is_listed(void) {
    DIR *all = opendir("/proc/self/fd");
    SETUP(all != NULL);
    for (struct dirent *entry; (entry = readdir(all));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(all) && atoi(entry->d_name) > 2)
            close(atoi(entry->d_name));
    closedir(all);
}

static void marks_a_range(void) {
    RIGHT(syscall(436, 3, ~0u, 4) == 0); // CLOSE_RANGE_CLOEXEC
    RIGHT(syscall(436, 3, ~0u, 2) == 0); // CLOSE_RANGE_UNSHARE
    RIGHT(syscall(436, 5, 3, 0) == -1 && errno == EINVAL);
    RIGHT(syscall(436, 3, 5, 64) == -1 && errno == EINVAL);
}

static void takes_each(void) {
    struct rlimit limit;
    SETUP(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int nothing = open("/dev/null", O_RDONLY), most = limit.rlim_cur < 3000 ? (int)limit.rlim_cur : 3000;
    for (int fd = 3; fd < most; fd++)
        RIGHT(fd == nothing || dup2(nothing, fd) == fd);
    still_right("with every number taken");
    for (int fd = 3; fd < most; fd++)
        RIGHT(close(fd) == 0);
    // The highest, too.
    for (int fd = (int)limit.rlim_cur - 1; fd > (int)limit.rlim_cur - 60 && fd > 3; fd--) {
        RIGHT(dup2(0, fd) == fd || errno == EMFILE);
        RIGHT(dup3(0, fd, O_CLOEXEC) == fd || errno == EMFILE);
    }
    still_right("with the highest taken");
}

// Every number is taken that there is, and the table is as it always was: a child finds its memory.
static void takes_all_and_forks(void) {
    struct rlimit limit;
    SETUP(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_cur > 1 << 16) {
        // (It is not lowered here: what a child may open is tried before each fork then.)
        SAY("SKIPPED: %s: %llu descriptors are too many to take\n", case_now, (unsigned long long)limit.rlim_cur);
        return;
    }
    int next, last = -1;
    while ((next = open("/dev/null", O_RDONLY)) >= 0)
        last = next;
    RIGHT(errno == EMFILE && last > 0);
    out();
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            still_right("of a child with every number taken");
            _exit(0);
        }
        expect_child(child, "with every number taken");
    }
}

static void has_few(void) {
    struct rlimit limit = {40, 40};
    SETUP(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = -1, next;
    while ((next = open("/dev/null", O_RDONLY)) >= 0)
        last = next;
    RIGHT(errno == EMFILE && last == 39);
    still_right("with no number left");
    RIGHT(dup(0) == -1 && errno == EMFILE);
}

// A thread has a table of its own, and takes every number there that it can.
static void *takes_each_apart(void *how) {
    int null = open("/dev/null", O_RDWR);
    SETUP(null >= 0);
    if (how)
        RIGHT(syscall(436, 600, 700, 2) == 0); // CLOSE_RANGE_UNSHARE
    else
        RIGHT(unshare(CLONE_FILES) == 0);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != null)
            RIGHT(dup2(null, fd) == fd || errno == EBUSY || errno == EBADF);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    squeeze();
    return NULL;
}

static void takes_apart(void) {
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, takes_each_apart, i ? area : NULL) == 0);
        pthread_join(thread, NULL);
        still_right("beside a table of its own");
    }
    // The other's table is as it was.
    int null = open("/dev/null", O_RDWR);
    SETUP(null >= 0);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != null)
            RIGHT(dup2(null, fd) == fd || errno == EBUSY || errno == EBADF);
}

static volatile int forked;
static long opened, others;

// Closes a number, and expects the next file to have it.
static void *opens_in_place(void *arg) {
    for (; !forked; opened++) {
        close(0);
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd == 0)
            continue;
        others++;
        close(fd), close(0);
        SETUP(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
    }
    return arg;
}

// Forks take no number beside threads that count on them.
static void numbers_beside_forks(void) {
    pthread_t thread;
    fill_range(area, AREA, TAG);
    // (From here on the process has memory that is out, and says by itself what it has.)
    out();
    SETUP(pthread_create(&thread, NULL, opens_in_place, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0)
            _exit(0);
        expect_child(child, "beside a thread that opens");
    }
    forked = 1;
    SETUP(pthread_join(thread, NULL) == 0);
    RIGHT(opened > 0 && others == 0);
    still_right("after many forks");
}

static void tables_apart(void) { in_child(takes_apart); }
static void all_closed(void) { in_child(closes_each); }
static void a_range_closed(void) { in_child(closes_a_range); }
static void listed_and_closed(void) { in_child(closes_what_is_listed); }
static void a_range_marked(void) { in_child(marks_a_range); }
static void all_taken(void) { in_child(takes_each); }
static void all_taken_and_forked(void) { in_child(takes_all_and_forks); }
static void few(void) { in_child(has_few); }

// What a program is told of its descriptors.
static void listed(void) {
    int count = 0, open_ones = 0, next = open("/dev/null", O_RDONLY);
    DIR *all = opendir("/proc/self/fd");
    SETUP(all != NULL);
    for (struct dirent *entry; (entry = readdir(all));)
        count += entry->d_name[0] != '.' && atoi(entry->d_name) > next && atoi(entry->d_name) != dirfd(all);
    closedir(all);
    for (int fd = next + 1; fd < 70000; fd++)
        open_ones += fcntl(fd, F_GETFD) != -1;
    RIGHT(count == 0);
    RIGHT(open_ones == 0);
    close(next);
}

CASES({"tables_apart", tables_apart}, {"all_closed", all_closed}, {"a_range_closed", a_range_closed}, {"listed_and_closed", listed_and_closed},
      {"a_range_marked", a_range_marked}, {"all_taken", all_taken}, {"all_taken_and_forked", all_taken_and_forked}, {"few", few}, {"listed", listed},
      {"numbers_beside_forks", numbers_beside_forks})
