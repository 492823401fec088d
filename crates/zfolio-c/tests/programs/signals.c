/* A timer's handler that reads the region at any moment, also in malloc and in
 * the library's own calls; threads; and a handler that comes first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include "test.h"

static unsigned char *shared;
static size_t shared_pages;
static volatile sig_atomic_t wrong, reads, first;

static void on_timer(int number)
{
	static uint64_t state;
	size_t page = mix(++state) % shared_pages;
	(void)number;
	if (shared[page * PAGE + 8] != (unsigned char)(page + 1))
		wrong = 1;
	reads = reads + 1;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)context;
	first = first + 1;
	if (zfolio_handle_fault(info->si_addr))
		return;
	signal(number, SIG_DFL);
}

static void *work(void *seed)
{
	zfolio_region *region = NULL;
	size_t turn, page;
	for (turn = 0; turn < 6; turn++) {
		unsigned char *bytes;
		OK(zfolio_reserve(NULL, 4 * MIB, &region));
		bytes = (unsigned char *)zfolio_data(region);
		for (page = 0; page < 4 * MIB / PAGE; page++) {
			void *block = malloc(100 + page);
			memset(block, 1, 100);
			write_page(bytes + page * PAGE, page + turn);
			free(block);
		}
		for (page = 0; page < 4 * MIB / PAGE; page++)
			CHECK(is_page(bytes + page * PAGE, page + turn));
		zfolio_free(region);
	}
	return seed;
}

int main(void)
{
	zfolio_region *region = NULL;
	struct sigaction action;
	struct itimerval every;
	pthread_t threads[2];
	size_t page;
	int i;

	OK(zfolio_limit(8 * MIB));
	OK(zfolio_reserve(NULL, 24 * MIB, &region));
	shared = (unsigned char *)zfolio_data(region);
	shared_pages = 24 * MIB / PAGE;
	for (page = 0; page < shared_pages; page++)
		write_page(shared + page * PAGE, page + 1);

	memset(&action, 0, sizeof action);
	action.sa_handler = on_timer;
	action.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	memset(&every, 0, sizeof every);
	/* (Far longer than a handler takes, or nothing else would run.) */
	every.it_value.tv_usec = every.it_interval.tv_usec = 20000;
	CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
	work(NULL);
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	while (reads < 20)
		;
	memset(&every, 0, sizeof every);
	CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
	CHECK(!wrong);

	/* In front of ours, and asking it. */
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_fault;
	action.sa_flags = SA_SIGINFO;
	sigfillset(&action.sa_mask);
	CHECK(sigaction(SIGBUS, &action, NULL) == 0);
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	OK(zfolio_cold(region, 0, MIB));
	for (page = 0; page < 256; page++)
		CHECK(is_page(shared + page * PAGE, page + 1));
	CHECK(first > 0);
	CHECK(zfolio_handle_fault(&page) == 0);
	zfolio_free(region);
	return 0;
}
