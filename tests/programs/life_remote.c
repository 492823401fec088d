// Memory in every state as others see it: process_vm_readv and writev, ptrace,
// /proc/PID/mem, from a parent and from the process itself.
//
// process_vm_readv and writev wait for a page like any access. The others do not
// let a page be waited for: there a page that is out is refused with EIO. Never
// may wrong bytes be seen, nor anybody hang.
#include "life.h"
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static size_t refused;

// Of a present area nothing may be refused, and of a stored one something is: or
// this test looks at nothing.
static void judge(area_t *a, size_t count, const char *what) {
    if (a->absent == 0 && count > 0 && !managed())
        die(1, what, a->at, "refused though nothing is out");
    if (a->state == STORED && managed() && count == 0)
        die(1, what, a->at, "nothing was refused: was anything out?");
}

static int came_through(ssize_t len, int may_wait, const void *at, const char *what) {
    if (len == PAGE)
        return 1;
    if (len >= 0 || may_wait || errno != EIO)
        die(1, what, at, "short, or refused with something else than EIO");
    refused++;
    return 0;
}

static void in_order(area_t *a, int n, size_t *page) {
    *page = (*page + 7 + n % 3) % a->pages;
}

static void look(pid_t pid, area_t *a, const char *what) {
    static char here[PAGE];
    struct iovec to = {here, PAGE};
    char name[40];
    snprintf(name, sizeof name, "/proc/%d/mem", pid);
    int mem = open(name, O_RDWR);
    SETUP(mem >= 0);
    size_t page = roll(a->pages);
    for (int n = 0; n < 40; n++, in_order(a, n, &page)) {
        char *at = a->at + page * PAGE;
        struct iovec from = {at, PAGE};
        ssize_t got = n % 2 ? process_vm_readv(pid, &to, 1, &from, 1, 0)
                            : pread(mem, here, PAGE, (off_t)(uintptr_t)at);
        if (came_through(got, n % 2, at, what))
            check_page(here, a->tags[page], what);
    }
    for (int n = 0; n < 20; n++, in_order(a, n, &page)) {
        char *at = a->at + page * PAGE;
        struct iovec from = {at, PAGE};
        fill_page(here, ++next_tag);
        ssize_t put = n % 2 ? process_vm_writev(pid, &to, 1, &from, 1, 0)
                            : pwrite(mem, here, PAGE, (off_t)(uintptr_t)at);
        if (came_through(put, n % 2, at, what))
            a->tags[page] = next_tag;
    }
    close(mem);
}

static void self(area_t *a) {
    refused = 0;
    look(getpid(), a, "looking at itself");
    judge(a, refused, "looking at itself");
    settle(a, "written by itself through /proc");
}

// A child that runs looks at its parent, and what it writes the parent has.
typedef struct {
    area_t area;
    size_t refused;
} shared_t;

static void by_child(area_t *a) {
    shared_t *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(s != MAP_FAILED);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        pressing = 0; // that thread is not here
        refused = 0;
        look(parent, a, "looking at the parent");
        s->area = *a, s->refused = refused;
        _exit(0);
    }
    expect_child(pid, "a child that looks at its parent");
    judge(a, s->refused, "looked at by a child");
    memcpy(a->tags, s->area.tags, sizeof a->tags);
    settle(a, "written by a child");
    SETUP(munmap(s, sizeof *s) == 0);
}

// A debugger stops one thread of this process: its manager runs on and serves.
static void by_debugger(area_t *a) {
    int ready[2];
    SETUP(pipe(ready) == 0);
    pid_t main_thread = getpid();
    shared_t *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(s != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        pressing = 0; // that thread is not here
        refused = 0;
        SETUP(ptrace(PTRACE_SEIZE, main_thread, NULL, NULL) == 0);
        SETUP(ptrace(PTRACE_INTERRUPT, main_thread, NULL, NULL) == 0);
        int status;
        SETUP(waitpid(main_thread, &status, __WALL) == main_thread && WIFSTOPPED(status));
        for (int n = 0; n < 30; n++) {
            size_t page = roll(a->pages);
            uint64_t *at = (uint64_t *)(a->at + page * PAGE) + roll(WORDS);
            errno = 0;
            uint64_t got = ptrace(PTRACE_PEEKDATA, main_thread, at, NULL);
            if (errno) {
                if (errno != EIO)
                    die(1, "PTRACE_PEEKDATA", at, "refused with something else than EIO");
                refused++;
                continue;
            }
            if (got != word_of(a->tags[page], at - (uint64_t *)(a->at + page * PAGE)))
                die(1, "PTRACE_PEEKDATA", at, "a wrong word");
            if (ptrace(PTRACE_POKEDATA, main_thread, at, got))
                die(1, "PTRACE_POKEDATA", at, "refused");
        }
        look(main_thread, a, "a debugger");
        s->area = *a, s->refused = refused;
        SETUP(ptrace(PTRACE_DETACH, main_thread, NULL, NULL) == 0);
        SETUP(write(ready[1], "x", 1) == 1);
        _exit(0);
    }
    close(ready[1]); // its end is told even if it ends early
    char done;
    ssize_t got;
    while ((got = read(ready[0], &done, 1)) < 0)
        SETUP(errno == EINTR);
    expect_child(pid, "a debugger");
    judge(a, s->refused, "a debugger");
    memcpy(a->tags, s->area.tags, sizeof a->tags);
    settle(a, "written by a debugger");
    SETUP(munmap(s, sizeof *s) == 0);
    close(ready[0]);
}

int main(int argc, char **argv) {
    static const case_t cases[] = {
        {"self", self}, {"by_child", by_child}, {"by_debugger", by_debugger},
    };
    return life_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
