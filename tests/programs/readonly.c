/*
 * readonly MIB [grows [SECONDS]]: fills MIB and forbids writing to it, then goes over 16 MiB more for
 * three seconds, or SECONDS. What may only be read cannot leave. With "grows" it may be written, but is
 * of the kind that the kernel extends downwards, which is not managed without privilege. Exits with 1 if
 * a byte is wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t *map(size_t bytes, int flags)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	if (at == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return at;
}

static void fill(uint64_t *at, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes / sizeof *at; i++)
		at[i] = seed + i;
}

static int is_wrong(const uint64_t *at, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes / sizeof *at; i++)
		if (at[i] != seed + i)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 96) << 20, more = 16 << 20;
	struct timespec begin, now;
	int grows = argc > 2, seconds = argc > 3 ? atoi(argv[3]) : 3;
	uint64_t *kept = map(bytes, grows ? MAP_GROWSDOWN : 0), *used;

	/* A piece at a time, so that it is closed before it has to leave. */
	for (size_t at = 0; at < bytes; at += 1 << 20) {
		fill(kept + at / sizeof *kept, 1 << 20, at);
		if (!grows && mprotect((char *)kept + at, 1 << 20, PROT_READ)) {
			perror("mprotect");
			return 2;
		}
	}
	used = map(more, 0);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (uint64_t round = 0;; round++) {
		fill(used, more, round);
		if (is_wrong(used, more, round))
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - begin.tv_sec >= seconds)
			break;
	}
	for (size_t at = 0; at < bytes; at += 1 << 20)
		if (is_wrong(kept + at / sizeof *kept, 1 << 20, at))
			return 1;
	return 0;
}
