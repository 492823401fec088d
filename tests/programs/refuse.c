// Runs a command where userfaultfd is refused: refuse COMMAND [ARG...]
#include "refuse.h"
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc < 2 || refuse_userfaultfd() != 0) {
        perror("refuse");
        return 99;
    }
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 99;
}
