// hostile_ends orphan | core | killed_forking | check: ends that a program does not expect, of
// others and of itself.
#include "life.h"
#include <elf.h>
#include <fcntl.h>
#include <sys/resource.h>

// Everything round the program may end. For each byte on standard input it looks
// at all its memory, in children too, and says `right`.
enum { STEADY = 6144 };

static char *steady, *self;

static void look(void) {
    check_range(steady, STEADY, 0x4000, "after the run was killed");
    press();
    pid_t pid = fork();
    if (pid == 0) {
        check_range(steady, STEADY, 0x4000, "in a child, after the run was killed");
        push_out(steady, STEADY);
        fill_page(steady, 0x9000);
        check_range(steady + PAGE, STEADY - 1, 0x4001, "in a child, later");
        syscall(SYS_exit_group, 0);
    }
    expect_child(pid, "a child, after the run was killed");
    // A program that is started now may be managed or not.
    pid = fork();
    if (pid == 0) {
        execl(self, self, "check", NULL);
        _exit(2);
    }
    expect_child(pid, "a program that was started after the run was killed");
    push_out(steady, STEADY);
    check_range(steady, STEADY, 0x4000, "long after the run was killed");
}

static int orphan(void) {
    steady = map_new((size_t)STEADY * PAGE);
    fill_range(steady, STEADY, 0x4000);
    push_out(steady, STEADY);
    const char *control = getenv("ZFOLIO_CONTROL");
    printf("absent %zu %s\n", STEADY - resident(steady, STEADY), control ? control : "-");
    fflush(stdout);
    for (char next; read(0, &next, 1) == 1;) {
        look();
        puts("right");
        fflush(stdout);
    }
    puts("done");
    return 0;
}

// More than `high`, written and looked at, whether any of it leaves or not.
static int check(void) {
    press();
    press();
    printf("absent %zu started\n", BALLAST / PAGE - resident(ballast, BALLAST / PAGE));
    return 0;
}

// Where a core has the page at an address; 0 if it does not have it at all.
static off_t in_core(int core, uintptr_t at) {
    Elf64_Ehdr header;
    SETUP(pread(core, &header, sizeof header, 0) == sizeof header);
    SETUP(memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_type == ET_CORE);
    for (int n = 0; n < header.e_phnum; n++) {
        Elf64_Phdr part;
        off_t where = header.e_phoff + n * sizeof part;
        SETUP(pread(core, &part, sizeof part, where) == sizeof part);
        if (part.p_type == PT_LOAD && at >= part.p_vaddr && at - part.p_vaddr < part.p_filesz)
            return part.p_offset + (at - part.p_vaddr);
    }
    return 0;
}

// A child aborts with memory out. The core it leaves in this directory is read
// page by page: right, or zeros where the page was out; nothing else.
static int core(void) {
    area_t *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(a != MAP_FAILED);
    SETUP(setrlimit(RLIMIT_CORE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (managed())
            press_on(2 * CHUNK * CHUNKS);
        new_area(a, STORED);
        write_area(a, 0, 8);
        SETUP(mlock(a->at, 8 * PAGE) == 0); // these stay
        a->absent = absent_of(a);
        abort();
    }
    int status;
    SETUP(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !WCOREDUMP(status))
        die(1, "abort", NULL, "another status, or no core");
    char name[40], page[PAGE];
    snprintf(name, sizeof name, "core.%d", pid);
    int file = open("core", O_RDONLY);
    if (file < 0)
        file = open(name, O_RDONLY);
    SETUP(file >= 0);
    size_t right = 0, zeros = 0;
    for (size_t i = 0; i < a->pages; i++) {
        char *at = a->at + i * PAGE;
        off_t where = in_core(file, (uintptr_t)at);
        SETUP(where > 0 && pread(file, page, PAGE, where) == PAGE);
        if (page_is(page, a->tags[i]))
            right++;
        else if (page_is(page, 0))
            zeros++;
        else
            die(1, "a core", at, "wrong bytes");
    }
    printf("absent %zu right %zu zeros %zu\n", a->absent, right, zeros);
    return 0;
}

// A process is killed somewhere about a fork of its own. Its child is there, and
// right in every byte, or ends with a line of the manager's, or never was.
static int killed_forking(void) {
    static area_t a;
    int told[2];
    char got[2] = {0};
    size_t begun = 0, right = 0, killed = 0;
    if (managed())
        press_on(2 * CHUNK * CHUNKS);
    new_area(&a, STORED);
    for (int n = 0; n < 40; n++) {
        SETUP(pipe(told) == 0);
        pid_t middle = fork();
        if (middle == 0) {
            SETUP(write(told[1], "m", 1) == 1);
            if (fork() == 0) {
                SETUP(write(told[1], "b", 1) == 1);
                check_area(&a, "in a child whose parent was killed");
                write_area(&a, 0, 30);
                press_on(1500);
                check_area(&a, "in a child whose parent was killed, later");
                SETUP(write(told[1], "r", 1) == 1);
                syscall(SYS_exit_group, 0);
            }
            for (;;)
                press_on(100);
        }
        SETUP(close(told[1]) == 0 && read(told[0], got, 1) == 1 && *got == 'm');
        usleep(roll(n % 2 ? 20000 : 2000));
        SETUP(kill(middle, SIGKILL) == 0);
        int status;
        SETUP(waitpid(middle, &status, 0) == middle);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        while (read(told[0], got, 1) == 1)
            begun += *got == 'b', right += *got == 'r';
        close(told[0]);
    }
    printf("absent %zu killed %zu begun %zu right %zu\n", absent_of(&a), killed, begun, right);
    settle(&a, "after parents that were killed");
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    self = argv[0];
    seed_state = 1;
    if (!strcmp(argv[1], "orphan"))
        return orphan();
    if (!strcmp(argv[1], "core"))
        return core();
    if (!strcmp(argv[1], "killed_forking"))
        return killed_forking();
    return strcmp(argv[1], "check") ? 2 : check();
}
