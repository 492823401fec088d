/* Every byte of a region of several times the limit, in order and at random,
 * and what the figures say of it. */
#include "test.h"

int main(void)
{
	zfolio_group *group = NULL;
	zfolio_region *region = NULL;
	zfolio_stats stats;
	unsigned char *bytes;
	size_t page, pages = 48 * MIB / PAGE;

	OK(zfolio_group_new(8 * MIB, ZFOLIO_IN_THREAD, &group));
	OK(zfolio_reserve(group, 48 * MIB, &region));
	zfolio_group_free(group); /* the region has it still */
	bytes = (unsigned char *)zfolio_data(region);
	CHECK((uintptr_t)bytes % (2 * MIB) == 0);
	CHECK(zfolio_len(region) == 48 * MIB);

	for (page = 0; page < pages; page++) {
		CHECK(bytes[page * PAGE + 77] == 0);
		write_page(bytes + page * PAGE, page + 1);
	}
	for (page = 0; page < pages; page++)
		CHECK(is_page(bytes + page * PAGE, page + 1));
	for (page = 0; page < 4000; page++) {
		size_t at = mix(page) % pages;
		CHECK(is_page(bytes + at * PAGE, at + 1));
	}
	OK(zfolio_discard(region, 4 * MIB + 1, 2 * MIB));
	CHECK(is_page(bytes + 4 * MIB, 4 * MIB / PAGE + 1));
	CHECK(bytes[4 * MIB + PAGE] == 0 && bytes[6 * MIB - 1] == 0);
	CHECK(is_page(bytes + 6 * MIB, 6 * MIB / PAGE + 1));
	OK(zfolio_cold(region, 0, MIB));
	OK(zfolio_willneed(region, 0, MIB));
	CHECK(is_page(bytes, 1));
	zfolio_free(region);

	/* The group that regions share. */
	OK(zfolio_limit(16 * MIB));
	OK(zfolio_reserve(NULL, 40 * MIB, &region));
	bytes = (unsigned char *)zfolio_data(region);
	for (page = 0; page < 40 * MIB / PAGE; page++)
		write_page(bytes + page * PAGE, page);
	stats.size = sizeof stats;
	OK(zfolio_group_stats(NULL, &stats));
	CHECK(stats.high == 16 * MIB && stats.pages_out > 0);
	CHECK(stats.used > 0 && stats.used < 40 * MIB);
	/* A caller of an older header has room for less. */
	memset(&stats, 0xee, sizeof stats);
	stats.size = offsetof(zfolio_stats, pool);
	OK(zfolio_group_stats(NULL, &stats));
	CHECK(stats.high == 16 * MIB && stats.pool == 0xeeeeeeeeeeeeeeeeu);
	CHECK(zfolio_limit(4096 * MIB) == ZFOLIO_LIMIT_IS_SET);
	OK(zfolio_limit(32 * MIB));
	OK(zfolio_limit(12 * MIB));
	for (page = 0; page < 40 * MIB / PAGE; page++)
		CHECK(is_page(bytes + page * PAGE, page));
	zfolio_free(region);
	return 0;
}
