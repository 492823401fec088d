// Code on stacks of the program's own, with timers: coroutines of every kind.
#include "inthread_kit.h"
#include <setjmp.h>
#include <sys/time.h>

enum { COROUTINES = 24, STACK = 16 * PAGE, TURNS = 60 };
static ucontext_t scheduler, contexts[COROUTINES];
static volatile int current, ticks, done_count;
static volatile uint64_t work[COROUTINES];

static void tick(int signal) {
    (void)signal;
    volatile char some[1500];
    some[0] = some[1499] = 1;
    ticks += some[0];
}

static void start_timer(long microseconds) {
    struct itimerval often = {{0, microseconds}, {0, microseconds}};
    SETUP(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void co_operates(int index) {
    for (int turn = 0; turn < TURNS; turn++) {
        volatile uint64_t deep[600];
        for (int i = 0; i < 600; i++)
            deep[i] = mix(index * 1000 + turn + i);
        swapcontext(&contexts[index], &scheduler);
        for (int i = 0; i < 600; i++)
            if (deep[i] != mix(index * 1000 + turn + i))
                die(1, "a coroutine's stack", (void *)&deep[i], "changed");
    }
    done_count++;
}

static void prepare(char *stack, int index, void (*code)(int)) {
    SETUP(getcontext(&contexts[index]) == 0);
    contexts[index].uc_stack.ss_sp = stack;
    contexts[index].uc_stack.ss_size = STACK;
    contexts[index].uc_link = &scheduler;
    makecontext(&contexts[index], (void (*)(void))code, 1, index);
}

static void take_turns(char *stacks, int flags, int squeezes) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART | flags};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    done_count = 0;
    for (int i = 0; i < COROUTINES; i++)
        prepare(stacks + i * STACK, i, co_operates);
    start_timer(300);
    for (int turn = 0; turn <= TURNS; turn++) {
        for (int i = 0; i < COROUTINES; i++)
            swapcontext(&scheduler, &contexts[i]);
        if (squeezes && turn % 20 == 5)
            squeeze();
    }
    start_timer(0);
    RIGHT(done_count == COROUTINES);
}

static void on_mapped_stacks(void) {
    char *stacks = map_new(COROUTINES * STACK);
    take_turns(stacks, 0, 1);
    SETUP(munmap(stacks, COROUTINES * STACK) == 0);
}

static void on_heap_stacks(void) {
    char *stacks = malloc(COROUTINES * STACK);
    SETUP(stacks != NULL);
    take_turns(stacks, SA_ONSTACK, 1);
    free(stacks);
}

// Memory is short before any coroutine ran: their stacks are closed, and no fault has told yet
// that code runs there.
static void from_the_beginning(void) {
    squeeze();
    char *stacks = map_new(COROUTINES * STACK);
    memset(stacks, 1, COROUTINES * STACK);
    squeeze(), squeeze();
    take_turns(stacks, 0, 1);
    SETUP(munmap(stacks, COROUTINES * STACK) == 0);
}

static void works(int index) {
    volatile uint64_t deep[100];
    for (int i = 0; i < 100; i++)
        deep[i] = mix(index + i);
    while (work[index] < 300000)
        work[index]++;
    for (int i = 0; i < 100; i++)
        if (deep[i] != mix(index + i))
            die(1, "a coroutine's stack", (void *)&deep[i], "changed");
    sigset_t alarm_only;
    sigemptyset(&alarm_only), sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm_only, NULL);
    done_count++;
}

static void preempts(int signal) {
    (void)signal;
    ticks++;
    if (current >= 0)
        swapcontext(&contexts[current], &scheduler);
}

// The timer's handler changes to another context, and comes back to the one that it left.
static void preemptive(void) {
    char *stacks = map_new(COROUTINES * STACK);
    struct sigaction action = {.sa_handler = preempts, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    sigset_t alarm_only, old;
    sigemptyset(&alarm_only), sigaddset(&alarm_only, SIGALRM);
    squeeze();
    done_count = 0, ticks = 0;
    memset((void *)work, 0, sizeof work);
    for (int i = 0; i < COROUTINES; i++)
        prepare(stacks + i * STACK, i, works);
    SETUP(sigprocmask(SIG_BLOCK, &alarm_only, &old) == 0); // in the scheduler it is blocked
    for (int i = 0; i < COROUTINES; i++)
        sigdelset(&contexts[i].uc_sigmask, SIGALRM);
    start_timer(200);
    for (int round = 0; done_count < COROUTINES; round++) {
        for (int i = 0; i < COROUTINES; i++)
            if (work[i] < 300000) {
                current = i;
                swapcontext(&scheduler, &contexts[i]);
                current = -1;
            }
        if (round == 3)
            squeeze();
        int left = 0;
        for (int i = 0; i < COROUTINES; i++)
            left += work[i] < 300000;
        if (!left)
            break;
    }
    start_timer(0);
    RIGHT(ticks > 0);
    signal(SIGALRM, SIG_IGN);
    SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    SETUP(munmap(stacks, COROUTINES * STACK) == 0);
}

static sigjmp_buf back;
static volatile int jumped;

static void jumps(int signal) {
    (void)signal;
    jumped++;
    siglongjmp(back, 1);
}

// Out of a handler, out of calls and faults, by a jump.
static void jumping(void) {
    struct sigaction action = {.sa_handler = jumps, .sa_flags = SA_NODEFER};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    fill_range(area, AREA, 900);
    volatile int turns = 0;
    while (turns < 200) {
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval once = {{0}, {0, 50 + mix(turns) % 900}};
            SETUP(setitimer(ITIMER_REAL, &once, NULL) == 0);
            for (;;)
                for (int i = 0; i < AREA; i++) {
                    check_page(area + i * PAGE, 900 + i, "before a jump");
                    struct timespec now;
                    RIGHT(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) == 0);
                    static char ballast_here[32 << 20];
                    for (size_t at = 0; at < sizeof ballast_here; at += 64 * PAGE)
                        ballast_here[at + (size_t)i * 64] = 1;
                }
        }
        turns++;
        if (turns % 70 == 0)
            squeeze();
    }
    start_timer(0);
    check_range(area, AREA, 900, "after jumps");
}

CASES({"on_mapped_stacks", on_mapped_stacks}, {"on_heap_stacks", on_heap_stacks}, {"from_the_beginning", from_the_beginning},
      {"preemptive", preemptive}, {"jumping", jumping})
