// Memory that compresses well, of which pages here and there are written again with what compresses less, until
// most were: the zspages that they were in run half empty, and nothing comes that would fill them.
// scattered [MiB] [touches]
#include "check.h"

static size_t pages;
static uint32_t *versions;

static uint64_t word(size_t page, size_t i) {
    uint64_t seed = mix(page * 1000003 + versions[page]);
    size_t noisy = seed % 64 + (versions[page] ? 224 : 32);
    return mix(seed + (i < noisy ? i : noisy));
}

static void write_version(char *memory, size_t page) {
    uint64_t *words = (uint64_t *)(memory + page * PAGE);
    for (size_t i = 0; i < WORDS; i++)
        words[i] = word(page, i);
}

static void check_version(const char *memory, size_t page) {
    const uint64_t *words = (const uint64_t *)(memory + page * PAGE);
    for (size_t i = 0; i < WORDS; i++)
        if (words[i] != word(page, i))
            die(1, "a page that was written again and again", (const void *)&words[i], "another word");
}

int main(int argc, char **argv) {
    pages = (argc > 1 ? (size_t)atol(argv[1]) : 48) << 8;
    size_t touches = argc > 2 ? (size_t)atol(argv[2]) : pages;
    versions = calloc(pages, sizeof *versions);
    char *memory = map_new(pages * PAGE);
    SETUP(versions != NULL);
    for (size_t page = 0; page < pages; page++)
        write_version(memory, page);
    for (size_t n = 0; n < touches; n++) {
        size_t page = mix(n) % pages;
        check_version(memory, page);
        if (!versions[page]) {
            versions[page]++;
            write_version(memory, page);
        }
    }
    for (size_t page = 0; page < pages; page++)
        check_version(memory, page);
    return 0;
}
