// Handlers of signals find things as they are bare, also where memory is out: the stack they run on, as much of it
// as there is, their frame, the registers in it, the signal stack, masks.
#include "inthread_kit.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

static volatile int came;
static volatile uintptr_t ran_at, interrupted_at;
static stack_t within;
static siginfo_t told;
static char *cold; // memory that is out when a handler begins
enum { COLD = 64, TAG = 900 };

static void handle(int signal, void (*by)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = by, .sa_flags = SA_SIGINFO | flags};
    SETUP(sigaction(signal, &action, NULL) == 0);
    came = 0;
}

static stack_t of_kit;

static void begin(void) {
    SETUP(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, &of_kit) == 0);
    cold = map_new(COLD * PAGE);
    fill_range(cold, COLD, TAG);
    out_of_memory(cold, COLD, 4);
}

static void end(int signal_) {
    check_range(cold, COLD, TAG, "beside handlers");
    munmap(cold, COLD * PAGE);
    SETUP(signal(signal_, SIG_DFL) != SIG_ERR && sigaltstack(&of_kit, NULL) == 0);
}

static void notes(int signal, siginfo_t *info, void *context) {
    char here;
    (void)signal;
    came++, told = *info;
    ran_at = (uintptr_t)&here, interrupted_at = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
    RIGHT(sigaltstack(NULL, &within) == 0);
}

// --- where they run -------------------------------------------------------------------------

static void on_the_interrupted_stack(void) {
    begin();
    handle(SIGUSR1, notes, 0);
    handle(SIGUSR2, notes, SA_ONSTACK);
    int numbers[] = {SIGUSR1, SIGUSR2};
    for (int i = 0; i < 6; i++) {
        squeeze();
        raise(numbers[i % 2]);
        RIGHT(came == i + 1 && ran_at < interrupted_at && interrupted_at - ran_at < 64 << 10);
        RIGHT(within.ss_flags == SS_DISABLE);
    }
    // One that the program has set is used by those who ask for it, and by nobody else.
    char *own = map_new(64 * PAGE);
    SETUP(sigaltstack(&(stack_t){.ss_sp = own, .ss_size = 64 * PAGE}, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        squeeze();
        raise(numbers[i % 2]);
        bool on_it = ran_at >= (uintptr_t)own && ran_at < (uintptr_t)own + 64 * PAGE;
        RIGHT(on_it == (i % 2 == 1) && within.ss_sp == own && within.ss_flags == (on_it ? SS_ONSTACK : 0));
    }
    SETUP(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    munmap(own, 64 * PAGE), signal(SIGUSR2, SIG_DFL);
    end(SIGUSR1);
}

static __attribute__((noinline)) uint64_t deep(int levels) {
    volatile char own[4000];
    for (size_t i = 0; i < sizeof own; i += 500)
        own[i] = (char)levels;
    uint64_t sum = levels == 0 ? 0 : deep(levels - 1);
    for (size_t i = 0; i < sizeof own; i += 500)
        RIGHT(own[i] == (char)levels);
    return sum + 1;
}

static void goes_deep(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    RIGHT(deep(500) == 501); // 2 MiB
    check_range(cold, COLD, TAG, "in a handler");
    came++;
}

static void *is_interrupted(void *arg) {
    for (int i = 0; i < 3; i++)
        out_of_memory(cold, COLD, 4), raise(SIGUSR1);
    return arg;
}

static void as_deep_as_it_goes(void) {
    begin();
    handle(SIGUSR1, goes_deep, 0);
    is_interrupted(NULL);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, is_interrupted, NULL) == 0 && pthread_join(thread, NULL) == 0);
    RIGHT(came == 6);
    end(SIGUSR1);
}

static void after_its_page(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    came++;
}

// With no room below the stack pointer bare the process would be ended: here nothing else may happen to it, or the
// handler runs where there is room.
static void without_room(void) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL), bound_time();
        char *stack = mmap(NULL, 8 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        SETUP(stack != MAP_FAILED && mprotect(stack, 4 * PAGE, PROT_NONE) == 0);
        handle(SIGALRM, after_its_page, 0);
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 5000}}, NULL);
        __asm__ volatile("movq %%rsp, %%r12; movq %0, %%rsp; 1: pause; cmpl $0, (%1); je 1b; movq %%r12, %%rsp" ::"r"(stack + 4 * PAGE + 256),
                         "r"(&came)
                         : "r12", "memory", "cc");
        _exit(came == 1 ? 0 : 3);
    }
    int status;
    SETUP(waitpid(child, &status, 0) == child);
    RIGHT((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

static void without_room_where_memory_is_out(void) {
    begin();
    without_room();
    end(SIGALRM);
}

// --- what is in their frame -----------------------------------------------------------------

static void changes_registers(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    fpregset_t vectors = at->uc_mcontext.fpregs;
    (void)signal, (void)info;
    RIGHT((uintptr_t)vectors > (uintptr_t)context && (uintptr_t)vectors - (uintptr_t)context < 4096 && (uintptr_t)vectors % 64 == 0);
    RIGHT(vectors->_xmm[9].element[0] == 0x1234567 && at->uc_mcontext.gregs[REG_R13] == 0x55aa);
    vectors->_xmm[9].element[0] = 0x7654321, at->uc_mcontext.gregs[REG_R13] = 0xaa55;
    sigaddset(&at->uc_sigmask, SIGUSR2);
    check_page(cold + came % COLD * PAGE, TAG + came % COLD, "in a handler");
    double spoiled = 3.5 * came;
    __asm__ volatile("movq %0, %%xmm9\n pxor %%xmm15, %%xmm15" ::"r"(spoiled) : "xmm9", "xmm15");
    came++;
}

static void registers_and_masks(void) {
    begin();
    handle(SIGUSR1, changes_registers, 0);
    for (int i = 0; i < 20; i++) {
        if (i % 5 == 0)
            out_of_memory(cold, COLD, 4);
        uint64_t low, high = 0x99, other;
        long id = getpid();
        __asm__ volatile("movq %3, %%xmm9\n movq %4, %%xmm15\n movq $0x55aa, %%r13\n syscall\n movq %%xmm9, %1\n movq %%xmm15, %2\n movq %%r13, %0\n"
                         : "=&r"(other), "=&r"(low), "=&r"(high)
                         : "r"(0x1234567L), "r"(0x99L), "a"(SYS_kill), "D"(id), "S"(SIGUSR1)
                         : "rcx", "r11", "r13", "xmm9", "xmm15", "memory");
        RIGHT(came == i + 1 && low == 0x7654321 && high == 0x99 && other == 0xaa55);
        sigset_t now;
        SETUP(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
        RIGHT(sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGUSR1) == 0);
        sigemptyset(&now), sigprocmask(SIG_SETMASK, &now, NULL);
    }
    end(SIGUSR1);
}

static volatile int order[16], ordered;

static void raises(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    order[ordered++ % 16] = signal;
    if (came++ == 0)
        raise(SIGUSR1), raise(SIGUSR2), raise(SIGCONT);
    check_page(cold, TAG, "in a handler");
    order[ordered++ % 16] = -signal;
}

// A handler's own signal and those of its mask wait, others come at once.
static void one_within_another(void) {
    begin();
    struct sigaction action = {.sa_sigaction = raises, .sa_flags = SA_SIGINFO}, others = action, now;
    sigaddset(&action.sa_mask, SIGCONT), sigaddset(&action.sa_mask, SIGSEGV);
    SETUP(sigaction(SIGUSR2, &others, NULL) == 0 && sigaction(SIGCONT, &others, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        action.sa_flags = SA_SIGINFO | (i % 2 ? SA_NODEFER : 0);
        SETUP(sigaction(SIGUSR1, &action, NULL) == 0);
        ordered = came = 0;
        out_of_memory(cold, COLD, 4);
        raise(SIGUSR1);
        static const int deferred[] = {SIGUSR1, SIGUSR2, -SIGUSR2, -SIGUSR1, SIGUSR1, -SIGUSR1, SIGCONT, -SIGCONT};
        static const int not_deferred[] = {SIGUSR1, SIGUSR1, -SIGUSR1, SIGUSR2, -SIGUSR2, -SIGUSR1, SIGCONT, -SIGCONT};
        for (int at = 0; at < 8; at++)
            RIGHT(ordered == 8 && order[at] == (i % 2 ? not_deferred : deferred)[at]);
        RIGHT(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_sigaction == raises && sigismember(&now.sa_mask, SIGCONT) == 1);
        RIGHT((now.sa_flags & ~0x04000000) == action.sa_flags);
    }
    action.sa_flags = SA_SIGINFO | SA_RESETHAND, came = 1;
    SETUP(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    RIGHT(came == 2 && sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    signal(SIGUSR2, SIG_DFL), signal(SIGCONT, SIG_DFL);
    end(SIGUSR1);
}

static void waits_for_itself(int signal, siginfo_t *info, void *context) {
    (void)context;
    RIGHT(info->si_code == SI_QUEUE && info->si_value.sival_int == came);
    order[came++ % 16] = signal;
    if (came == 1)
        for (int i = 1; i < 4; i++)
            SETUP(sigqueue(getpid(), signal, (union sigval){.sival_int = i}) == 0);
    RIGHT(came == 1 || ran_at == 0);
    ran_at = came == 1;
    squeeze();
    ran_at = 0;
}

static void queued_ones_in_turn(void) {
    begin();
    handle(SIGRTMIN + 3, waits_for_itself, 0);
    ran_at = 0;
    SETUP(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 0}) == 0);
    RIGHT(came == 4);
    end(SIGRTMIN + 3);
}

static void nothing(int signal) { (void)signal; }

// Signals of the kernel's own, which have a code like those of faults.
static void of_children(void) {
    begin();
    handle(SIGCHLD, notes, 0);
    for (int i = 0; i < 4; i++) {
        out_of_memory(cold, COLD, 4);
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0)
            _exit(20 + i);
        while (came <= i)
            usleep(1000);
        RIGHT(told.si_code == CLD_EXITED && told.si_status == 20 + i && told.si_pid == child);
        int status;
        RIGHT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 20 + i);
    }
    // (While what is done with them changes, none of them ends the process.)
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0)
            _exit(0);
        for (int turn = 0; turn < 20; turn++)
            signal(SIGCHLD, turn % 3 == 0 ? SIG_DFL : turn % 3 == 1 ? SIG_IGN : nothing);
        waitpid(child, NULL, 0);
    }
    end(SIGCHLD);
}

// A handler is the default's again once it runs, not while its signal waits.
static void reset_as_it_runs(void) {
    begin();
    for (int i = 0; i < 4; i++) {
        int number = i % 2 ? SIGUSR1 : SIGSEGV;
        struct sigaction before, now;
        SETUP(sigaction(number, NULL, &before) == 0);
        handle(number, notes, SA_RESETHAND);
        sigset_t set, old;
        sigemptyset(&set), sigaddset(&set, number);
        SETUP(sigprocmask(SIG_BLOCK, &set, &old) == 0);
        squeeze();
        raise(number);
        RIGHT(came == 0 && sigaction(number, NULL, &now) == 0 && now.sa_sigaction == notes);
        SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
        RIGHT(came == 1 && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
        SETUP(sigaction(number, &before, NULL) == 0);
    }
    end(SIGUSR1);
}

static void counts(int signal, siginfo_t *info, void *context) { (void)signal, (void)info, (void)context, came++; }

// A handler without SA_RESTART ends a call, by itself or behind a signal that is blocked, both of which come at once
// (the process is stopped meanwhile).
static void calls_that_end(void) {
    begin();
    for (int i = 0; i < 9; i++) {
        int number = (int[]){SIGSEGV, SIGBUS, SIGSYS}[i % 3], ends = i < 3 ? number : SIGUSR1, fds[2];
        struct sigaction before, of_user;
        SETUP(pipe(fds) == 0 && sigaction(number, NULL, &before) == 0 && sigaction(SIGUSR1, NULL, &of_user) == 0);
        handle(number, counts, i < 6 ? 0 : SA_RESTART), handle(ends, counts, 0);
        sigset_t set, old;
        sigemptyset(&set), sigaddset(&set, number);
        SETUP(sigprocmask(i < 3 ? SIG_UNBLOCK : SIG_BLOCK, &set, &old) == 0);
        pid_t parent = getpid(), child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            usleep(50000);
            kill(parent, SIGSTOP), kill(parent, number);
            if (ends != number)
                kill(parent, ends);
            usleep(10000), kill(parent, SIGCONT), usleep(200000);
            SETUP(write(fds[1], "x", 1) == 1);
            _exit(0);
        }
        char byte;
        ssize_t got = read(fds[0], &byte, 1);
        RIGHT(got == -1 && errno == EINTR && came == 1);
        SETUP(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
        RIGHT(came == (i < 3 ? 1 : 2));
        expect_child(child, "who sends");
        SETUP(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && sigaction(number, &before, NULL) == 0);
        SETUP(sigaction(SIGUSR1, &of_user, NULL) == 0);
        close(fds[0]), close(fds[1]);
    }
    end(SIGUSR1);
}

static sigjmp_buf back;

static void jumps(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    came++;
    check_page(cold + came % COLD * PAGE, TAG + came % COLD, "in a handler");
    siglongjmp(back, signal);
}

static void left_by_a_jump(void) {
    begin();
    handle(SIGFPE, jumps, 0), handle(SIGILL, jumps, 0), handle(SIGTRAP, jumps, 0), handle(SIGUSR1, jumps, 0);
    static volatile int zero;
    for (volatile int i = 0; i < 400; i++) {
        if (i % 100 == 0)
            out_of_memory(cold, COLD, 4);
        int number = sigsetjmp(back, 1);
        if (number == 0) {
            switch (i % 4) {
            case 0: zero = i / zero; break;
            case 1: __asm__ volatile("ud2"); break;
            case 2: __asm__ volatile("int3"); break;
            default: raise(SIGUSR1);
            }
        }
        static const int numbers[] = {SIGFPE, SIGILL, SIGTRAP, SIGUSR1};
        RIGHT(number == numbers[i % 4] && came == i + 1);
    }
    signal(SIGFPE, SIG_DFL), signal(SIGILL, SIG_DFL), signal(SIGTRAP, SIG_DFL);
    end(SIGUSR1);
}

// --- handlers that are left and come back to ------------------------------------------------

static ucontext_t main_context, other_context, of_handler;
static volatile int switched;

static void switches(int signal, siginfo_t *info, void *context) {
    volatile uint64_t own[64];
    (void)signal, (void)info, (void)context;
    for (int i = 0; i < 64; i++)
        own[i] = mix(i + switched);
    SETUP(swapcontext(&of_handler, &other_context) == 0);
    for (int i = 0; i < 64; i++)
        RIGHT(own[i] == mix(i + switched - 1));
}

static void the_other(void) {
    for (;;) {
        // (While the handler waits the other is interrupted itself.)
        raise(SIGUSR2);
        check_page(cold + switched % COLD * PAGE, TAG + switched % COLD, "in a coroutine");
        switched++;
        SETUP(swapcontext(&other_context, &of_handler) == 0);
    }
}

static void left_and_come_back_to(void) {
    begin();
    handle(SIGUSR2, notes, 0), handle(SIGUSR1, switches, 0);
    char *stack = mmap(NULL, 32 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    SETUP(stack != MAP_FAILED && getcontext(&other_context) == 0);
    other_context.uc_stack.ss_sp = stack, other_context.uc_stack.ss_size = 32 * PAGE, other_context.uc_link = &main_context;
    makecontext(&other_context, the_other, 0);
    for (int i = 0; i < 40; i++) {
        if (i % 8 == 0)
            out_of_memory(cold, COLD, 4);
        raise(SIGUSR1);
        RIGHT(switched == i + 1 && ran_at >= (uintptr_t)stack && ran_at < (uintptr_t)stack + 32 * PAGE);
    }
    munmap(stack, 32 * PAGE), signal(SIGUSR2, SIG_DFL);
    end(SIGUSR1);
}

CASES({"without_room", without_room}, {"on_the_interrupted_stack", on_the_interrupted_stack}, {"as_deep_as_it_goes", as_deep_as_it_goes},
      {"without_room_where_memory_is_out", without_room_where_memory_is_out}, {"registers_and_masks", registers_and_masks},
      {"one_within_another", one_within_another}, {"queued_ones_in_turn", queued_ones_in_turn}, {"calls_that_end", calls_that_end},
      {"reset_as_it_runs", reset_as_it_runs}, {"of_children", of_children}, {"left_by_a_jump", left_by_a_jump},
      {"left_and_come_back_to", left_and_come_back_to})
