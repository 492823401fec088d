// Stacks whose cold part has been moved out, and signal handlers on
// alternate stacks that have.
#include "check.h"
#include <signal.h>

enum { DEPTH = 1500, THREADS = 3 };
static pthread_barrier_t deepest;

// A frame of about two pages, verified on the way back.
static __attribute__((noinline)) uint64_t descend(int depth, tag_t tag) {
    volatile char frame[2 * PAGE];
    char *page = (char *)(((uintptr_t)frame + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    fill_page(page, tag + depth);
    uint64_t sum;
    if (depth == 0) {
        pthread_barrier_wait(&deepest); // the main thread presses now
        pthread_barrier_wait(&deepest);
        sum = 0;
    } else {
        sum = descend(depth - 1, tag);
    }
    check_page(page, tag + depth, "a stack frame");
    return sum + depth;
}

static void *recursing(void *arg) {
    tag_t tag = ((size_t)arg + 1) * 0x100000;
    for (int round = 0; round < 2; round++)
        if (descend(DEPTH, tag + round * DEPTH) != (uint64_t)DEPTH * (DEPTH + 1) / 2)
            die(1, "a stack", arg, "wrong sum");
    return NULL;
}

static volatile sig_atomic_t handled;
static char *alternate;
enum { ALTERNATE = 64 };

static void handler(int signal) {
    (void)signal;
    volatile char local[PAGE];
    for (size_t i = 0; i < sizeof local; i++)
        local[i] = (char)i;
    const char *at = (const char *)&local;
    if (at < alternate || at >= alternate + ALTERNATE * PAGE)
        die(1, "a signal handler", at, "not on the alternate stack");
    handled++;
}

int main(void) {
    pthread_barrier_init(&deepest, NULL, THREADS + 1);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    SETUP(pthread_attr_setstacksize(&attr, (size_t)24 << 20) == 0);
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        SETUP(pthread_create(&threads[t], &attr, recursing, (void *)t) == 0);
    for (int round = 0; round < 2; round++) {
        pthread_barrier_wait(&deepest);
        press();
        press();
        pthread_barrier_wait(&deepest);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);

    alternate = map_new(ALTERNATE * PAGE);
    fill_range(alternate, ALTERNATE, 0x900);
    stack_t stack = {.ss_sp = alternate, .ss_size = ALTERNATE * PAGE};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    SETUP(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    for (int n = 1; n <= 5; n++) {
        push_out(alternate, ALTERNATE);
        raise(SIGUSR1); // the kernel itself writes the frame
        if (handled != n)
            die(1, "a signal", alternate, "was not handled");
        check_range(alternate, ALTERNATE / 2, 0x900, "the unused half of an alternate stack");
    }
    return 0;
}
