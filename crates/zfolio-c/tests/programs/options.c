/* Groups with options: the cases that every face has (options.txt, the argument). */
#include "test.h"

/* Whether the text has a number above 0 of that name. */
static int counted(const char *text, const char *name)
{
	char quoted[80];
	const char *at;
	snprintf(quoted, sizeof quoted, "\"%s\":", name);
	at = strstr(text, quoted);
	return at && strtoull(at + strlen(quoted), NULL, 10) > 0;
}

static char *statistics(const zfolio_group *group)
{
	int size = zfolio_group_statistics(group, NULL, 0);
	char *text;
	CHECK(size > 0);
	/* (What is counted meanwhile may make it longer.) */
	text = (char *)malloc((size_t)size + 4096);
	CHECK(text);
	CHECK(zfolio_group_statistics(group, text, (size_t)size + 4096) > 0);
	return text;
}

static void one_case(const char *served, char *options, char *counters)
{
	const char *words[8];
	size_t page, pages = 24 * MIB / PAGE, count = 0;
	zfolio_group *group = NULL;
	zfolio_region *region = NULL;
	unsigned char *bytes;
	uint64_t moved = UINT64_MAX, freed = UINT64_MAX;
	char *word, *text;
	int code;

	for (word = strtok(options, " "); word; word = strtok(NULL, " "))
		words[count++] = word;
	words[count] = NULL;
	code = zfolio_group_new_with(8 * MIB, ZFOLIO_IN_THREAD, words, &group);
	/* (Where there is page protection only, that is all that may be refused.) */
	if (code == ZFOLIO_UNAVAILABLE && strncmp(served, "moving", 6) == 0)
		return;
	OK(code);
	OK(zfolio_reserve(group, 24 * MIB, &region));
	bytes = (unsigned char *)zfolio_data(region);
	for (page = 0; page < pages; page++)
		write_page(bytes + page * PAGE, page + 1);
	for (page = 0; page < pages; page++)
		CHECK(is_page(bytes + page * PAGE, page + 1));
	text = statistics(group);
	for (word = strtok(counters, " \n"); word; word = strtok(NULL, " \n")) {
		if (!counted(text, word)) {
			fprintf(stderr, "%s is 0: %s\n", word, text);
			exit(1);
		}
	}
	free(text);
	OK(zfolio_group_compact(group, &moved, &freed));
	CHECK(moved != UINT64_MAX && freed != UINT64_MAX);
	for (page = 0; page < pages; page += 7)
		CHECK(is_page(bytes + page * PAGE, page + 1));
	zfolio_free(region);
	zfolio_group_free(group);
}

int main(int argc, char **argv)
{
	char line[256], *options, *counters, small[8];
	const char *wrong[] = { "folio=3K", NULL };
	const char *none[] = { "high=1G", NULL };
	zfolio_group *group = NULL;
	FILE *cases;
	int seen = 0;

	CHECK(argc == 2);
	cases = fopen(argv[1], "r");
	CHECK(cases);
	while (fgets(line, sizeof line, cases)) {
		if (line[0] == '#')
			continue;
		options = strchr(line, '|');
		CHECK(options);
		*options++ = 0;
		counters = strchr(options, '|');
		CHECK(counters);
		*counters++ = 0;
		one_case(line, options, counters);
		seen++;
	}
	fclose(cases);
	CHECK(seen >= 10);
	CHECK(zfolio_group_new_with(8 * MIB, 0, wrong, &group) == ZFOLIO_BAD_OPTION);
	CHECK(zfolio_group_new_with(8 * MIB, 0, none, &group) == ZFOLIO_BAD_OPTION);
	OK(zfolio_group_new_with(8 * MIB, 0, NULL, &group));
	CHECK(zfolio_group_statistics(group, small, sizeof small) > 7);
	CHECK(strlen(small) == 7);
	CHECK(zfolio_group_statistics(group, NULL, 1) == ZFOLIO_BAD_ARGUMENT);
	zfolio_group_free(group);
	return 0;
}
