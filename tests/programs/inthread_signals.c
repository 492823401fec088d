// Signals: what handlers are told and where they run, masks, stacks, and the three that are used
// to serve faults.
#include "inthread_kit.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>

static volatile int came, came_nested;
static volatile int *volatile nowhere = (int *)8;
static volatile siginfo_t last;

static void notes(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    last = *info;
    came++;
}

static void set_handler(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    SETUP(sigaction(signal, &action, NULL) == 0);
}

// In a child, whose end is told: the signal it died by, or 0x100 and its status.
static int end_of(void (*what)(void)) {
    int status;
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        alarm(8); // whatever it does, not for ever
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        what();
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0)
        SETUP(errno == EINTR);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0x100 + WEXITSTATUS(status);
}

// --- Sent ones
static void sent(void) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGSYS, SIGUSR1};
    for (int i = 0; i < 4; i++) {
        int number = signals[i];
        came = 0;
        set_handler(number, notes, 0);
        out();
        RIGHT(raise(number) == 0 && came == 1 && last.si_code == SI_TKILL && last.si_pid == getpid());
        RIGHT(kill(getpid(), number) == 0 && came == 2 && last.si_code == SI_USER && last.si_signo == number);
        siginfo_t *info = place(sizeof *info);
        memset(info, 0, sizeof *info);
        info->si_code = SI_QUEUE, info->si_value.sival_int = 1234, info->si_pid = getpid();
        out();
        RIGHT(syscall(SYS_rt_sigqueueinfo, getpid(), number, info) == 0 && came == 3);
        RIGHT(last.si_code == SI_QUEUE && last.si_value.sival_int == 1234);
        RIGHT(sigqueue(getpid(), number, (union sigval){.sival_int = 99}) == 0 && came == 4);
        RIGHT(last.si_value.sival_int == 99);
        squeeze();
        signal(number, SIG_IGN);
        RIGHT(raise(number) == 0);
        squeeze();
        struct sigaction old;
        RIGHT(sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN);
        signal(number, SIG_DFL);
        squeeze();
    }
}

static void by_default(void) { raise(SIGSEGV); }
static void by_null(void) { *nowhere = 1; }
static void by_bus(void) { kill(getpid(), SIGBUS); }

static void by_a_fault_that_is_ignored(void) {
    signal(SIGSEGV, SIG_IGN);
    *nowhere = 1;
}

static void by_a_fault_that_is_blocked(void) {
    set_handler(SIGSEGV, notes, 0);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGSEGV);
    sigprocmask(SIG_BLOCK, &set, NULL);
    squeeze();
    *nowhere = 1;
}

static void faults_itself(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    came++;
    *nowhere = 1;
}

static void by_a_fault_in_its_handler(void) {
    set_handler(SIGSEGV, faults_itself, 0);
    *nowhere = 1;
}

static void resets_and_returns(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(signal, &action, NULL);
}

static void by_the_second_fault(void) {
    set_handler(SIGSEGV, resets_and_returns, 0);
    *nowhere = 1;
}

static void aborts(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    abort();
}

static void by_abort(void) {
    set_handler(SIGSEGV, aborts, 0);
    *nowhere = 1;
}

static void deadly(void) {
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    squeeze();
    RIGHT(end_of(by_default) == SIGSEGV);
    RIGHT(end_of(by_null) == SIGSEGV);
    RIGHT(end_of(by_bus) == SIGBUS);
    RIGHT(end_of(by_a_fault_that_is_ignored) == SIGSEGV);
    RIGHT(end_of(by_a_fault_that_is_blocked) == SIGSEGV);
    RIGHT(end_of(by_the_second_fault) == SIGSEGV);
    RIGHT(end_of(by_abort) == SIGABRT);
}

// A handler that faults itself: bare the process ends, since the signal is blocked.
static void fault_in_a_handler(void) {
    squeeze();
    RIGHT(end_of(by_a_fault_in_its_handler) == SIGSEGV);
}

// --- Flags
static sigset_t in_handler;

static void looks(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    sigprocmask(SIG_BLOCK, NULL, &in_handler);
    came++;
    if (came_nested == 0 && (signal == SIGUSR1 || signal == SIGSEGV)) {
        came_nested = 1;
        if (!sigismember(&in_handler, signal))
            raise(signal);
    }
}

static void flags(void) {
    static const int signals[] = {SIGUSR1, SIGUSR2, SIGSEGV, SIGBUS};
    for (int i = 0; i < 4; i++) {
        int number = signals[i];
        struct sigaction action = {.sa_sigaction = looks, .sa_flags = SA_SIGINFO | SA_RESETHAND}, old;
        sigaddset(&action.sa_mask, SIGHUP), sigaddset(&action.sa_mask, SIGTERM);
        came = 0, came_nested = 1;
        RIGHT(sigaction(number, &action, NULL) == 0 && raise(number) == 0 && came == 1);
        RIGHT(sigismember(&in_handler, SIGHUP) && sigismember(&in_handler, SIGTERM));
        RIGHT(!sigismember(&in_handler, SIGINT));
        if (number == SIGUSR1)
            RIGHT(sigismember(&in_handler, number));
        sigset_t now;
        RIGHT(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGHUP) && !sigismember(&now, number));
        RIGHT(sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
        action.sa_flags = SA_SIGINFO | SA_NODEFER, came = 0, came_nested = 0;
        RIGHT(sigaction(number, &action, NULL) == 0 && raise(number) == 0);
        RIGHT(came == (number == SIGUSR1 || number == SIGSEGV ? 2 : 1) && !sigismember(&in_handler, number));
        RIGHT(sigaction(number, NULL, &old) == 0 && old.sa_sigaction == looks);
        RIGHT(sigismember(&old.sa_mask, SIGHUP) && !sigismember(&old.sa_mask, SIGINT));
        RIGHT((old.sa_flags & (SA_SIGINFO | SA_NODEFER | SA_RESETHAND | SA_ONSTACK | SA_RESTART)) == (SA_SIGINFO | SA_NODEFER));
        signal(number, SIG_DFL);
        squeeze();
    }
    // Interrupted calls, and those that begin again.
    int fds[2];
    SETUP(pipe(fds) == 0);
    struct itimerval soon = {{0}, {0, 3000}};
    char *into = place(8);
    set_handler(SIGALRM, notes, 0);
    out();
    SETUP(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    RIGHT(read(fds[0], into, 8) == -1 && errno == EINTR);
    set_handler(SIGALRM, notes, SA_RESTART);
    pid_t child = fork();
    if (child == 0) {
        usleep(40000);
        _exit(write(fds[1], "restarts", 8) != 8);
    }
    out();
    SETUP(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    RIGHT(read(fds[0], into, 8) == 8 && memcmp(into, "restarts", 8) == 0);
    expect_child(child, "that writes late");
    close(fds[0]), close(fds[1]);
}

// --- Masks
static void all_of_them(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    sigfillset(&((ucontext_t *)context)->uc_sigmask);
    came++;
}

static void masks(void) {
    sigset_t all, old, now, *set = place(sizeof *set);
    sigfillset(&all);
    out();
    sigfillset(set);
    RIGHT(sigprocmask(SIG_SETMASK, set, &old) == 0);
    squeeze(); // with everything blocked
    RIGHT(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    for (int i = 1; i < 32; i++)
        RIGHT(sigismember(&now, i) == (i != SIGKILL && i != SIGSTOP));
    out();
    RIGHT(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    set_handler(SIGUSR1, notes, 0);
    sigemptyset(&now), sigaddset(&now, SIGUSR1);
    came = 0;
    RIGHT(sigprocmask(SIG_BLOCK, &now, NULL) == 0 && raise(SIGUSR1) == 0 && came == 0);
    sigset_t *pending = place(sizeof *pending);
    out();
    RIGHT(sigpending(pending) == 0 && sigismember(pending, SIGUSR1));
    sigemptyset(set);
    out();
    RIGHT(sigsuspend(set) == -1 && errno == EINTR && came == 1);
    RIGHT(raise(SIGUSR1) == 0 && came == 1);
    int *which = place(4);
    sigemptyset(set), sigaddset(set, SIGUSR1);
    out();
    RIGHT(sigwait(set, which) == 0 && *which == SIGUSR1);
    RIGHT(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && came == 1);
    RIGHT(sigprocmask(77, &old, NULL) == -1 && errno == EINVAL);
}

// A handler that changes the mask that is restored.
static void masks_of_contexts(void) {
    sigset_t old, now;
    SETUP(sigprocmask(SIG_BLOCK, NULL, &old) == 0);
    set_handler(SIGUSR1, all_of_them, 0);
    came = 0;
    RIGHT(raise(SIGUSR1) == 0 && came == 1);
    RIGHT(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGTERM));
    squeeze();
    RIGHT(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    squeeze();
}

// --- Where handlers run
enum { SMALL = 12 * 1024, ROOM = 64 * 1024 };
static char *watched; // ROOM bytes, the signal stack at the end of them

static void needs_much(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    volatile char deep[40000];
    for (size_t i = 0; i < sizeof deep; i += 64)
        deep[i] = (char)i;
    came += deep[64] == 64;
}

static sigjmp_buf back;

static void needs_much_and_jumps(int signal, siginfo_t *info, void *context) {
    needs_much(signal, info, context);
    siglongjmp(back, 1);
}

// Handlers without SA_ONSTACK run on the stack of the code they interrupt, however small the
// signal stack is.
static void on_the_stack_that_was_interrupted(void) {
    watched = mmap(NULL, ROOM, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    SETUP(watched != MAP_FAILED);
    memset(watched, 0x5a, ROOM);
    stack_t stack = {.ss_sp = watched + ROOM - SMALL, .ss_size = SMALL}, old;
    SETUP(sigaltstack(&stack, &old) == 0);
    came = 0;
    for (int i = 0; i < 2; i++) {
        int number = i ? SIGBUS : SIGSEGV;
        set_handler(number, needs_much, 0);
        RIGHT(raise(number) == 0 && came == 1 + i);
        squeeze();
        for (size_t at = 0; at < ROOM - SMALL; at++)
            RIGHT(watched[at] == 0x5a);
    }
    set_handler(SIGSEGV, needs_much_and_jumps, 0);
    for (volatile int i = 0; i < 4; i++)
        if (sigsetjmp(back, 1) == 0)
            *nowhere = 1;
    for (size_t at = 0; at < ROOM - SMALL; at++)
        RIGHT(watched[at] == 0x5a);
    SETUP(sigaltstack(&old, NULL) == 0 && munmap(watched, ROOM) == 0);
}

// A signal stack that no handler uses: it may be as small as may be, and be gone.
static void stacks_that_nobody_uses(void) {
    stack_t old, disabled = {.ss_flags = SS_DISABLE};
    SETUP(sigaltstack(NULL, &old) == 0);
    signal(SIGSEGV, SIG_DFL), signal(SIGBUS, SIG_DFL), signal(SIGILL, SIG_DFL);
    char *at = mmap(NULL, 8 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(at != MAP_FAILED);
    stack_t stack = {.ss_sp = at, .ss_size = 8 * PAGE};
    RIGHT(sigaltstack(&stack, NULL) == 0 && munmap(at, 8 * PAGE) == 0);
    squeeze();
    RIGHT(sigaltstack(&disabled, NULL) == 0);
    char within[3 * 2048];
    memset(within, 0x77, sizeof within);
    stack = (stack_t){.ss_sp = within, .ss_size = sizeof within};
    RIGHT(sigaltstack(&stack, NULL) == 0);
    squeeze();
    for (size_t i = 0; i < sizeof within; i++)
        RIGHT(within[i] == 0x77);
    RIGHT(sigaltstack(&disabled, NULL) == 0);
    SETUP(sigaltstack(&old, NULL) == 0);
}

static volatile uintptr_t handled_at;
static volatile int told_flags;

static void tells_where(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    int here;
    stack_t now;
    handled_at = (uintptr_t)&here;
    SETUP(sigaltstack(NULL, &now) == 0);
    told_flags = now.ss_flags;
    came++;
}

static void stacks(void) {
    stack_t old, now, *stack = place(sizeof *stack);
    char *at = map_new(16 * PAGE);
    fill_range(at, 16, 77);
    SETUP(sigaltstack(NULL, &old) == 0);
    *stack = (stack_t){.ss_sp = at, .ss_size = 16 * PAGE};
    out(), out_of_memory(at, 16, 8);
    RIGHT(sigaltstack(stack, NULL) == 0 && sigaltstack(NULL, &now) == 0);
    RIGHT(now.ss_sp == at && now.ss_size == 16 * PAGE && now.ss_flags == 0);
    for (int i = 0; i < 4; i++) {
        const int numbers[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGUSR2};
        came = 0;
        set_handler(numbers[i], tells_where, SA_ONSTACK);
        squeeze();
        RIGHT(raise(numbers[i]) == 0 && came == 1 && handled_at - (uintptr_t)at < 16 * PAGE && told_flags == SS_ONSTACK);
        signal(numbers[i], SIG_DFL);
    }
    *stack = (stack_t){.ss_sp = at, .ss_size = 100};
    RIGHT(sigaltstack(stack, NULL) == -1 && errno == ENOMEM);
    *stack = (stack_t){.ss_sp = at, .ss_size = 16 * PAGE, .ss_flags = 64};
    RIGHT(sigaltstack(stack, NULL) == -1 && errno == EINVAL);
    *stack = (stack_t){.ss_sp = at, .ss_size = 16 * PAGE, .ss_flags = (int)(1u << 31)};
    RIGHT(sigaltstack(stack, NULL) == 0);
    squeeze();
    RIGHT(sigaltstack(NULL, &now) == 0 && now.ss_flags == (int)(1u << 31) && now.ss_sp == at);
    SETUP(sigaltstack(&old, NULL) == 0);
}

static void with_descriptors(void) {
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGCHLD), sigaddset(&set, SIGSEGV);
    SETUP(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    int file = signalfd(-1, &set, SFD_NONBLOCK);
    RIGHT(file >= 0);
    struct signalfd_siginfo *info = place(4 * sizeof *info);
    out();
    RIGHT(read(file, info, 4 * sizeof *info) == -1 && errno == EAGAIN);
    raise(SIGUSR1);
    expect_child(fork() ?: (_exit(0), 0), "a child");
    out();
    RIGHT(read(file, info, 4 * sizeof *info) == 2 * sizeof *info && info[0].ssi_signo == SIGUSR1);
    RIGHT(info[1].ssi_signo == SIGCHLD);
    close(file);
    SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
}

// The three, blocked: bare they wait.
static void wait_while_blocked(void) {
    static const int three[] = {SIGSEGV, SIGBUS, SIGSYS};
    for (int i = 0; i < 3; i++) {
        sigset_t set, old, pending;
        set_handler(three[i], notes, 0);
        sigemptyset(&set), sigaddset(&set, three[i]);
        came = 0;
        SETUP(sigprocmask(SIG_BLOCK, &set, &old) == 0 && raise(three[i]) == 0);
        squeeze();
        RIGHT(came == 0 && sigpending(&pending) == 0 && sigismember(&pending, three[i]));
        SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
        RIGHT(came == 1);
    }
}

// --- Waits that name the three
static char *cold;
enum { COLD = 2048, COLD_TAG = 700000 };
static volatile int stop;

static void touches_cold(int signal) {
    static unsigned next;
    (void)signal;
    for (int i = 0; i < 4; i++, next = (next + 331) % COLD)
        check_page(cold + next * PAGE, COLD_TAG + next, "in a handler");
    came++;
}

// Memory that is out, and SIGALRM every `us` microseconds, whose handler touches it.
static void interrupt_each(long us) {
    if (!cold)
        fill_range(cold = map_new(COLD * PAGE), COLD, COLD_TAG);
    squeeze();
    came = 0;
    SETUP(signal(SIGALRM, touches_cold) != SIG_ERR);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, us}, {0, us}}, NULL);
}

static void interrupt_no_more(void) { setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL); }

static sigset_t block_three(sigset_t *three) {
    sigset_t old;
    sigemptyset(three), sigaddset(three, SIGSEGV), sigaddset(three, SIGBUS), sigaddset(three, SIGSYS);
    SETUP(sigprocmask(SIG_BLOCK, three, &old) == 0);
    return old;
}

static void handlers_while_waiting(void) {
    sigset_t three, old = block_three(&three);
    siginfo_t info;
    interrupt_each(3000);
    for (double until = seconds() + 1.5; seconds() < until;) {
        RIGHT(sigtimedwait(&three, &info, &(struct timespec){0, 20000000}) == -1);
        RIGHT(errno == EINTR || errno == EAGAIN);
    }
    RIGHT(came > 20);
    interrupt_no_more();
    SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
}

// A call that lets them in while it lasts begins and ends as handlers come.
static void handlers_around_calls_with_masks(void) {
    sigset_t three, none, old = block_three(&three);
    sigemptyset(&none);
    interrupt_each(150);
    for (double until = seconds() + 1; seconds() < until;)
        for (int i = 0; i < 500; i++)
            RIGHT(ppoll(NULL, 0, &(struct timespec){0, 0}, &none) == 0 || errno == EINTR);
    interrupt_no_more();
    SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
}

static void *waits_for_all(void *arg) {
    sigset_t all;
    sigfillset(&all);
    while (!stop)
        sigtimedwait(&all, NULL, &(struct timespec){0, 3000000});
    return arg;
}

// (The C library has every thread change them, by a signal.)
static void identities_while_waiting(void) {
    pthread_t waiting[2];
    stop = 0;
    for (int i = 0; i < 2; i++)
        SETUP(pthread_create(&waiting[i], NULL, waits_for_all, NULL) == 0);
    for (double until = seconds() + 1; seconds() < until;) {
        for (int i = 0; i < 20; i++)
            RIGHT(setresuid(-1, getuid(), -1) == 0 && setresgid(-1, getgid(), -1) == 0);
        squeeze();
    }
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(waiting[i], NULL);
}

static pthread_t waits;
static void *sends_all(void *arg) {
    static const int three[] = {SIGSEGV, SIGBUS, SIGSYS};
    for (int i = 0; !stop; i++) {
        RIGHT(pthread_kill(waits, three[i % 3]) == 0);
        while (came <= i && !stop)
            sched_yield();
    }
    return arg;
}

static void taken_while_waiting(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGSYS};
    sigset_t three, pending, old = block_three(&three);
    siginfo_t *info = place(sizeof *info);
    out();
    // What waits already is there at once, whoever it was sent to.
    for (int i = 0; i < 3; i++) {
        RIGHT(raise(numbers[i]) == 0 && sigtimedwait(&three, info, &(struct timespec){0, 0}) == numbers[i]);
        RIGHT(info->si_signo == numbers[i] && info->si_code == SI_USER && info->si_pid == getpid());
        out();
        RIGHT(sigqueue(getpid(), numbers[i], (union sigval){.sival_int = 77 + i}) == 0);
        RIGHT(sigwaitinfo(&three, info) == numbers[i] && info->si_value.sival_int == 77 + i);
        out();
    }
    RIGHT(sigpending(&pending) == 0 && !sigismember(&pending, SIGSEGV));
    double from = seconds();
    RIGHT(sigtimedwait(&three, info, &(struct timespec){0, 50000000}) == -1 && errno == EAGAIN && seconds() - from > .049);
    RIGHT(sigtimedwait(&three, info, &(struct timespec){0, 2000000000}) == -1 && errno == EINVAL);
    RIGHT(sigtimedwait(&three, (void *)8, &(struct timespec){0, 0}) == -1 && errno == EAGAIN);
    // One that comes at any moment of a wait without end ends it.
    pthread_t sender;
    waits = pthread_self(), stop = came = 0;
    SETUP(pthread_create(&sender, NULL, sends_all, NULL) == 0);
    for (double until = seconds() + 1; seconds() < until; came++)
        RIGHT(sigwaitinfo(&three, info) == numbers[came % 3] && info->si_code == SI_USER);
    stop = 1;
    pthread_join(sender, NULL);
    while (sigtimedwait(&three, NULL, &(struct timespec){0, 0}) > 0)
        ;
    SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
}

// Sent to the process by a thread that has them blocked, for another: one that waits for them, and one
// that lets them in.
static volatile int received;
static sigset_t for_the_other;

static void *waits_for_three(void *arg) {
    for (siginfo_t info; !stop;) {
        int number = sigtimedwait(&for_the_other, &info, &(struct timespec){5, 0});
        RIGHT(number > 0 && info.si_signo == number && info.si_code == SI_USER && info.si_pid == getpid());
        received++;
    }
    return arg;
}

static void *lets_three_in(void *arg) {
    SETUP(pthread_sigmask(SIG_UNBLOCK, &for_the_other, NULL) == 0);
    while (!stop)
        received = came, usleep(200);
    return arg;
}

static void sent_to_the_process(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGSYS};
    sigset_t old = block_three(&for_the_other);
    for (int turn = 0; turn < 2; turn++) {
        pthread_t other;
        stop = came = received = 0;
        for (int i = 0; i < 3; i++)
            set_handler(numbers[i], notes, 0);
        SETUP(pthread_create(&other, NULL, turn ? lets_three_in : waits_for_three, NULL) == 0);
        for (int i = 0; i < 100; i++) {
            if (i == 99)
                stop = !turn;
            if (i % 10 == 0)
                usleep(2000); // (It sleeps in its wait.)
            RIGHT(kill(getpid(), numbers[i % 3]) == 0);
            for (double until = seconds() + 5; received <= i;)
                RIGHT(seconds() < until);
            RIGHT(!turn || (last.si_signo == numbers[i % 3] && last.si_code == SI_USER && last.si_pid == getpid()));
        }
        stop = 1;
        pthread_join(other, NULL);
        for (int i = 0; i < 3; i++)
            SETUP(signal(numbers[i], SIG_DFL) != SIG_ERR);
    }
    SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
}

// Sent to a thread that makes calls and faults meanwhile, each of which is told by one of the three as
// well: none is lost, and every call has its own result.
static void *sends_to_who_calls(void *arg) {
    static const int three[] = {SIGSYS, SIGSEGV, SIGSYS, SIGBUS};
    for (int i = 0; !stop; i++) {
        RIGHT(pthread_kill(waits, three[i % 4]) == 0);
        for (double until = seconds() + 10; came <= i && !stop; sched_yield())
            RIGHT(seconds() < until);
    }
    return arg;
}

static void does_nothing(int signal) { (void)signal; }

static void sent_beside_calls(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGSYS};
    int ends[2];
    SETUP(pipe(ends) == 0);
    stop = came = 0;
    for (int i = 0; i < 3; i++)
        set_handler(numbers[i], notes, SA_RESTART);
    pthread_t sender;
    waits = pthread_self();
    SETUP(pthread_create(&sender, NULL, sends_to_who_calls, NULL) == 0);
    // (The handler of a signal that is not ours returns to calls as well.)
    SETUP(signal(SIGALRM, does_nothing) != SIG_ERR);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 150}, {0, 150}}, NULL);
    char *byte = place(1);
    // (As long as it takes on a machine with much to do; who sends waits for each.)
    for (double until = seconds() + 1; seconds() < until || came < 100;) {
        for (int i = 0; i < 100; i++) {
            *byte = (char)i;
            // (Through the place of the C library at which threads may be cancelled.)
            RIGHT(write(ends[1], byte, 1) == 1 && poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, 0) == 1);
            RIGHT(read(ends[0], byte, 1) == 1 && *byte == (char)i);
            RIGHT(getppid() > 0 && lseek(ends[0], 0, SEEK_CUR) == -1 && errno == ESPIPE);
        }
        out();
    }
    interrupt_no_more();
    stop = 1;
    RIGHT(pthread_join(sender, NULL) == 0);
    for (int i = 0; i < 3; i++)
        SETUP(signal(numbers[i], SIG_DFL) != SIG_ERR);
    SETUP(close(ends[0]) == 0 && close(ends[1]) == 0);
}

CASES({"sent", sent}, {"deadly", deadly}, {"fault_in_a_handler", fault_in_a_handler}, {"flags", flags}, {"masks", masks},
      {"masks_of_contexts", masks_of_contexts},
      {"on_the_stack_that_was_interrupted", on_the_stack_that_was_interrupted},
      {"stacks_that_nobody_uses", stacks_that_nobody_uses}, {"stacks", stacks},
      {"with_descriptors", with_descriptors}, {"wait_while_blocked", wait_while_blocked},
      {"handlers_while_waiting", handlers_while_waiting}, {"identities_while_waiting", identities_while_waiting},
      {"handlers_around_calls_with_masks", handlers_around_calls_with_masks}, {"taken_while_waiting", taken_while_waiting},
      {"sent_to_the_process", sent_to_the_process}, {"sent_beside_calls", sent_beside_calls})
