// Children of forks that do not do what children do: what becomes of their parent, of them,
// and of what a long line of them leaves behind.
//   lease stopped       six children, each stopped before it runs: the parent reclaims and
//                       forks on; going on later the child has its memory
//   lease late          children that run late, or by raw forks, while their parent moves what
//                       has grown, and discards what they have
//   lease locked        forks beside a thread that moves locked memory, which grows, to where
//                       something else was until just now
//   lease handler       a signal handler forks, within fork as well
//   lease line N        N generations, each of which forks and ends: mappings stay as many
//   lease namespace     a child that is process 1 of a pid namespace forks in its turn
#include "check.h"
#include <sched.h>
#include <sys/syscall.h>

enum { AREA = 12000, TAG = 0x3000000 };
static char *area;

static unsigned mappings(void) {
    char line[512];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    SETUP(maps);
    while (fgets(line, sizeof line, maps))
        count++;
    fclose(maps);
    return count;
}

static pid_t forked(void) {
    pid_t pid = fork();
    SETUP(pid >= 0);
    return pid;
}

static void child_that_stops(void) {
    int go[2];
    SETUP(pipe(go) == 0);
    pid_t child = forked();
    if (child == 0) {
        char byte;
        SETUP(read(go[0], &byte, 1) == 1);
        check_range(area, AREA, TAG, "the stopped child's");
        fill_range(area, AREA, TAG + AREA);
        press();
        check_range(area, AREA, TAG + AREA, "what the stopped child wrote");
        _exit(0);
    }
    SETUP(kill(child, SIGSTOP) == 0);
    for (int i = 0; i < 3; i++) {
        press();
        check_range(area, AREA, TAG, "the parent's");
        pid_t other = forked();
        if (other == 0) {
            check_range(area, AREA, TAG, "another child's");
            _exit(0);
        }
        expect_child(other, "another child");
    }
    SETUP(kill(child, SIGCONT) == 0 && write(go[1], "", 1) == 1);
    expect_child(child, "the stopped child");
    SETUP(close(go[0]) == 0 && close(go[1]) == 0);
}

// A child may have settled before its signal reaches it: not each of several.
static void stopped(void) {
    for (int i = 0; i < 6; i++)
        child_that_stops();
}

// (A mapping that grows where it is tells nobody.)
static void child_that_is_late(int raw) {
    enum { LEN = 64 * PAGE, DISCARDED = 2000 };
    char *grown = map_new(LEN), *elsewhere = map_new(LEN), *others = map_new(4 * PAGE);
    int go[2];
    SETUP(pipe(go) == 0);
    fill_range(grown, 64, TAG);
    SETUP(munmap(elsewhere, LEN) == 0 && mremap(grown, LEN, LEN / 2, 0) == grown);
    press();
    SETUP(mremap(grown, LEN / 2, LEN, 0) == grown);
    pid_t child = raw ? syscall(SYS_fork) : forked();
    if (child == 0) {
        char byte;
        SETUP(read(go[0], &byte, 1) == 1);
        check_range(area, AREA, TAG, "the late child's");
        check_range(grown, 32, TAG, "the late child's that grew");
        _exit(0);
    }
    SETUP(raw || kill(child, SIGSTOP) == 0);
    SETUP(munmap(others, PAGE) == 0 && madvise(area, DISCARDED * PAGE, MADV_DONTNEED) == 0);
    for (int i = 0; i < 4; i++) {
        SETUP(mremap(grown, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
        SETUP(mremap(elsewhere, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, grown) == grown);
    }
    SETUP(munmap(others + 2 * PAGE, 2 * PAGE) == 0);
    SETUP(raw || usleep(20000) == 0);
    SETUP(kill(child, SIGCONT) == 0 && write(go[1], "", 1) == 1);
    expect_child(child, "the late child");
    check_range(grown, 32, TAG, "what has grown and was moved");
    fill_range(area, DISCARDED, TAG);
    SETUP(munmap(grown, LEN) == 0 && munmap(others + PAGE, PAGE) == 0 && close(go[0]) == 0 && close(go[1]) == 0);
}

static void late(void) {
    for (int i = 0; i < 24; i++)
        child_that_is_late(i % 2);
}

enum { THERE = 1024, LOCKED = 64, GROWN = 80 };
static char *there;
static pthread_barrier_t together;

// (What lies there, or did until just now, is out. mremap makes what is new of locked memory before it tells of the move.)
static void *moves_locked(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        char *locked = map_new(LOCKED * PAGE);
        fill_range(locked, LOCKED, TAG + i);
        there = map_new(THERE * PAGE);
        fill_range(there, THERE, 2 * TAG);
        push_out(there, THERE);
        SETUP(mlock(locked, LOCKED * PAGE) == 0);
        pthread_barrier_wait(&together);
        usleep(mix(i) % 600);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        SETUP(i % 2 || mmap(there, THERE * PAGE, PROT_NONE, flags, -1, 0) == there);
        SETUP(mremap(locked, LOCKED * PAGE, GROWN * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
        check_range(there, LOCKED, TAG + i, "locked memory that was moved");
        check_zeros(there + LOCKED * PAGE, GROWN - LOCKED, "what is new of it");
        SETUP(munmap(there, THERE * PAGE) == 0);
    }
    return rounds;
}

static void locked(void) {
    enum { ROUNDS = 32 };
    pthread_t thread;
    SETUP(pthread_barrier_init(&together, NULL, 2) == 0);
    SETUP(pthread_create(&thread, NULL, moves_locked, (void *)(long)ROUNDS) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&together);
        pid_t child = i % 3 == 2 ? syscall(SYS_fork) : forked();
        if (child == 0) {
            check_range(area, 2000, TAG, "a child's beside a move");
            _exit(0);
        }
        expect_child(child, "a child beside a move");
    }
    SETUP(pthread_join(thread, NULL) == 0);
}

static volatile unsigned in_handler;

static void forks_too(int signal) {
    int saved = errno;
    pid_t pid = fork();
    if (pid == 0)
        _exit(signal != SIGALRM);
    if (pid > 0) {
        in_handler++;
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    errno = saved;
}

static void handler(void) {
    struct sigaction action = {.sa_handler = forks_too, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    for (unsigned i = 0; i < 150; i++) {
        // At another moment of the fork each time.
        ualarm(200 + i * 137 % 9000, 0);
        pid_t pid = forked();
        if (pid == 0) {
            check_range(area, 64, TAG, "a child's");
            _exit(0);
        }
        expect_child(pid, "a child");
    }
    ualarm(0, 0);
    SETUP(in_handler > 0);
}

static void line(unsigned generations) {
    int done[2];
    SETUP(pipe(done) == 0);
    if (forked() > 0) {
        char byte;
        close(done[1]);
        ssize_t got = read(done[0], &byte, 1);
        if (got != 1)
            die(1, "line", NULL, "the last generation said nothing");
        return;
    }
    unsigned before = 0;
    for (unsigned i = 0; i < generations; i++) {
        if (forked() > 0)
            _exit(0);
        check_page(area + i % AREA * PAGE, TAG + i % AREA, "a generation's");
        if (i == 10)
            before = mappings();
    }
    if (mappings() > before + 4)
        die(1, "line", NULL, "mappings have become more");
    SETUP(write(done[1], "", 1) == 1);
    _exit(0);
}

static void namespace(void) {
    if (unshare(CLONE_NEWPID) != 0) {
        puts("no namespace");
        return;
    }
    pid_t first = forked();
    if (first == 0) {
        check_range(area, AREA, TAG, "process 1's");
        press();
        pid_t second = forked();
        if (second == 0) {
            check_range(area, AREA, TAG, "its child's");
            _exit(0);
        }
        expect_child(second, "its child");
        _exit(0);
    }
    expect_child(first, "process 1");
}

int main(int argc, char **argv) {
    SETUP(argc > 1);
    area = map_new(AREA * PAGE);
    fill_range(area, AREA, TAG);
    push_out(area, AREA);
    if (!strcmp(argv[1], "stopped"))
        stopped();
    else if (!strcmp(argv[1], "late"))
        late();
    else if (!strcmp(argv[1], "locked"))
        locked();
    else if (!strcmp(argv[1], "handler"))
        handler();
    else if (!strcmp(argv[1], "line"))
        line(argc > 2 ? atoi(argv[2]) : 60);
    else
        namespace();
    check_range(area, AREA, TAG, "the parent's at the end");
    return 0;
}
