// Pages that go out again as they came, and pages that look as if they did: read at
// random, and of some one word changed since, or the whole page discarded and filled
// anew, or moved to where another was.
#include "check.h"

enum { MB = 96, PAGES = MB << 8, CHUNK = 32, STEPS = 90000 };
static char *memory;
static tag_t tags[PAGES];
// What the last word of a page was changed by.
static uint64_t change[PAGES];

static uint64_t *last_word(size_t i) { return (uint64_t *)(memory + (i + 1) * PAGE) - 1; }

static void check(size_t i, const char *what) {
    const volatile uint64_t *words = (void *)(memory + i * PAGE);
    for (unsigned k = 0; k < WORDS; k++) {
        uint64_t want = word_of(tags[i], k) + (k == WORDS - 1 ? change[i] : 0);
        if (words[k] != want)
            die(1, what, (const void *)&words[k], "changed behind the program's back");
    }
}

static void fill(size_t i, tag_t tag) {
    fill_page(memory + i * PAGE, tags[i] = tag);
    change[i] = 0;
}

// Two chunks change places.
static void exchange(size_t one, size_t other) {
    size_t bytes = CHUNK * PAGE;
    char *a = memory + one * PAGE, *b = memory + other * PAGE, *aside = map_new(bytes);
    int how = MREMAP_MAYMOVE | MREMAP_FIXED;
    SETUP(mremap(a, bytes, bytes, how, aside) == aside);
    SETUP(mremap(b, bytes, bytes, how, a) == a);
    SETUP(mremap(aside, bytes, bytes, how, b) == b);
    for (size_t k = 0; k < CHUNK; k++) {
        tag_t tag = tags[one + k];
        uint64_t by = change[one + k];
        tags[one + k] = tags[other + k], change[one + k] = change[other + k];
        tags[other + k] = tag, change[other + k] = by;
    }
}

static void discard(size_t first) {
    SETUP(madvise(memory + first * PAGE, CHUNK * PAGE, MADV_DONTNEED) == 0);
    for (size_t i = first; i < first + CHUNK; i++) {
        // Every other one is again what it was.
        tag_t tag = i % 2 ? tags[i] : tags[i] + PAGES;
        if (i % 4 < 2)
            fill(i, tag);
        else
            tags[i] = 0, change[i] = 0;
    }
}

static void walk(uint64_t state, int steps) {
    for (int n = 1; n <= steps; n++) {
        state = mix(state + 0x9e3779b97f4a7c15u);
        size_t i = state % PAGES;
        check(i, "read at random");
        if (n % 8 == 0)
            *last_word(i) += 1, change[i] += 1;
        if (n % 1500 == 0)
            discard(i / CHUNK * CHUNK);
        size_t other = mix(state) % PAGES / CHUNK * CHUNK;
        if (n % 4000 == 0 && other != i / CHUNK * CHUNK)
            exchange(i / CHUNK * CHUNK, other);
    }
}

static void check_all(const char *what) {
    for (size_t i = 0; i < PAGES; i++)
        check(i, what);
}

int main(void) {
    memory = map_new((size_t)PAGES * PAGE);
    for (size_t i = 0; i < PAGES; i++)
        fill(i, i + 1);
    walk(1, STEPS);
    pid_t child = fork();
    SETUP(child >= 0);
    walk(child ? 2 : 3, STEPS / 3);
    check_all(child ? "in the parent" : "in the child");
    if (child == 0)
        return 0;
    int status;
    SETUP(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
