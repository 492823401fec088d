// Locks in memory that may be out, held by threads that end.
#ifndef OPS_LOCK_H
#define OPS_LOCK_H
#include "ops_fork.h"
#include <semaphore.h>
#include <time.h>

enum { LOCK_PAGES = 64 };

typedef struct {
    char *memory;            // private: it is managed, and full of locks
    sem_t *told;             // shared: [0] held, [1] end
    pthread_t thread;
    pthread_mutex_t *held;
} keeper_t;
static keeper_t keepers[WORKERS];

static void *keep_lock(void *arg) {
    keeper_t *k = arg;
    int got = pthread_mutex_lock(k->held);
    if (got != 0)
        FAIL(REFUSED, "locking a mutex: error %d", got);
    sem_post(&k->told[0]);
    while (sem_wait(&k->told[1]) != 0)
        ;
    return NULL; // and ends with the lock
}

static void begin_lock(keeper_t *k, const op_t *op) {
    if (!k->memory) {
        k->memory = mmap(NULL, LOCK_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SETUP(k->memory != MAP_FAILED);
        k->told = shared_memory(PAGE);
    }
    pthread_mutexattr_t as;
    pthread_mutexattr_init(&as);
    pthread_mutexattr_setrobust(&as, PTHREAD_MUTEX_ROBUST);
    if (op->x % 2)
        pthread_mutexattr_setprotocol(&as, PTHREAD_PRIO_INHERIT);
    k->held = (pthread_mutex_t *)(k->memory + op->at % LOCK_PAGES * PAGE + op->y % 60 * 64);
    SETUP(pthread_mutex_init(k->held, &as) == 0);
    sem_init(&k->told[0], 0, 0), sem_init(&k->told[1], 0, 0);
    SETUP(pthread_create(&k->thread, NULL, keep_lock, k) == 0);
    while (sem_wait(&k->told[0]) != 0)
        ;
}

static void end_lock(keeper_t *k, const op_t *op) {
    int got = pthread_mutex_trylock(k->held);
    EXPECT(got == EBUSY, "a mutex that a thread holds: error %d", got);
    if (op->y % 2) { // somebody waits for it
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec = (soon.tv_nsec + 2000000) % 1000000000;
        got = pthread_mutex_timedlock(k->held, &soon);
        EXPECT(got == ETIMEDOUT, "waiting for a mutex that a thread holds: error %d", got);
    }
    sem_post(&k->told[1]);
    if (op->y % 3)
        pthread_join(k->thread, NULL), k->thread = 0;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    got = pthread_mutex_timedlock(k->held, &until);
    EXPECT(got == EOWNERDEAD, "a mutex whose owner has ended: error %d", got);
    EXPECT(pthread_mutex_consistent(k->held) == 0 && pthread_mutex_unlock(k->held) == 0, "mending a mutex");
    if (k->thread)
        pthread_join(k->thread, NULL);
    k->held = NULL;
}

static void op_mutex(worker_t *w, const op_t *op) {
    if (depth)
        return;
    keeper_t *k = &keepers[w->id];
    if (k->held)
        end_lock(k, op);
    else
        begin_lock(k, op);
}
#endif
