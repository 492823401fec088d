// Pages that the kernel keeps by a plain reference while they are moved out:
// in a pipe (vmsplice) and in a socket (sends without a copy); and what madvise
// does without an event: guards, and memory that is wiped in a child.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PAGES = 4096, PART = 12, GUARD_INSTALL = 102, GUARD_REMOVE = 103 };
#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

static char got[PART * PAGE];

static void arrives(int fd, tag_t tag, const char *what) {
    for (size_t have = 0; have < sizeof got;) {
        ssize_t n = read(fd, got + have, sizeof got - have);
        SETUP(n > 0);
        have += n;
    }
    for (size_t i = 0; i < PART; i++)
        check_page(got + i * PAGE, tag + i, what);
}

static void spliced(char *at) {
    int ends[2];
    SETUP(pipe(ends) == 0);
    for (size_t first = 0; first + PART <= PAGES; first += PAGES / 8) {
        struct iovec part = {at + first * PAGE, sizeof got};
        SETUP(vmsplice(ends[1], &part, 1, first & 1 ? SPLICE_F_NONBLOCK : 0) == sizeof got);
        push_out(at, PAGES);
        arrives(ends[0], 1 + first, "through a pipe");
    }
}

static void sent(char *at) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    SETUP(bind(listener, (void *)&name, len) == 0 && listen(listener, 1) == 0);
    SETUP(getsockname(listener, (void *)&name, &len) == 0);
    int from = socket(AF_INET, SOCK_STREAM, 0);
    SETUP(connect(from, (void *)&name, len) == 0);
    int to = accept(listener, NULL, NULL);
    SETUP(to >= 0);
    int allowed = setsockopt(from, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0;
    printf("sends without a copy: %s\n", allowed ? "allowed" : strerror(errno));
    for (size_t first = 0; first + PART <= PAGES; first += PAGES / 8) {
        SETUP(send(from, at + first * PAGE, sizeof got, MSG_ZEROCOPY) == sizeof got);
        push_out(at, PAGES);
        arrives(to, 1 + first, "through a socket");
    }
}

static void guarded(char *at) {
    size_t guard = 16;
    push_out(at, PAGES);
    if (madvise(at + guard * PAGE, guard * PAGE, GUARD_INSTALL) != 0) {
        printf("no guards here\n");
        return;
    }
    SETUP(madvise(at + guard * PAGE, guard * PAGE, GUARD_REMOVE) == 0);
    for (size_t i = 0; i < 3 * guard; i++)
        check_page(at + i * PAGE, i / guard == 1 ? 0 : 1 + i, "round a guard");
}

// A guard stays whatever is filled or brought back beside it, also in memory that is only read.
static void kept(char *at, int prot) {
    enum { EVERY = 64, GUARD = 8, BEFORE = 8 };
    int ends[2];
    SETUP(pipe(ends) == 0);
    push_out(at, PAGES);
    for (size_t page = EVERY; page < PAGES; page += EVERY) {
        char *guard = at + page * PAGE;
        SETUP(mprotect(guard, GUARD * PAGE, prot) == 0);
        if (madvise(guard, GUARD * PAGE, GUARD_INSTALL) != 0) {
            printf("SKIPPED: no guards here: %s\n", strerror(errno)); // before Linux 6.13
            return;
        }
        char *before = guard - BEFORE * PAGE;
        SETUP(madvise(before, BEFORE * PAGE, MADV_DONTNEED) == 0);
        for (size_t i = 0; i < BEFORE; i++)
            *(volatile char *)(before + i * PAGE) = 1;
        check_range(guard + GUARD * PAGE, EVERY - GUARD - BEFORE, 1 + page + GUARD, "behind a guard");
    }
    push_out(at, EVERY - BEFORE);
    for (size_t page = EVERY; page < PAGES; page += EVERY)
        for (size_t i = 0; i < GUARD; i++) {
            char *guard = at + (page + i) * PAGE;
            if (write(ends[1], guard, 1) >= 0 || errno != EFAULT)
                die(1, "a guard", guard, "is lost");
        }
    close(ends[0]), close(ends[1]);
}

// In a child the range is empty; the parent keeps it.
static void wiped(char *at) {
    enum { SOME = 64 };
    char *some = at + 512 * PAGE;
    push_out(at, PAGES);
    SETUP(madvise(some, SOME * PAGE, MADV_WIPEONFORK) == 0);
    for (int n = 0; n < 3; n++) {
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0) {
            check_zeros(some, SOME, "wiped in a child");
            check_range(at, 512, 1, "before what is wiped");
            check_range(some + SOME * PAGE, SOME, 513 + SOME, "after what is wiped");
            _exit(0);
        }
        expect_child(child, "a child with less");
        check_range(at, PAGES, 1, "the parent's");
        push_out(at, 512);
    }
}

int main(int argc, char **argv) {
    SETUP(argc == 2);
    char *at = map_new((size_t)PAGES * PAGE);
    fill_range(at, PAGES, 1);
    switch (argv[1][0]) {
    case 'p': spliced(at); break;
    case 's': sent(at); break;
    case 'g': guarded(at); break;
    case 'k': kept(at, PROT_READ | PROT_WRITE); break;
    case 'r': kept(at, PROT_READ); break;
    default: wiped(at);
    }
    return 0;
}
