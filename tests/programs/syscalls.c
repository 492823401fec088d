// System calls whose arguments lie in memory that has been moved out.
#include "check.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { PAGES = 4096 };
static char *a, *b;

static void fresh(tag_t tag) {
    fill_range(a, PAGES, tag);
    fill_range(b, PAGES, tag + PAGES);
    push_out(a, PAGES);
    push_out(b, PAGES);
}

static void through_a_file(void) {
    char name[] = "/tmp/zfolio-syscalls-XXXXXX";
    int fd = mkstemp(name);
    SETUP(fd >= 0 && unlink(name) == 0);
    fresh(1);
    // Unaligned on purpose: half pages come from one page, half from the next.
    for (size_t at = 0; at < (size_t)PAGES * PAGE;) {
        size_t len = (size_t)PAGES * PAGE - at < 70001 ? (size_t)PAGES * PAGE - at : 70001;
        ssize_t did = write(fd, a + at, len);
        if (did <= 0)
            die(1, "write", a + at, "refused");
        at += did;
    }
    struct stat info;
    SETUP(fstat(fd, &info) == 0 && info.st_size == (off_t)PAGES * PAGE);
    // Over pages that are moved out and never read again.
    if (pread(fd, b, (size_t)PAGES * PAGE, 0) != (ssize_t)PAGES * PAGE)
        die(1, "pread", b, "short");
    check_range(b, PAGES, 1, "pread");
    fresh(9000);
    struct iovec parts[64];
    for (int i = 0; i < 64; i++)
        parts[i] = (struct iovec){b + (size_t)(63 - i) * PAGE * 3, PAGE};
    SETUP(lseek(fd, 0, SEEK_SET) == 0);
    if (readv(fd, parts, 64) != 64 * PAGE)
        die(1, "readv", b, "short");
    for (int i = 0; i < 64; i++) {
        check_page(b + (size_t)(63 - i) * PAGE * 3, 1 + i, "readv");
        check_page(b + (size_t)(63 - i) * PAGE * 3 + PAGE, 9000 + PAGES + (63 - i) * 3 + 1,
                   "between the parts of a readv");
    }
    close(fd);
}

static void *writer(void *arg) {
    int fd = *(int *)arg;
    for (size_t at = 0; at < (size_t)PAGES * PAGE;) {
        ssize_t did = write(fd, a + at, (size_t)PAGES * PAGE - at);
        if (did <= 0)
            die(1, "write into a pipe", a + at, "refused");
        at += did;
    }
    close(fd);
    return NULL;
}

static void between(int ends[2], const char *what) {
    fresh(20000);
    pthread_t thread;
    SETUP(pthread_create(&thread, NULL, writer, &ends[1]) == 0);
    for (size_t at = 0; at < (size_t)PAGES * PAGE;) {
        ssize_t did = read(ends[0], b + at, (size_t)PAGES * PAGE - at);
        if (did <= 0)
            die(1, what, b + at, "read refused");
        at += did;
    }
    pthread_join(thread, NULL);
    check_range(b, PAGES, 20000, what);
    close(ends[0]);
}

// Structures and strings that the kernel reads or writes in single pages.
static void small_ones(void) {
    fresh(50000);
    char here[4096];
    SETUP(getcwd(here, sizeof here) != NULL);
    if (syscall(SYS_getcwd, a + PAGE - 2, 4096) < 0 || strcmp(a + PAGE - 2, here))
        die(1, "getcwd", a, "wrong path");
    push_out(a, PAGES);
    if (strcmp(a + PAGE - 2, here))
        die(1, "getcwd", a, "wrong path after moving out");
    strcpy(a + 9 * PAGE - 3, "/dev/null");
    push_out(a, PAGES);
    struct stat *info = (struct stat *)(b + 5 * PAGE - 16);
    if (syscall(SYS_newfstatat, AT_FDCWD, a + 9 * PAGE - 3, info, 0) || !S_ISCHR(info->st_mode))
        die(1, "stat", info, "path or result across pages");
    int fd = open(a + 9 * PAGE - 3, O_RDWR);
    SETUP(fd >= 0);
    struct timespec *now = (struct timespec *)(b + 100 * PAGE - 8);
    if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now) || now->tv_sec == 0)
        die(1, "clock_gettime", now, "across pages");
    // futex on a page that is out: the kernel pins it.
    uint32_t *futex = (uint32_t *)(b + 200 * PAGE);
    uint32_t value = (uint32_t)word_of(50000 + PAGES + 200, 0);
    struct timespec little = {0, 1000000};
    if (syscall(SYS_futex, futex, 0, value, &little, NULL, 0) != -1 || errno != ETIMEDOUT)
        die(1, "futex", futex, "the word was not what the program wrote");
    // process_vm_readv looks through somebody else's eyes.
    struct iovec to = {here, 4096}, from = {b + 300 * PAGE, 4096};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 4096)
        die(1, "process_vm_readv", b + 300 * PAGE, "short");
    check_page(here, 50000 + PAGES + 300, "process_vm_readv");
    close(fd);
}

int main(void) {
    a = map_new((size_t)PAGES * PAGE);
    b = map_new((size_t)PAGES * PAGE);
    through_a_file();
    int ends[2];
    SETUP(pipe(ends) == 0);
    between(ends, "pipe");
    SETUP(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    between(ends, "socket");
    small_ones();
    return 0;
}
