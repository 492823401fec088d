// More memory than `high`, of which next to nothing is touched for some seconds: what is
// in the pool is made denser meanwhile. Then children of both kinds of fork have it all,
// also while it still goes on, and so has the parent.
//
// idle [phrases]: with strings that recur from page to page, which a dictionary is for.
#include "check.h"
#include <sys/syscall.h>

enum { STRING = 7 };
static size_t PAGES = 16384;
static int IDLE_S = 6, phrases;

// Six bytes of eight are the same in every word: a code for single bytes gains what
// repetitions do not.
static uint64_t word(size_t page, size_t i, uint64_t round) {
    if (phrases && i % (STRING + 1) < STRING) {
        uint64_t string = mix(page * WORDS + i / (STRING + 1) + (round << 40)) % 40;
        return mix((string << 50) + i % (STRING + 1));
    }
    return (mix(page * WORDS + i + round) & 0x3f3f) | 0x4142434445460000;
}

static void fill(char *memory, size_t from, size_t to, uint64_t round) {
    for (size_t n = from; n < to; n++)
        for (size_t i = 0; i < WORDS; i++)
            ((uint64_t *)(memory + n * PAGE))[i] = word(n, i, round);
}

static void check(const char *memory, size_t from, size_t to, uint64_t round, const char *what) {
    for (size_t n = from; n < to; n++) {
        const uint64_t *page = (const uint64_t *)(memory + n * PAGE);
        for (size_t i = 0; i < WORDS; i++)
            if (page[i] != word(n, i, round))
                die(1, what, (void *)&page[i], "another word");
    }
}

static pid_t begin_child(char *memory, int raw) {
    pid_t pid = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (pid == 0) {
        check(memory, 0, PAGES, 0, "in a child");
        fill(memory, PAGES / 2, PAGES, 1);
        check(memory, 0, PAGES / 2, 0, "in a child that has written");
        check(memory, PAGES / 2, PAGES, 1, "what a child has written");
        _exit(0);
    }
    return pid;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "phrases") == 0) {
        phrases = 1;
        PAGES = 20480;
        IDLE_S = 12;
    }
    char *memory = map_new((size_t)PAGES * PAGE);
    fill(memory, 0, PAGES, 0);
    double begin = seconds();
    while (seconds() < begin + IDLE_S) {
        usleep(50000);
        size_t page = mix((uint64_t)(seconds() * 1e6)) % PAGES;
        check(memory, page, page + 1, 0, "now and then");
    }
    for (int n = 0; n < 4; n++) {
        pid_t pid = begin_child(memory, n == 1);
        check(memory, 0, PAGES / 4, 0, "beside a child");
        expect_child(pid, "a child of an idle program");
        sleep(1);
    }
    check(memory, 0, PAGES, 0, "at the end");
    fill(memory, 0, PAGES, 2);
    check(memory, 0, PAGES, 2, "written anew");
    return 0;
}
