// lostdisk DIR BEFORE ALL: fills BEFORE MiB of ALL, says so, and waits for a line;
// then shuts the ext4 file system of DIR down, after which every read and write
// there fails with EIO; fills the rest and checks all.
#include "check.h"
#include <fcntl.h>
#include <sys/ioctl.h>

// EXT4_IOC_SHUTDOWN, and its EXT4_GOING_FLAGS_NOLOGFLUSH.
#define SHUT_DOWN _IOR('X', 125, uint32_t)
static const uint32_t at_once = 2;

int main(int argc, char **argv) {
    SETUP(argc == 4);
    size_t before = atol(argv[2]) << 8, pages = atol(argv[3]) << 8;
    int dir = open(argv[1], O_RDONLY | O_DIRECTORY);
    SETUP(dir >= 0);
    char *at = map_new(pages * PAGE);
    fill_range(at, before, 1);
    printf("ready\n");
    fflush(stdout);
    char line[8];
    SETUP(fgets(line, sizeof line, stdin));
    SETUP(ioctl(dir, SHUT_DOWN, &at_once) == 0);
    fill_range(at + before * PAGE, pages - before, 1 + before);
    check_range(at, pages, 1, "memory beside a disk that is lost");
    return 0;
}
