// Threads, stacks, signals and jumps while the memory they need is out.
#include "life.h"
#include <setjmp.h>
#include <sys/time.h>

static area_t *current;
static _Atomic int bad_in_handler;

// A frame of a page, verified on the way back up.
static __attribute__((noinline)) void descend(int depth, tag_t tag, void (*bottom)(void)) {
    volatile char frame[2 * PAGE];
    char *page = (char *)(((uintptr_t)frame + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    fill_page(page, tag + depth);
    if (depth)
        descend(depth - 1, tag, bottom);
    else if (bottom)
        bottom();
    check_page(page, tag + depth, "a stack frame");
}

static void press_here(void) { press_on(6000); }

// The main thread's stack grows by 8 KiB a frame while everything is short.
static void main_stack(area_t *a) {
    for (int n = 0; n < 3; n++)
        descend(300 + roll(300), roll(1 << 20) + 1, n == 1 ? press_here : NULL);
    settle(a, "beside a deep main stack");
}

static _Thread_local uint64_t tls[3 * WORDS];

// A thread whose stack and thread-local variables go out and are used again;
// it ends while they are out, and another is given the same stack.
static void *short_lived(void *arg) {
    tag_t tag = (uintptr_t)arg;
    char *page = (char *)(((uintptr_t)tls + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    check_page(page, 0, "thread-local memory of a new thread");
    fill_page(page, tag);
    descend(400, tag + 1, press_here);
    check_page(page, tag, "thread-local memory");
    press_on(4000);
    return page_is(page, tag) ? arg : NULL;
}

static void threads_end(area_t *a) {
    for (int n = 0; n < 4; n++) {
        pthread_t thread[2];
        for (int i = 0; i < 2; i++)
            SETUP(pthread_create(&thread[i], NULL, short_lived,
                                 (void *)(uintptr_t)(0x100000 * (2 * n + i + 1))) == 0);
        check_part(a, roll(a->pages - 50), 50, "beside threads that end");
        for (int i = 0; i < 2; i++) {
            void *result;
            SETUP(pthread_join(thread[i], &result) == 0);
            if (result != (void *)(uintptr_t)(0x100000 * (2 * n + i + 1)))
                die(1, "pthread_join", result, "a thread lost its memory at its end");
        }
    }
    settle(a, "beside threads that ended");
}

// The signal stack itself is part of the area: the kernel writes its frame to
// pages that are out, under the program counter of any instruction.
static volatile sig_atomic_t ticks;
static volatile sig_atomic_t handler_page;

static void tick(int signal) {
    (void)signal;
    volatile char local[PAGE];
    for (size_t i = 0; i < PAGE; i += 64)
        local[i] = (char)i;
    area_t *a = current;
    size_t page = handler_page = (handler_page * 31 + 17) % (a->pages / 2);
    if (!page_is(a->at + page * PAGE, a->tags[page]))
        bad_in_handler = 1;
    if (local[64] != 64)
        bad_in_handler = 1;
    ticks++;
}

static void signal_storm(area_t *a) {
    enum { STACK_PAGES = 40 };
    current = a, ticks = 0;
    size_t first = a->pages - STACK_PAGES;
    stack_t stack = {.ss_sp = a->at + first * PAGE, .ss_size = STACK_PAGES * PAGE}, old;
    expect_tag(a, first, STACK_PAGES, NOTHING);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    SETUP(sigaltstack(&stack, &old) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0}, {0}};
    SETUP(setitimer(ITIMER_REAL, &often, NULL) == 0);
    double until = seconds() + 20;
    for (int n = 0; (n < 6 || ticks < 30) && seconds() < until; n++) {
        // Written only where the handler does not look: a page half written is
        // neither the old nor the new one.
        write_area(a, a->pages / 2, roll(first - a->pages / 2));
        check_part(a, 0, first, "under a storm of signals");
        press_on(1500);
    }
    SETUP(setitimer(ITIMER_REAL, &never, NULL) == 0);
    SETUP(sigaltstack(&old, NULL) == 0);
    if (ticks < 30)
        die(2, "setup", NULL, "too few signals");
    if (bad_in_handler)
        die(1, "a signal handler", a->at, "read a wrong byte");
    settle(a, "after a storm of signals");
}

// Out of a handler by a jump, in the middle of whatever the fault was for.
static sigjmp_buf out_of_it;
static volatile sig_atomic_t jumping;

static void jump(int signal) {
    (void)signal;
    if (jumping) {
        jumping = 0;
        siglongjmp(out_of_it, 1);
    }
}

static void jump_out(area_t *a) {
    struct sigaction action = {.sa_handler = jump};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    volatile int jumps = 0;
    for (volatile int n = 0; n < 60; n++) {
        if (sigsetjmp(out_of_it, 1) == 0) {
            jumping = 1;
            struct itimerval soon = {{0, 0}, {0, 100 + roll(1500)}};
            SETUP(setitimer(ITIMER_REAL, &soon, NULL) == 0);
            while (jumping)
                for (size_t i = 0; i < a->pages && jumping; i++)
                    check_part(a, i, 1, "until jumped out of");
        } else {
            jumps++;
        }
        if (n % 10 == 9)
            out(a);
    }
    if (jumps < 50)
        die(2, "setup", NULL, "too few jumps");
    settle(a, "jumped out of");
}

// Read by some threads and written by one while it moves: being loaded, stored
// and moved back at once.
static _Atomic int reading;

static void *reader(void *arg) {
    area_t *a = arg;
    for (size_t i = 0; reading; i = (i + 13) % (a->pages / 2))
        check_part(a, i, 1, "read by several threads");
    return NULL;
}

static void crowd(area_t *a) {
    pthread_t threads[3];
    reading = 1;
    for (int t = 0; t < 3; t++)
        SETUP(pthread_create(&threads[t], NULL, reader, a) == 0);
    for (int n = 0; n < 30; n++) {
        size_t from = a->pages / 2 + roll(a->pages / 2 - 20);
        write_area(a, from, 20);
        press_on(700);
        check_part(a, from, 20, "written beside readers");
    }
    reading = 0;
    for (int t = 0; t < 3; t++)
        pthread_join(threads[t], NULL);
    settle(a, "after a crowd");
}

// Stopped and continued at any moment, by a child.
static void stopped(area_t *a) {
    pid_t here = getpid(), pid = fork();
    if (pid == 0) {
        for (int n = 0; n < 25; n++) {
            kill(here, SIGSTOP);
            usleep(1500);
            kill(here, SIGCONT);
            usleep(3000);
        }
        syscall(SYS_exit_group, 0);
    }
    for (int n = 0; n < 12; n++) {
        check_part(a, roll(a->pages / 2), a->pages / 2, "stopped and continued");
        write_area(a, roll(a->pages - 10), 10);
        press_on(1000);
    }
    expect_child(pid, "who stops its parent");
    settle(a, "stopped and continued");
}

int main(int argc, char **argv) {
    static const case_t cases[] = {
        {"main_stack", main_stack}, {"threads_end", threads_end}, {"signal_storm", signal_storm},
        {"jump_out", jump_out}, {"crowd", crowd}, {"stopped", stopped},
    };
    return life_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
