// together COUNT MIB mapped|grown [kept MIB]: COUNT processes have MIB each at once; prints what of it was
// resident at most in all of them together, MiB.
//
// `mapped`: each maps all of its memory by one call, and touches it bit by bit without another.
// `grown`: each allocates it bit by bit. `kept`: the parent has that much before it forks, which the
// children read now and then: resident once, however many they are.
//
// All keep theirs until all have it, and look at every byte of it then.
#include "check.h"
#include <fcntl.h>

enum { MOST = 16, STEP = 64 };

static struct shared {
    _Atomic int begun, full, looked, measured;
} *shared;

static pid_t parent;

static void until(_Atomic int *count, int all) {
    while (*count < all) {
        usleep(2000);
        SETUP(getppid() == parent); // it has found that something is wrong
    }
}

static void child(int count, size_t pages, int grown, char *kept, size_t kept_pages) {
    char **parts = calloc(pages / STEP + 1, sizeof *parts);
    char *mapped = NULL;
    tag_t base = (tag_t)getpid() << 20;
    shared->begun++;
    until(&shared->begun, count);
    if (!grown)
        mapped = map_new(pages * PAGE);
    for (size_t at = 0; at < pages; at += STEP) {
        char *part = grown ? malloc(STEP * PAGE) : mapped + at * PAGE;
        SETUP(part != NULL);
        parts[at / STEP] = part;
        fill_range(part, STEP, base + at);
        if (kept_pages)
            check_page(kept + at % kept_pages * PAGE, 1 + at % kept_pages, "kept by the parent");
        if (grown)
            usleep(1000); // as slowly as the parent can follow
        else
            for (double end = seconds() + 1e-3; seconds() < end;)
                ;
    }
    shared->full++;
    until(&shared->full, count);
    for (int round = 0; round < 3; round++)
        for (size_t at = 0; at < pages; at += STEP)
            check_range(parts[at / STEP], STEP, base + at, "of its own");
    check_range(kept, kept_pages, 1, "kept by the parent, at the end");
    shared->looked++;
    until(&shared->measured, 1); // parts of what is shared add up only while all are there
    _exit(0);
}

// What a process has, KiB; its part of what it shares with others by a fork.
static long of(pid_t pid) {
    char name[64], text[4096], *line;
    snprintf(name, sizeof name, "/proc/%d/smaps_rollup", pid);
    int file = open(name, O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t len = read(file, text, sizeof text - 1);
    close(file);
    text[len > 0 ? len : 0] = 0;
    line = strstr(text, "Pss_Anon:");
    return line ? atol(line + 9) : 0;
}

int main(int argc, char **argv) {
    SETUP(argc == 4 || argc == 6);
    int count = atoi(argv[1]), grown = argv[3][0] == 'g';
    size_t pages = (size_t)atoi(argv[2]) << 8, kept_pages = argc == 6 ? (size_t)atoi(argv[5]) << 8 : 0;
    SETUP(count > 0 && count <= MOST && pages > 0);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(shared != MAP_FAILED);
    char *kept = kept_pages ? map_new(kept_pages * PAGE) : NULL;
    fill_range(kept, kept_pages, 1);
    pid_t children[MOST];
    parent = getpid();
    for (int i = 0; i < count; i++) {
        SETUP((children[i] = fork()) >= 0);
        if (children[i] == 0)
            child(count, pages, grown, kept, kept_pages);
    }
    long most = 0;
    while (shared->looked < count) {
        long now = kept_pages ? of(getpid()) : 0;
        for (int i = 0; i < count; i++) {
            siginfo_t ended = {0};
            SETUP(waitid(P_PID, children[i], &ended, WEXITED | WNOHANG | WNOWAIT) == 0);
            SETUP(ended.si_pid == 0 || ended.si_status == 0);
            now += of(children[i]);
        }
        most = now > most ? now : most;
        usleep(5000);
    }
    shared->measured = 1;
    for (int i = 0; i < count; i++) {
        int status;
        SETUP(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
    printf("%ld\n", most >> 10);
    return 0;
}
