// secret MIB: fills memory with one line of text again and again, reads it all
// once, says so, and waits to be killed. The line is given in pieces, so that
// it is nowhere else.
#include "check.h"

int main(int argc, char **argv) {
    size_t bytes = (size_t)(argc > 1 ? atol(argv[1]) : 64) << 20;
    char line[64];
    int len = snprintf(line, sizeof line, "%s %s %s.", "the", "treasure is buried", "under the oak");
    char *at = map_new(bytes);
    for (size_t i = 0; i < bytes; i++)
        at[i] = line[i % len];
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != line[i % len])
            die(1, "text", at + i, "another letter");
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}
