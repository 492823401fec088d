// Code that makes calls: loaded and unloaded, generated, changed, run where it was written and
// where it is mapped twice.
#include "inthread_kit.h"
#include <dlfcn.h>
#include <fcntl.h>

typedef long (*code_t)(long, long, long);

// mov $number, %eax; syscall; ret
static size_t write_call(unsigned char *at, unsigned number) {
    unsigned char code[] = {0xb8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3};
    memcpy(code + 1, &number, 4);
    memcpy(at, code, sizeof code);
    return sizeof code;
}

static void libraries(void) {
    static const char *const names[] = {"libresolv.so.2", "libutil.so.1", "libnss_dns.so.2", "libm.so.6", "libanl.so.1"};
    for (int turn = 0; turn < 30; turn++) {
        void *handles[5];
        for (int i = 0; i < 5; i++)
            handles[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (handles[3]) {
            double (*cosine)(double) = (double (*)(double))dlsym(handles[3], "cos");
            RIGHT(cosine && cosine(0) == 1);
        }
        if (turn % 10 == 0)
            out();
        for (int i = 0; i < 5; i++)
            if (handles[i])
                RIGHT(dlclose(handles[i]) == 0);
    }
}

// Memory that may be written and run at once, as some compilers have it: it stays so.
static void writable_code(void) {
    unsigned char *code = mmap(NULL, 4 * PAGE, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return;
    for (int i = 0; i < 20; i++) {
        unsigned char *at = code + i * 64 + i % 9;
        write_call(at, SYS_getpid);
        for (int k = 0; k < 3; k++)
            RIGHT(((code_t)at)(0, 0, 0) == getpid());
        // The next is written to the same page, and the number of this one is another's.
        unsigned other = SYS_getppid;
        memcpy(at + 1, &other, 4);
        for (int k = 0; k < 3; k++)
            RIGHT(((code_t)at)(0, 0, 0) == getppid());
    }
    squeeze();
    RIGHT(((code_t)code)(0, 0, 0) == getppid());
    SETUP(munmap(code, 4 * PAGE) == 0);
}

// Written, then run, then written again, as others have it.
static void code_in_turns(void) {
    unsigned char *code = mmap(NULL, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(code != MAP_FAILED);
    static const unsigned numbers[] = {SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid};
    for (int turn = 0; turn < 12; turn++) {
        unsigned number = numbers[turn % 4];
        RIGHT(mprotect(code, PAGE, PROT_READ | PROT_WRITE) == 0);
        if (turn < 4)
            write_call(code, number);
        else
            memcpy(code + 1, &number, 4); // the rest is there
        RIGHT(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
        for (int i = 0; i < 3; i++)
            RIGHT(((code_t)code)(0, 0, 0) == syscall(number));
        if (turn % 5 == 0)
            squeeze();
    }
    SETUP(munmap(code, PAGE) == 0);
    // Text that is gone, and other text in its place.
    for (int turn = 0; turn < 20; turn++) {
        unsigned char *again = mmap(code, PAGE, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (again == MAP_FAILED)
            return;
        write_call(again + turn % 3, numbers[turn % 4]);
        RIGHT(((code_t)(again + turn % 3))(0, 0, 0) == syscall(numbers[turn % 4]));
        SETUP(munmap(again, PAGE) == 0);
    }
}

// The same pages mapped to be written and to be run: what is written is what is run, and what
// is read is what was written. Children have them too.
static void code_mapped_twice(void) {
    int file = memfd_create("code", 0);
    SETUP(file >= 0 && ftruncate(file, PAGE) == 0);
    unsigned char *writes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    unsigned char *runs = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    SETUP(writes != MAP_FAILED && runs != MAP_FAILED);
    unsigned char copy[64];
    for (int i = 0; i < 8; i++)
        write_call(writes + i * 8, i % 2 ? SYS_getpid : SYS_getppid);
    memcpy(copy, writes, 64);
    for (int turn = 0; turn < 4; turn++) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 8; i++)
                RIGHT(((code_t)(runs + i * 8))(0, 0, 0) == (i % 2 ? getpid() : getppid()));
            _exit(0);
        }
        expect_child(child, "that runs shared code");
        for (int i = turn; i < 8; i++)
            RIGHT(((code_t)(runs + i * 8))(0, 0, 0) == (i % 2 ? getpid() : getppid()));
        RIGHT(memcmp(copy, writes, 64) == 0);
    }
    close(file);
    SETUP(munmap(writes, PAGE) == 0 && munmap(runs, PAGE) == 0);
}

static unsigned char *emit(unsigned char *at, const void *code, size_t bytes) { return (unsigned char *)memcpy(at, code, bytes) + bytes; }

// Sites that are come to in more than one way, and such as only look like one.
static void odd_sites(void) {
    unsigned char *code = mmap(NULL, PAGE, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at = code;
    if (code == MAP_FAILED)
        return;
    // The syscall is jumped to, past the mov, with another number (in rdi).
    unsigned char *past = at;
    at = emit(at, "\x89\xf8\xeb\x05", 4);                         // mov %edi, %eax; jmp +5
    unsigned char *site = at;
    at += write_call(at, SYS_getpid);
    RIGHT(((code_t)site)(0, 0, 0) == getpid() && ((code_t)site)(0, 0, 0) == getpid());
    RIGHT(((code_t)past)(SYS_getppid, 0, 0) == getppid());
    RIGHT(((code_t)site)(0, 0, 0) == getpid());
    // Its last five bytes are a mov's, but it is a lea: 8d b8 27 00 00 00.
    unsigned char *lea = at = code + 128;
    at = emit(at, "\xb8\x27\x00\x00\x00\x8d\xb8\x27\x00\x00\x00\x0f\x05\x89\xf8\xc3", 16);
    for (int i = 0; i < 3; i++) // mov $39, %eax; lea 39(%rax), %edi; syscall; mov %edi, %eax; ret
        RIGHT(((code_t)lea)(0, 0, 0) == 78);
    // Of eight registers, and of sixteen bits.
    unsigned char *wide = at = code + 192; // mov $39, %rax (7 bytes); syscall; ret
    at = emit(at, "\x48\xc7\xc0\x27\x00\x00\x00\x0f\x05\xc3", 10);
    RIGHT(((code_t)wide)(0, 0, 0) == getpid() && ((code_t)wide)(0, 0, 0) == getpid());
    unsigned char *eighth = at = code + 256; // mov $39, %eax; mov $39, %r8d; syscall; mov %r8, %rax; ret
    at = emit(at, "\xb8\x27\x00\x00\x00\x41\xb8\x27\x00\x00\x00\x0f\x05\x4c\x89\xc0\xc3", 17);
    for (int i = 0; i < 3; i++)
        RIGHT(((code_t)eighth)(0, 0, 0) == 39);
    // Over the end of a page, beside one that may not be read.
    unsigned char *two = mmap(NULL, 3 * PAGE, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(two != MAP_FAILED);
    for (int i = 1; i < 9; i++) {
        write_call(two + PAGE - i, SYS_getpid);
        for (int k = 0; k < 3; k++)
            RIGHT(((code_t)(two + PAGE - i))(0, 0, 0) == getpid());
    }
    SETUP(mprotect(two + PAGE, PAGE, PROT_NONE) == 0);
    write_call(two + PAGE - 8, SYS_getppid);
    RIGHT(((code_t)(two + PAGE - 8))(0, 0, 0) == getppid());
    SETUP(munmap(two, 3 * PAGE) == 0 && munmap(code, PAGE) == 0);
}

// A fork and a new task from code of its own.
static void forks_from_code(void) {
    unsigned char *code = mmap(NULL, PAGE, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return;
    fill_range(area, AREA, 4000);
    static const unsigned numbers[] = {SYS_fork, SYS_clone};
    for (int i = 0; i < 6; i++) {
        unsigned char *at = code + 16 * i;
        write_call(at, numbers[i % 2]);
        out();
        pid_t child = (pid_t)((code_t)at)(i % 2 ? SIGCHLD : 0, 0, 0);
        SETUP(child >= 0);
        if (child == 0) {
            check_range(area, AREA, 4000, "of a child forked by code");
            syscall(SYS_exit_group, 0);
        }
        expect_child(child, "forked by code");
        check_range(area, AREA, 4000, "of a parent that forks by code");
    }
    SETUP(munmap(code, PAGE) == 0);
}

static void *runs_code(void *arg) {
    code_t code = (code_t)arg;
    for (int i = 0; i < 2000; i++)
        RIGHT(code(0, 0, 0) == getpid());
    return arg;
}

// Sites that several threads come to at once, for the first time.
static void by_several_threads(void) {
    unsigned char *code = mmap(NULL, 16 * PAGE, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return;
    for (int i = 0; i < 12; i++) {
        unsigned char *at = code + i * PAGE + i * 3;
        write_call(at, SYS_getpid);
        pthread_t threads[4];
        for (int k = 0; k < 4; k++)
            SETUP(pthread_create(&threads[k], NULL, runs_code, at) == 0);
        for (int k = 0; k < 4; k++)
            pthread_join(threads[k], NULL);
    }
    SETUP(munmap(code, 16 * PAGE) == 0);
}

CASES({"libraries", libraries}, {"writable_code", writable_code}, {"code_in_turns", code_in_turns},
      {"code_mapped_twice", code_mapped_twice}, {"odd_sites", odd_sites}, {"forks_from_code", forks_from_code},
      {"by_several_threads", by_several_threads})
