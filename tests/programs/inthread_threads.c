// Threads: on stacks that the program provides, made and ended at a rate, cancelled, with locks
// that the kernel follows; thread-local storage; the end of the first thread.
#include "inthread_kit.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/time.h>

enum { STACK = 64 * 1024, THREADS = 8, LOCAL = 5000 };

static __thread uint64_t local_words[LOCAL];
static __thread int local_id = -1;

static void *uses_local(void *arg) {
    int id = (int)(intptr_t)arg;
    RIGHT(local_id == -1);
    local_id = id;
    for (int i = 0; i < LOCAL; i++) {
        RIGHT(local_words[i] == 0);
        local_words[i] = mix(id * LOCAL + i + 1);
    }
    return NULL;
}

static void check_local(int id) {
    RIGHT(local_id == id);
    for (int i = 0; i < LOCAL; i++)
        RIGHT(local_words[i] == mix(id * LOCAL + i + 1));
}

static int wakes[2], answers[2], wake_one[THREADS][2];
static volatile int handled;

static void counts(int signal) {
    (void)signal;
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static void *sleeps_on_its_stack(void *arg) {
    char mine[20 * 1024], byte;
    memset(mine, (int)(intptr_t)arg + 1, sizeof mine);
    uses_local(arg);
    for (int turn = 0; turn < 3; turn++) {
        SETUP(write(answers[1], "", 1) == 1);
        while (read(wake_one[(intptr_t)arg][0], &byte, 1) != 1)
            SETUP(errno == EINTR);
        check_local((int)(intptr_t)arg);
        for (size_t i = 0; i < sizeof mine; i++)
            RIGHT(((volatile char *)mine)[i] == (int)(intptr_t)arg + 1);
    }
    return arg;
}

// Stacks, thread-local storage and the thread's own structures lie in managed memory; the
// threads sleep while it goes out. `signals`: handlers run there meanwhile.
static void provided(int signals) {
    enum { WHOLE = STACK + LOCAL * 8 + 16 * PAGE };
    struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGUSR1, &action, NULL) == 0 && pipe(answers) == 0);
    size_t bytes = (WHOLE + PAGE - 1) & -(size_t)PAGE;
    char *stacks = map_new(THREADS * bytes), byte;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_attr_t attr;
        SETUP(pipe(wake_one[i]) == 0);
        SETUP(pthread_attr_init(&attr) == 0 && pthread_attr_setstack(&attr, stacks + i * bytes, bytes) == 0);
        SETUP(pthread_create(&threads[i], &attr, sleeps_on_its_stack, (void *)(intptr_t)i) == 0);
    }
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < THREADS; i++)
            SETUP(read(answers[0], &byte, 1) == 1);
        usleep(20000); // until they sleep
        squeeze(), squeeze();
        if (signals) {
            handled = 0;
            for (int i = 0; i < THREADS; i++)
                SETUP(pthread_kill(threads[i], SIGUSR1) == 0);
            double until = seconds() + 10;
            while (__atomic_load_n(&handled, __ATOMIC_SEQ_CST) < THREADS)
                RIGHT(seconds() < until);
            squeeze();
        }
        for (int i = 0; i < THREADS; i++)
            SETUP(write(wake_one[i][1], "", 1) == 1);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        SETUP(pthread_join(threads[i], &result) == 0);
        RIGHT(result == (void *)(intptr_t)i);
    }
    SETUP(munmap(stacks, THREADS * bytes) == 0);
    for (int i = 0; i < THREADS; i++)
        close(wake_one[i][0]), close(wake_one[i][1]);
    close(answers[0]), close(answers[1]);
}

static void on_provided_stacks(void) { provided(0); }
static void signals_on_provided_stacks(void) { provided(1); }

static void *ends_at_once(void *arg) {
    local_words[17] = (uint64_t)(uintptr_t)arg;
    return (void *)local_words[17];
}

static int stop_now;

static void *makes_threads(void *arg) {
    for (int i = 0; i < 250; i++) {
        pthread_t threads[4];
        for (size_t k = 0; k < 4; k++)
            SETUP(pthread_create(&threads[k], NULL, ends_at_once, (void *)(i * 4 + k)) == 0);
        for (size_t k = 0; k < 4; k++) {
            void *result;
            SETUP(pthread_join(threads[k], &result) == 0);
            RIGHT(result == (void *)(i * 4 + k));
        }
    }
    __atomic_add_fetch(&stop_now, 1, __ATOMIC_SEQ_CST);
    return arg;
}

// Made and ended while memory goes in and out.
static void at_a_rate(void) {
    pthread_t makers[2];
    stop_now = 0;
    squeeze();
    for (int i = 0; i < 2; i++)
        SETUP(pthread_create(&makers[i], NULL, makes_threads, NULL) == 0);
    while (__atomic_load_n(&stop_now, __ATOMIC_SEQ_CST) < 2)
        squeeze();
    for (int i = 0; i < 2; i++)
        pthread_join(makers[i], NULL);
    // Detached ones, whose memory goes when the kernel says that they ended.
    pthread_attr_t detached;
    SETUP(pthread_attr_init(&detached) == 0 && pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    SETUP(pthread_attr_setstacksize(&detached, 256 * 1024) == 0);
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &detached, ends_at_once, NULL) != 0)
            usleep(1000);
    }
    squeeze();
    usleep(50000);
}

static int cleaned;

static void cleans(void *arg) { __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST); }

static void unlocks(void *mutex) { pthread_mutex_unlock(mutex); }

static void *waits_for_ever(void *arg) {
    int kind = (int)(intptr_t)arg;
    char *into = area + kind * 8 * PAGE + 8;
    pthread_cleanup_push(cleans, &cleaned);
    if (kind == 3)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    SETUP(write(answers[1], "", 1) == 1);
    for (;;)
        switch (kind) {
        case 0: SETUP(read(wakes[0], into, 8) == 8); break;
        case 1: usleep(100000); break;
        case 2: pause(); break;
        case 3:
            for (volatile int i = 0; i < 1000; i++)
                ;
            break;
        default: {
            static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
            static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
            pthread_mutex_lock(&mutex);
            pthread_cleanup_push(unlocks, &mutex);
            pthread_cond_wait(&never, &mutex);
            pthread_cleanup_pop(1);
        }
        }
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(void) {
    SETUP(pipe(wakes) == 0 && pipe(answers) == 0);
    char byte;
    cleaned = 0;
    for (int turn = 0; turn < 8; turn++) {
        pthread_t threads[5];
        for (int i = 0; i < 5; i++)
            SETUP(pthread_create(&threads[i], NULL, waits_for_ever, (void *)(intptr_t)i) == 0);
        for (int i = 0; i < 5; i++)
            SETUP(read(answers[0], &byte, 1) == 1);
        if (turn % 4 == 0)
            out();
        for (int i = 0; i < 5; i++)
            SETUP(pthread_cancel(threads[i]) == 0);
        for (int i = 0; i < 5; i++) {
            void *result;
            SETUP(pthread_join(threads[i], &result) == 0);
            RIGHT(result == PTHREAD_CANCELED);
        }
        RIGHT(cleaned == 5 * (turn + 1));
    }
    close(wakes[0]), close(wakes[1]), close(answers[0]), close(answers[1]);
}

static void *takes_and_ends(void *arg) {
    pthread_mutex_t **mutexes = arg;
    for (int i = 0; i < 20; i++)
        SETUP(pthread_mutex_lock(mutexes[i]) == 0);
    out_of_memory(area, AREA, 3); // (the locks that were held stay)
    return NULL;
}

static void *takes_for_a_while(void *mutex) {
    for (int i = 0; i < 2000; i++) {
        SETUP(pthread_mutex_lock(mutex) == 0);
        if (i % 50 == 0)
            sched_yield();
        RIGHT(pthread_mutex_unlock(mutex) == 0);
    }
    return mutex;
}

static void locks(void) {
    pthread_mutexattr_t robust, inherits;
    SETUP(pthread_mutexattr_init(&robust) == 0 && pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0);
    SETUP(pthread_mutexattr_init(&inherits) == 0 && pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT) == 0);
    pthread_mutex_t **mutexes = (pthread_mutex_t **)(area + 3 * PAGE);
    for (int i = 0; i < 20; i++) {
        mutexes[i] = (pthread_mutex_t *)(area + (20 + 2 * i) * PAGE - 24 * (i % 2)); // (over a border)
        SETUP(pthread_mutex_init(mutexes[i], &robust) == 0);
    }
    for (int turn = 0; turn < 2; turn++) {
        pthread_t thread;
        SETUP(pthread_create(&thread, NULL, takes_and_ends, mutexes) == 0);
        SETUP(pthread_join(thread, NULL) == 0);
        out_of_memory(area, AREA, 3);
        for (int i = 0; i < 20; i++) {
            RIGHT(pthread_mutex_lock(mutexes[i]) == EOWNERDEAD);
            RIGHT(pthread_mutex_consistent(mutexes[i]) == 0 && pthread_mutex_unlock(mutexes[i]) == 0);
        }
    }
    pthread_mutex_t *pi = (pthread_mutex_t *)(area + 150 * PAGE);
    SETUP(pthread_mutex_init(pi, &inherits) == 0);
    pthread_t threads[3];
    out_of_memory(area, AREA, 3);
    for (int i = 0; i < 3; i++)
        SETUP(pthread_create(&threads[i], NULL, takes_for_a_while, pi) == 0);
    for (int i = 0; i < 3; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
    // The same in a child that ends by a signal, in memory that both share.
    pthread_mutex_t *shared = mmap(NULL, PAGE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(shared != MAP_FAILED && pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED) == 0);
    SETUP(pthread_mutex_init(shared, &robust) == 0);
    pid_t child = fork();
    if (child == 0) {
        SETUP(pthread_mutex_lock(shared) == 0);
        squeeze();
        raise(SIGKILL);
    }
    int status;
    RIGHT(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    RIGHT(pthread_mutex_lock(shared) == EOWNERDEAD);
    RIGHT(pthread_mutex_consistent(shared) == 0 && pthread_mutex_unlock(shared) == 0);
    SETUP(munmap(shared, PAGE) == 0);
}

static void *goes_on(void *arg) {
    (void)arg;
    pthread_t first = *(pthread_t *)arg;
    SETUP(pthread_join(first, NULL) == 0);
    fill_range(area, AREA, 123);
    for (int i = 0; i < 4; i++)
        squeeze();
    check_range(area, AREA, 123, "after the first thread's end");
    pid_t child = fork();
    if (child == 0) {
        check_range(area, AREA, 123, "of a child, after the first thread's end");
        _exit(0);
    }
    expect_child(child, "of a process without its first thread");
    exit(0);
}

static void without_the_first(void) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        static pthread_t self;
        pthread_t thread;
        self = pthread_self();
        SETUP(pthread_create(&thread, NULL, goes_on, &self) == 0);
        pthread_exit(NULL);
    }
    expect_child(child, "whose first thread ends");
}

static void *small(void *arg) {
    struct timespec now;
    for (int i = 0; i < 100; i++) {
        SETUP(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        SETUP(syscall(SYS_getcpu, arg, NULL, NULL) == 0);
        *(volatile char *)(area + (i * 7 % AREA) * PAGE + 100);
    }
    return arg;
}

// The least stack there may be: calls and faults take some of it.
static void smallest_stacks(void) {
    pthread_attr_t attr;
    SETUP(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN) == 0);
    for (int turn = 0; turn < 4; turn++) {
        out();
        pthread_t threads[4];
        int used = 0;
        for (int i = 0; i < 4; i++)
            used += pthread_create(&threads[used], &attr, small, area + (100 + i) * PAGE) == 0;
        for (int i = 0; i < used; i++)
            SETUP(pthread_join(threads[i], NULL) == 0);
    }
}

CASES({"on_provided_stacks", on_provided_stacks}, {"signals_on_provided_stacks", signals_on_provided_stacks},
      {"at_a_rate", at_a_rate}, {"cancelled", cancelled}, {"locks", locks},
      {"without_the_first", without_the_first}, {"smallest_stacks", smallest_stacks})
