// Has the kernel move memory of another process to its swap: pageout PID ADDRESS PAGES (as root)
#include "check.h"
#include <sys/uio.h>

int main(int argc, char **argv) {
    SETUP(argc == 4);
    int process = syscall(SYS_pidfd_open, atoi(argv[1]), 0);
    SETUP(process >= 0);
    struct iovec all = {(void *)strtoul(argv[2], NULL, 16), strtoul(argv[3], NULL, 10) * PAGE};
    SETUP(syscall(SYS_process_madvise, process, &all, 1L, MADV_PAGEOUT, 0L) > 0);
    return 0;
}
