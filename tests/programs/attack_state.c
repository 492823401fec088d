// The processor's state and the stacks that code runs on, while its memory is out: flags, jumps, faults
// that must be told exactly, instructions with more than one operand out, stacks that go under a call.
#include "inthread_kit.h"
#include <immintrin.h>
#include <setjmp.h>
#include <sched.h>
#include <sys/time.h>

#define RAW(...) syscall(__VA_ARGS__)
enum { MANY = 64, TAG = 600000 };

static char *fresh(size_t pages) {
    char *at = map_new(pages * PAGE);
    fill_range(at, pages, TAG);
    out_of_memory(at, pages, 4);
    return at;
}

// --- flags, and what looks like a call ------------------------------------------------------

// Accesses that are not aligned are the program's errors, as it has asked for (AC): its own, not ours.
#define CHECKED(instruction, ...) \
    __asm__ volatile("pushfq; orq $0x40000, (%%rsp); popfq; " instruction "; pushfq; popq %%r12; andq $~0x40000, %%r12; " \
                     "pushq %%r12; popfq" __VA_ARGS__)

static void alignment_checked(void) {
    char *at = fresh(MANY);
    int fds[2];
    SETUP(pipe(fds) == 0);
    for (int i = 0; i < MANY; i++) {
        uint64_t word;
        CHECKED("movq (%1), %0", : "=r"(word) : "r"(at + i * PAGE + 64) : "cc", "memory", "r12");
        RIGHT(word == word_of(TAG + i, 8));
    }
    out_of_memory(at, MANY, 4);
    for (int i = 0; i < MANY; i++) {
        uint64_t word;
        long done;
        if (i % 2)
            CHECKED("syscall", : "=a"(done) : "0"(SYS_write), "D"(fds[1]), "S"(at + i * PAGE + 64), "d"(8) : "rcx", "r11", "cc", "memory", "r12");
        else // (from where the stack is not aligned for vectors either)
            CHECKED("pushq %%rdx; syscall; popq %%rdx",
                    : "=a"(done) : "0"(SYS_write), "D"(fds[1]), "S"(at + i * PAGE + 64), "d"(8) : "rcx", "r11", "cc", "memory", "r12");
        RIGHT(done == 8 && read(fds[0], &word, 8) == 8 && word == word_of(TAG + i, 8));
    }
    close(fds[0]), close(fds[1]);
    munmap(at, MANY * PAGE);
}

// A jump to behind a call, by the register in which the processor leaves that address: no call was made.
static void jumped_behind_a_call(void) {
    char *at = fresh(MANY);
    for (int i = 0; i < MANY; i++) {
        uint64_t word;
        __asm__ volatile("leaq 1f(%%rip), %%rcx; movl $231, %%eax; movl $5, %%edi; jmp *%%rcx; syscall; 1: movq (%%rsi), %0"
                         : "=d"(word)
                         : "S"(at + i * PAGE + 40)
                         : "rax", "rcx", "rdi", "r11", "memory");
        RIGHT(word == word_of(TAG + i, 5));
    }
    munmap(at, MANY * PAGE);
}

// --- signal stacks --------------------------------------------------------------------------

static char *touched;
static volatile int handled, refused;
static stack_t within;
static void touches_on_its_stack(int signal) {
    char here[1000];
    (void)signal;
    errno = 0;
    if (RAW(SYS_getcwd, here, sizeof here) <= 0 || sigaltstack(NULL, &within) != 0)
        return;
    for (int i = 0; i < MANY; i++)
        *(volatile char *)(touched + i * PAGE) += 0;
    refused = sigaltstack(&within, NULL) == -1 && errno == EPERM;
    handled++;
}

static uintptr_t lowest;
static void notes_where_it_is(int signal) {
    (void)signal;
    lowest = (uintptr_t)__builtin_frame_address(0);
}

// What the kernel writes for a signal: as much as this processor's registers take.
static size_t bytes_of_a_signal(void) {
    stack_t before, large = {.ss_sp = map_new(16 * PAGE), .ss_size = 16 * PAGE};
    struct sigaction action = {.sa_handler = notes_where_it_is, .sa_flags = SA_ONSTACK}, was;
    SETUP(sigaltstack(&large, &before) == 0 && sigaction(SIGUSR1, &action, &was) == 0);
    raise(SIGUSR1);
    SETUP(sigaltstack(&before, NULL) == 0 && sigaction(SIGUSR1, &was, NULL) == 0);
    size_t bytes = (uintptr_t)large.ss_sp + large.ss_size - lowest;
    munmap(large.ss_sp, large.ss_size);
    return bytes;
}

// A stack with just enough bytes for a signal and a handler, which makes calls and touches what is out.
static void small_signal_stack(void) {
    stack_t before, now;
    touched = fresh(MANY);
    size_t size = (bytes_of_a_signal() + 1500) / 16 * 16, end = PAGE + size, all = end + PAGE;
    char *around = map_new(all);
    memset(around, 0x5a, all);
    SETUP(sigaltstack(NULL, &before) == 0);
    stack_t own = {.ss_sp = around + PAGE, .ss_size = size};
    RIGHT(sigaltstack(&own, NULL) == 0);
    struct sigaction action = {.sa_handler = touches_on_its_stack, .sa_flags = SA_ONSTACK}, was;
    SETUP(sigaction(SIGUSR1, &action, &was) == 0);
    // (Here first: finding a function of libc, when it is called first, takes as much of the stack again.)
    touches_on_its_stack(0);
    handled = 0;
    for (int i = 0; i < 3; i++) {
        out_of_memory(touched, MANY, 4);
        raise(SIGUSR1);
        RIGHT(within.ss_sp == own.ss_sp && within.ss_size == size && within.ss_flags == SS_ONSTACK && refused);
        RIGHT(sigaltstack(NULL, &now) == 0 && now.ss_sp == own.ss_sp && now.ss_size == size && now.ss_flags == 0);
    }
    RIGHT(handled == 3);
    for (int i = 0; i < PAGE; i++)
        RIGHT(around[i] == 0x5a && around[end + i] == 0x5a);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGUSR1);
        RIGHT(handled == 4 && sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, &now) == 0 && now.ss_sp == own.ss_sp);
        RIGHT(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_DISABLE);
        _exit(0);
    }
    expect_child(child, "with a small signal stack");
    SETUP(sigaltstack(&before, NULL) == 0 && sigaction(SIGUSR1, &was, NULL) == 0);
    munmap(touched, MANY * PAGE), munmap(around, all);
}

// Coroutines that begin as the handler of a signal, and go on there once it has returned.
static sigjmp_buf begun, back, coroutine;
static volatile int turns;

static void runs_on_that_stack(void) {
    volatile uint64_t own[512];
    for (int i = 0; i < 512; i++)
        own[i] = 3 * i;
    for (;;) {
        if (sigsetjmp(coroutine, 0) == 0)
            siglongjmp(back, 1);
        for (int i = 0; i < 512; i++)
            RIGHT(own[i] == 3 * (uint64_t)i);
        check_page(touched + turns % MANY * PAGE, TAG + turns % MANY, "in a coroutine");
        RIGHT(RAW(SYS_getppid) > 0);
        turns++;
    }
}

static void begins(int signal) {
    (void)signal;
    if (sigsetjmp(begun, 0) != 0)
        runs_on_that_stack();
}

static void coroutine_by_a_signal(void) {
    enum { SIZE = 64 << 10 };
    touched = fresh(MANY);
    char *stack = map_new(SIZE);
    stack_t before;
    SETUP(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = SIZE}, &before) == 0);
    struct sigaction action = {.sa_handler = begins, .sa_flags = SA_ONSTACK}, was;
    SETUP(sigaction(SIGUSR2, &action, &was) == 0);
    raise(SIGUSR2);
    SETUP(sigaltstack(&before, NULL) == 0);
    if (sigsetjmp(back, 0) == 0)
        siglongjmp(begun, 1);
    for (volatile int i = 0; i < 100; i++) {
        if (i % 20 == 0)
            squeeze();
        if (sigsetjmp(back, 0) == 0)
            siglongjmp(coroutine, 1);
    }
    RIGHT(turns == 100);
    SETUP(sigaction(SIGUSR2, &was, NULL) == 0);
    munmap(stack, SIZE), munmap(touched, MANY * PAGE);
}

// Code that makes no call computes on a stack of which only the page that it is at is in: its signal's frame
// is larger.
static volatile int came;
static void comes(int signal) { (void)signal, came = 1; }

static void quiet_coroutine(void) {
    char *stack = map_new(MANY * PAGE), *top = stack + (MANY - 1) * PAGE;
    fill_range(stack, MANY, TAG);
    struct sigaction action = {.sa_handler = comes}, was;
    SETUP(sigaction(SIGALRM, &action, &was) == 0);
    char *others = map_new(KIT_BALLAST);
    for (int turn = 0; turn < 5; turn++)
        for (int at = 0; at < KIT_BALLAST; at += PAGE)
            others[at]++, *(volatile char *)top += 0;
    bound_time();
    // (Nothing has told yet that code runs there.)
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 5000}}, NULL);
    __asm__ volatile("movq %%rsp, %%r12; movq %0, %%rsp; 1: pause; cmpl $0, (%1); je 1b; movq %%r12, %%rsp" ::"r"(top + 64), "r"(&came)
                     : "r12", "memory", "cc");
    RIGHT(came);
    SETUP(sigaction(SIGALRM, &was, NULL) == 0);
    munmap(stack, MANY * PAGE), munmap(others, KIT_BALLAST);
}

// --- stacks that go under a call ------------------------------------------------------------

static void *discards_below(void *low) {
    for (int i = 0; i < 20; i++) {
        long done;
        __asm__ volatile("movq %%rsp, %%rsi; andq $-4096, %%rsi; subq %%rdi, %%rsi; syscall"
                         : "=a"(done)
                         : "0"(SYS_madvise), "D"(low), "d"(MADV_DONTNEED)
                         : "rcx", "r11", "rsi", "memory");
        RIGHT(done == 0);
        char deep[20000];
        memset(deep, i, sizeof deep);
        __asm__ volatile("" ::"r"(deep) : "memory");
    }
    return NULL;
}

static volatile uint32_t gone;
static void *unmaps_its_stack(void *low) {
    // (Not libc's part, at its upper end, which the kernel writes to.)
    char *upper = (char *)((uintptr_t)pthread_self() & -PAGE) - 2 * PAGE;
    sigset_t all;
    sigfillset(&all), pthread_sigmask(SIG_BLOCK, &all, NULL);
    __asm__ volatile("syscall; movl $1, (%2); xorl %%edi, %%edi; movl $60, %%eax; syscall" ::"a"(SYS_munmap), "D"(low), "r"(&gone),
                     "S"(upper - (char *)low)
                     : "rcx", "r11", "memory");
    __builtin_unreachable();
}

static void stacks_that_go(void) {
    enum { SIZE = 256 << 10 };
    for (int i = 0; i < 8; i++) {
        char *stack = map_at(NULL, SIZE, i % 2 ? MAP_STACK : 0);
        pthread_attr_t attr;
        pthread_attr_init(&attr), pthread_attr_setstack(&attr, stack, SIZE);
        pthread_t thread;
        gone = 0;
        SETUP(pthread_create(&thread, &attr, i < 4 ? discards_below : unmaps_its_stack, stack) == 0);
        pthread_join(thread, NULL);
        RIGHT(gone == (i >= 4));
        munmap(stack, SIZE);
        if (i % 4 == 0)
            squeeze();
    }
}

// --- faults of the program's ----------------------------------------------------------------

static siginfo_t told;
static greg_t error, cr2;
static void looks(int signal, siginfo_t *info, void *context) {
    const ucontext_t *at = context;
    (void)signal;
    told = *info, error = at->uc_mcontext.gregs[REG_ERR], cr2 = at->uc_mcontext.gregs[REG_CR2];
    siglongjmp(back, 1);
}

#define FAULTS(access, code, address, bits) \
    do { \
        if (sigsetjmp(back, 1) == 0) { \
            access; \
            RIGHT(!"a fault"); \
        } \
        RIGHT(told.si_code == (code) && (char *)told.si_addr == (address) && (error & (bits)) == (bits)); \
    } while (0)

// Each is told with its address and its reason, whatever else of the access was out.
static void exact_faults(void) {
    struct sigaction action = {.sa_sigaction = looks, .sa_flags = SA_SIGINFO}, was, was_bus;
    SETUP(sigaction(SIGSEGV, &action, &was) == 0 && sigaction(SIGBUS, &action, &was_bus) == 0);
    for (volatile int turn = 0; turn < 2; turn++) {
        char *volatile at = map_new((MANY + 2) * PAGE), *volatile guard = at + MANY * PAGE;
        fill_range(at, MANY, TAG);
        SETUP(mprotect(guard, PAGE, turn ? PROT_NONE : PROT_READ) == 0 && munmap(guard + PAGE, PAGE) == 0);
        out_of_memory(at, MANY, 4);
        FAULTS(*(volatile uint64_t *)(guard - 4) = 1, SEGV_ACCERR, guard, 6);
        RIGHT((char *)cr2 == guard);
        check_page(guard - PAGE, TAG + MANY - 1, "before a guard");
        out_of_memory(at, MANY, 4);
        FAULTS(memcpy(guard + PAGE, at + 3 * PAGE + 5, 100), SEGV_MAPERR, guard + PAGE, 6);
        FAULTS(((void (*)(void))(at + 9 * PAGE + 33))(), SEGV_ACCERR, at + 9 * PAGE + 33, 0x14);
        FAULTS(((void (*)(void))(guard + PAGE))(), SEGV_MAPERR, guard + PAGE, 0x14);
        char *volatile nowhere = (char *)0x8000000000001234;
        FAULTS(*(volatile char *)nowhere = 1, SI_KERNEL, NULL, 0);
        int file = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        SETUP(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
        char *volatile mapped = mmap(NULL, 4 * PAGE, 3, turn ? MAP_PRIVATE : MAP_SHARED, file, 0);
        mapped[3 * PAGE] = 1;
        SETUP(ftruncate(file, PAGE) == 0);
        FAULTS(*(volatile char *)(mapped + 3 * PAGE + 7) = 1, BUS_ADRERR, mapped + 3 * PAGE + 7, 4);
        close(file), munmap(mapped, 4 * PAGE);
        check_range(at, MANY, TAG, "beside faults");
        munmap(at, (MANY + 1) * PAGE);
    }
    SETUP(sigaction(SIGSEGV, &was, NULL) == 0 && sigaction(SIGBUS, &was_bus, NULL) == 0);
}

// --- instructions ---------------------------------------------------------------------------

__attribute__((target("avx2"))) static void gathered(char *at) {
    for (int i = 0; i + 8 < MANY; i += 8) {
        __m256i places = _mm256_set_epi64x(7 * PAGE, 5 * PAGE, 3 * PAGE, 0);
        uint64_t words[4];
        _mm256_storeu_si256((__m256i *)words, _mm256_i64gather_epi64((const long long *)(at + i * PAGE + 40), places, 1));
        for (int k = 0; k < 4; k++)
            RIGHT(words[k] == word_of(TAG + i + (k ? 2 * k + 1 : 0), 5));
    }
    // (The upper half lies behind the mapping, and is not accessed.)
    __m256i lower = _mm256_set_epi64x(0, 0, -1, -1);
    long long *last = (long long *)(at + MANY * PAGE - 16);
    _mm256_maskstore_epi64(last, lower, _mm256_maskload_epi64(last, lower));
}

// Signals come all the time, so that these are interrupted half-way too.
static void instructions(void) {
    struct sigaction action = {.sa_handler = comes, .sa_flags = SA_RESTART}, was;
    SETUP(sigaction(SIGALRM, &action, &was) == 0);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 700}, {0, 700}}, NULL);
    char *at = map_new((MANY + 1) * PAGE), *copy = map_at(NULL, MANY * PAGE, MAP_STACK);
    fill_range(at, MANY, TAG), fill_range(copy, MANY, TAG);
    SETUP(munmap(at + MANY * PAGE, PAGE) == 0);
    out_of_memory(at, MANY, 4);
    if (__builtin_cpu_supports("avx2"))
        gathered(at);
    // Moves that overlap, downwards by bytes and upwards by words across borders.
    out_of_memory(at, MANY, 4);
    const long many = 20 * PAGE;
    char *to = at + 1000 + 32 * PAGE + many - 1, *from = at + 1000 + many - 1;
    long count = many;
    __asm__ volatile("std; rep movsb; cld" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    memmove(copy + 1000 + 32 * PAGE, copy + 1000, many);
    RIGHT(count == 0 && to == at + 1000 + 32 * PAGE - 1);
    out_of_memory(at, MANY, 4);
    to = at + 3 * PAGE + 11, from = at + 5 * PAGE + 4090, count = 25 * WORDS;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    memmove(copy + 3 * PAGE + 11, copy + 5 * PAGE + 4090, 25 * PAGE);
    for (int i = 0; i < MANY * PAGE; i += 8)
        RIGHT(*(uint64_t *)(at + i) == *(uint64_t *)(copy + i));
    // 16 bytes at once, and two operands of which both are out, one of them the stack.
    unsigned __int128 *pair = (unsigned __int128 *)(at + 7 * PAGE + 16);
    uint64_t low = (uint64_t)*pair, high = (uint64_t)(*pair >> 64), popped;
    unsigned char done;
    out_of_memory(at, MANY, 4);
    __asm__ volatile("lock cmpxchg16b %1; sete %0" : "=q"(done), "+m"(*pair), "+a"(low), "+d"(high) : "b"(1L), "c"(2L) : "cc", "memory");
    RIGHT(done && (uint64_t)*pair == 1 && (uint64_t)(*pair >> 64) == 2);
    fill_page(at + 21 * PAGE, TAG);
    out_of_memory(at, MANY, 4);
    __asm__ volatile("movq %%rsp, %%r12; movq %1, %%rsp; pushq 8(%2); popq %0; movq %%r12, %%rsp"
                     : "=&r"(popped)
                     : "r"(at + 20 * PAGE), "r"(at + 21 * PAGE)
                     : "r12", "memory");
    RIGHT(popped == word_of(TAG, 1));
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    SETUP(sigaction(SIGALRM, &was, NULL) == 0);
    munmap(at, MANY * PAGE), munmap(copy, MANY * PAGE);
}

CASES({"quiet_coroutine", quiet_coroutine}, {"alignment_checked", alignment_checked}, {"jumped_behind_a_call", jumped_behind_a_call},
      {"small_signal_stack", small_signal_stack}, {"coroutine_by_a_signal", coroutine_by_a_signal}, {"stacks_that_go", stacks_that_go},
      {"exact_faults", exact_faults}, {"instructions", instructions})
