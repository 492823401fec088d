// What a system call costs, in nanoseconds a call: bare, and in a way of managing. With an
// argument the process has had a second thread, after which libc makes some calls elsewhere.
//
//   cc -O2 -pthread tests/bench/calls.c -o calls
//   ./calls; zfolio run --quiet --faults guard --high 100M -- ./calls
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

#define TIME(name, count, call) \
    do { \
        for (int i = 0; i < 100; i++) \
            call; \
        double begin = now_ns(); \
        for (int i = 0; i < (count); i++) \
            call; \
        printf("%-24s %8.0f ns\n", name, (now_ns() - begin) / (count)); \
    } while (0)

static void must(int is_so) {
    if (!is_so)
        abort();
}

static void *nothing(void *arg) { return arg; }

static void forks(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    must(waitpid(child, NULL, 0) == child);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    int zeros = open("/dev/zero", O_RDONLY), ends[2];
    must(zeros >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    char byte = 0;
    struct stat about;
    TIME("getppid", 300000, getppid());
    TIME("read of a byte", 300000, must(read(zeros, &byte, 1) == 1));
    TIME("stat", 200000, must(stat("/tmp", &about) == 0));
    TIME("socket, write and read", 100000, must(write(ends[0], &byte, 1) == 1 && read(ends[1], &byte, 1) == 1));
    TIME("fork, exit, wait", 1000, forks());
}
