// Calls between processes and about time, with all that they point to out of memory.
#include "inthread_kit.h"
#include <linux/futex.h>
#include <mqueue.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void system_v(void) {
    enum { SEMAPHORES = 250 };
    int set = semget(IPC_PRIVATE, SEMAPHORES, 0600);
    if (set >= 0) {
        unsigned short *values = (unsigned short *)(area + 2 * PAGE - 300);
        for (int i = 0; i < SEMAPHORES; i++)
            values[i] = (unsigned short)(i + 1);
        out();
        RIGHT(semctl(set, 0, SETALL, values) == 0);
        memset(values, 0, SEMAPHORES * 2);
        out();
        RIGHT(semctl(set, 0, GETALL, values) == 0 && values[0] == 1 && values[249] == 250);
        struct sembuf *ops = (struct sembuf *)(area + 7 * PAGE - 300);
        for (int i = 0; i < 100; i++)
            ops[i] = (struct sembuf){(unsigned short)(100 + i), -1, 0};
        struct timespec *time = put(&(struct timespec){1, 0}, sizeof *time);
        out();
        RIGHT(semop(set, ops, 100) == 0 && semctl(set, 199, GETVAL) == 199);
        out();
        RIGHT(semtimedop(set, ops, 100, time) == 0 && semctl(set, 199, GETVAL) == 198);
        struct semid_ds *about = place(sizeof *about);
        out();
        RIGHT(semctl(set, 0, IPC_STAT, about) == 0 && about->sem_nsems == SEMAPHORES);
        SETUP(semctl(set, 0, IPC_RMID) == 0);
    }
    int queue = msgget(IPC_PRIVATE, 0600);
    if (queue >= 0) {
        long *message = (long *)(area + 12 * PAGE - 20);
        message[0] = 7;
        for (int i = 1; i < 900; i++)
            message[i] = i;
        out();
        RIGHT(msgsnd(queue, message, 899 * 8, 0) == 0);
        memset(message, 0, 900 * 8);
        out();
        RIGHT(msgrcv(queue, message, 899 * 8, 0, 0) == 899 * 8 && message[0] == 7 && message[899] == 899);
        struct msqid_ds *about = place(sizeof *about);
        out();
        RIGHT(msgctl(queue, IPC_STAT, about) == 0 && about->msg_qnum == 0);
        SETUP(msgctl(queue, IPC_RMID, NULL) == 0);
    }
    int shared = shmget(IPC_PRIVATE, 64 * PAGE, 0600);
    if (shared >= 0) {
        char *at = shmat(shared, NULL, 0);
        RIGHT(at != (void *)-1);
        fill_range(at, 64, 400);
        squeeze();
        check_range(at, 64, 400, "shared memory");
        // Over memory that is managed and out.
        char *over = map_new(80 * PAGE);
        fill_range(over, 80, 600);
        out_of_memory(over, 80, 4);
        RIGHT(shmat(shared, over + 8 * PAGE, SHM_REMAP) == over + 8 * PAGE);
        check_range(over, 8, 600, "before shared memory");
        check_range(over + 8 * PAGE, 64, 400, "shared memory over managed");
        check_range(over + 72 * PAGE, 8, 672, "behind shared memory");
        RIGHT(shmdt(over + 8 * PAGE) == 0);
        char *again = map_at(over + 8 * PAGE, 64 * PAGE, MAP_FIXED_NOREPLACE);
        RIGHT(again == over + 8 * PAGE);
        check_zeros(again, 64, "where shared memory was");
        struct shmid_ds *about = place(sizeof *about);
        out();
        RIGHT(shmctl(shared, IPC_STAT, about) == 0 && about->shm_segsz == 64 * PAGE);
        SETUP(shmdt(at) == 0 && shmctl(shared, IPC_RMID, NULL) == 0 && munmap(over, 80 * PAGE) == 0);
    }
}

static void queues(void) {
    char *name = text("/zfolio-inthread-q");
    struct mq_attr *attributes = put(&(struct mq_attr){.mq_maxmsg = 4, .mq_msgsize = 5000}, sizeof *attributes);
    out();
    int queue = (int)syscall(SYS_mq_open, name + 1, 0102, 0600, attributes);
    if (queue < 0)
        return; // no mqueue here, or not for us
    RIGHT(syscall(SYS_mq_unlink, name + 1) == 0);
    char *message = (char *)(area + 20 * PAGE - 77);
    memset(message, 'q', 5000);
    out();
    RIGHT(syscall(SYS_mq_timedsend, queue, message, 5000, 3, NULL) == 0);
    memset(message, 0, 5000);
    unsigned *priority = place(4);
    struct timespec *time = put(&(struct timespec){4000000000, 0}, sizeof *time);
    out();
    RIGHT(syscall(SYS_mq_timedreceive, queue, message, 5000, priority, time) == 5000 && *priority == 3);
    RIGHT(message[0] == 'q' && message[4999] == 'q');
    out();
    RIGHT(syscall(SYS_mq_getsetattr, queue, NULL, attributes) == 0 && attributes->mq_msgsize == 5000);
    close(queue);
}

static uint32_t *wakes_it;

static void *wakes(void *arg) {
    usleep(20000);
    __atomic_store_n(wakes_it, 1, __ATOMIC_SEQ_CST);
    while (syscall(SYS_futex, wakes_it, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0) < 1)
        usleep(1000);
    return arg;
}

static void futexes(void) {
    struct waiter {
        uint64_t value, address;
        uint32_t flags, reserved;
    } *waiters = (struct waiter *)(area + 5 * PAGE - 300);
    for (int i = 0; i < 100; i++) {
        uint32_t *word = (uint32_t *)(area + (10 + i) * PAGE + 4 * i);
        *word = 0;
        waiters[i] = (struct waiter){0, (uintptr_t)word, 2 | 128, 0};
    }
    pthread_t thread;
    wakes_it = (uint32_t *)(uintptr_t)waiters[60].address;
    struct timespec *time = place(sizeof *time);
    out();
    SETUP(pthread_create(&thread, NULL, wakes, NULL) == 0);
    clock_gettime(CLOCK_MONOTONIC, time);
    time->tv_sec += 10;
    long woken = syscall(449, waiters, 100, 0, time, CLOCK_MONOTONIC);
    RIGHT(woken == 60 || (woken == -1 && (errno == ENOSYS || errno == EPERM || errno == EAGAIN)));
    if (woken < 0) // then nobody waits: let it go
        while (pthread_tryjoin_np(thread, NULL) != 0) {
            struct timespec soon = {0, 1000000};
            syscall(SYS_futex, wakes_it, FUTEX_WAIT_PRIVATE, 1, &soon, NULL, 0);
        }
    else
        pthread_join(thread, NULL);
    waiters[3].value = 5;
    out();
    RIGHT(syscall(449, waiters, 100, 0, time, CLOCK_MONOTONIC) == -1 && (errno == EAGAIN || errno == ENOSYS || errno == EPERM));
    uint32_t *word = place(4), *other = place(4);
    *word = 9, *other = 0;
    time->tv_sec = 0, time->tv_nsec = 2000000;
    out();
    RIGHT(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 9, time, NULL, 0) == -1 && errno == ETIMEDOUT);
    out();
    RIGHT(syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 1, 1L, other, 9) == 0);
    out();
    RIGHT(syscall(SYS_futex, word, FUTEX_WAKE_OP_PRIVATE, 1, 1L, other,
                  FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)) == 0);
    RIGHT(*other == 3);
    RIGHT(syscall(SYS_futex, 4096L * 7, FUTEX_WAIT_PRIVATE, 9, time, NULL, 0) == -1 && errno == EFAULT);
    // Shared ones, on memory that children share by copy: a key of its own for each.
    *word = 0;
    out();
    RIGHT(syscall(SYS_futex, word, FUTEX_WAIT, 0, time, NULL, 0) == -1 && errno == ETIMEDOUT);
    *word = 0;
    out();
    RIGHT(syscall(SYS_futex, word, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0);
    RIGHT((*word & FUTEX_TID_MASK) == (uint32_t)syscall(SYS_gettid));
    out();
    RIGHT(syscall(SYS_futex, word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0 && *word == 0);
}

static volatile int expired, notified;

static void expires(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if (info->si_code != SI_TIMER || info->si_value.sival_int != 4711)
        die(1, "a timer", NULL, "brought another value");
    expired++;
}

static void is_notified(union sigval value) { notified += value.sival_int; }

static void timers(void) {
    struct sigaction action = {.sa_sigaction = expires, .sa_flags = SA_SIGINFO};
    SETUP(sigaction(SIGRTMIN, &action, NULL) == 0);
    struct sigevent *event = place(sizeof *event);
    memset(event, 0, sizeof *event);
    event->sigev_notify = SIGEV_SIGNAL, event->sigev_signo = SIGRTMIN, event->sigev_value.sival_int = 4711;
    timer_t *timer = place(sizeof *timer);
    out();
    RIGHT(timer_create(CLOCK_MONOTONIC, event, timer) == 0);
    struct itimerspec *spec = put(&(struct itimerspec){{0, 500000}, {0, 500000}}, sizeof *spec);
    struct itimerspec *old = place(sizeof *old);
    out();
    RIGHT(timer_settime(*timer, 0, spec, old) == 0 && old->it_value.tv_nsec == 0);
    out();
    while (expired < 10)
        ;
    out();
    RIGHT(timer_gettime(*timer, old) == 0 && old->it_interval.tv_nsec == 500000 && timer_delete(*timer) == 0);
    memset(event, 0, sizeof *event);
    event->sigev_notify = SIGEV_THREAD, event->sigev_notify_function = is_notified, event->sigev_value.sival_int = 3;
    out();
    RIGHT(timer_create(CLOCK_MONOTONIC, event, timer) == 0);
    *spec = (struct itimerspec){{0, 0}, {0, 1000000}};
    RIGHT(timer_settime(*timer, 0, spec, NULL) == 0);
    while (__atomic_load_n(&notified, __ATOMIC_SEQ_CST) == 0)
        out(), usleep(1000);
    RIGHT(notified == 3 && timer_delete(*timer) == 0);
    struct itimerval *interval = put(&(struct itimerval){{0, 0}, {1000, 0}}, sizeof *interval), *had = place(sizeof *had);
    out();
    RIGHT(setitimer(ITIMER_REAL, interval, had) == 0);
    out();
    RIGHT(getitimer(ITIMER_REAL, had) == 0 && had->it_value.tv_sec >= 990 && alarm(0) > 900);
    struct timespec *time = place(sizeof *time), *rest = place(sizeof *rest);
    for (int clock = 0; clock < 8; clock++) {
        out();
        RIGHT(syscall(SYS_clock_gettime, clock, time) == 0 && time->tv_nsec < 1000000000);
        RIGHT(syscall(SYS_clock_getres, clock, rest) == 0);
    }
    *time = (struct timespec){0, 100000};
    out();
    RIGHT(nanosleep(time, rest) == 0 && clock_nanosleep(CLOCK_MONOTONIC, 0, time, rest) == 0);
    struct timeval *day = place(sizeof *day);
    out();
    RIGHT(syscall(SYS_gettimeofday, day, NULL) == 0 && day->tv_sec > 1000000000);
    struct timex *adjust = place(208);
    memset(adjust, 0, 208);
    out();
    RIGHT(syscall(SYS_adjtimex, adjust) >= 0 || errno == EPERM);
}

static void figures(void) {
    struct utsname *about = place(sizeof *about);
    struct sysinfo *info = place(sizeof *info);
    struct rusage *usage = place(sizeof *usage);
    struct rlimit *limit = place(sizeof *limit);
    struct tms *used = place(sizeof *used);
    out();
    RIGHT(uname(about) == 0 && strcmp(about->sysname, "Linux") == 0 && strlen(about->machine) == 6);
    out();
    RIGHT(sysinfo(info) == 0 && info->totalram > 0 && info->mem_unit > 0);
    out();
    RIGHT(getrusage(RUSAGE_SELF, usage) == 0 && usage->ru_maxrss > 0);
    out();
    RIGHT(getrlimit(RLIMIT_NOFILE, limit) == 0 && limit->rlim_cur > 0 && times(used) != -1);
    int watch = inotify_init1(IN_CLOEXEC);
    char *path = text("/tmp"), *event = place(4000);
    out();
    RIGHT(watch >= 0 && inotify_add_watch(watch, path, IN_CREATE) > 0);
    char made[] = "/tmp/zfolio-made-XXXXXX";
    int file = mkstemp(made);
    SETUP(file >= 0 && close(file) == 0 && unlink(made) == 0);
    out();
    RIGHT(read(watch, event, 4000) > 16 && (((struct inotify_event *)event)->mask & IN_CREATE));
    close(watch);
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    siginfo_t *ended = place(sizeof *ended);
    out();
    RIGHT(syscall(SYS_waitid, P_PID, child, ended, WEXITED, usage) == 0 && ended->si_pid == child);
    RIGHT(ended->si_status == 3 && ended->si_code == CLD_EXITED);
}

static void *presses_on(void *arg) {
    while (!__atomic_load_n((int *)arg, __ATOMIC_RELAXED))
        squeeze();
    return NULL;
}

// Pages go out while the call sleeps; what it then writes must arrive.
static void while_asleep(void) {
    int ends = 0, event = eventfd(0, 0), fds[2];
    pthread_t thread;
    SETUP(event >= 0 && pipe(fds) == 0);
    squeeze();
    SETUP(pthread_create(&thread, NULL, presses_on, &ends) == 0);
    for (int i = 0; i < 6; i++) {
        uint64_t *value = place(8), *word = place(8);
        pid_t child = fork();
        if (child == 0) {
            usleep(50000);
            uint64_t add = 40 + i;
            _exit(write(event, &add, 8) != 8 || write(fds[1], "pipedata", 8) != 8);
        }
        RIGHT(read(event, value, 8) == 8 && *value == 40u + i);
        RIGHT(read(fds[0], word, 8) == 8 && memcmp(word, "pipedata", 8) == 0);
        int *status = place(4);
        RIGHT(waitpid(child, status, 0) == child && *status == 0);
    }
    __atomic_store_n(&ends, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    close(event), close(fds[0]), close(fds[1]);
}

CASES({"system_v", system_v}, {"queues", queues}, {"futexes", futexes}, {"timers", timers},
      {"figures", figures}, {"while_asleep", while_asleep})
