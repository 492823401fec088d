// Calls made where the program has next to no stack: nothing below the stack pointer is anybody's but the
// program's (goroutines, coroutines, threads with little stack).
#include "inthread_kit.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { BELOW = 8 << 10, ROUNDS = 300 };

// A call made with the stack pointer at `top`. With its number in the instruction before, as compilers
// and Go have it; and with one that a register has.
#define CALL_AT(name, number, constraint) \
    static __attribute__((noinline)) long name(char *top, long nr, long a, long b, long c, long d) { \
        long result; \
        register long fourth __asm__("r10") = d, fifth __asm__("r8") = -1, sixth __asm__("r9") = 0; \
        (void)nr; \
        __asm__ volatile("movq %%rsp, %%rbx\n movq %[top], %%rsp\n movl " number ", %%eax\n syscall\n movq %%rbx, %%rsp\n" \
                         : "=a"(result) \
                         : [top] "r"(top), [nr] constraint(nr), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth) \
                         : "rbx", "rcx", "r11", "memory"); \
        return result; \
    }
CALL_AT(any_at, "%k[nr]", "r")
CALL_AT(read_at, "$0", "r")
CALL_AT(getpid_at, "$39", "r")
CALL_AT(mask_at, "$14", "r")

static void mark(char *top) {
    for (char *at = top - BELOW; at < top; at += 8)
        *(uint64_t *)at = mix((uintptr_t)at);
}

static void unchanged(char *top) {
    for (char *at = top - BELOW; at < top; at += 8)
        if (*(uint64_t *)at != mix((uintptr_t)at))
            die(1, "below the stack pointer", at, "changed");
}

static void calls_from(char *top, int zeros, char *into) {
    mark(top);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t mask = ~0ull;
        RIGHT(getpid_at(top, 0, 0, 0, 0, 0) == getpid());
        *into = 1;
        RIGHT(read_at(top, 0, zeros, (long)into, 1, 0) == 1 && *into == 0);
        RIGHT(mask_at(top, 0, SIG_BLOCK, 0, (long)&mask, 8) == 0 && mask == 0);
        RIGHT(any_at(top, SYS_getpid, 0, 0, 0, 0) == getpid());
        *into = 1;
        RIGHT(any_at(top, SYS_read, zeros, (long)into, 1, 0) == 1 && *into == 0);
        RIGHT(any_at(top, SYS_read, zeros, 8, 1, 0) == -EFAULT);
        long memory = any_at(top, SYS_mmap, 0, 8 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS);
        RIGHT(memory > 0 && any_at(top, SYS_munmap, memory, 8 * PAGE, 0, 0) == 0);
        if (round % 50 == 0)
            unchanged(top);
    }
    unchanged(top);
}

static char *stack_like(size_t pages) {
    char *stack = mmap(NULL, pages * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    SETUP(stack != MAP_FAILED);
    return stack;
}

static void nothing_below(void) {
    static char in_data[4 * BELOW] __attribute__((aligned(16)));
    int zeros = open("/dev/zero", O_RDONLY);
    char *mapped = map_new(8 * PAGE), *heap = malloc(8 * PAGE), *stack = stack_like(8);
    SETUP(zeros >= 0 && heap);
    for (int turn = 0; turn < 3; turn++) {
        char *into = place(64);
        calls_from(mapped + 8 * PAGE, zeros, into);
        calls_from(mapped + 5 * PAGE - 48, zeros, into);
        calls_from(heap + 4 * PAGE + 16, zeros, into);
        calls_from(stack + 8 * PAGE, zeros, into);
        calls_from(stack + 3 * PAGE - 16, zeros, into);
        calls_from(in_data + 2 * BELOW, zeros, into);
        squeeze();
        unchanged(mapped + 5 * PAGE - 48), unchanged(heap + 4 * PAGE + 16);
    }
    close(zeros), free(heap), munmap(mapped, 8 * PAGE), munmap(stack, 8 * PAGE);
}

static volatile int ticks;
static char *handler_was_at;
static int to[2];

static void makes_calls(int signal) {
    (void)signal;
    char here;
    handler_was_at = &here;
    uint64_t mask;
    struct timespec now;
    RIGHT(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8) == 0);
    RIGHT(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) == 0);
    ticks++;
    if (ticks % 3 == 0)
        SETUP(write(to[1], "x", 1) == 1);
}

static void timer(long microseconds) {
    struct itimerval often = {{0, microseconds}, {0, microseconds}};
    SETUP(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

// Handlers that make calls themselves come while a call waits, and at any other moment.
static void wait_at(char *top, char *into, int flags) {
    struct sigaction action = {.sa_handler = makes_calls, .sa_flags = SA_RESTART | flags};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    ticks = 0;
    timer(400);
    for (int round = 0; round < 200; round++) {
        *into = 0;
        RIGHT(read_at(top, 0, to[0], (long)into, 1, 0) == 1 && *into == 'x');
        RIGHT(any_at(top, SYS_read, to[0], (long)into, 1, 0) == 1);
    }
    timer(0);
    RIGHT(ticks >= 1000);
}

static void interrupted(void) {
    static char signals[64 << 10];
    char *mapped = map_new(8 * PAGE);
    stack_t stack = {.ss_sp = signals, .ss_size = sizeof signals};
    SETUP(sigaltstack(&stack, NULL) == 0 && pipe(to) == 0);
    squeeze();
    mark(mapped + 8 * PAGE);
    wait_at(mapped + 8 * PAGE, place(64), SA_ONSTACK);
    unchanged(mapped + 8 * PAGE);
    close(to[0]), close(to[1]), munmap(mapped, 8 * PAGE);
}

static double thread_seconds(void) {
    struct timespec now;
    SETUP(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// Runs for four times as long as a thread runs before it is looked at.
static void spins(void) {
    for (double begin = thread_seconds(); thread_seconds() < begin + 0.2;)
        for (volatile int i = 0; i < 1000000; i++) // (Nearly all of it without a call.)
            ;
}

static __attribute__((noinline)) void run_at(char *top, void (*what)(void)) {
    __asm__ volatile("movq %%rsp, %%rbx\n movq %0, %%rsp\n call *%1\n movq %%rbx, %%rsp"
                     : "+r"(top), "+r"(what)
                     :
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "memory", "cc");
}

// Without a signal stack they run where the call was made, as bare.
static void interrupted_there(void) {
    squeeze();
    char *stack = stack_like(32);
    stack_t none = {.ss_flags = SS_DISABLE};
    SETUP(sigaltstack(&none, NULL) == 0 && pipe(to) == 0);
    wait_at(stack + 32 * PAGE, place(64), 0);
    run_at(stack + 32 * PAGE, spins);
    char *from = stack, *end = stack + 32 * PAGE;
    handler_was_at = NULL;
    timer(20000);
    char byte;
    for (int i = 0; i < 4; i++)
        RIGHT(read_at(end, 0, to[0], (long)&byte, 1, 0) == 1);
    timer(0);
    RIGHT(from < handler_was_at && handler_was_at < end);
    close(to[0]), close(to[1]), munmap(stack, 32 * PAGE);
}

static sigjmp_buf back;

static void jumps(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

// A handler leaves a call for good.
static void left_by_a_jump(void) {
    static char signals[64 << 10];
    stack_t stack = {.ss_sp = signals, .ss_size = sizeof signals};
    struct sigaction action = {.sa_handler = jumps, .sa_flags = SA_ONSTACK};
    char *mapped = map_new(8 * PAGE), *top = mapped + 8 * PAGE;
    int zeros = open("/dev/zero", O_RDONLY);
    SETUP(zeros >= 0 && pipe(to) == 0 && sigaltstack(&stack, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    char *into = place(64);
    for (volatile int turn = 0; turn < 60; turn++) {
        mark(top);
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval once = {{0}, {0, 300}};
            SETUP(setitimer(ITIMER_REAL, &once, NULL) == 0);
            read_at(top - turn % 4 * 64, 0, to[0], (long)into, 1, 0);
            RIGHT(!"it returned");
        }
        unchanged(top);
        if (turn % 5 == 0)
            calls_from(top, zeros, into);
    }
    close(to[0]), close(to[1]), close(zeros), munmap(mapped, 8 * PAGE);
}

// The child of a fork goes on where its parent was.
static void forks(void) {
    char *mapped = map_new(8 * PAGE), *top = mapped + 8 * PAGE, *into = place(64);
    int zeros = open("/dev/zero", O_RDONLY);
    SETUP(zeros >= 0);
    mark(top);
    for (int turn = 0; turn < 8; turn++) {
        long child = any_at(top, SYS_fork, 0, 0, 0, 0);
        if (child == 0) {
            unchanged(top);
            calls_from(top, zeros, into);
            any_at(top, SYS_exit_group, 7, 0, 0, 0);
        }
        int status = 0;
        RIGHT(child > 0 && any_at(top, SYS_wait4, child, (long)&status, 0, 0) == child);
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        unchanged(top);
    }
    close(zeros), munmap(mapped, 8 * PAGE);
}

// Many at once, each on one of many small stacks that lie beside each other.
enum { THREADS = 4, SMALL = 2 << 10, STACKS = 64 };
static char *small;

static void *works(void *arg) {
    long me = (long)arg;
    char *into = map_new(PAGE);
    int zeros = open("/dev/zero", O_RDONLY);
    SETUP(zeros >= 0);
    for (int round = 0; round < 4000; round++) {
        // (Every second one is a thread's, and nobody writes to the others.)
        char *top = small + ((mix(me * 4000 + round) % (STACKS / THREADS)) * THREADS + me) * 2 * SMALL + SMALL;
        RIGHT(read_at(top, 0, zeros, (long)into, 8, 0) == 8);
        RIGHT(any_at(top, SYS_read, zeros, (long)into, 8, 0) == 8);
        RIGHT(getpid_at(top, 0, 0, 0, 0, 0) == getpid());
    }
    close(zeros);
    return arg;
}

static void side_by_side(void) {
    size_t bytes = 2 * SMALL * (STACKS + 1);
    small = malloc(bytes);
    SETUP(small);
    for (size_t at = 0; at < bytes; at += 8)
        *(uint64_t *)(small + at) = mix(at);
    squeeze();
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        SETUP(pthread_create(&threads[i], NULL, works, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t at = 0; at < bytes; at += 8)
        if (*(uint64_t *)(small + at) != mix(at))
            die(1, "beside a small stack", small + at, "changed");
    free(small);
}

// The least stack that a thread may have, down to its last KiB.
static char *lowest;

static __attribute__((noinline)) int deeper(int depth) {
    volatile char some[256];
    some[0] = some[255] = 1;
    if ((char *)some - lowest > 1200)
        return deeper(depth + 1) + some[0];
    uint64_t mask;
    RIGHT(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8) == 0);
    RIGHT(syscall(SYS_getpid) == getpid());
    return some[255];
}

static void *is_small(void *arg) {
    pthread_attr_t attributes;
    size_t size;
    SETUP(pthread_getattr_np(pthread_self(), &attributes) == 0);
    SETUP(pthread_attr_getstack(&attributes, (void **)&lowest, &size) == 0);
    pthread_attr_destroy(&attributes);
    RIGHT(syscall(SYS_getpid) == getpid()); // (the loader resolves names on this stack)
    for (int i = 0; i < 50; i++)
        RIGHT(deeper(0) > 0);
    return arg;
}

static void little_stack(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    SETUP(pthread_attr_setstacksize(&attributes, 16 << 10) == 0);
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        SETUP(pthread_create(&thread, &attributes, is_small, NULL) == 0);
        pthread_join(thread, NULL);
    }
}

CASES({"nothing_below", nothing_below}, {"interrupted", interrupted}, {"interrupted_there", interrupted_there},
      {"left_by_a_jump", left_by_a_jump}, {"forks", forks}, {"side_by_side", side_by_side},
      {"little_stack", little_stack})
