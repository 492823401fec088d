/* Pinned bytes can be given to system calls; what is out cannot. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#include "test.h"

static void try_served(int serving)
{
	zfolio_group *group = NULL;
	zfolio_region *region = NULL;
	zfolio_pin *pin = NULL;
	unsigned char *bytes;
	size_t page, pages = 32 * MIB / PAGE, at;
	int file = memfd_create("copy", 0);

	CHECK(file >= 0);
	OK(zfolio_group_new(8 * MIB, serving, &group));
	OK(zfolio_reserve(group, 32 * MIB, &region));
	bytes = (unsigned char *)zfolio_data(region);
	for (page = 0; page < pages; page++)
		write_page(bytes + page * PAGE, page + 3);
	OK(zfolio_cold(region, 0, MIB));
	CHECK(write(file, bytes, MIB) == -1 && errno == EFAULT);
	for (at = 0; at < 32 * MIB; at += MIB) {
		OK(zfolio_pin_range(region, at, MIB, &pin));
		CHECK(write(file, bytes + at, MIB) == (ssize_t)MIB);
		zfolio_unpin(pin);
	}
	memset(bytes, 0x55, 32 * MIB);
	CHECK(lseek(file, 0, SEEK_SET) == 0);
	for (at = 0; at < 32 * MIB; at += MIB) {
		OK(zfolio_pin_range(region, at, MIB, &pin));
		CHECK(read(file, bytes + at, MIB) == (ssize_t)MIB);
		zfolio_unpin(pin);
	}
	for (page = 0; page < pages; page++)
		CHECK(is_page(bytes + page * PAGE, page + 3));
	zfolio_free(region);
	zfolio_group_free(group);
	CHECK(close(file) == 0);
}

int main(void)
{
	try_served(ZFOLIO_IN_THREAD);
	try_served(ZFOLIO_PROTECTED);
	return 0;
}
