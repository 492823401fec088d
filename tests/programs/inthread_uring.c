// The kernel keeps addresses of the program's: inthread_uring refuse|unmanaged
//
// Memory that is out is read into by io_setup's interface. Where that is refused it is as if there
// were none (ENOSYS), and what is out comes back as ever.
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>

enum { PAGES = 10240, AT = 4000, READ = 64, TAG = 50000 };

static void reads(char *at, aio_context_t context) {
    char name[] = "kept.XXXXXX";
    int file = mkstemp(name);
    SETUP(file >= 0 && unlink(name) == 0);
    char *block = map_new(READ * PAGE);
    fill_range(block, READ, TAG);
    SETUP(write(file, block, READ * PAGE) == READ * PAGE);
    struct iocb one = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file, .aio_nbytes = READ * PAGE};
    one.aio_buf = (uintptr_t)(at + AT * PAGE);
    struct iocb *all[] = {&one};
    struct io_event event;
    if (syscall(SYS_io_submit, context, 1L, all) != 1 || syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL) != 1)
        die(1, "reading", at, "nothing was read");
    if (event.res != READ * PAGE)
        die(1, "reading", at, "not all was read");
    check_range(at + AT * PAGE, READ, TAG, "what was read");
    close(file);
}

int main(int argc, char **argv) {
    SETUP(argc == 2);
    int refused = strcmp(argv[1], "refuse") == 0;
    char *at = map_new((size_t)PAGES * PAGE);
    fill_range(at, PAGES, 1);
    aio_context_t context = 0;
    char parameters[120] = {0}; // struct io_uring_params
    long ring = syscall(SYS_io_uring_setup, 4L, parameters);
    int why = ring < 0 ? errno : 0;
    long made = syscall(SYS_io_setup, 8L, &context);
    if (refused) {
        if (why != ENOSYS || made != -1 || errno != ENOSYS)
            die(1, "asked for", NULL, "it was not refused");
    } else if (made != 0) {
        printf("SKIPPED: io_setup: %s\n", strerror(errno));
        return 0;
    } else {
        // (A sandbox or the machine's settings may forbid io_uring, and not io_setup.)
        if (ring < 0 && why != EPERM && why != ENOSYS)
            die(1, "asked for", NULL, "io_uring was refused otherwise");
        reads(at, context);
    }
    check_range(at, AT, 1, "before what was read");
    check_range(at + (AT + READ) * PAGE, PAGES - AT - READ, 1 + AT + READ, "behind it");
    return 0;
}
