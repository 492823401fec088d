// A member of a run that gave up its privileges writes what it likes into the control segment:
// claims about a process that is not its own, then noise, while its parent goes on.
//   hostile_member VICTIM SECONDS
// Prints "head is writable" if it could change what the run was asked for.
#include "check.h"
#include <sys/prctl.h>

enum { AREA = 12000, GONE = 0x3fffffff };
static const uint64_t TAG = 0x4000000;

// Where the segment is mapped to be written to; 0 if it is not.
static char *segment_at(size_t *bytes, const char *access) {
    char line[512], *found = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    SETUP(maps);
    while (!found && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char how[8];
        if (strstr(line, ".control") && sscanf(line, "%lx-%lx %7s", &from, &to, how) == 3 &&
            !strcmp(how, access)) {
            found = (char *)from;
            *bytes = to - from;
        }
    }
    fclose(maps);
    return found;
}

static void scribble(uint32_t victim, uint32_t parent, int seconds_long) {
    size_t bytes = 0;
    char *at = segment_at(&bytes, "rw-s");
    SETUP(at);
    // The slots of the first processes, and all before them.
    size_t part = bytes < (64 << 10) + 262144 ? bytes : (64 << 10) + 262144;
    uint64_t state = 1, rounds = 0;
    double until = seconds() + seconds_long, claims = seconds() + seconds_long * 2 / 3;
    for (size_t i = 0; i + 128 < part; i += 8) {
        uint32_t *slot = (uint32_t *)(at + i);
        if (slot[0] == parent && slot[1] == 2 && slot[8] > 1) {
            slot[0] = victim;
            for (int k = 0; k < 6; k++)
                slot[8 + k] = GONE;
            *(uint64_t *)(at + i + 56) = 0xffffffffff600000u;
        }
    }
    while (seconds() < claims)
        usleep(10000);
    for (; seconds() < until; rounds++) {
        state = mix(state + rounds);
        *(volatile uint64_t *)(at + state % (part / 8) * 8) = rounds % 3 ? mix(state) : victim;
        if (rounds % 1000 == 0)
            usleep(1000);
    }
    _exit(0);
}

static void write_to_head(void) {
    size_t bytes = 0;
    char *head = segment_at(&bytes, "r--s");
    if (!head)
        _exit(3);
    signal(SIGSEGV, SIG_DFL);
    if (mprotect(head, bytes, PROT_READ | PROT_WRITE) == 0 || errno != EACCES)
        _exit(4);
    *(volatile uint64_t *)head = 0;
    _exit(5);
}

int main(int argc, char **argv) {
    SETUP(argc > 2);
    uint32_t victim = atoi(argv[1]), self = getpid();
    char *area = map_new(AREA * PAGE);
    fill_range(area, AREA, TAG);
    push_out(area, AREA);
    pid_t member = fork();
    if (member == 0) {
        if (getuid() == 0)
            SETUP(setgid(65534) == 0 && setuid(65534) == 0);
        SETUP(prctl(PR_SET_DUMPABLE, 1) == 0); // so that it may read its own list of mappings
        pid_t writer = fork();
        if (writer == 0)
            write_to_head();
        int status;
        SETUP(waitpid(writer, &status, 0) == writer);
        if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV))
            puts("head is writable"), fflush(stdout);
        scribble(victim, self, atoi(argv[2]));
    }
    SETUP(member > 0);
    int status;
    do {
        press();
        check_range(area, AREA, TAG, "the parent's");
    } while (waitpid(member, &status, WNOHANG) == 0);
    SETUP(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
