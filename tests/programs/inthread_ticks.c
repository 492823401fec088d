// Threads that run for long are stopped now and then by a signal of ours, which a call that waits must not
// show, whenever it comes: calls that take long before they wait, so that it comes there.
#include "inthread_kit.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { MANY = 3000, LOCKS = 10000 };
static volatile int came;
static volatile int calls;     // the call has begun that an alarm is to come in
static volatile int too_early; // the first alarm came before it
static volatile int tell = -1; // where the second alarm writes

static void counts(int signal) {
    (void)signal;
    int error = errno;
    if (++came == 1)
        too_early = !calls;
    if (came == 2 && tell >= 0)
        RIGHT(write(tell, "u", 1) == 1);
    errno = error;
}

static void alarms(int flags, long first_us, long then_us) {
    struct sigaction action = {.sa_handler = counts, .sa_flags = flags};
    struct itimerval soon = {{then_us / 1000000, then_us % 1000000}, {0, first_us}};
    SETUP(sigaction(SIGALRM, &action, NULL) == 0);
    came = 0;
    SETUP(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void no_alarms(void) {
    struct itimerval never = {{0}, {0}};
    SETUP(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static double processor(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Calls that nothing interrupts end as they would.
static void undisturbed(void) {
    struct rlimit most = {MANY + 100, MANY + 100};
    int fds[2];
    SETUP(setrlimit(RLIMIT_NOFILE, &most) == 0 && pipe(fds) == 0);
    static struct pollfd polled[MANY];
    for (int i = 0; i < MANY; i++)
        polled[i] = (struct pollfd){fds[0], POLLIN, 0};
    struct timespec little = {0, 100000}, left;
    for (double end = processor() + 0.6; processor() < end;) {
        RIGHT(poll(polled, MANY, 1) == 0);
        RIGHT(nanosleep(&little, &left) == 0);
    }
    close(fds[0]), close(fds[1]);
}

// A child that holds locks of many bytes of a file: who asks for the last of them looks at all the
// others first. For each byte that comes it lets go of the last, and takes it again for the next.
static pid_t holder(int file, int asked, int told, const int others[2]) {
    pid_t child = fork();
    SETUP(child >= 0);
    if (child != 0)
        return child;
    // (It ends when its parent has.)
    close(others[0]), close(others[1]);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    for (int i = 0; i <= LOCKS; i++) {
        lock.l_start = 2 * i;
        SETUP(fcntl(file, F_SETLK, &lock) == 0);
    }
    SETUP(write(told, "h", 1) == 1);
    for (char byte; read(asked, &byte, 1) == 1;) {
        lock.l_type = F_UNLCK;
        SETUP(fcntl(file, F_SETLK, &lock) == 0);
        SETUP(read(asked, &byte, 1) == 1);
        lock.l_type = F_WRLCK;
        SETUP(fcntl(file, F_SETLKW, &lock) == 0 && write(told, "h", 1) == 1);
    }
    _exit(0);
}

// An alarm ends a call or does not, as its handler has it, though ours came in the call's beginning.
static void interrupted_as_asked(void) {
    FILE *named = tmpfile();
    int ask[2], told[2];
    char byte;
    SETUP(named != NULL && pipe(ask) == 0 && pipe(told) == 0);
    int file = fileno(named);
    pid_t child = holder(file, ask[0], told[1], (int[]){ask[1], told[0]});
    SETUP(read(told[0], &byte, 1) == 1);
    struct flock last = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * LOCKS, .l_len = 1};
    int late = 0;
    for (double end = processor() + 0.5; processor() < end;) {
        alarms(0, 1500, 1000000);
        calls = 1;
        RIGHT(fcntl(file, F_SETLKW, &last) == -1 && errno == EINTR);
        calls = 0;
        late += came > 1 && !too_early;
        no_alarms();
    }
    // (The second alarm comes a second later: then the call had been made again. Or the first came in the
    // few instructions before the call, as one may bare.)
    RIGHT(late <= 4);
    tell = ask[1];
    for (double end = processor() + 0.3; processor() < end;) {
        alarms(SA_RESTART, 1500, 1500);
        RIGHT(fcntl(file, F_SETLKW, &last) == 0 && came >= 2);
        no_alarms();
        struct flock none = last;
        none.l_type = F_UNLCK;
        RIGHT(fcntl(file, F_SETLK, &none) == 0);
        RIGHT(write(ask[1], "l", 1) == 1 && read(told[0], &byte, 1) == 1);
    }
    tell = -1;
    close(ask[1]), close(told[0]);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    fclose(named);
}

// What waits for SIGSYS gets the program's, and nothing else.
static void waited_for(void) {
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGSYS);
    SETUP(pthread_sigmask(SIG_BLOCK, &set, &old) == 0);
    struct timespec little = {0, 200000};
    siginfo_t info;
    for (double end = processor() + 0.5; processor() < end;) {
        for (double part = processor() + 0.01; processor() < part;)
            ;
        RIGHT(sigtimedwait(&set, &info, &little) == -1 && errno == EAGAIN);
        sigset_t pending;
        RIGHT(sigpending(&pending) == 0 && !sigismember(&pending, SIGSYS));
        SETUP(raise(SIGSYS) == 0);
        RIGHT(sigtimedwait(&set, &info, &little) == SIGSYS && info.si_code == SI_USER);
    }
    RIGHT(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
}

static int sent;
static void notes(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    sent += info->si_code == SI_TIMER && info->si_value.sival_int == 7;
}

// Timers of the program's own, of processor time and with our signal.
static void timers_of_its_own(void) {
    struct sigaction action = {.sa_sigaction = notes, .sa_flags = SA_SIGINFO};
    SETUP(sigaction(SIGSYS, &action, NULL) == 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGSYS, .sigev_value.sival_int = 7};
    struct itimerspec often = {{0, 20000000}, {0, 20000000}};
    timer_t timer;
    SETUP(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0);
    SETUP(timer_settime(timer, 0, &often, NULL) == 0);
    sent = 0;
    for (double end = processor() + 1; processor() < end && sent < 5;)
        squeeze();
    RIGHT(sent >= 5);
    RIGHT(timer_delete(timer) == 0);
    signal(SIGSYS, SIG_DFL);
}

static void *ends_soon(void *arg) {
    for (double end = processor() + 0.002; processor() < end;)
        ;
    return arg;
}

// Threads that end take their timers with them.
static void many_threads(void) {
    for (int turn = 0; turn < 60; turn++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            RIGHT(pthread_create(&threads[i], NULL, ends_soon, NULL) == 0);
        for (int i = 0; i < 4; i++)
            RIGHT(pthread_join(threads[i], NULL) == 0);
    }
    // (One timer each would be 240 by now, and the program's next would have that number.)
    FILE *timers = fopen("/proc/self/timers", "r");
    char line[128];
    int count = 0;
    while (timers != NULL && fgets(line, sizeof line, timers) != NULL)
        count += strncmp(line, "ID:", 3) == 0;
    if (timers != NULL)
        fclose(timers);
    RIGHT(count <= 8);
    squeeze();
}

CASES({"undisturbed", undisturbed}, {"interrupted_as_asked", interrupted_as_asked},
      {"waited_for", waited_for}, {"timers_of_its_own", timers_of_its_own},
      {"many_threads", many_threads})
