/*
 * What `zfolio run --slowdown` is tried on: slowdown KIND MIB AMOUNT [seconds]
 *
 *   cold     reads at random in a tenth of its memory, of 1,000,000 reads one anywhere
 *   scan     reads all of its memory in order, again and again
 *   grow     takes memory page by page, evenly, until it has all
 *   phases   as cold, with another tenth every eighth of the amount
 *   serve    as cold, and waits a ms for nothing (poll) after each 50000 reads, as a server does
 *   ask      as cold, and a call (read of a byte) after every 20 reads
 *   life     half of its memory, then it grows to all of it, sleeps, reads all in order twice, at random in half of
 *            it and in a tenth; in between as cold. AMOUNT is the reads of each of these phases
 *
 * AMOUNT is reads of a word (grow: pauses of 10 ms), or seconds if that word follows. In the end
 * every word is verified. Ends with 0, 1 (a wrong word) or 2 (it could not be set up). Prints
 * what it did and how long it took, verifying left out, as JSON.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static uint64_t *words;
static size_t count;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* What the word at an index holds: some of it compresses. */
static uint64_t word(size_t at)
{
    if (at % 4 != 0)
        return at / 16;
    return (at + 1) * 0x9e3779b97f4a7c15u;
}

static void fill(size_t from, size_t to)
{
    for (size_t at = from; at < to; at++)
        words[at] = word(at);
}

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int wrong(size_t at)
{
    fprintf(stderr, "the word at %zu is %lx\n", at, (unsigned long)words[at]);
    return 1;
}

/* Reads at random in `hot` words from `from` on, of 1,000,000 reads one anywhere in `all`; 1: a word is wrong. */
static int look(size_t from, size_t hot, size_t all, uint64_t reads, uint64_t *sum)
{
    for (uint64_t i = 0; i < reads; i++) {
        size_t at = i % 1000000 == 0 ? next() % all : from + next() % hot;

        if (words[at] != word(at))
            return wrong(at);
        *sum += words[at];
    }
    return 0;
}

static int life(uint64_t reads)
{
    struct timespec sleep = { 3, 0 };
    size_t half = count / 2, tenth = count / 10, grown = half;
    uint64_t sum = 0;
    int bad;

    fill(0, half);
    bad = look(0, tenth, half, reads, &sum);
    for (int step = 1; step <= 16; step++) {
        size_t to = half + (count - half) / 16 * step;

        fill(grown, to);
        grown = to;
        bad |= look(half, to - half < tenth ? to - half : tenth, grown, reads / 16, &sum);
    }
    fill(grown, count);
    nanosleep(&sleep, NULL);
    bad |= look(0, tenth, count, reads, &sum);
    for (size_t at = 0; at < 2 * count; at++) {
        if (words[at % count] != word(at % count))
            return wrong(at % count);
        sum += words[at % count];
    }
    bad |= look(half, half, count, reads, &sum);
    bad |= look(tenth, tenth, count, reads, &sum);
    printf("%lu\n", (unsigned long)sum);
    return bad;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *kind = argv[1];
    int timed = argc > 4 && strcmp(argv[4], "seconds") == 0;
    size_t bytes = strtoul(argv[2], NULL, 10) << 20;
    double amount = atof(argv[3]);
    uint64_t done = 0, sum = 0;

    count = bytes / sizeof *words;
    words = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED)
        return 2;
    if (strcmp(kind, "life") == 0) {
        if (life((uint64_t)amount))
            return 1;
    } else if (strcmp(kind, "grow") == 0) {
        size_t part = count / (size_t)(timed ? amount * 100 : amount);
        double begin = now();

        for (size_t at = 0; at + part <= count; at += part) {
            struct timespec pause = { 0, 10000000 };

            fill(at, at + part);
            /* (It has a processor meanwhile, so that it runs.) */
            for (double until = now() + 0.005; now() < until;)
                ;
            nanosleep(&pause, NULL);
            done = at + part;
        }
        count = done;
        printf("{\"did\":%lu,\"seconds\":%.3f}\n", (unsigned long)done, now() - begin);
    } else {
        size_t hot = count / 10, from = 0, at = 0;
        int phases = strcmp(kind, "phases") == 0;
        int scan = strcmp(kind, "scan") == 0;
        int serve = strcmp(kind, "serve") == 0;
        int zeros = strcmp(kind, "ask") == 0 ? open("/dev/zero", O_RDONLY) : -1;
        char byte;
        double begin = now();

        fill(0, count);
        for (;;) {
            double part = timed ? (now() - begin) / amount : done / amount;

            if (part >= 1)
                break;
            if (phases)
                from = (size_t)(part * 8) * hot;
            for (int i = 0; i < 50000; i++) {
                if (scan)
                    at = (at + 64) % count;
                else if (i == 0 && done % 1000000 == 0)
                    at = next() % count;
                else
                    at = from + next() % hot;
                if (words[at] != word(at))
                    return wrong(at);
                sum += words[at];
                if (zeros >= 0 && i % 20 == 0 && read(zeros, &byte, 1) != 1)
                    return 2;
            }
            done += 50000;
            if (serve)
                poll(NULL, 0, 1);
        }
        printf("{\"did\":%lu,\"seconds\":%.3f,\"sum\":%lu}\n", (unsigned long)done,
               now() - begin, (unsigned long)sum);
    }
    for (size_t at = 0; at < count; at++)
        if (words[at] != word(at))
            return wrong(at);
    return 0;
}
