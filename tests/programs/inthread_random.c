// Random calls about memory beside a shadow that says what every page holds: alone, with threads
// that each have their own part, and with timers and forks.
#include "inthread_kit.h"
#include <fcntl.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { PAGES = 6000, STEPS = 2500 };
#define RAW(...) syscall(__VA_ARGS__)

// A page's state in the shadow.
enum { GONE = 0, WRITABLE, READABLE, CLOSED };
struct shadow {
    char *at;
    uint64_t random;
    unsigned char state[PAGES];
    tag_t tag[PAGES];
    tag_t next;
    int pipe[2];
    int forks;
};

static uint64_t draw(struct shadow *s, uint64_t below) {
    s->random = mix(s->random + 0x9e3779b97f4a7c15u);
    return s->random % below;
}

static void check_shadow(struct shadow *s, size_t from, size_t count, const char *what) {
    for (size_t i = from; i < from + count; i++)
        if (s->state[i] == WRITABLE || s->state[i] == READABLE)
            check_page(s->at + i * PAGE, s->tag[i], what);
}

static int all_in(struct shadow *s, size_t from, size_t count, int state) {
    for (size_t i = from; i < from + count; i++)
        if (s->state[i] != state)
            return 0;
    return 1;
}

static int any_in(struct shadow *s, size_t from, size_t count, int state) {
    for (size_t i = from; i < from + count; i++)
        if (s->state[i] == state)
            return 1;
    return 0;
}

static void set(struct shadow *s, size_t from, size_t count, int state) { memset(s->state + from, state, count); }
static void zero(struct shadow *s, size_t from, size_t count) { memset(s->tag + from, 0, count * sizeof(tag_t)); }

static void step(struct shadow *s) {
    size_t count = 1 + (draw(s, 4) ? draw(s, 24) : draw(s, 800)), from = draw(s, PAGES - count);
    char *at = s->at + from * PAGE;
    size_t bytes = count * PAGE;
    switch (draw(s, 20)) {
    default: // written, mostly
        for (size_t i = from; i < from + count; i++)
            if (s->state[i] == WRITABLE)
                fill_page(s->at + i * PAGE, s->tag[i] = s->next++);
        break;
    case 0:
    case 1:
    case 2: check_shadow(s, from, count, "read"); break;
    case 3:
        if (draw(s, 3))
            break;
        RIGHT(munmap(at, bytes) == 0);
        // (Nobody else may come to be there.)
        RIGHT(mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at);
        set(s, from, count, GONE), zero(s, from, count);
        break;
    case 4:
    case 5:
        RIGHT(mmap(at, bytes, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        set(s, from, count, WRITABLE), zero(s, from, count);
        break;
    case 6:
        RIGHT(madvise(at, bytes, MADV_DONTNEED) == 0);
        zero(s, from, count);
        break;
    case 7:
        if (any_in(s, from, count, GONE))
            break;
        RIGHT(mprotect(at, bytes, PROT_READ) == 0);
        set(s, from, count, READABLE);
        break;
    case 8:
        if (any_in(s, from, count, GONE))
            break;
        RIGHT(mprotect(at, bytes, PROT_NONE) == 0);
        set(s, from, count, CLOSED);
        break;
    case 9:
    case 10:
        if (any_in(s, from, count, GONE))
            break;
        RIGHT(mprotect(at, bytes, 3) == 0);
        set(s, from, count, WRITABLE);
        break;
    case 11: { // moved to where something else is
        size_t to = draw(s, PAGES - count);
        if ((to < from + count && from < to + count) || !all_in(s, from, count, WRITABLE))
            break;
        char *got = mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, s->at + to * PAGE);
        if (got == MAP_FAILED) { // (bare in several mappings)
            RIGHT(errno == EFAULT);
            check_shadow(s, from, count, "not moved");
            // (What was there may be gone: the kernel unmaps it first, or moved some.)
            RIGHT(mmap(s->at + to * PAGE, bytes, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == s->at + to * PAGE);
            set(s, to, count, WRITABLE), zero(s, to, count);
            break;
        }
        RIGHT(got == s->at + to * PAGE);
        memcpy(s->tag + to, s->tag + from, count * sizeof(tag_t)), set(s, to, count, WRITABLE);
        RIGHT(mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at);
        set(s, from, count, GONE), zero(s, from, count);
        break;
    }
    case 12: { // through a pipe, by vectors
        if (!all_in(s, from, count, WRITABLE) || count < 2 || count > 16)
            break;
        struct iovec parts[16];
        for (size_t i = 0; i < count; i++)
            parts[i] = (struct iovec){at + (count - 1 - i) * PAGE, PAGE};
        RIGHT(writev(s->pipe[1], parts, (int)count) == (ssize_t)bytes);
        size_t done = 0;
        while (done < bytes) {
            ssize_t got = read(s->pipe[0], at + done, bytes - done);
            RIGHT(got > 0);
            done += got;
        }
        for (size_t i = 0; i < count / 2; i++) {
            tag_t other = s->tag[from + i];
            s->tag[from + i] = s->tag[from + count - 1 - i], s->tag[from + count - 1 - i] = other;
        }
        check_shadow(s, from, count, "through a pipe");
        break;
    }
    case 13:
        if (draw(s, 4) || any_in(s, from, count, GONE))
            break;
        (void)madvise(at, bytes, (int)(draw(s, 2) ? MADV_COLD : MADV_PAGEOUT));
        break;
    case 14:
        if (any_in(s, from, count, CLOSED) || any_in(s, from, count, GONE) || any_in(s, from, count, READABLE))
            break;
        RIGHT(madvise(at, bytes, 23) == 0 || errno == EINVAL); // MADV_POPULATE_WRITE
        break;
    case 15:
        if (!s->forks || draw(s, 12))
            break;
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            check_shadow(s, 0, PAGES, "of a child");
            for (int i = 0; i < 30; i++)
                s->forks = 0, step(s);
            check_shadow(s, 0, PAGES, "of a child");
            _exit(0);
        }
        expect_child(child, "in between");
        break;
    case 16: { // a read that goes over what cannot be written
        if (s->state[from] != WRITABLE || from + 1 >= PAGES || s->state[from + 1] != READABLE)
            break;
        static char page[2 * PAGE];
        SETUP(write(s->pipe[1], page, PAGE + 8) == PAGE + 8);
        ssize_t got = read(s->pipe[0], s->at + from * PAGE, PAGE + 8);
        RIGHT(got == PAGE || (got == -1 && errno == EFAULT));
        fill_page(s->at + from * PAGE, s->tag[from] = s->next++);
        for (int rest = PAGE + 8 - (int)(got > 0 ? got : 0); rest > 0;) {
            ssize_t more = read(s->pipe[0], page, rest);
            RIGHT(more > 0);
            rest -= (int)more;
        }
        break;
    }
    }
}

static struct shadow *new_shadow(uint64_t seed, int forks) {
    struct shadow *s = mmap(NULL, sizeof *s, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    SETUP(s != MAP_FAILED);
    *s = (struct shadow){.at = map_new(PAGES * PAGE), .random = seed, .next = seed * 1000000 + 1, .forks = forks};
    set(s, 0, PAGES, WRITABLE);
    SETUP(pipe(s->pipe) == 0);
    return s;
}

static void *steps(void *arg) {
    struct shadow *s = arg;
    for (int i = 0; i < STEPS; i++)
        step(s);
    check_shadow(s, 0, PAGES, "at the end");
    SETUP(munmap(s->at, PAGES * PAGE) == 0);
    close(s->pipe[0]), close(s->pipe[1]);
    SETUP(munmap(s, sizeof *s) == 0);
    return NULL;
}

static uint64_t seed(void) {
    const char *given = getenv("SEED");
    return given ? strtoull(given, NULL, 0) : 1;
}

static void alone(void) { steps(new_shadow(seed(), 1)); }

static void tick(int signal) { (void)signal; }

static void with_timers(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART}, old;
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0}, {0}};
    SETUP(sigaction(SIGALRM, &action, &old) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    steps(new_shadow(seed() + 100, 0));
    SETUP(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaction(SIGALRM, &old, NULL) == 0);
}

static void by_threads(void) {
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++)
        SETUP(pthread_create(&threads[i], NULL, steps, new_shadow(seed() + 200 + i, i == 0)) == 0);
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

CASES({"alone", alone}, {"with_timers", with_timers}, {"by_threads", by_threads})
