// Memory that is readable, writable and executable at once, as compilers and runtimes have it: made,
// moved out, run, changed and run again. Each page has a function that returns the page's number and
// turn, at its beginning or over the border to the next page, and data between.
#include "inthread_kit.h"
#include <stdatomic.h>

enum { SOME = 2048, RWX = PROT_READ | PROT_WRITE | PROT_EXEC }; // pages: 8 MiB

typedef unsigned (*code_t)(void);

static unsigned char *memory;

static unsigned char *map_code(size_t pages) {
    void *at = mmap(NULL, pages * PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SETUP(at != MAP_FAILED);
    return at;
}

static void drop(void) { SETUP(munmap(memory, SOME * PAGE) == 0); }

static unsigned value_of(size_t page, unsigned turn) { return (unsigned)page * 64 + turn; }

// mov $value, %eax; ret: every third one begins three bytes before the next page.
static unsigned char *place_of(size_t page) {
    return memory + page * PAGE + (page % 3 == 1 && page + 1 < SOME ? PAGE - 3 : 8);
}

static void write_code(size_t page, unsigned turn) {
    unsigned value = value_of(page, turn);
    unsigned char code[] = {0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(code + 1, &value, 4);
    memcpy(place_of(page), code, sizeof code);
    // (So that the pages differ, and not all of them compress to nothing.)
    for (unsigned i = 16; i < 32; i++)
        ((uint64_t *)(memory + page * PAGE))[i] = mix(value + i);
}

static void check_code(size_t page, unsigned turn) {
    unsigned is = ((code_t)(void *)place_of(page))();
    if (is != value_of(page, turn)) {
        SAY("page %zu, turn %u: %#x\n", page, turn, is);
        die(1, case_now, place_of(page), "another code has run");
    }
    for (unsigned i = 16; i < 32; i++)
        if (((uint64_t *)(memory + page * PAGE))[i] != mix(value_of(page, turn) + i))
            die(1, case_now, memory + page * PAGE, "a wrong byte");
}

static void made(unsigned turn) {
    for (size_t page = 0; page < SOME; page++)
        write_code(page, turn);
}

static void checked(unsigned turn) {
    for (size_t page = 0; page < SOME; page++)
        check_code(page, turn);
}

static void leave(void) { out_of_memory(memory, SOME, 4); }

static void leaves(void) {
    memory = map_code(SOME);
    for (unsigned turn = 0; turn < 4; turn++) {
        made(turn);
        leave();
        checked(turn);
        // (Read it was, so some of it is clean; then it is written to, from its own page as well.)
        leave();
        checked(turn);
    }
    drop();
}

// Code that changes itself: add $1, (%rip + what follows); mov what follows, %eax; ret.
static void changes_itself(void) {
    memory = map_code(SOME);
    for (size_t page = 0; page < SOME; page++) {
        unsigned char code[] = {0xff, 0x05, 1, 0, 0, 0, // incl 1(%rip): the mov's number
                                0xb8, 0, 0, 0, 0, 0xc3};
        unsigned value = value_of(page, 0);
        memcpy(code + 7, &value, 4);
        memcpy(memory + page * PAGE, code, sizeof code);
    }
    for (unsigned turn = 1; turn < 6; turn++) {
        for (size_t page = 0; page < SOME; page++)
            RIGHT(((code_t)(void *)(memory + page * PAGE))() == value_of(page, turn));
        leave();
    }
    drop();
}

// mov $number, %eax; syscall; ret
static void write_call(unsigned char *at, unsigned number) {
    unsigned char code[] = {0xb8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3};
    memcpy(code + 1, &number, 4);
    memcpy(at, code, sizeof code);
}

typedef long (*call_t)(long, long, long);

static void calls(void) {
    memory = map_code(SOME);
    int fds[2];
    SETUP(pipe(fds) == 0);
    for (int turn = 0; turn < 3; turn++) {
        for (size_t page = 0; page < SOME; page++)
            write_call(memory + page * PAGE + page % 64, page % 2 ? SYS_getpid : SYS_write);
        leave();
        for (size_t page = 0; page < SOME; page++) {
            call_t call = (call_t)(void *)(memory + page * PAGE + page % 64);
            if (page % 2) {
                RIGHT(call(0, 0, 0) == getpid());
                continue;
            }
            // Code writes what it is, and the answer goes to the page it is in.
            unsigned char *is = memory + page * PAGE + 1024;
            RIGHT(call(fds[1], (long)(memory + page * PAGE + page % 64), 8) == 8);
            RIGHT(read(fds[0], is, 8) == 8);
            RIGHT(memcmp(is, memory + page * PAGE + page % 64, 8) == 0);
        }
    }
    close(fds[0]), close(fds[1]);
    drop();
}

// A stack in such memory, and its thread's code as well.
static void *runs(void *arg) {
    volatile char here[8 * PAGE];
    for (size_t i = 0; i < sizeof here; i += 64)
        here[i] = (char)i;
    for (int round = 0; round < 4; round++) {
        squeeze();
        for (size_t i = 0; i < sizeof here; i += 64)
            if (here[i] != (char)i)
                die(1, case_now, (char *)here + i, "a wrong byte");
        checked(*(unsigned *)arg);
    }
    return NULL;
}

static void stacks(void) {
    memory = map_code(SOME);
    unsigned turn = 3;
    made(turn);
    unsigned char *stack = map_code(64);
    pthread_attr_t attributes;
    pthread_t thread;
    SETUP(pthread_attr_init(&attributes) == 0);
    SETUP(pthread_attr_setstack(&attributes, stack, 64 * PAGE) == 0);
    SETUP(pthread_create(&thread, &attributes, runs, &turn) == 0);
    SETUP(pthread_join(thread, NULL) == 0);
    SETUP(munmap(stack, 64 * PAGE) == 0);
    drop();
}

static void forked(void) {
    memory = map_code(SOME);
    made(1);
    leave();
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            checked(1);
            made(7);
            leave();
            checked(7);
            _exit(0);
        }
        // (At the same time.)
        checked(1);
        squeeze();
        checked(1);
        int status;
        SETUP(waitpid(child, &status, 0) == child);
        RIGHT(status == 0);
        checked(1);
    }
    drop();
}

// From reserved to executable and back, as a whole and in parts.
static void protections(void) {
    memory = mmap(NULL, SOME * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SETUP((void *)memory != MAP_FAILED);
    for (size_t page = 0; page < SOME; page += 16)
        RIGHT(mprotect(memory + page * PAGE, 16 * PAGE, page % 32 ? RWX : PROT_READ | PROT_WRITE) == 0);
    made(1);
    leave();
    RIGHT(mprotect(memory, SOME * PAGE, RWX) == 0);
    checked(1);
    leave();
    checked(1);
    // What is not executable any more is not.
    RIGHT(mprotect(memory, SOME * PAGE, PROT_READ | PROT_WRITE) == 0);
    leave();
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        ((code_t)(void *)place_of(9))();
        _exit(0);
    }
    int status;
    SETUP(waitpid(child, &status, 0) == child);
    RIGHT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    made(2);
    leave();
    RIGHT(mprotect(memory, SOME * PAGE, PROT_READ) == 0);
    leave();
    RIGHT(mprotect(memory, SOME * PAGE, RWX) == 0);
    checked(2);
    leave();
    RIGHT(mprotect(memory, SOME * PAGE, PROT_READ | PROT_EXEC) == 0);
    squeeze();
    checked(2);
    RIGHT(mprotect(memory, SOME * PAGE, RWX) == 0);
    made(3);
    squeeze();
    checked(3);
    drop();
}

static void moved(void) {
    memory = map_code(SOME);
    made(1);
    leave();
    for (int round = 0; round < 3; round++) {
        void *to = map_new(2 * SOME * PAGE);
        void *at = mremap(memory, SOME * PAGE, SOME * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        RIGHT(at == to);
        SETUP(munmap((char *)to + SOME * PAGE, SOME * PAGE) == 0);
        memory = at;
        squeeze();
        checked(1);
    }
    drop();
}

static void discarded(void) {
    memory = map_code(SOME);
    made(1);
    leave();
    for (size_t page = 0; page < SOME; page += 4)
        RIGHT(madvise(memory + (page + 2) * PAGE, 2 * PAGE, MADV_DONTNEED) == 0);
    for (size_t page = 0; page < SOME; page++)
        if (page % 4 > 1)
            RIGHT(memory[page * PAGE + 100] == 0 && *(uint64_t *)(memory + page * PAGE + 128) == 0);
    made(2);
    leave();
    checked(2);
    drop();
}

// Callers everywhere, while one thread writes page after page anew, and two press.
static _Atomic unsigned turn_of[SOME];
static _Atomic int stop;
static pthread_rwlock_t locks[16];

static void *runs_any(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    while (!stop) {
        size_t page = (size_t)rand_r(&seed) % SOME;
        pthread_rwlock_rdlock(&locks[page % 16]);
        check_code(page, turn_of[page]);
        pthread_rwlock_unlock(&locks[page % 16]);
    }
    return NULL;
}

// Each adds to its own word of each page, without a lock: none may be lost.
enum { ADDERS = 3 };
static _Atomic uint64_t added[ADDERS];

static void *adds(void *arg) {
    size_t number = (size_t)(uintptr_t)arg;
    unsigned seed = (unsigned)number + 99;
    while (!stop) {
        size_t page = (size_t)rand_r(&seed) % SOME;
        ((volatile uint64_t *)(memory + page * PAGE))[40 + number]++;
        added[number]++;
    }
    return NULL;
}

static void *presses(void *arg) {
    while (!stop)
        squeeze();
    return arg;
}

static void beside_threads(void) {
    enum { RUNNERS = 2 };
    memory = map_code(SOME);
    for (int i = 0; i < 16; i++)
        SETUP(pthread_rwlock_init(&locks[i], NULL) == 0);
    made(0);
    pthread_t threads[RUNNERS + ADDERS + 1];
    int count = 0;
    stop = 0;
    for (int i = 0; i < RUNNERS; i++)
        SETUP(pthread_create(&threads[count++], NULL, runs_any, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < ADDERS; i++)
        SETUP(pthread_create(&threads[count++], NULL, adds, (void *)(uintptr_t)i) == 0);
    SETUP(pthread_create(&threads[count++], NULL, presses, NULL) == 0);
    double until = seconds() + 2;
    unsigned seed = 5;
    while (seconds() < until) {
        size_t page = (size_t)rand_r(&seed) % SOME;
        pthread_rwlock_wrlock(&locks[page % 16]);
        unsigned turn = (turn_of[page] + 1) % 64;
        write_code(page, turn);
        turn_of[page] = turn;
        pthread_rwlock_unlock(&locks[page % 16]);
    }
    stop = 1;
    for (int i = 0; i < count; i++)
        SETUP(pthread_join(threads[i], NULL) == 0);
    for (size_t page = 0; page < SOME; page++)
        check_code(page, turn_of[page]);
    for (size_t number = 0; number < ADDERS; number++) {
        uint64_t sum = 0;
        for (size_t page = 0; page < SOME; page++)
            sum += ((uint64_t *)(memory + page * PAGE))[40 + number];
        RIGHT(sum == added[number]);
    }
    drop();
}

CASES({"leaves", leaves}, {"changes_itself", changes_itself}, {"calls", calls}, {"stacks", stacks}, {"forked", forked},
      {"protections", protections}, {"moved", moved}, {"discarded", discarded}, {"beside_threads", beside_threads})
