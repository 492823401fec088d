/* What cannot be done is a code, and a code is a sentence. */
#include "test.h"

int main(void)
{
	zfolio_group *group = NULL;
	zfolio_region *region = NULL;
	zfolio_pin *pin = NULL;
	zfolio_stats stats;
	int code;

	CHECK(zfolio_version() == ZFOLIO_VERSION);
	CHECK(zfolio_group_new(1, ZFOLIO_IN_THREAD, &group) == ZFOLIO_BAD_LIMIT);
	CHECK(group == NULL);
	CHECK(zfolio_group_new(8 * MIB, 77, &group) == ZFOLIO_BAD_ARGUMENT);
	CHECK(zfolio_group_new(8 * MIB, 0, NULL) == ZFOLIO_BAD_ARGUMENT);
	OK(zfolio_group_new(8 * MIB, ZFOLIO_IN_THREAD, &group));
	CHECK(zfolio_reserve(group, 0, &region) == ZFOLIO_EMPTY);
	CHECK(zfolio_reserve(group, SIZE_MAX, &region) == ZFOLIO_TOO_LARGE);
	CHECK(zfolio_reserve(group, (size_t)1 << 60, &region) ==
	      ZFOLIO_TOO_LARGE);
	CHECK(region == NULL);
	CHECK(zfolio_reserve(group, MIB, NULL) == ZFOLIO_BAD_ARGUMENT);
	OK(zfolio_reserve(group, 6 * MIB, &region));
	CHECK(zfolio_pin_range(region, 6 * MIB, 1, &pin) == ZFOLIO_OUT_OF_RANGE);
	CHECK(zfolio_pin_range(region, 2, SIZE_MAX, &pin) ==
	      ZFOLIO_OUT_OF_RANGE);
	CHECK(zfolio_pin_range(region, 0, 5 * MIB, &pin) ==
	      ZFOLIO_PINNED_TOO_MUCH);
	CHECK(zfolio_pin_range(NULL, 0, 1, &pin) == ZFOLIO_BAD_ARGUMENT);
	CHECK(pin == NULL);
	CHECK(zfolio_cold(region, 1, 6 * MIB) == ZFOLIO_OUT_OF_RANGE);
	CHECK(zfolio_willneed(NULL, 0, 1) == ZFOLIO_BAD_ARGUMENT);
	CHECK(zfolio_group_stats(group, NULL) == ZFOLIO_BAD_ARGUMENT);
	stats.size = 0;
	CHECK(zfolio_group_stats(group, &stats) == ZFOLIO_BAD_ARGUMENT);
	CHECK(zfolio_data(NULL) == NULL && zfolio_len(NULL) == 0);
	zfolio_unpin(NULL);
	zfolio_free(NULL);
	zfolio_group_free(NULL);
	zfolio_free(region);
	zfolio_group_free(group);
	for (code = ZFOLIO_OTHER; code <= ZFOLIO_OK; code++) {
		CHECK(strlen(zfolio_message(code)) > 5);
		CHECK(strcmp(zfolio_message(code), zfolio_message(1)) != 0);
	}
	return 0;
}
