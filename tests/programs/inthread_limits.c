// A program that has little: addresses, mappings, processes.
#include "inthread_kit.h"
#include <sys/prctl.h>
#include <sys/resource.h>

enum { TAG = 600000 };

// As much address space as it has now and 64 MiB, of which it uses half.
static void addresses(void) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child == 0) {
        squeeze();
        unsigned long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        SETUP(file && fscanf(file, "%lu", &pages) == 1);
        fclose(file);
        struct rlimit limit = {pages * PAGE + (128ul << 20), RLIM_INFINITY};
        SETUP(setrlimit(RLIMIT_AS, &limit) == 0);
        char *at = mmap(NULL, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        RIGHT(at != MAP_FAILED);
        fill_range(at, (8 << 20) / PAGE, TAG);
        squeeze();
        check_range(at, (8 << 20) / PAGE, TAG, "of few addresses");
        RIGHT(mmap(NULL, 1ul << 40, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
        RIGHT(mremap(at, 8 << 20, 1ul << 40, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
        squeeze();
        check_range(at, (8 << 20) / PAGE, TAG, "of few addresses");
        pid_t grandchild = fork();
        if (grandchild == 0) {
            check_range(at, (8 << 20) / PAGE, TAG, "of a child with few addresses");
            _exit(0);
        }
        expect_child(grandchild, "with few addresses");
        _exit(0);
    }
    expect_child(child, "with few addresses");
}

// A program that has a mapping for each page, as many as most.
static void mappings_up_to(size_t count) {
    char *at = map_new(2 * count * PAGE);
    for (size_t i = 0; i < count; i++)
        *(uint64_t *)(at + 2 * i * PAGE) = mix(i + 1), *(uint64_t *)(at + (2 * i + 1) * PAGE) = mix(i + 2);
    squeeze();
    for (size_t i = 0; i < count; i += 2) // every fourth page may only be read
        RIGHT(mprotect(at + 2 * i * PAGE, PAGE, PROT_READ) == 0);
    squeeze();
    for (size_t i = 0; i < count; i++) {
        RIGHT(*(uint64_t *)(at + 2 * i * PAGE) == mix(i + 1));
        RIGHT(*(uint64_t *)(at + (2 * i + 1) * PAGE) == mix(i + 2));
    }
    for (size_t i = 0; i < count; i += 2)
        RIGHT(mprotect(at + 2 * i * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    squeeze();
    for (size_t i = 0; i < count; i++)
        RIGHT(*(uint64_t *)(at + 2 * i * PAGE) == mix(i + 1));
    for (size_t i = 0; i < count; i += 2)
        RIGHT(munmap(at + 2 * i * PAGE, PAGE) == 0);
    squeeze();
    for (size_t i = 0; i < count; i++)
        RIGHT(*(uint64_t *)(at + (2 * i + 1) * PAGE) == mix(i + 2));
    SETUP(munmap(at, 2 * count * PAGE) == 0);
}

static void mappings(void) { mappings_up_to(8000); }

// Nearly all that the kernel permits: bare it works, by a few hundred.
static void most_mappings(void) { mappings_up_to(64000); }

static void many_small_ones(void) {
    enum { MANY = 3000 };
    static char *ones[MANY];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            size_t pages = 8 + mix(i + round) % 9;
            ones[i] = map_new(pages * PAGE);
            *(uint64_t *)ones[i] = mix(i), *(uint64_t *)(ones[i] + (pages - 1) * PAGE) = mix(i + 1);
        }
        squeeze();
        for (int i = 0; i < MANY; i++) {
            size_t pages = 8 + mix(i + round) % 9;
            RIGHT(*(uint64_t *)ones[i] == mix(i) && *(uint64_t *)(ones[i] + (pages - 1) * PAGE) == mix(i + 1));
            RIGHT(munmap(ones[i], pages * PAGE) == 0);
        }
    }
}

CASES({"addresses", addresses}, {"mappings", mappings}, {"most_mappings", most_mappings}, {"many_small_ones", many_small_ones})
