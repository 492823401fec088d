// A server over a long time: children that live briefly, more than there are slots, among them
// some that live on and need memory once the others have gone.
//   many COUNT STAYING MIB     COUNT short ones; STAYING others, which then have MIB each
// Prints the process id of each that stayed, and what they and the parent have resident
// together in the end, MiB.
#include "check.h"

enum { OWN = 3072, STAYING = 32 };

static size_t private_pages(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t size, pages, shared;
    SETUP(file && fscanf(file, "%zu %zu %zu", &size, &pages, &shared) == 3);
    fclose(file);
    return pages - shared;
}

static void brief(char *inherited, long nth) {
    size_t page = mix(nth) % OWN;
    check_page(inherited + page * PAGE, 1 + page, "the parent's memory in a child");
    fill_page(inherited + page * PAGE, 7);
    check_page(inherited + page * PAGE, 7, "a child's own page");
    _exit(0);
}

// One that stays waits until `gate` is closed, and tells what it has on `tell`.
static void stays(int gate, int tell, size_t pages) {
    char end;
    SETUP(read(gate, &end, 1) == 0);
    char *own = map_new(pages * PAGE);
    for (tag_t round = 1; round <= 3; round++) {
        fill_range(own, pages, round * pages);
        usleep(200000);
        check_range(own, pages, round * pages, "memory of one that stayed");
    }
    size_t has = private_pages();
    SETUP(write(tell, &has, sizeof has) == sizeof has);
    pause();
}

int main(int argc, char **argv) {
    SETUP(argc > 3);
    long count = atol(argv[1]), staying = atol(argv[2]);
    SETUP(staying > 0 && staying <= STAYING && count >= staying);
    size_t pages = (size_t)atol(argv[3]) << 8;
    char *own = map_new((size_t)OWN * PAGE);
    fill_range(own, OWN, 1);
    // (Children of one that is not managed yet are not, as long as they are small.)
    for (double until = seconds() + 30; managed() && resident(own, OWN) == OWN; usleep(2000))
        SETUP(seconds() < until);
    int gate[2], tell[2];
    pid_t who[STAYING];
    SETUP(pipe(gate) == 0 && pipe(tell) == 0);
    long stayed = 0;
    for (long i = 0; i < count; i++) {
        if (i * staying / count >= stayed && stayed < staying) {
            pid_t child = who[stayed++] = fork();
            SETUP(child >= 0);
            if (child == 0) {
                close(gate[1]);
                stays(gate[0], tell[1], pages);
            }
        }
        pid_t child = fork();
        SETUP(child >= 0);
        if (child == 0)
            brief(own, i);
        expect_child(child, "a short one");
    }
    close(gate[1]);
    size_t sum = 0, has;
    for (long i = 0; i < stayed; i++) {
        SETUP(read(tell[0], &has, sizeof has) == sizeof has);
        sum += has;
    }
    check_range(own, OWN, 1, "the parent's memory");
    sum += private_pages();
    for (long i = 0; i < stayed; i++) {
        printf("stayed %d\n", who[i]);
        SETUP(kill(who[i], SIGKILL) == 0 && waitpid(who[i], NULL, 0) == who[i]);
    }
    printf("resident %zu\n", sum >> 8);
    return 0;
}
