// Forks with memory in every state: forks.c CASE.
#include "check.h"
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

extern char **environ;
enum { PAGES = 12288 }; // 48 MiB
static char *memory;
static const tag_t TAG = 0x10000;

static void setup(void) {
    memory = map_new((size_t)PAGES * PAGE);
    fill_range(memory, PAGES, TAG);
    push_out(memory, PAGES);
    // Some present, some standing by, most stored.
    check_range(memory + 1000 * PAGE, 600, TAG + 1000, "before the fork");
    for (size_t i = 2000; i < 4000; i += 3)
        check_page(memory + i * PAGE, TAG + i, "before the fork");
}

// In a child: all of it, then other contents, then those.
static void child_verifies(tag_t base, tag_t own) {
    check_range(memory, PAGES, base, "in the child");
    fill_range(memory, PAGES, own);
    check_range(memory, PAGES, own, "in the child, rewritten");
}

static void fork_once(void) {
    pid_t pid = fork();
    if (pid == 0) {
        child_verifies(TAG, 0x100000);
        exit(0);
    }
    // Meanwhile the parent goes on with its own.
    for (size_t i = 0; i < PAGES; i++) {
        check_page(memory + i * PAGE, TAG + i, "in the parent");
        fill_page(memory + i * PAGE, 0x200000 + i);
    }
    check_range(memory, PAGES, 0x200000, "in the parent, rewritten");
    expect_child(pid, "fork");
    push_out(memory, PAGES);
    check_range(memory, PAGES, 0x200000, "in the parent, after the child");
}

static void libc(void) {
    setup();
    fork_once();
}

static void deep(void) {
    setup();
    tag_t tag = TAG;
    for (int depth = 0; depth < 3; depth++) {
        pid_t pid = fork();
        if (pid) {
            expect_child(pid, "a child of a child");
            check_range(memory, PAGES, tag, "the parent of a chain");
            exit(0);
        }
        child_verifies(tag, tag + 0x100000);
        tag += 0x100000;
    }
}

// Who forks ends at once, as daemons do. Its child has it all.
static void daemons(void) {
    setup();
    int ends[2];
    char told = 0;
    SETUP(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() > 0)
            _exit(0);
        child_verifies(TAG, 0x100000);
        SETUP(write(ends[1], "y", 1) == 1);
        _exit(0);
    }
    close(ends[1]);
    expect_child(pid, "who made a daemon");
    if (read(ends[0], &told, 1) != 1)
        die(1, "daemon", NULL, "it did not get to its end");
    check_range(memory, PAGES, TAG, "beside a daemon");
}

static void many(void) {
    setup();
    for (size_t n = 0; n < 200; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            size_t from = n * 61 % (PAGES - 200);
            check_range(memory + from * PAGE, 200, TAG + from, "in one of many children");
            _exit(0);
        }
        // The parent wants pages while the child starts.
        size_t from = n * 127 % (PAGES - 100);
        check_range(memory + from * PAGE, 100, TAG + from, "the parent of many");
        expect_child(pid, "one of many");
    }
    check_range(memory, PAGES, TAG, "the parent of many");
}

// Several children alive at once.
static void brood(void) {
    setup();
    pid_t pids[6];
    for (int n = 0; n < 6; n++) {
        pids[n] = fork();
        if (pids[n] == 0) {
            for (size_t i = n; i < PAGES; i += 2)
                check_page(memory + i * PAGE, TAG + i, "in one of a brood");
            exit(0);
        }
    }
    check_range(memory, PAGES, TAG, "the parent of a brood");
    for (int n = 0; n < 6; n++)
        expect_child(pids[n], "one of a brood");
}

static atomic_int stop;

// Keeps rewriting its quarter of the second half.
static void *writer(void *arg) {
    size_t t = (size_t)arg, part = PAGES / 8;
    char *at = memory + (PAGES / 2 + t * part) * PAGE;
    tag_t tag = 0x300000 * (t + 1);
    fill_range(at, part, tag);
    while (!stop) {
        for (size_t i = 0; i < part; i++) {
            check_page(at + i * PAGE, tag + i, "a writer beside forks");
            fill_page(at + i * PAGE, tag + part + i);
        }
        tag += part;
    }
    check_range(at, part, tag, "a writer beside forks");
    return NULL;
}

static void fork_beside(void *(*body)(void *), int forks, pid_t (*make)(void)) {
    setup();
    pthread_t threads[4];
    for (size_t t = 0; t < 4; t++)
        SETUP(pthread_create(&threads[t], NULL, body, (void *)t) == 0);
    for (int n = 0; n < forks; n++) {
        pid_t pid = make();
        if (pid == 0) {
            // The first half nobody writes; of the second, each page holds one
            // moment of a writer's: not checked.
            check_range(memory, PAGES / 2, TAG, "in the child of many threads");
            fill_range(memory, PAGES / 4, 0x900000);
            check_range(memory, PAGES / 4, 0x900000, "in the child of many threads, rewritten");
            syscall(SYS_exit_group, 0);
        }
        check_range(memory, PAGES / 2, TAG, "the parent of many threads");
        expect_child(pid, "fork beside threads");
    }
    stop = 1;
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    // A child that lacks nothing may be gone before its fork is counted; what was touched
    // since leaves only after that.
    push_out(memory, PAGES / 2);
}

static void threads(void) { fork_beside(writer, 12, fork); }

static pid_t raw_fork(void) { return syscall(SYS_fork); }

static void raw_threads(void) { fork_beside(writer, 8, raw_fork); }

// Maps, remaps, discards and unmaps beside the forks.
static void *mover(void *arg) {
    size_t part = 300;
    for (tag_t tag = 0x5000000 * ((size_t)arg + 1); !stop; tag += part) {
        char *at = map_new(part * PAGE);
        fill_range(at, part, tag);
        char *to = mmap(NULL, part * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SETUP(to != MAP_FAILED);
        usleep(2000);
        if (mremap(at, part * PAGE, part * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
            die(1, "mremap", at, "refused beside forks");
        check_range(to, part, tag, "moved beside forks");
        SETUP(madvise(to + 50 * PAGE, 100 * PAGE, MADV_DONTNEED) == 0);
        check_zeros(to + 50 * PAGE, 100, "discarded beside forks");
        check_range(to + 150 * PAGE, part - 150, tag + 150, "moved beside forks");
        SETUP(munmap(to, part * PAGE) == 0);
    }
    return NULL;
}

static void movers(void) { fork_beside(mover, 20, fork); }
static void raw_movers(void) { fork_beside(mover, 12, raw_fork); }

// Pages that one thread carries from one mapping to the next, half at a time:
// at every moment each page is at exactly one of two addresses. Where a child
// finds it mapped, the bytes must be right.
enum { CARRIED = 256 };
static char *_Atomic places[2];
static void *carrier(void *arg) {
    (void)arg;
    for (int n = 0; !stop; n++) {
        char *from = places[n % 2], *to = places[(n + 1) % 2];
        if (mremap(from, CARRIED * PAGE, CARRIED * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
            die(1, "mremap", from, "refused beside forks");
        if (n % 8 == 0)
            usleep(1000);
    }
    return NULL;
}

static int is_mapped(char *at) {
    unsigned char one;
    return mincore(at, PAGE, &one) == 0;
}

static void carried_by(pid_t (*make)(void), int forks) {
    setup();
    char *room = mmap(NULL, 4 * CARRIED * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(room != MAP_FAILED);
    SETUP(munmap(room, 4 * CARRIED * PAGE) == 0);
    places[0] = map_at(room, CARRIED * PAGE, MAP_FIXED);
    places[1] = room + 2 * CARRIED * PAGE;
    fill_range(places[0], CARRIED, 0x77000);
    push_out(places[0], CARRIED);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, carrier, NULL) == 0);
    for (int n = 0; n < forks; n++) {
        pid_t pid = make();
        if (pid == 0) {
            int seen = 0;
            for (int which = 0; which < 2; which++)
                if (is_mapped(places[which])) {
                    check_range(places[which], CARRIED, 0x77000, "carried, in the child");
                    seen++;
                }
            if (seen != 1)
                die(1, "mremap", places[0], "in the child the range is at both places or none");
            syscall(SYS_exit_group, 0);
        }
        check_range(memory + n * 100 * PAGE, 100, TAG + n * 100, "the parent beside a carrier");
        expect_child(pid, "fork beside mremap");
    }
    stop = 1;
    pthread_join(thread, NULL);
    check_range(is_mapped(places[0]) ? places[0] : places[1], CARRIED, 0x77000, "carried");
}

static void carried(void) { carried_by(fork, 100); }
static void raw_carried(void) { carried_by(raw_fork, 60); }

static void raw(void) {
    setup();
    for (int n = 0; n < 3; n++) {
        // Twice in a row with the previous child still alive.
        pid_t one = raw_fork();
        if (one == 0) {
            child_verifies(TAG, 0x400000);
            syscall(SYS_exit_group, 0);
        }
        pid_t two = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (two == 0) {
            child_verifies(TAG, 0x500000);
            syscall(SYS_exit_group, 0);
        }
        check_range(memory, PAGES, TAG, "the parent of raw forks");
        expect_child(one, "raw fork");
        expect_child(two, "raw clone");
        push_out(memory, PAGES);
    }
}

// A child of a raw fork that forks by libc: it has tables and no threads.
static void raw_then_libc(void) {
    setup();
    pid_t pid = raw_fork();
    if (pid == 0) {
        check_range(memory, PAGES / 2, TAG, "in a raw child");
        pid_t grandchild = fork();
        if (grandchild == 0) {
            child_verifies(TAG, 0x600000);
            _exit(0);
        }
        expect_child(grandchild, "libc fork in a raw child");
        check_range(memory, PAGES, TAG, "in a raw child");
        _exit(0);
    }
    expect_child(pid, "raw fork");
    check_range(memory, PAGES, TAG, "the parent of a raw fork");
}

static void exec(void) {
    setup();
    strcpy(memory, "exit $((5 + 2))");
    push_out(memory, PAGES);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {"sh", "-c", memory, NULL}; // moved out, read by execve
        execv("/bin/sh", argv);
        _exit(2);
    }
    SETUP(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        die(1, "fork and exec", memory, "wrong status");
    push_out(memory, PAGES);
    char *argv[] = {"sh", "-c", memory, NULL};
    SETUP(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0);
    SETUP(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        die(1, "posix_spawn", memory, "wrong status");
    push_out(memory, PAGES);
    status = system(memory);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        die(1, "system", memory, "wrong status");
    push_out(memory, PAGES);
    pid = vfork();
    if (pid == 0) {
        execv("/bin/sh", argv);
        _exit(2);
    }
    SETUP(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        die(1, "vfork", memory, "wrong status");
    fill_page(memory, TAG);
    check_range(memory, PAGES, TAG, "after system calls that make processes");
}

// Forks that fail: no process may be had.
static void failing(void) {
    if (geteuid() == 0) {
        SETUP(setgroups(0, NULL) == 0);
        SETUP(setresgid(54321, 54321, 54321) == 0 && setresuid(54321, 54321, 54321) == 0);
    }
    setup();
    struct rlimit none = {1, 1};
    SETUP(setrlimit(RLIMIT_NPROC, &none) == 0);
    for (int n = 0; n < 5; n++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        if (pid > 0)
            die(2, "setup", NULL, "a fork beyond RLIMIT_NPROC succeeded");
        check_range(memory, PAGES, TAG, "after a fork that failed");
        push_out(memory, PAGES);
    }
}

// A daemon's life: managed as root, then another user; then it forks.
static void dropped(void) {
    if (geteuid() != 0)
        die(2, "setup", NULL, "needs root");
    setup();
    SETUP(setgroups(0, NULL) == 0);
    SETUP(setresgid(54321, 54321, 54321) == 0 && setresuid(54321, 54321, 54321) == 0);
    fork_once();
}

static void undumpable(void) {
    SETUP(prctl(PR_SET_DUMPABLE, 0) == 0);
    libc();
}

// The program closes all descriptors, and may open no more.
static void few_files(void) {
    setup();
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    struct rlimit few = {16, 16};
    SETUP(setrlimit(RLIMIT_NOFILE, &few) == 0);
    fork_once();
}

// All of it at once: threads that fork by libc and raw at the same time.
static void *forker(void *arg) {
    size_t t = (size_t)arg;
    for (int n = 0; n < 10; n++) {
        pid_t pid = t % 2 ? raw_fork() : fork();
        if (pid == 0) {
            size_t from = (t * 10 + n) * 97 % (PAGES - 2000);
            check_range(memory + from * PAGE, 2000, TAG + from, "in a child beside other forks");
            syscall(SYS_exit_group, 0);
        }
        expect_child(pid, t % 2 ? "raw fork beside forks" : "fork beside forks");
    }
    return NULL;
}

static void together(void) {
    setup();
    pthread_t threads[4];
    for (size_t t = 0; t < 4; t++)
        SETUP(pthread_create(&threads[t], NULL, forker, (void *)t) == 0);
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    check_range(memory, PAGES, TAG, "the parent of forks at once");
}

// libc's fork waits for whoever is inside malloc, and that one may wait for a
// page, while others are served thousands: none may wait for the fork's end.
static atomic_int crowded_stop;

static void *sweeper(void *arg) {
    char *at = arg;
    for (tag_t tag = 0x500000; !crowded_stop; tag += 0x100000) {
        char *fresh = map_new((size_t)PAGES * PAGE / 4);
        fill_range(fresh, PAGES / 4, tag);
        fill_range(at, PAGES / 4, tag);
        check_range(at, PAGES / 4, tag, "swept");
        check_range(fresh, PAGES / 4, tag, "fresh");
        SETUP(munmap(fresh, (size_t)PAGES * PAGE / 4) == 0);
    }
    return NULL;
}

static void *allocator(void *arg) {
    (void)arg;
    enum { KEPT = 400 };
    char *kept[KEPT] = {0};
    for (size_t i = 0; !crowded_stop; i++) {
        size_t k = mix(i) % KEPT;
        free(kept[k]);
        size_t bytes = 1000 + mix(i + 1) % 60000;
        SETUP((kept[k] = malloc(bytes)));
        memset(kept[k], (int)i, bytes);
    }
    return NULL;
}

static void crowded(void) {
    setup();
    pthread_t threads[5];
    for (size_t t = 0; t < 5; t++)
        SETUP(pthread_create(&threads[t], NULL, t < 3 ? sweeper : allocator,
                             memory + t * (PAGES / 4) * PAGE) == 0);
    for (int i = 0; i < 12; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            check_range(memory + PAGES / 4 * 3 * PAGE, PAGES / 4, TAG + PAGES / 4 * 3, "crowded");
            _exit(0);
        }
        expect_child(pid, "fork in a crowd");
    }
    crowded_stop = 1;
    for (size_t t = 0; t < 5; t++)
        pthread_join(threads[t], NULL);
    check_range(memory + PAGES / 4 * 3 * PAGE, PAGES / 4, TAG + PAGES / 4 * 3, "after the crowd");
}

// Forks while the manager is being made: one every megabyte on the way there.
// Each child grows until it needs a manager of its own.
static void start_one(void) {
    enum { STEP = 256, STEPS = 40, SMALL = 40 };
    pid_t children[STEPS];
    char *at = map_new((size_t)STEP * STEPS * PAGE);
    for (size_t step = 0; step < STEPS; step++) {
        fill_range(at + step * STEP * PAGE, STEP, TAG + step * STEP);
        if (step < 16) {
            children[step] = 0;
            continue;
        }
        pid_t pid = children[step] = fork();
        SETUP(pid >= 0);
        if (pid)
            continue;
        char *own = map_new((size_t)STEP * SMALL * PAGE);
        fill_range(own, STEP * SMALL, 0x900000);
        check_range(at, (step + 1) * STEP, TAG, "inherited while a manager was made");
        check_range(own, STEP * SMALL, 0x900000, "the child's own");
        _exit(0);
    }
    for (size_t step = 0; step < STEPS; step++)
        if (children[step])
            expect_child(children[step], "fork beside a start");
    check_range(at, (size_t)STEP * STEPS, TAG, "the parent's");
}

// That, from process to process: each makes its manager anew.
static void starting(void) {
    for (int round = 0; round < 4; round++) {
        char *argv[] = {"forks", "start_one", NULL};
        pid_t pid;
        SETUP(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
        expect_child(pid, "start_one");
    }
}

// Pages shared with a child that stays, and among them pages that nobody ever
// touched. Whoever moves the first out must not fault the second in: written in
// order by several threads, what is left behind is moved out by the threads that
// serve faults.
static void *between(void *arg) {
    size_t part = PAGES / 4, from = (size_t)arg * part;
    for (size_t i = from; i < from + part; i++)
        if (i % 2 && i % 8 != 7)
            fill_page(memory + i * PAGE, TAG + i);
    return NULL;
}

static void holes(void) {
    for (int round = 0; round < 4; round++) {
        memory = map_new((size_t)PAGES * PAGE);
        for (size_t i = 0; i < PAGES; i += 2)
            fill_page(memory + i * PAGE, TAG + i);
        int told[2];
        char one;
        SETUP(pipe(told) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(told[1]);
            while (read(told[0], &one, 1) > 0)
                ;
            check_page(memory + 2 * PAGE, TAG + 2, "in the child that stayed");
            _exit(0);
        }
        close(told[0]);
        pthread_t threads[4];
        for (size_t t = 0; t < 4; t++)
            SETUP(pthread_create(&threads[t], NULL, between, (void *)t) == 0);
        for (int t = 0; t < 4; t++)
            pthread_join(threads[t], NULL);
        for (size_t i = 0; i < PAGES; i++)
            check_page(memory + i * PAGE, i % 8 == 7 ? 0 : TAG + i, "beside pages never touched");
        close(told[1]);
        expect_child(pid, "a child that stayed");
        SETUP(munmap(memory, (size_t)PAGES * PAGE) == 0);
    }
}

// Memory right before and behind the preloaded library: it is the program's, in
// its children too.
static void beside_library(void) {
    unsigned long from = 0, end = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    SETUP(maps);
    for (char line[512]; fgets(line, sizeof line, maps);) {
        unsigned long low, high;
        if (sscanf(line, "%lx-%lx", &low, &high) != 2)
            continue;
        if (strstr(line, "zfolio_preload")) {
            from = from ? from : low;
            end = high;
        } else if (end == low && strstr(line, " 00:00 0 ") && !strchr(line, '/') && !strchr(line, '['))
            end = high; // its variables beyond the file
    }
    fclose(maps);
    // What is out already comes to lie there. (Of one mapping with the rest: less than 64 KiB by
    // itself is not managed, and it might lie beside the library by itself.)
    enum { NEAR = 12 };
    memory = map_new((size_t)(PAGES + 2 * NEAR) * PAGE);
    fill_range(memory, PAGES, TAG);
    char *out[2] = {memory + (size_t)PAGES * PAGE, memory + (size_t)(PAGES + NEAR) * PAGE};
    char *beside[2] = {(char *)from - NEAR * PAGE, (char *)end};
    int free_there[2];
    for (int side = 0; side < 2; side++) {
        char *at = beside[side];
        char *got = from ? mmap(at, NEAR * PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)
                         : MAP_FAILED;
        free_there[side] = got == at;
        if (got != MAP_FAILED)
            SETUP(munmap(got, NEAR * PAGE) == 0);
    }
    if (!free_there[0] && !free_there[1])
        printf("nothing is free beside the library\n");
    for (int side = 0; side < 2; side++)
        fill_range(out[side], NEAR, 0x44000 + side * 0x1000);
    push_out(memory, PAGES);
    for (int side = 0; side < 2; side++) {
        push_out(out[side], NEAR);
        if (free_there[side])
            SETUP(mremap(out[side], NEAR * PAGE, NEAR * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                         beside[side]) == beside[side]);
        else
            beside[side] = out[side];
    }
    pid_t pid = fork();
    if (pid == 0) {
        for (int side = 0; side < 2; side++)
            check_range(beside[side], NEAR, 0x44000 + side * 0x1000, "in the child, beside");
        _exit(0);
    }
    expect_child(pid, "fork");
    for (int side = 0; side < 2; side++)
        check_range(beside[side], NEAR, 0x44000 + side * 0x1000, "in the parent, beside");
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } cases[] = {
        {"libc", libc}, {"deep", deep}, {"many", many}, {"daemons", daemons}, {"brood", brood}, {"threads", threads},
        {"raw", raw}, {"raw_threads", raw_threads}, {"raw_then_libc", raw_then_libc},
        {"movers", movers}, {"raw_movers", raw_movers}, {"carried", carried},
        {"raw_carried", raw_carried}, {"exec", exec}, {"failing", failing}, {"dropped", dropped},
        {"undumpable", undumpable}, {"few_files", few_files}, {"together", together},
        {"crowded", crowded}, {"starting", starting}, {"start_one", start_one},
        {"holes", holes}, {"beside_library", beside_library},
    };
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            return cases[i].run(), 0;
    return 2;
}
