// Operations that make processes: the child looks at all it has inherited, goes on with
// operations of its own, and its status says whether all was right.
#ifndef OPS_FORK_H
#define OPS_FORK_H
#include "ops_io.h"
#include <sched.h>
#include <spawn.h>
#include <linux/sched.h>

extern char **environ;
static int vfork_copies; // as it does where faults are told without privilege
static char *without = ""; // operations that are left out
static int raw_born; // libc's locks may look held by threads that are not here: no fork by libc
static void run_random(worker_t *w, uint64_t seed, unsigned count);

static void await(pid_t pid, const char *what) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        SETUP(errno == EINTR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    FAIL(WIFEXITED(status) && WEXITSTATUS(status) < 5 ? WEXITSTATUS(status) : CRASHED, "%s: child %d ended with status %#x", what, pid, status);
}

static void await_children(worker_t *w) {
    for (unsigned i = 0; i < 4; i++)
        if (w->children[i])
            await(w->children[i], "a child beside"), w->children[i] = 0;
}

// Shared memory goes on being the parent's: the child gives it up.
static void inherit(worker_t *w, area_t *a, page_t *snapshot) {
    a->model = snapshot;
    for (size_t i = 0; i < a->pages; i++) {
        page_t *p = &a->model[i];
        p->locked = 0;
        if (p->wipe) { // The kernel makes it anew: guards that lay in it are gone too.
            set_zero(a, i, 1);
            p->guard = 0;
        }
        if (p->dontfork)
            *p = (page_t){.kind = NONE};
        if (p->kind == SHARED) {
            munmap(at_page(a, i), PAGE);
            *p = (page_t){.kind = NONE};
        }
    }
    (void)w;
}

static void be_child(worker_t *w, page_t **snapshots, const op_t *op) {
    depth++;
    memset(w->children, 0, sizeof w->children);
    area_t *areas[] = {&w->window, &w->heap, &w->stack};
    for (unsigned i = 0; i < 3; i++) {
        inherit(w, areas[i], snapshots[i]);
        check(areas[i], 0, areas[i]->pages, "inherited");
    }
    check(&stones, 0, stones.pages, "inherited, that nobody writes to");
    w->copy = file_of(1024), w->direct = -1;
    run_random(w, op->x * 77ull + op->y, depth == 1 ? 12 + op->len % 24 : 6);
    for (unsigned i = 0; i < 3; i++)
        check(areas[i], 0, areas[i]->pages, "at a child's end");
    await_children(w);
    syscall(SYS_exit_group, 0);
}

static pid_t fork_by(unsigned how) {
    switch (how) {
    case 0: return syscall(SYS_fork);
    case 1: return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    case 2: {
        struct clone_args args = {.exit_signal = SIGCHLD};
        return syscall(SYS_clone3, &args, sizeof args);
    }
    default: return fork();
    }
}

static void op_fork(worker_t *w, const op_t *op) {
    if (depth >= 2 || raw_born)
        return;
    unsigned how = depth == 0 && op->x % 10 < 3 ? op->x % 10 : 9, slot = op->y % 4;
    if (w->children[slot])
        await(w->children[slot], "a child beside"), w->children[slot] = 0;
    area_t *areas[] = {&w->window, &w->heap, &w->stack};
    page_t *snapshots[3];
    for (unsigned i = 0; i < 3; i++) {
        size_t bytes = areas[i]->pages * sizeof(page_t);
        snapshots[i] = shared_memory(bytes + PAGE);
        memcpy(snapshots[i], areas[i]->model, bytes);
    }
    pid_t pid = fork_by(how);
    if (pid == 0) {
        raw_born = how < 3;
        be_child(w, snapshots, op);
    }
    EXPECT(pid > 0, "fork (%u): errno %d", how, errno);
    for (unsigned i = 0; i < 3; i++)
        munmap(snapshots[i], areas[i]->pages * sizeof(page_t) + PAGE);
    if (op->y % 3)
        await(pid, "a child");
    else
        w->children[slot] = pid;
}

// A child that shares the memory writes to it, and becomes this program anew.
static void op_exec(worker_t *w, const op_t *op) {
    if (depth)
        return;
    area_t *a = &w->window;
    size_t from = op->at % a->pages, len = run_of(a, &from, op->len % 64 + 1, writable);
    char seed[16];
    snprintf(seed, sizeof seed, "%u", op->x);
    // (It leaves out what this program does.)
    char *argv[] = {"random_program", "--seed",  seed,      "--ops",     "12",    "--pages",
                    "1024",           "--threads", "1",     "--child", "--without", without, NULL};
    pid_t pid;
    if (op->y % 3 == 0) {
        EXPECT(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0, "posix_spawn: errno %d", errno);
    } else {
        pid = op->y % 3 == 1 ? vfork() : fork();
        if (pid == 0) {
            if (op->y % 3 == 1 && !vfork_copies)
                for (size_t i = from; i < from + len; i++)
                    write_page(w, a, i);
            if (op->x % 2)
                execv("/proc/self/exe", argv);
            _exit(op->x % 2 ? SETUP_FAILED : 0);
        }
        EXPECT(pid > 0, "fork or vfork: errno %d", errno);
    }
    check_some(a, from, len ? len : 1, "after vfork, spawn or exec of a child");
    await(pid, "a program started by this one");
}

// A process of a parent that reads what the child has, while that waits.
static void op_peek(worker_t *w, const op_t *op) {
    if (depth)
        return;
    int ends[2], ready[2];
    SETUP(pipe2(ends, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
    pid_t pid = op->x % 4 ? fork() : fork_by(op->x / 4 % 3);
    if (pid == 0) {
        char end;
        close(ends[1]);
        syscall(SYS_write, ready[1], "", 1);
        syscall(SYS_read, ends[0], &end, 1);
        syscall(SYS_exit_group, 0);
    }
    EXPECT(pid > 0, "fork: errno %d", errno);
    close(ends[0]);
    close(ready[1]);
    char is_ready; // fork has returned there
    SETUP(read(ready[0], &is_ready, 1) == 1);
    close(ready[0]);
    area_t *a = &w->window;
    char *into = shared_memory(PAGE);
    for (size_t i = op->at % a->pages, seen = 0; i < a->pages && seen < op->len; i++, seen++) {
        page_t as = a->model[i];
        if (!readable(&as) || as.kind == SHARED || as.dontfork || as.wipe)
            continue;
        long got = process_vm_readv(pid, &(struct iovec){into, PAGE}, 1, &(struct iovec){at_page(a, i), PAGE}, 1, 0);
        EXPECT(got == PAGE, "process_vm_readv of a child's: %ld, errno %d", got, errno);
        check_pages(into, &as, 1, i, "of a child's, read by its parent");
    }
    munmap(into, PAGE);
    // (Not by the end of the pipe: a child that another thread has forked meanwhile has it open as well, and waits.)
    SETUP(write(ends[1], "", 1) == 1);
    close(ends[1]);
    await(pid, "a child that was read");
}
#endif
