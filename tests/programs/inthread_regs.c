// What a system call and a fault leave as it was: every register but rax, rcx and r11.
#include "inthread_kit.h"

enum { CALLS = 300 };

// All sixteen vector registers, whole, across a call whose pointers are out, and across the
// faults that a program takes itself.
__attribute__((target("avx"))) static void vectors_of_256_bits(void) {
    static uint64_t before[16][4] __attribute__((aligned(32))), after[16][4] __attribute__((aligned(32)));
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 4; k++)
            before[i][k] = mix(i * 4 + k + 1);
    for (int i = 0; i < CALLS; i++) {
        long result = SYS_clock_gettime, id = 1, into = (long)(area + i % (AREA / 2) * 2 * PAGE + 8);
        if (i % 100 == 0)
            out();
#define LOAD(n) "vmovdqa " #n "*32(%[from]), %%ymm" #n "\n"
#define SAVE(n) "vmovdqa %%ymm" #n ", " #n "*32(%[to])\n"
#define ALL(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) what(9) \
        what(10) what(11) what(12) what(13) what(14) what(15)
        __asm__ volatile(ALL(LOAD) "syscall\n" // into memory that is out
                         "movq 4096(%%rsi), %%r11\n" // a fault
                         ALL(SAVE)
                         : "+a"(result), "+D"(id), "+S"(into)
                         : [from] "r"(before), [to] "r"(after)
                         : "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                           "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
        RIGHT(result == 0);
        RIGHT(memcmp(before, after, sizeof before) == 0);
    }
}

__attribute__((target("avx512f"))) static void vectors_of_512_bits(void) {
    static uint64_t before[32][8] __attribute__((aligned(64))), after[32][8] __attribute__((aligned(64)));
    uint64_t mask = 0;
    for (int i = 0; i < 32; i++)
        for (int k = 0; k < 8; k++)
            before[i][k] = mix(i * 8 + k + 1);
    for (int i = 0; i < CALLS; i++) {
        long result = SYS_clock_gettime, id = 1, into = (long)(area + i % (AREA / 2) * 2 * PAGE + 8);
        if (i % 100 == 0)
            out();
#define LOAD5(n) "vmovdqa64 " #n "*64(%[from]), %%zmm" #n "\n"
#define SAVE5(n) "vmovdqa64 %%zmm" #n ", " #n "*64(%[to])\n"
#define ALL5(what) ALL(what) what(16) what(17) what(18) what(19) what(20) what(21) what(22) what(23) what(24) \
        what(25) what(26) what(27) what(28) what(29) what(30) what(31)
        __asm__ volatile("movl $0x5a5a, %%ecx\n kmovw %%ecx, %%k3\n" ALL5(LOAD5) "syscall\n"
                         "movq 4096(%%rsi), %%r11\n" ALL5(SAVE5) "kmovw %%k3, %%ecx\n movl %%ecx, %%r11d\n movq %%r11, %[mask]\n"
                         : "+a"(result), "+D"(id), "+S"(into), [mask] "=m"(mask)
                         : [from] "r"(before), [to] "r"(after)
                         : "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                           "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "k3");
        RIGHT(result == 0 && mask == 0x5a5a);
        RIGHT(memcmp(before, after, sizeof before) == 0);
    }
}

static void vectors(void) {
    // (What does not compress is written back, where there is a backing: sealing and opening use them too.)
    for (size_t at = 0; at < (size_t)AREA * PAGE / sizeof(uint64_t); at++)
        ((uint64_t *)area)[at] = mix(at);
    if (__builtin_cpu_supports("avx"))
        vectors_of_256_bits();
    if (__builtin_cpu_supports("avx512f"))
        vectors_of_512_bits();
}

// The others, the red zone below the stack pointer, and the controls of both units.
static void others(void) {
    for (int i = 0; i < CALLS; i++) {
        static uint64_t saved[12]; // not on the stack, whose pointer changes below
        uint64_t *into = (uint64_t *)(area + i % (AREA / 2) * 2 * PAGE + 8);
        static uint32_t mxcsr = 0x3f80, mxcsr_after; // rounds down
        static uint16_t control = 0x0f7f, control_after;
        if (i % 100 == 0)
            out();
        register long number __asm__("rax") = SYS_clock_gettime;
        __asm__ volatile(
            "push %%rbx\n push %%rbp\n"
            "mov %[saved], %%r15\n"
            "ldmxcsr %[mxcsr]\n fldcw %[control]\n"
            "mov $1, %%edi\n mov %[into], %%rsi\n"
            "mov $0x1111, %%rbx\n mov $0x2222, %%rbp\n mov $0x3333, %%r8\n mov $0x4444, %%r9\n"
            "mov $0x5555, %%r10\n mov $0x6666, %%r12\n mov $0x7777, %%r13\n mov $0x8888, %%r14\n"
            "mov $0x9999, %%rdx\n"
            "movq $0x1234567, -8(%%rsp)\n movq $0x7654321, -128(%%rsp)\n"
            "syscall\n"
            "mov -8(%%rsp), %%rcx\n mov %%rcx, 72(%%r15)\n mov -128(%%rsp), %%rcx\n mov %%rcx, 80(%%r15)\n"
            "mov %%rbx, (%%r15)\n mov %%rbp, 8(%%r15)\n mov %%r8, 16(%%r15)\n mov %%r9, 24(%%r15)\n"
            "mov %%r10, 32(%%r15)\n mov %%r12, 40(%%r15)\n mov %%r13, 48(%%r15)\n mov %%r14, 56(%%r15)\n"
            "mov %%rdx, 64(%%r15)\n mov %%rsi, 88(%%r15)\n"
            "pop %%rbp\n pop %%rbx\n"
            : "+r"(number)
            : [saved] "r"(saved), [mxcsr] "m"(mxcsr), [control] "m"(control), [into] "r"(into)
            : "rcx", "r11", "r15", "rdi", "rsi", "rdx", "r8", "r9", "r10", "r12", "r13", "r14", "memory", "cc");
        __asm__ volatile("stmxcsr %0\n fnstcw %1\n" : "=m"(mxcsr_after), "=m"(control_after));
        static uint32_t usual = 0x1f80;
        static uint16_t usual_control = 0x037f;
        __asm__ volatile("ldmxcsr %0\n fldcw %1\n" ::"m"(usual), "m"(usual_control));
        for (int k = 0; k < 8; k++)
            RIGHT(saved[k] == 0x1111u * (k + 1));
        RIGHT(saved[8] == 0x9999 && saved[9] == 0x1234567 && saved[10] == 0x7654321);
        RIGHT(saved[11] == (uintptr_t)into && number == 0);
        RIGHT(mxcsr_after == mxcsr && control_after == control);
    }
}

// A call by the gate of 32 bits has other numbers: 20 is getpid there, and writev here.
static void gate_of_32_bits(void) {
    long pid = 20;
    __asm__ volatile("int $0x80" : "+a"(pid) : "b"(0L), "c"(0L), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
    RIGHT(pid == getpid() || pid == -ENOSYS);
}

CASES({"vectors", vectors}, {"others", others}, {"gate_of_32_bits", gate_of_32_bits})
