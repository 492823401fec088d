// Sites of calls in the program's own text, which become jumps: of every form, run for the first
// time by one thread, by several at once, in handlers and in children, and jumped into.
#include "inthread_kit.h"
#include <fcntl.h>
#include <sys/wait.h>

typedef long (*site_t)(long, long, long);

// The number is in rax without a mov of its own before the syscall: what follows it has to go.
#define NUMBER(number) "push $" #number "\n pop %rax\n"
#define FUNCTION(name, body) __asm__(".text\n .p2align 4\n" #name ":\n" body "\n ret\n"); long name(long, long, long)

FUNCTION(compared, NUMBER(39) "syscall\n cmp $-4096, %rax\n ja 1f\n ret\n 1: neg %rax");
FUNCTION(compared_short, NUMBER(39) "syscall\n cmp $-4096, %eax\n ja 1f\n ret\n 1: neg %eax");
FUNCTION(tested, NUMBER(39) "syscall\n test %rax, %rax\n js 1f\n ret\n 1: neg %rax");
FUNCTION(copied, NUMBER(39) "syscall\n mov %eax, %edx\n test %eax, %eax\n js 1f\n mov %edx, %eax\n ret\n 1: neg %eax");
FUNCTION(compared_with_byte, NUMBER(39) "syscall\n cmp $-4, %rax\n je 1f\n ret\n 1: neg %rax");
FUNCTION(returns, NUMBER(39) "syscall");
FUNCTION(from_memory, NUMBER(39) "syscall\n mov %rax, -8(%rsp)\n mov -8(%rsp), %rax");
FUNCTION(moved_number, "mov $39, %eax\n syscall\n cmp $-4096, %rax\n ja 1f\n ret\n 1: neg %rax");
// With an argument that is not 0 it goes to the comparison, with 7 for a result.
FUNCTION(joined, "test %rdi, %rdi\n jne 2f\n" NUMBER(39) "syscall\n 1: cmp $-4096, %rax\n ja 3f\n ret\n"
                 "2: mov $7, %eax\n jmp 1b\n 3: neg %rax");
// The second of two instructions that move is gone to.
FUNCTION(joined_late, "test %rdi, %rdi\n jne 2f\n" NUMBER(39) "syscall\n mov %eax, %edx\n 1: test %eax, %eax\n js 3f\n ret\n"
                      "2: mov $7, %eax\n jmp 1b\n 3: neg %eax");
// The first time by the mov, then to the syscall alone; and the other way round.
FUNCTION(again, "mov $39, %eax\n 1: syscall\n cmp $-4096, %rax\n ja 2f\n dec %rdi\n jle 2f\n" NUMBER(39) "jmp 1b\n 2:");
FUNCTION(first_without, "test %rdi, %rdi\n jne 2f\n mov $39, %eax\n 1: syscall\n cmp $-4096, %rax\n ja 3f\n ret\n"
                        "2:" NUMBER(39) "jmp 1b\n 3: neg %rax");
FUNCTION(reads, "xor %eax, %eax\n syscall\n cmp $-4096, %rax\n ja 1f\n ret\n 1: neg %rax");
FUNCTION(reads_for_handlers, "xor %eax, %eax\n syscall\n cmp $-4096, %rax\n ja 1f\n ret\n 1: neg %rax");

// 256 sites, so that the syscall lies at each place within eight bytes. Every second one has a
// mov of its own, every third nothing that can move.
#define FRESH 256
__asm__(".text\n .p2align 6\n fresh:\n .set at, 0\n .rept 256\n .p2align 6\n .rept at % 8\n nop\n .endr\n"
        ".if at % 2\n mov $39, %eax\n .else\n push $39\n pop %rax\n .endif\n syscall\n"
        ".if at % 3\n cmp $-4096, %rax\n .else\n nop\n nop\n nop\n .endif\n ret\n .set at, at + 1\n .endr\n .p2align 6\n");
extern char fresh[];
static site_t fresh_site(int i) { return (site_t)(fresh + i * 64); }

static long pid_of_kernel(void) {
    char link[32] = "";
    SETUP(readlink("/proc/self", link, sizeof link - 1) > 0);
    return atol(link);
}

static void forms(void) {
    static const site_t sites[] = {compared, compared_short, tested, copied, compared_with_byte, returns, from_memory, moved_number};
    long pid = pid_of_kernel();
    squeeze();
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++)
        for (int k = 0; k < 50; k++)
            RIGHT(sites[i](0, 0, 0) == pid);
    // (An error comes through what moved.)
    RIGHT(reads(-1, (long)area, 1) == EBADF);
    RIGHT(reads(-1, (long)area, 1) == EBADF);
}

static void jumped_into(void) {
    long pid = pid_of_kernel();
    squeeze();
    for (int k = 0; k < 50; k++) {
        RIGHT(joined(k % 2, 0, 0) == (k % 2 ? 7 : pid));
        RIGHT(joined_late(k % 2, 0, 0) == (k % 2 ? 7 : pid));
        RIGHT(again(1 + k % 4, 0, 0) == pid);
        RIGHT(first_without(k % 3 == 0, 0, 0) == pid);
    }
}

static int pipes[2][2];

// While `reads_for_handlers` waits, for the first time, its site is come through once more.
static void comes_again(int signal) {
    char byte = 0;
    SETUP(write(pipes[1][1], "b", 1) == 1);
    RIGHT(reads_for_handlers(pipes[1][0], (long)&byte, 1) == 1 && byte == 'b');
    SETUP(write(pipes[0][1], "a", 1) == 1);
    (void)signal;
}

static void in_a_handler(void) {
    SETUP(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0);
    struct sigaction action = {.sa_handler = comes_again, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    squeeze();
    for (int turn = 0; turn < 5; turn++) {
        SETUP(ualarm(20000, 0) == 0);
        char byte = 0;
        RIGHT(reads_for_handlers(pipes[0][0], (long)&byte, 1) == 1 && byte == 'a');
    }
}

static pthread_barrier_t together;

static void *comes_to_all(void *arg) {
    long pid = getpid();
    for (int i = 0; i < FRESH; i++) {
        if (i % 4 == 0)
            pthread_barrier_wait(&together);
        for (int k = 0; k < 3; k++)
            RIGHT(fresh_site(i)(0, 0, 0) == pid);
    }
    return arg;
}

static void by_several_at_once(void) {
    squeeze();
    SETUP(pthread_barrier_init(&together, NULL, 4) == 0);
    // Some were run before there was a second thread.
    for (int i = 0; i < FRESH; i += 5)
        RIGHT(fresh_site(i)(0, 0, 0) == getpid());
    pthread_t threads[4];
    for (int k = 0; k < 4; k++)
        SETUP(pthread_create(&threads[k], NULL, comes_to_all, NULL) == 0);
    for (int k = 0; k < 4; k++)
        SETUP(pthread_join(threads[k], NULL) == 0);
}

// A child of a process with threads has one; a call that its parent waits in goes on in it.
static void forks_here(int signal) {
    int child = fork();
    SETUP(child >= 0);
    char byte = 0;
    SETUP(write(pipes[1][1], "c", 1) == 1);
    RIGHT(reads(pipes[1][0], (long)&byte, 1) == 1);
    if (child > 0) {
        int status;
        SETUP(write(pipes[0][1], "dd", 2) == 2);
        SETUP(waitpid(child, &status, 0) == child);
        RIGHT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    (void)signal;
}

static void *waits(void *arg) {
    char byte;
    while (read(*(int *)arg, &byte, 1) < 0 && errno == EINTR) {
    }
    return NULL;
}

static void forks_in_a_handler(void) {
    int stop[2];
    SETUP(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0 && pipe(stop) == 0);
    pthread_t thread;
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    SETUP(pthread_sigmask(SIG_BLOCK, &alarm_only, NULL) == 0);
    SETUP(pthread_create(&thread, NULL, waits, stop) == 0);
    SETUP(pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL) == 0);
    struct sigaction action = {.sa_handler = forks_here, .sa_flags = SA_RESTART};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    squeeze();
    int me = getpid();
    for (int turn = 0; turn < 4; turn++) {
        SETUP(ualarm(20000, 0) == 0);
        char byte = 0;
        RIGHT(reads(pipes[0][0], (long)&byte, 1) == 1 && byte == 'd');
        if (getpid() != me) {
            for (int i = 0; i < FRESH; i++)
                RIGHT(fresh_site(i)(0, 0, 0) == getpid());
            _exit(0);
        }
    }
    SETUP(write(stop[1], "e", 1) == 1 && pthread_join(thread, NULL) == 0);
}

// A call of libc's, `mov $110, %eax; syscall`, has become a jump once it was made.
static void of_libc(void) {
    const uint8_t *code = (const uint8_t *)(uintptr_t)getppid;
    RIGHT(getppid() > 0);
    int is_call = 0, is_jump = 0;
    for (int i = 0; i < 16; i++)
        if (code[i + 5] == 0x0f && code[i + 6] == 0x05) {
            is_call |= code[i] == 0xb8 && code[i + 1] == 110;
            is_jump |= code[i] == 0xe9;
        }
    RIGHT(managed() ? is_jump : is_call);
}

CASES({"of_libc", of_libc}, {"forms", forms}, {"jumped_into", jumped_into}, {"in_a_handler", in_a_handler},
      {"by_several_at_once", by_several_at_once}, {"forks_in_a_handler", forks_in_a_handler})
