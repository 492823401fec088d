// A process that lives long: what it has at the end should be what it had at the start.
//   long_life heap GIB        GIB of malloc and free of mixed sizes, beside 96 MiB that live
//   long_life forks COUNT     COUNT children of a process with 96 MiB, each of which checks,
//                             writes and ends, as a server's do
// Prints ten lines, at equal distances: per cent done, seconds, of a processor too (children
// not counted), MiB resident, mappings, descriptors (of the thread with the most), microseconds
// of the median step of that part and of the one that 99 of 100 do not exceed.
#include "check.h"
#include <dirent.h>
#include <sys/resource.h>

enum { LIVING = 96 << 20, LINES = 10, BLOCKS = 512, NOTED = 1 << 14 };

static double taken[NOTED]; // seconds of steps, a sample of them
static size_t steps;

static void note(double of) {
    size_t at = steps++;
    // (Once it is full, any place is as good.)
    taken[at < NOTED ? at : mix(at) % NOTED] = of;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t entries(const char *path) {
    size_t count = 0;
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count < 2 ? 0 : count - 2; // . and ..
}

// The manager's threads have a table of their own.
static size_t descriptors(void) {
    size_t most = 0;
    DIR *dir = opendir("/proc/self/task");
    SETUP(dir);
    for (struct dirent *task; (task = readdir(dir));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/fd", task->d_name);
        size_t count = task->d_name[0] == '.' ? 0 : entries(path);
        most = count > most ? count : most;
    }
    closedir(dir);
    return most;
}

static void line(double done, double begin) {
    FILE *file = fopen("/proc/self/statm", "r");
    long size, pages, mappings = 0;
    SETUP(file && fscanf(file, "%ld %ld", &size, &pages) == 2);
    fclose(file);
    file = fopen("/proc/self/maps", "r");
    SETUP(file);
    for (int c; (c = getc(file)) != EOF;)
        mappings += c == '\n';
    fclose(file);
    size_t count = steps < NOTED ? steps : NOTED;
    qsort(taken, count, sizeof *taken, by_size);
    double median = count ? taken[count / 2] * 1e6 : 0, most = count ? taken[count * 99 / 100] * 1e6 : 0;
    struct rusage used;
    SETUP(getrusage(RUSAGE_SELF, &used) == 0);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
                 (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("%5.1f %8.1f %8.1f %8ld %8ld %8zu %10.1f %10.1f\n", done * 100, seconds() - begin, cpu,
           pages >> 8, mappings, descriptors(), median, most);
    fflush(stdout);
    steps = 0;
}

// From 32 bytes to 2 MiB, each doubling as often as another; three in a hundred are of 4 to
// 64 MiB.
static size_t random_size(uint64_t *state) {
    *state = mix(*state + 0x9e3779b97f4a7c15u);
    unsigned order = 5 + *state % 100;
    order = order > 104 - 3 ? 22 + *state / 128 % 4 : 5 + order % 16;
    return ((size_t)1 << order) + (*state >> 32) % ((size_t)1 << order);
}

struct block {
    char *at;
    size_t size;
    uint64_t mark;
};

// What is written is the block's own: its first word, and the first of each page that begins in it. (Words in
// other places of a page each time it is used again would make the heap less and less compressible.)
static void mark(const struct block *block, int checks) {
    for (size_t at = 0; at + 8 <= block->size; at += PAGE - (uintptr_t)(block->at + at) % PAGE) {
        uint64_t want = mix(block->mark + at);
        if (!checks)
            memcpy(block->at + at, &want, 8);
        else if (memcmp(block->at + at, &want, 8))
            die(1, "a block", block->at + at, "another's bytes");
    }
}

static void heap(double gib) {
    static struct block blocks[BLOCKS];
    uint64_t state = 1;
    double begin = seconds(), total = gib * (1 << 30), done = 0;
    for (int part = 0; part <= LINES; part++) {
        for (; done < total * part / LINES; ) {
            state = mix(state + 0x9e3779b97f4a7c15u);
            struct block *block = &blocks[state % BLOCKS];
            double from = seconds();
            if (block->at)
                mark(block, 1);
            free(block->at);
            block->size = random_size(&state);
            block->mark = state;
            SETUP(block->at = malloc(block->size));
            mark(block, 0);
            note(seconds() - from);
            done += block->size;
        }
        line(done / total, begin);
    }
}

static void forks(long count, char *living) {
    double begin = seconds();
    for (long i = 0, part = 0; part <= LINES; part++) {
        for (; i < count * part / LINES; i++) {
            double from = seconds();
            pid_t child = fork();
            SETUP(child >= 0);
            if (child == 0) {
                size_t page = mix(i) % (LIVING / PAGE);
                check_page(living + page * PAGE, 1 + page, "the parent's memory in a child");
                fill_page(living + page * PAGE, 7);
                char *own = map_new(1 << 20);
                fill_range(own, (1 << 20) / PAGE, 1);
                check_range(own, (1 << 20) / PAGE, 1, "a child's own memory");
                _exit(0);
            }
            expect_child(child, "a request");
            note(seconds() - from);
        }
        line((double)i / count, begin);
    }
}

int main(int argc, char **argv) {
    SETUP(argc > 2);
    char *living = map_new(LIVING);
    fill_range(living, LIVING / PAGE, 1);
    if (!strcmp(argv[1], "heap"))
        heap(atof(argv[2]));
    else
        forks(atol(argv[2]), living);
    check_range(living, LIVING / PAGE, 1, "what lives as long as the process");
    return 0;
}
