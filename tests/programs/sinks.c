/*
 * Computes for long without a system call and without a fault: sinks KIND MIB
 *
 *   alone    one thread
 *   threads  three threads that compute, and one that waits for a signal
 *   alarms   one thread, with signals every ms by two timers, whose handlers compute as well
 *   forks    one thread that makes a child every 50 ms, which computes and verifies, or is another program
 *
 * Fills MIB of memory, says "full\n", and reads words of the first tenth of it until SIGUSR1 comes. Then
 * every word is verified. Ends with 0, 1 (a wrong word) or 2 (it could not be set up).
 */
#include "check.h"
#include <spawn.h>
#include <sys/time.h>

extern char **environ;
static char *memory;
static size_t pages;
static volatile sig_atomic_t over;
static volatile long alarms, profiled;

static void ends(int signal) {
    (void)signal;
    over = 1;
}

// (The clock is read without a system call.)
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Reads `count` words somewhere in the first tenth.
static void compute(uint64_t seed, long count) {
    for (long i = 0; i < count; i++) {
        size_t page = mix(seed + i) % (pages / 10);
        unsigned at = mix(seed - i) % WORDS;
        uint64_t *word = (uint64_t *)(memory + page * PAGE) + at;
        if (*(volatile uint64_t *)word != word_of(page + 1, at))
            die(1, "computing", word, "a wrong word");
    }
}

static void until_over(uint64_t seed) {
    while (!over)
        compute(seed += 1000000, 10000);
}

static void verify(void) {
    for (size_t page = 0; page < pages; page++)
        check_page(memory + page * PAGE, page + 1, "at the end");
}

static void *computes(void *seed) {
    until_over((uint64_t)seed << 40);
    return NULL;
}

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
    compute((uint64_t)alarms << 20, 20);
}

static void on_profile(int signal) {
    (void)signal;
    profiled++;
    compute((uint64_t)profiled << 30, 20);
}

static void child(int turn) {
    pid_t made;
    int status;
    if (turn % 4 == 3) {
        char *words[] = {"true", NULL};
        SETUP(posix_spawnp(&made, "true", NULL, NULL, words, environ) == 0);
    } else {
        made = fork();
        SETUP(made >= 0);
        if (made == 0) {
            for (double end = now() + 0.03; now() < end;)
                compute((uint64_t)turn << 30, 1000);
            for (size_t page = turn % 7; page < pages; page += 7)
                check_page(memory + page * PAGE, page + 1, "in a child");
            if (turn % 4 == 2)
                execlp("true", "true", NULL);
            _exit(0);
        }
    }
    while (waitpid(made, &status, 0) < 0)
        SETUP(errno == EINTR);
    if (status != 0)
        die(1, "a child", NULL, "did not end well");
}

int main(int argc, char **argv) {
    SETUP(argc == 3);
    const char *kind = argv[1];
    pages = strtoul(argv[2], NULL, 10) << 8;
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(memory != MAP_FAILED);
    signal(SIGUSR1, ends);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * PAGE, page + 1);
    SETUP(write(1, "full\n", 5) == 5);
    if (strcmp(kind, "alone") == 0) {
        until_over(1);
    } else if (strcmp(kind, "threads") == 0) {
        pthread_t threads[3];
        for (uintptr_t i = 0; i < 3; i++)
            SETUP(pthread_create(&threads[i], NULL, computes, (void *)i) == 0);
        for (int i = 0; i < 3; i++)
            SETUP(pthread_join(threads[i], NULL) == 0);
    } else if (strcmp(kind, "alarms") == 0) {
        struct itimerval often = {{0, 1000}, {0, 1000}};
        signal(SIGALRM, on_alarm), signal(SIGPROF, on_profile);
        SETUP(setitimer(ITIMER_REAL, &often, NULL) == 0);
        SETUP(setitimer(ITIMER_PROF, &often, NULL) == 0);
        until_over(1);
        SETUP(alarms > 0 && profiled > 0);
    } else if (strcmp(kind, "forks") == 0) {
        for (int turn = 0; !over; turn++) {
            for (double end = now() + 0.05; now() < end;)
                compute((uint64_t)turn << 40, 1000);
            child(turn);
        }
    } else {
        return 2;
    }
    verify();
    return 0;
}
