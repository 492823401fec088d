// What the programs of this directory share: pages whose every byte is known,
// and a way to have memory moved out before something is done to it.
//
// Exit status: 0 all bytes were right, 1 a wrong byte (a line says where),
// 2 the case could not be set up. Every program also runs bare, where it must
// end with 0: a fault of the program is not a fault of the manager.
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, HUGE_PAGE = 2 << 20 };

typedef uint64_t tag_t; // names the contents of a page; 0: zeros

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Of sixteen tags one gives a page of one repeated word, one a page that does
// not compress, and the others pages that compress to a tenth or so: all that
// a program here has must fit into `high` when compressed, ballast included.
static inline uint64_t word_of(tag_t tag, unsigned i) {
    if (tag == 0)
        return 0;
    switch (mix(tag) & 15) {
    case 0: return mix(tag);
    case 1: return mix(tag * WORDS + i);
    default: return i % 32 ? tag + i / 128 : mix(tag * WORDS + i);
    }
}

// Says something without libc's locks: in the child of a raw fork another
// thread may have held them.
#define SAY(...) \
    do { \
        char said_[512]; \
        int len_ = snprintf(said_, sizeof said_, __VA_ARGS__); \
        syscall(SYS_write, 2, said_, len_ < (int)sizeof said_ ? len_ : (int)sizeof said_); \
    } while (0)

static inline void die(int status, const char *what, const void *at, const char *more) {
    SAY("%s at %p: %s (process %d, thread %ld, errno %d)\n", what, at, more, getpid(),
        syscall(SYS_gettid), errno);
    syscall(SYS_exit_group, status);
}

#define SETUP(condition) ((condition) ? (void)0 : die(2, "setup", NULL, #condition))

static inline void fill_page(void *page, tag_t tag) {
    volatile uint64_t *words = page;
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = word_of(tag, i);
}

static inline int page_is(const void *page, tag_t tag) {
    const volatile uint64_t *words = page;
    for (unsigned i = 0; i < WORDS; i++)
        if (words[i] != word_of(tag, i))
            return 0;
    return 1;
}

// Looks at every word; at the first wrong one says what was there instead.
static inline void check_page(const void *page, tag_t tag, const char *what) {
    const volatile uint64_t *words = page;
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t got = words[i], want = word_of(tag, i);
        if (got == want)
            continue;
        char more[160];
        int zeros = 1, again = words[i] == want;
        for (unsigned k = 0; k < WORDS; k++)
            zeros &= words[k] == 0;
        snprintf(more, sizeof more, "tag %#lx, word %u: %#lx, expected %#lx%s%s", tag, i, got, want,
                 zeros ? "; the whole page reads zero" : "",
                 again ? "; read again it was right" : "");
        die(1, what, (const void *)&words[i], more);
    }
}

// Page i of a range has tag base + i.
static inline void fill_range(void *at, size_t pages, tag_t base) {
    for (size_t i = 0; i < pages; i++)
        fill_page((char *)at + i * PAGE, base + i);
}

// Says of a range, in which page `first` is wrong, which others are: what was lost together tells
// how.
static inline void tell_of_range(const char *at, size_t pages, tag_t base, size_t first) {
    size_t wrong = 0, zeros = 0, last = first;
    for (size_t i = first; i < pages; i++) {
        if (page_is(at + i * PAGE, base + i))
            continue;
        wrong++;
        zeros += page_is(at + i * PAGE, 0);
        last = i;
    }
    SAY("of %zu pages at %p %zu are wrong, %zu of them zeros: from %zu to %zu\n", pages, (void *)at,
        wrong, zeros, first, last);
}

static inline void check_range(const void *at, size_t pages, tag_t base, const char *what) {
    for (size_t i = 0; i < pages; i++) {
        const char *page = (const char *)at + i * PAGE;
        if (!page_is(page, base + i)) {
            tell_of_range(at, pages, base, i);
            check_page(page, base + i, what);
            die(1, what, page, "a page was wrong, and was right when it was read again");
        }
    }
}

static inline void check_zeros(const void *at, size_t pages, const char *what) {
    for (size_t i = 0; i < pages; i++)
        check_page((const char *)at + i * PAGE, 0, what);
}

static inline void *map_at(void *at, size_t bytes, int flags) {
    void *got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    SETUP(got != MAP_FAILED);
    return got;
}

static inline void *map_new(size_t bytes) { return map_at(NULL, bytes, 0); }

// A mapping that starts `offset` bytes after a multiple of 2 MiB.
static inline void *map_aligned(size_t bytes, size_t offset) {
    size_t whole = bytes + offset + HUGE_PAGE;
    char *raw = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP(raw != MAP_FAILED);
    char *at = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1)) + offset;
    SETUP(munmap(raw, at - raw) == 0 || at == raw);
    SETUP(munmap(at + bytes, raw + whole - (at + bytes)) == 0 || at + bytes == raw + whole);
    return map_at(at, bytes, MAP_FIXED);
}

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static inline int managed(void) { return getenv("ZFOLIO_CONTROL") != NULL; }

// What is mapped right behind a library's variables becomes one mapping with them, and a small one
// is left alone as they are. Whether the kernel puts memory there depends on where it has put the
// libraries: before anything of the program runs, gaps that are small enough are closed.
__attribute__((constructor)) static void close_gaps_behind_libraries(void) {
    enum { SMALL = 4 << 20 };
    // (Neither of the heap, since some programs look where theirs begins, nor a variable: they would be
    // large enough to be managed then.)
    char text[32 << 10];
    memset(text, 0, sizeof text);
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    size_t length = 0;
    for (ssize_t got; (got = read(fd, text + length, sizeof text - 1 - length)) > 0;)
        length += got;
    close(fd);
    unsigned long last_end = 0;
    int of_library = 0;
    for (char *line = text; line != NULL && *line; line = strchr(line, '\n'), line += line != NULL) {
        unsigned long start, end, inode;
        char perms[5];
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &start, &end, perms, &inode) != 4)
            continue;
        if (of_library && start > last_end && start - last_end < SMALL)
            mmap((void *)last_end, start - last_end, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        int of_file = inode != 0 && perms[3] == 'p';
        of_library = of_file || (of_library && start == last_end && perms[1] == 'w');
        last_end = end;
    }
}

// Pages of a range that are present.
static inline size_t resident(void *at, size_t pages) {
    size_t count = 0;
    for (size_t done = 0; done < pages;) {
        unsigned char map[1024];
        size_t part = pages - done < sizeof map ? pages - done : sizeof map;
        SETUP(mincore((char *)at + done * PAGE, part * PAGE, map) == 0);
        for (size_t i = 0; i < part; i++)
            count += map[i] & 1;
        done += part;
    }
    return count;
}

// A wrong byte in a pointer shows as a signal: say where, and what is mapped.
static void crashed(int signal, siginfo_t *info, void *context) {
    const ucontext_t *at = context;
    unsigned long long fault = (uintptr_t)info->si_addr, code = at->uc_mcontext.gregs[REG_RIP];
    SAY("signal %d at address %#llx, instruction %#llx (process %d, thread %ld)\n", signal, fault,
        code, getpid(), syscall(SYS_gettid));
    // The mappings of both, read by system calls.
    static char text[1 << 18];
    long fd = syscall(SYS_open, "/proc/self/maps", 0), size = 0, got;
    while ((got = syscall(SYS_read, fd, text + size, sizeof text - 1 - size)) > 0)
        size += got;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        unsigned long long from = strtoull(line, &line, 16), to = strtoull(line + 1, &line, 16);
        if ((fault >= from && fault < to) || (code >= from && code < to))
            SAY("  in %llx-%llx%.*s\n", from, to, (int)(end - line), line);
    }
    syscall(SYS_exit_group, 1);
}

static __attribute__((constructor)) void watch_for_crashes(void) {
    static char stack[64 << 10]; // the thread's own may be the trouble
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGILL, &action, NULL);
}

enum { BALLAST = 72 << 20 };
static char *ballast;
static tag_t ballast_tag;

// Goes over more memory than `high`, so that what is not touched moves out.
static inline void press(void) {
    size_t pages = BALLAST / PAGE;
    if (!ballast) {
        // (Nobody touches what is behind it: reading ahead ends there, not in what lies next.)
        ballast = map_new(BALLAST + 64 * PAGE);
        ballast_tag = 0x7000000000;
        fill_range(ballast, pages, ballast_tag);
    }
    for (size_t i = 0; i < pages; i++) {
        check_page(ballast + i * PAGE, ballast_tag + i, "ballast");
        fill_page(ballast + i * PAGE, ballast_tag + pages + i);
    }
    ballast_tag += pages;
}

static int pressing_beside;

static inline void *presses_beside(void *arg) {
    while (__atomic_load_n(&pressing_beside, __ATOMIC_RELAXED))
        press();
    return arg;
}

// Presses beside the caller, who must not, until `end_press_beside`.
static inline pthread_t press_beside(void) {
    pthread_t thread;
    press();
    pressing_beside = 1;
    SETUP(pthread_create(&thread, NULL, presses_beside, NULL) == 0);
    return thread;
}

static inline void end_press_beside(pthread_t thread) {
    __atomic_store_n(&pressing_beside, 0, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

// Returns once nine pages of ten of the range have been moved out. Bare, it
// returns at once.
static inline void push_out(void *at, size_t pages) {
    if (!managed())
        return;
    double until = seconds() + 30;
    do {
        press();
        if (resident(at, pages) * 10 <= pages)
            return;
    } while (seconds() < until);
    die(2, "setup", at, "the range was not moved out in 30 s");
}

// Status of a child: 0 if it ended with 0, or ends this process likewise.
static inline void expect_child(pid_t pid, const char *what) {
    int status;
    SETUP(pid > 0);
    while (waitpid(pid, &status, 0) < 0)
        SETUP(errno == EINTR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    char more[80];
    snprintf(more, sizeof more, "child %d ended with status %#x", pid, status);
    die(WIFEXITED(status) && WEXITSTATUS(status) == 2 ? 2 : 1, what, NULL, more);
}

#endif
