// Mappings right before and behind every other anonymous one, of the same kind: the
// kernel makes one mapping of two such. The manager's own lie among them, and must
// neither keep the program's in memory nor be taken for it.
#include "check.h"

enum { MOST_PAGES = 64, LEAST_PAGES = 16, MOST = 400, TRIES = 40 };

struct mapping {
    char *start, *end;
    int nr, nh, hg; // of its VmFlags
};

static struct mapping others[MOST];
static struct {
    char *start;
    size_t pages;
} own[2 * MOST];
static size_t owned;

static size_t read_mappings(void) {
    FILE *file = fopen("/proc/self/smaps", "r");
    SETUP(file);
    char line[512];
    size_t count = 0;
    unsigned long file_end = 0;
    int plain = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long start, end, inode;
        char perms[5];
        int name = 0;
        if (sscanf(line, "%lx-%lx %4s %*x %*s %lu %n", &start, &end, perms, &inode, &name) == 4) {
            // (Behind a library lies memory of its own, which is left alone.)
            plain = strcmp(perms, "rw-p") == 0 && inode == 0 && start != file_end && count < MOST
                    && line[name] == 0;
            if (inode)
                file_end = end;
            if (plain)
                others[count++] = (struct mapping){.start = (char *)start, .end = (char *)end};
        } else if (plain && strncmp(line, "VmFlags:", 8) == 0) {
            others[count - 1].nr = strstr(line, " nr") != NULL;
            others[count - 1].nh = strstr(line, " nh") != NULL;
            others[count - 1].hg = strstr(line, " hg") != NULL;
        }
    }
    fclose(file);
    return count;
}

// As large as there is room for: right before `end` or from `start` on.
static void map_beside(const struct mapping *other, char *start, char *end) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | (other->nr ? MAP_NORESERVE : 0);
    for (size_t pages = MOST_PAGES; pages >= LEAST_PAGES; pages /= 2) {
        char *at = start ? start : end - pages * PAGE;
        char *got = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (got == MAP_FAILED)
            continue;
        if (other->nh)
            madvise(got, pages * PAGE, MADV_NOHUGEPAGE);
        if (other->hg)
            madvise(got, pages * PAGE, MADV_HUGEPAGE);
        own[owned].start = got;
        own[owned++].pages = pages;
        return;
    }
}

int main(int argc, char **argv) {
    press(); // the manager maps what it needs once there is need
    size_t count = read_mappings();
    for (size_t i = 0; i < count; i++) {
        map_beside(&others[i], NULL, others[i].start);
        map_beside(&others[i], others[i].end, NULL);
    }
    // In some layouts there is no room beside any; they are random, so another try
    // has another.
    int tried = argc > 1 ? atoi(argv[1]) : 0;
    if (owned == 0 && tried < TRIES) {
        char next[12];
        snprintf(next, sizeof next, "%d", tried + 1);
        execl("/proc/self/exe", argv[0], next, (char *)NULL);
    }
    SETUP(owned > 0);

    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < owned; i++)
            fill_range(own[i].start, own[i].pages, 1 + (round * owned + i) * MOST_PAGES);
        for (size_t i = 0; i < owned; i++)
            push_out(own[i].start, own[i].pages);
        for (size_t i = 0; i < owned; i++)
            check_range(own[i].start, own[i].pages, 1 + (round * owned + i) * MOST_PAGES,
                        "beside another mapping");
    }
    // What is left of the manager's must still be its own.
    for (size_t i = 0; i < owned; i++)
        SETUP(munmap(own[i].start, own[i].pages * PAGE) == 0);
    press();
    return 0;
}
