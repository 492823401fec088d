// Faults that are the program's own, as memory managers have them: write barriers by protection,
// pages mapped when they are touched, guard pages, checks for null by a fault.
#include "inthread_kit.h"
#include <setjmp.h>

enum { HEAP = 1500, THREADS = 3, TAG = 800000 };
static char *heap;
static unsigned char dirty[HEAP];
static volatile int faults, wrong_code;

static void barrier(int signal, siginfo_t *info, void *context) {
    (void)context;
    size_t page = ((uintptr_t)info->si_addr - (uintptr_t)heap) / PAGE;
    if (page >= HEAP)
        die(1, "a fault", info->si_addr, "outside of the heap");
    if (signal != SIGSEGV || info->si_code != SEGV_ACCERR)
        __atomic_store_n(&wrong_code, 1 + info->si_code, __ATOMIC_SEQ_CST);
    __atomic_store_n(&dirty[page], 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&faults, 1, __ATOMIC_SEQ_CST);
    if (mprotect(heap + page * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0)
        die(1, "mprotect", heap + page * PAGE, "in a handler");
}

static void *mutates(void *arg) {
    size_t id = (size_t)arg;
    for (int i = 0; i < 300; i++) {
        size_t page = mix(id * 1000 + i) % (HEAP / THREADS) * THREADS + id;
        check_page(heap + page * PAGE, TAG + page, "behind a barrier");
        fill_page(heap + page * PAGE, TAG + page);
        if (!__atomic_load_n(&dirty[page], __ATOMIC_SEQ_CST))
            die(1, "a write", heap + page * PAGE, "passed the barrier unseen");
    }
    return NULL;
}

static void write_barriers(int threads, int flags) {
    struct sigaction action = {.sa_sigaction = barrier, .sa_flags = SA_SIGINFO | flags}, old;
    heap = map_new(HEAP * PAGE);
    fill_range(heap, HEAP, TAG);
    SETUP(sigaction(SIGSEGV, &action, &old) == 0);
    faults = wrong_code = 0;
    for (int cycle = 0; cycle < 3; cycle++) {
        squeeze();
        memset(dirty, 0, sizeof dirty);
        RIGHT(mprotect(heap, HEAP * PAGE, PROT_READ) == 0);
        if (cycle % 2)
            squeeze();
        pthread_t all[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            if (threads)
                SETUP(pthread_create(&all[i], NULL, mutates, (void *)i) == 0);
            else
                mutates((void *)i);
        for (int i = 0; threads && i < THREADS; i++)
            pthread_join(all[i], NULL);
        RIGHT(mprotect(heap, HEAP * PAGE, PROT_READ | PROT_WRITE) == 0);
    }
    RIGHT(faults > 500 && wrong_code == 0);
    check_range(heap, HEAP, TAG, "after barriers");
    SETUP(sigaction(SIGSEGV, &old, NULL) == 0 && munmap(heap, HEAP * PAGE) == 0);
}

static void by_one_thread(void) { write_barriers(0, 0); }
static void by_several(void) { write_barriers(1, SA_NODEFER); }
static void on_signal_stacks(void) { write_barriers(1, SA_ONSTACK | SA_RESTART); }

static char *reserved;

static void maps_it(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *at = (char *)((uintptr_t)info->si_addr & -(uintptr_t)(8 * PAGE));
    if (at < reserved || at >= reserved + 4096l * PAGE)
        die(1, "a fault", info->si_addr, "outside of what is reserved");
    if (mprotect(at, 8 * PAGE, PROT_READ | PROT_WRITE) != 0)
        die(1, "mprotect", at, "in a handler");
    *(uint64_t *)at = (uintptr_t)at; // memory that is new, touched in a handler
    faults++;
}

// Reserved, and committed by the handler of the fault.
static void mapped_by_faults(void) {
    struct sigaction action = {.sa_sigaction = maps_it, .sa_flags = SA_SIGINFO}, old;
    // (Aligned as the handler goes.)
    char *raw = mmap(NULL, 4104l * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(raw != MAP_FAILED && sigaction(SIGSEGV, &action, &old) == 0);
    reserved = (char *)(((uintptr_t)raw + 8 * PAGE - 1) & -(uintptr_t)(8 * PAGE));
    faults = 0;
    for (int i = 0; i < 4096; i++)
        *(uint64_t *)(reserved + i * PAGE + 16) = mix(i + 1);
    RIGHT(faults == 512);
    squeeze();
    for (int i = 0; i < 4096; i++)
        RIGHT(*(uint64_t *)(reserved + i * PAGE + 16) == mix(i + 1));
    RIGHT(faults == 512 && *(uint64_t *)reserved == (uintptr_t)reserved);
    // Decommitted, in both manners.
    RIGHT(madvise(reserved, 1024 * PAGE, MADV_DONTNEED) == 0 && mprotect(reserved, 1024 * PAGE, PROT_NONE) == 0);
    RIGHT(mmap(reserved + 1024 * PAGE, 1024 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED);
    for (int i = 0; i < 4096; i++)
        RIGHT(*(volatile uint64_t *)(reserved + i * PAGE + 16) == (i < 2048 ? 0 : mix(i + 1)));
    RIGHT(faults == 512 + 256);
    SETUP(sigaction(SIGSEGV, &old, NULL) == 0 && munmap(raw, 4104l * PAGE) == 0);
}

static sigjmp_buf back;
static volatile uintptr_t fault_at;
static volatile int fault_code, fault_signal;

static void leaves(int signal, siginfo_t *info, void *context) {
    (void)context;
    fault_at = (uintptr_t)info->si_addr, fault_code = info->si_code, fault_signal = signal;
    siglongjmp(back, 1);
}

static void skips(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *at = context;
    at->uc_mcontext.gregs[REG_RIP] += 3; // over the load
    at->uc_mcontext.gregs[REG_RAX] = 4711;
    faults++;
}

static int overflows(int depth) {
    volatile char frame[3000];
    frame[0] = (char)depth;
    return depth > 1 << 20 ? 0 : overflows(depth + 1) + frame[0];
}

// What a handler is told, and what it changes.
static void told(void) {
    static char stack[64 << 10];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack}, before;
    struct sigaction action = {.sa_sigaction = leaves, .sa_flags = SA_SIGINFO | SA_ONSTACK}, old, bus;
    SETUP(sigaltstack(&own, &before) == 0 && sigaction(SIGSEGV, &action, &old) == 0 && sigaction(SIGBUS, &action, &bus) == 0);
    char *at = map_new(64 * PAGE);
    fill_range(at, 64, TAG);
    SETUP(mprotect(at + 20 * PAGE, PAGE, PROT_NONE) == 0 && munmap(at + 30 * PAGE, PAGE) == 0);
    squeeze();
    struct {
        uintptr_t at;
        int code;
    } expected[] = {{8, SEGV_MAPERR}, {(uintptr_t)at + 20 * PAGE + 5, SEGV_ACCERR}, {(uintptr_t)at + 30 * PAGE + 4095, SEGV_MAPERR},
                    {(uintptr_t)told, SEGV_ACCERR}};
    for (volatile int turn = 0; turn < 12; turn++) {
        if (sigsetjmp(back, 1) == 0) {
            *(volatile char *)expected[turn % 4].at = 1;
            die(1, "a fault", (void *)expected[turn % 4].at, "did not come");
        }
        RIGHT(fault_signal == SIGSEGV && fault_at == expected[turn % 4].at && fault_code == expected[turn % 4].code);
        if (turn % 4 == 0)
            squeeze();
    }
    // An address that is none: the kernel tells no address.
    if (sigsetjmp(back, 1) == 0) {
        *(volatile char *)(0xdeadul << 48) = 1;
        die(1, "a fault", NULL, "did not come");
    }
    RIGHT(fault_signal == SIGSEGV && fault_code == SI_KERNEL);
    // Data that is run.
    if (sigsetjmp(back, 1) == 0) {
        ((void (*)(void))(uintptr_t)(at + 5 * PAGE))();
        die(1, "a fault", NULL, "did not come");
    }
    RIGHT(fault_signal == SIGSEGV && fault_at == (uintptr_t)at + 5 * PAGE && fault_code == SEGV_ACCERR);
    // A stack that is used up.
    if (sigsetjmp(back, 1) == 0) {
        overflows(0);
        die(1, "an overflow", NULL, "did not come");
    }
    RIGHT(fault_signal == SIGSEGV);
    squeeze();
    // Registers that the handler changes.
    action.sa_sigaction = skips, faults = 0;
    SETUP(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        long value = 0;
        __asm__ volatile("mov (%1), %0" : "=a"(value) : "b"(8L) : "memory"); // three bytes: 48 8b 03
        RIGHT(value == 4711);
    }
    RIGHT(faults == 20);
    SETUP(sigaction(SIGSEGV, &old, NULL) == 0 && sigaction(SIGBUS, &bus, NULL) == 0 && sigaltstack(&before, NULL) == 0);
    SETUP(munmap(at, 64 * PAGE) == 0);
}

CASES({"by_one_thread", by_one_thread}, {"by_several", by_several}, {"on_signal_stacks", on_signal_stacks},
      {"mapped_by_faults", mapped_by_faults}, {"told", told})
