// A process that somebody looks into, and who does (zfolio inspect).
//
// inspected MIB: fills so much, prints "ready ADDRESS LENGTH HOLE LENGTH" and then sleeps, one thread
// in a read, one in pause and one in nanosleep. The hole is memory that nobody touches. For each
// line that comes: "check" reads all and says "right"; "fork" has a child of fork do so; "raw" one
// of a bare clone; "write" writes all anew; "nap" says how many ms a sleep of 300 took.
//
// inspected look PID ADDRESS LENGTH HOLE LENGTH [STATUS]: stops every thread of PID by ptrace and reads
// every page with process_vm_readv, /proc/PID/mem and, one in 64, PTRACE_PEEKDATA; the same with all
// stopped by SIGSTOP. Ends with STATUS; 1 where a byte is wrong, 2 where it cannot be read, 3 where
// it takes too long.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 256 };
static const size_t HOLE = 8 << 20;

static uint64_t word(size_t page, size_t i) {
    return (page + 1) * 0x9e3779b97f4a7c15u + i % 8;
}

static void is_right(const uint64_t *bytes, size_t page, const char *what) {
    for (size_t i = 0; i < WORDS; i++)
        if (bytes[i] != word(page, i)) {
            fprintf(stderr, "%s: page %zu, word %zu: %lx\n", what, page, i, bytes[i]);
            _exit(1);
        }
}

static void is_zero(const uint64_t *bytes, const char *what) {
    for (size_t i = 0; i < WORDS; i++)
        if (bytes[i]) {
            fprintf(stderr, "%s: the hole has %lx\n", what, bytes[i]);
            _exit(1);
        }
}

static void refuse(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(2);
}

// Whoever looks.

static void late(int signal) {
    (void)signal;
    _exit(3);
}

static int tids[THREADS], count;

static void find_threads(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *task = opendir(path);
    if (!task) refuse("task");
    count = 0;
    for (struct dirent *entry; (entry = readdir(task));)
        if (entry->d_name[0] != '.' && count < THREADS) tids[count++] = atoi(entry->d_name);
    closedir(task);
}

static void read_by_vm(int pid, char *at, uint64_t *into) {
    struct iovec local = {into, PAGE}, remote = {at, PAGE};
    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != PAGE) refuse("process_vm_readv");
}

static void read_all(int pid, char *memory, size_t len, char *hole, size_t hole_len, int traced) {
    static uint64_t bytes[WORDS];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int mem = open(path, O_RDONLY);
    if (mem < 0) refuse(path);
    for (size_t page = 0; page < len / PAGE; page++) {
        char *at = memory + page * PAGE;
        read_by_vm(pid, at, bytes);
        is_right(bytes, page, "process_vm_readv");
        memset(bytes, 0, sizeof bytes);
        if (pread(mem, bytes, PAGE, (off_t)(uintptr_t)at) != PAGE) refuse("pread of mem");
        is_right(bytes, page, "mem");
        if (traced && page % 64 == 0) {
            errno = 0;
            uint64_t peeked = (uint64_t)ptrace(PTRACE_PEEKDATA, tids[0], at + 8, 0);
            if (errno) refuse("PTRACE_PEEKDATA");
            if (peeked != word(page, 1)) is_right(&peeked, page, "PTRACE_PEEKDATA");
        }
    }
    for (char *at = hole; at < hole + hole_len; at += 16 * PAGE) {
        read_by_vm(pid, at, bytes);
        is_zero(bytes, "process_vm_readv");
        if (pread(mem, bytes, PAGE, (off_t)(uintptr_t)at) != PAGE) refuse("pread of the hole");
        is_zero(bytes, "mem");
    }
    close(mem);
}

static int look(char **args) {
    int pid = atoi(args[0]);
    char *memory = (char *)strtoul(args[1], 0, 16), *hole = (char *)strtoul(args[3], 0, 16);
    size_t len = strtoul(args[2], 0, 10), hole_len = strtoul(args[4], 0, 10);
    signal(SIGALRM, late);
    alarm(60);
    find_threads(pid);
    for (int i = 0; i < count; i++) {
        if (ptrace(PTRACE_SEIZE, tids[i], 0, 0)) refuse("PTRACE_SEIZE");
        if (ptrace(PTRACE_INTERRUPT, tids[i], 0, 0)) refuse("PTRACE_INTERRUPT");
    }
    for (int i = 0; i < count; i++) {
        int status;
        if (waitpid(tids[i], &status, __WALL) < 0) refuse("waitpid");
    }
    read_all(pid, memory, len, hole, hole_len, 1);
    for (int i = 0; i < count; i++) ptrace(PTRACE_DETACH, tids[i], 0, 0);
    if (kill(pid, SIGSTOP)) refuse("SIGSTOP");
    usleep(50000);
    read_all(pid, memory, len, hole, hole_len, 0);
    if (kill(pid, SIGCONT)) refuse("SIGCONT");
    return args[5] ? atoi(args[5]) : 0;
}

// Who is looked into.

static uint64_t *memory;
static size_t pages;

static void check(void) {
    for (size_t page = 0; page < pages; page++) is_right(memory + page * WORDS, page, "read");
}

static void fill(void) {
    for (size_t page = 0; page < pages; page++)
        for (size_t i = 0; i < WORDS; i++) memory[page * WORDS + i] = word(page, i);
}

static void check_in_child(int raw) {
    pid_t pid = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (pid < 0) refuse("fork");
    if (pid == 0) {
        check();
        fill();
        check();
        _exit(0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid) refuse("waitpid");
    if (status) {
        fprintf(stderr, "the child: %x\n", status);
        _exit(1);
    }
    check();
}

static void nap(void) {
    struct timespec from, to, ms300 = {0, 300000000};
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (nanosleep(&ms300, 0)) refuse("nanosleep");
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%ld\n", (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
}

static void *pauses(void *ignored) {
    pause();
    return ignored;
}

static void *sleeps(void *ignored) {
    // (A stop by a tracer ends none of these.)
    struct timespec hour = {3600, 0};
    if (nanosleep(&hour, 0)) {
        fprintf(stderr, "the sleep ended\n");
        _exit(1);
    }
    return ignored;
}

int main(int argc, char **argv) {
    if (argc >= 7 && !strcmp(argv[1], "look")) return look(argv + 2);
    if (argc < 2) return 2;
    pages = strtoul(argv[1], 0, 10) * (1 << 20) / PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *hole = mmap(0, HOLE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED || hole == MAP_FAILED) refuse("mmap");
    fill();
    pthread_t thread;
    // "alone": with one thread, as many programs have.
    if (argc < 3 && (pthread_create(&thread, 0, pauses, 0) || pthread_create(&thread, 0, sleeps, 0)))
        refuse("pthread_create");
    printf("ready %lx %zu %lx %zu\n", (unsigned long)memory, pages * PAGE, (unsigned long)hole, HOLE);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "check\n")) check();
        else if (!strcmp(line, "fork\n")) check_in_child(0);
        else if (!strcmp(line, "raw\n")) check_in_child(1);
        else if (!strcmp(line, "write\n")) fill();
        else if (!strcmp(line, "nap\n")) nap();
        else return 2;
        puts("right");
        fflush(stdout);
    }
    return 0;
}
