// Threads that end: whoever joins them is told by the kernel, which clears a word in
// their descriptors, and does not wait for a page that is out. So that page stays.
#include "check.h"
#include <linux/futex.h>

enum { THREADS = 8 };
static unsigned go;

static void *thread(void *arg) {
    // So that what it uses of its stack lies pages below the descriptor.
    volatile char below[4 * PAGE];
    below[0] = 1;
    (void)below[0];
    while (__atomic_load_n(&go, __ATOMIC_ACQUIRE) == 0)
        syscall(SYS_futex, &go, FUTEX_WAIT, 0, NULL, NULL, 0);
    syscall(SYS_exit, 0);
    return arg;
}

int main(void) {
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        SETUP(pthread_create(&threads[t], NULL, thread, NULL) == 0);
    for (int round = 0; round < 4; round++)
        press();
    for (size_t t = 0; t < THREADS; t++) {
        char *descriptor = (char *)(threads[t] & ~(pthread_t)(PAGE - 1));
        if (resident(descriptor, 1) == 0)
            die(1, "a thread's descriptor", descriptor, "was moved out");
    }
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &go, FUTEX_WAKE, THREADS, NULL, NULL, 0);
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    return 0;
}
