/*
 * Reads by O_DIRECT into memory that is short, while it is advised cold: what the kernel has
 * pinned does not leave, whether we have a pin of ours or not. Without one a read into memory
 * that is out is refused.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "test.h"

#define REGION (128 * MIB)
#define TARGET (32 * MIB) /* read into; the rest is what presses */
#define READS 400

static unsigned char *bytes;
static int stop;

static void *press(void *at)
{
	zfolio_region *region = (zfolio_region *)at;
	uint64_t count = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t page = (size_t)(mix(count) % ((REGION - TARGET) / PAGE));

		*(volatile uint64_t *)(void *)(bytes + TARGET + page * PAGE) = count;
		if (count++ % 64 == 0)
			OK(zfolio_cold(region, 0, TARGET));
	}
	return NULL;
}

/* How many of the reads, which end 10 s from now at the latest, were refused. */
static int read_all(zfolio_region *region, int file, int pinned)
{
	time_t begin = time(NULL);
	int at, refused = 0;

	for (at = 0; at < READS && time(NULL) - begin < 10; at++) {
		size_t page, to = (size_t)(mix((uint64_t)at) % 31) * MIB;
		zfolio_pin *pin = NULL;
		ssize_t got;

		if (pinned)
			OK(zfolio_pin_range(region, to, MIB, &pin));
		memset(bytes + to, 0x11, MIB);
		got = pread(file, bytes + to, MIB, 0);
		if (got < 0)
			CHECK(errno == EFAULT);
		CHECK(!pinned || got == (ssize_t)MIB);
		refused += got < 0;
		for (page = 0; got > 0 && page < (size_t)got / PAGE; page++)
			CHECK(is_page(bytes + to + page * PAGE, page));
		if (pin)
			zfolio_unpin(pin);
	}
	return refused;
}

static void try_served(int file, int serving, int pinned)
{
	zfolio_group *group = NULL;
	zfolio_region *region = NULL;
	pthread_t thread;

	OK(zfolio_group_new(24 * MIB, serving, &group));
	OK(zfolio_reserve(group, REGION, &region));
	bytes = (unsigned char *)zfolio_data(region);
	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	CHECK(pthread_create(&thread, NULL, press, region) == 0);
	read_all(region, file, pinned);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK(pthread_join(thread, NULL) == 0);
	zfolio_free(region);
	zfolio_group_free(group);
}

int main(void)
{
	const char *regions = getenv("ZFOLIO_REGIONS");
	char name[] = "/var/tmp/zfolio-direct-XXXXXX";
	void *copy = NULL;
	size_t page;
	int file = mkostemp(name, O_DIRECT);

	if (file < 0 && errno == EINVAL) {
		fprintf(stderr, "SKIPPED: /var/tmp has no direct reads\n");
		return 0;
	}
	CHECK(file >= 0 && unlink(name) == 0);
	CHECK(posix_memalign(&copy, PAGE, MIB) == 0);
	for (page = 0; page < MIB / PAGE; page++)
		write_page((unsigned char *)copy + page * PAGE, page);
	CHECK(pwrite(file, copy, MIB, 0) == (ssize_t)MIB && fsync(file) == 0);
	free(copy);
	if (!regions || !*regions)
		try_served(file, ZFOLIO_IN_THREAD, 0);
	try_served(file, ZFOLIO_PROTECTED, 0);
	try_served(file, ZFOLIO_PROTECTED, 1);
	return close(file) != 0;
}
