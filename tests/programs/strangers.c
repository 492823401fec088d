// A program for strangers to look into.
//
//   strangers writes   writes the start of each of 16384 pages to /dev/null,
//                      after all were written to
//   strangers holds    64 MiB for two seconds
//   strangers signals  as libcap's psx: a thread signals every thread of the
//                      process, as /proc/self/task lists them, with a signal
//                      that has a handler, and waits until each has run it or
//                      is no more; at the start and when memory is out
//
// Ends with 1 where a byte is wrong.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16384, TASKS = 256 };

static char *memory;

static void fill(void)
{
	memory = malloc((size_t)PAGES * PAGE);
	if (!memory)
		exit(1);
	for (int page = 0; page < PAGES; page++)
		for (int at = 0; at < PAGE; at += 32)
			snprintf(memory + (size_t)page * PAGE + at, 32, "page %d of many ", page);
}

static void check(void)
{
	for (int page = 0; page < PAGES; page++)
		for (int at = 0; at < PAGE; at += 32) {
			char want[32];
			snprintf(want, sizeof want, "page %d of many ", page);
			if (strcmp(memory + (size_t)page * PAGE + at, want))
				exit(1);
		}
}

static atomic_int answered[TASKS], tasks;
static int task_ids[TASKS];

static void handler(int signal)
{
	(void)signal;
	int saved = errno, id = (int)syscall(SYS_gettid);
	for (int task = 0; task < atomic_load(&tasks); task++)
		if (task_ids[task] == id)
			atomic_store(&answered[task], 1);
	errno = saved;
}

static void signal_all(void)
{
	int own = (int)syscall(SYS_gettid), count = 0;
	DIR *list = opendir("/proc/self/task");
	for (struct dirent *entry; list && (entry = readdir(list));) {
		int id = atoi(entry->d_name);
		if (id > 0 && id != own && count < TASKS) {
			task_ids[count] = id;
			atomic_store(&answered[count++], 0);
		}
	}
	closedir(list);
	atomic_store(&tasks, count);
	for (int task = 0; task < count; task++)
		syscall(SYS_tgkill, getpid(), task_ids[task], SIGRTMAX - 3);
	for (int task = 0; task < count; task++)
		while (!atomic_load(&answered[task]) &&
		       !syscall(SYS_tgkill, getpid(), task_ids[task], 0))
			usleep(1000);
	printf("all of %d answered\n", count);
	fflush(stdout);
}

static void *sleeper(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	if (!strcmp(how, "writes")) {
		fill();
		int null = open("/dev/null", O_WRONLY);
		for (int page = 0; page < PAGES; page++)
			if (write(null, memory + (size_t)page * PAGE, 24) != 24)
				return 1;
		check();
		return 0;
	}
	if (!strcmp(how, "holds")) {
		fill();
		sleep(2);
		check();
		return 0;
	}
	if (!strcmp(how, "signals")) {
		struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
		sigaction(SIGRTMAX - 3, &action, NULL);
		pthread_t thread;
		for (int i = 0; i < 3; i++)
			pthread_create(&thread, NULL, sleeper, NULL);
		int early = argc > 2 && !strcmp(argv[2], "early");
		if (early)
			signal_all();
		fill();
		if (!early)
			signal_all();
		signal_all();
		check();
		return 0;
	}
	return 2;
}
