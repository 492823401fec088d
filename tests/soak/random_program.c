// A random program: threads and processes that do whatever can be done to memory, and
// know at every moment what theirs must hold.
//
//     random_program --seed S [--ops N] [--threads T] [--touchers R] [--pages P] [--raw PERCENT]
//     random_program ... --without A,B      none of these operations, by children neither
//     random_program ... --vfork-copies     the child of a vfork writes nothing: it has memory of its own
//     random_program ... --print            the operations, one a line
//     random_program ... --replay FILE      those of FILE instead (of the same seed's options)
//
// An operation is a worker, a name and four numbers, which mean something whatever was done
// before: so a list from which some were left out is a program too (soak.py shrinks it).
// Each worker has a window of addresses of its own, at the same place in every run, and does
// its operations in order. Touchers read, and write what is there, anywhere in all windows
// meanwhile, which changes nothing.
//
// Exit status: 0 all was right; 1 a wrong byte; 2 it could not be set up; 3 a call was
// refused that must not be, or the other way; 4 it crashed. Bare it must end with 0.
#include "ops_lock.h"
#include <getopt.h>
#include <malloc.h>
#include <stdatomic.h>
#include <time.h>
#include <ucontext.h>

static const struct { const char *name; void (*run)(worker_t *, const op_t *); unsigned weight; } OPS[] = {
    {"map", op_map, 16},       {"unmap", op_unmap, 6},      {"write", op_write, 22},   {"check", op_check, 14},
    {"protect", op_protect, 8}, {"move", op_move, 10},       {"grow", op_grow, 5},      {"shrink", op_shrink, 2},
    {"away", op_away, 5},      {"attach", op_attach, 2},    {"detach", op_detach, 1},  {"brk", op_brk, 3},
    {"stack", op_stack, 3},    {"discard", op_discard, 8},  {"free", op_free, 4},      {"advise", op_advise, 12},
    {"forkwise", op_forkwise, 2}, {"guard", op_guard, 3},   {"lock", op_lock, 3},      {"lockall", op_lock_all, 1},
    {"remove", op_remove, 2},  {"file", op_file, 7},        {"pipe", op_pipe, 5},      {"remote", op_remote, 4},
    {"probe", op_probe, 2},    {"stones", op_stones, 3},    {"other", op_other, 4},    {"fork", op_fork, 3},
    {"exec", op_exec, 1},      {"peek", op_peek, 1},        {"mutex", op_mutex, 2},
};
enum { OP_COUNT = sizeof OPS / sizeof *OPS };

static const char *op_name(unsigned code) { return OPS[code].name; }

static op_t random_op(uint64_t *state, unsigned worker) {
    static unsigned total;
    if (!total)
        for (unsigned i = 0; i < OP_COUNT; i++)
            total += OPS[i].weight;
    static const uint16_t lengths[] = {1, 16, 64, 128, 512, 1024, 2048, 3000};
    unsigned at = roll(state) % total, code = 0;
    while (at >= OPS[code].weight)
        at -= OPS[code++].weight;
    op_t op = {.worker = worker, .code = code, .at = roll(state) % 1000000};
    op.len = roll(state) % lengths[roll(state) % 8] + 1;
    if (roll(state) % 4 == 0)
        op.at &= ~(roll(state) % 2 ? 15u : 511u);
    op.x = roll(state) % 100000, op.y = roll(state) % 1000000;
    return op;
}

static uint8_t left_out[OP_COUNT];

static void leave_out(char *names) {
    SETUP(asprintf(&without, "%s", names) >= 0); // (the names are taken apart here)
    for (char *name = strtok(names, ","); name; name = strtok(NULL, ","))
        for (unsigned code = 0; code < OP_COUNT; code++)
            left_out[code] |= strcmp(name, OPS[code].name) == 0;
}

static void run_op(worker_t *w, const op_t *op) {
    myself = w;
    pthread_mutex_lock(&w->lock);
    w->now = op;
    OPS[op->code].run(w, op);
    w->now = NULL;
    w->done++;
    pthread_mutex_unlock(&w->lock);
}

// In the child of a fork: its only thread holds the lock already.
static void run_random(worker_t *w, uint64_t seed, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        op_t op = random_op(&seed, w->id);
        w->now = &op;
        if (!left_out[op.code])
            OPS[op.code].run(w, &op);
        w->done++;
    }
    w->now = NULL;
}

static op_t *list;
static size_t list_size;

static void *work(void *arg) {
    worker_t *w = arg;
    for (size_t i = 0; i < list_size; i++)
        if (list[i].worker == w->id && !left_out[list[i].code])
            run_op(w, &list[i]);
    myself = w;
    await_children(w);
    if (keepers[w->id].held)
        end_lock(&keepers[w->id], &(op_t){.y = 1});
    return NULL;
}

static __thread sigjmp_buf *leap; // set while a thread touches what may be unmapped
static atomic_int touching = 1;

static void on_crash(int number, siginfo_t *info, void *context) {
    if (leap)
        siglongjmp(*leap, 1);
    FAIL(CRASHED, "signal %d at %p, instruction %#llx", number, info->si_addr,
         (long long)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
}

static void *touch(void *arg) {
    volatile uint64_t begin = (uintptr_t)arg * 0x1234567ull;
    sigjmp_buf here;
    while (touching) {
        uint64_t state = mix(begin++);
        worker_t *w = &workers[roll(&state) % worker_count];
        char *volatile at = at_page(&w->window, roll(&state) % w->window.pages) + roll(&state) % WORDS * 8;
        unsigned pause = roll(&state) % 8 ? 0 : 300;
        unsigned run = roll(&state) % 16, kind = roll(&state) % 3;
        if (sigsetjmp(here, 1) == 0) {
            leap = &here;
            for (unsigned i = 0; i <= run && at < at_page(&w->window, w->window.pages); i++, at += PAGE)
                if (kind)
                    (void)*(volatile uint64_t *)at;
                else
                    __atomic_fetch_or((uint64_t *)at, 0, __ATOMIC_SEQ_CST);
        }
        leap = NULL;
        usleep(pause);
    }
    return NULL;
}

static area_t area_at(uintptr_t at, size_t pages) {
    return (area_t){.base = (char *)at, .pages = pages, .model = shared_memory(pages * sizeof(page_t) + PAGE)};
}

// Far below where the kernel puts mappings of its own choice: nothing comes into a hole.
static void set_up_worker(unsigned id, size_t pages, size_t heap) {
    worker_t *w = &workers[id];
    w->id = id;
    w->next = (id + 1) << 27 | 8;
    pthread_mutex_init(&w->lock, NULL);
    uintptr_t base = 0x200000000000 + ((uintptr_t)id << 36);
    w->window = area_at(base, pages);
    w->stack = area_at(base + (1ull << 34), 1800);
    if (id == 0) {
        w->heap = area_at(0, heap);
        w->heap.base = (char *)(((uintptr_t)sbrk(0) + PAGE - 1) & -(uintptr_t)PAGE);
        SETUP(brk(w->heap.base) == 0);
    } else {
        w->heap = area_at(0, 0);
    }
    w->copy = file_of(1024);
    char name[] = "soak.XXXXXX";
    int fd = mkstemp(name);
    w->direct = fd < 0 ? -1 : open(name, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd >= 0)
        unlink(name), close(fd);
    op_t op = {.worker = id, .at = 0, .len = pages, .x = 10, .y = 1};
    myself = w, w->now = &op;
    op_map(w, &op); // full of pages, from the start
    w->now = NULL;
}

static void generate(uint64_t seed, unsigned ops) {
    list = shared_memory(sizeof(op_t) * (ops * worker_count + 1));
    for (unsigned i = 0; i < ops; i++)
        for (unsigned id = 0; id < worker_count; id++) {
            uint64_t state = mix(seed * 1000003 + i) + id * 7919;
            list[list_size++] = random_op(&state, id);
        }
}

static void load(const char *path) {
    FILE *file = fopen(path, "r");
    SETUP(file != NULL);
    list = shared_memory(sizeof(op_t) << 20);
    char name[32];
    unsigned worker;
    for (op_t op; fscanf(file, "%u %31s %u %u %u %u", &worker, name, &op.at, &op.len, &op.x, &op.y) == 6;) {
        for (op.code = 0; op.code < OP_COUNT && strcmp(name, OPS[op.code].name); op.code++)
            ;
        if (op.code == OP_COUNT || worker >= worker_count)
            FAIL(SETUP_FAILED, "no such operation: %u %s", worker, name);
        op.worker = worker;
        list[list_size++] = op;
    }
    fclose(file);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"seed", 1, 0, 's'}, {"ops", 1, 0, 'o'}, {"threads", 1, 0, 't'}, {"touchers", 1, 0, 'r'}, {"pages", 1, 0, 'p'},
        {"raw", 1, 0, 'w'}, {"print", 0, 0, 'P'}, {"replay", 1, 0, 'R'}, {"child", 0, 0, 'c'}, {"without", 1, 0, 'W'},
        {"vfork-copies", 0, 0, 'v'}, {0}};
    unsigned long seed = 1, ops = 200, touchers = 0, pages = 4096;
    int print = 0, child = 0;
    const char *replay = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 's': seed = strtoul(optarg, NULL, 0); break;
        case 'o': ops = strtoul(optarg, NULL, 0); break;
        case 't': worker_count = strtoul(optarg, NULL, 0); break;
        case 'r': touchers = strtoul(optarg, NULL, 0); break;
        case 'p': pages = strtoul(optarg, NULL, 0); break;
        case 'w': raw_percent = strtoul(optarg, NULL, 0); break;
        case 'P': print = 1; break;
        case 'R': replay = optarg; break;
        case 'c': child = 1; break;
        case 'W': leave_out(optarg); break;
        case 'v': vfork_copies = 1; break;
        default: return SETUP_FAILED;
        }
    if (worker_count < 1 || worker_count > WORKERS || pages < 64 || optind < argc || touchers > 8)
        FAIL(SETUP_FAILED, "bad arguments: 1 to %d threads, 64 pages or more", WORKERS);
    depth = child; // a program that was started starts no others
    if (replay)
        load(replay);
    else
        generate(seed, ops);
    if (print) {
        for (size_t i = 0; i < list_size; i++)
            printf("%u %s %u %u %u %u\n", list[i].worker, op_name(list[i].code), list[i].at, list[i].len, list[i].x, list[i].y);
        return 0;
    }
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    // What malloc needs from here on, it has: the break is ours to move.
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 4 << 20);
    for (size_t size = 64; size <= 1 << 16; size <<= 10) {
        void *volatile block = malloc(size); // which the compiler would leave out otherwise
        free(block);
    }
    stones = area_at(0x1f0000000000, pages / 4);
    SETUP(mmap(stones.base, stones.pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == stones.base);
    for (unsigned id = 0; id < worker_count; id++)
        set_up_worker(id, pages, 1024);
    set_pages(&stones, 0, stones.pages, (page_t){.kind = ANON, .prot = PROT_READ | PROT_WRITE});
    write_fit(&workers[0], &stones, 0, stones.pages);
    pthread_t threads[WORKERS], beside[8];
    for (size_t i = 0; i < touchers; i++)
        SETUP(pthread_create(&beside[i], NULL, touch, (void *)(seed + i + 1)) == 0);
    for (unsigned id = 1; id < worker_count; id++)
        SETUP(pthread_create(&threads[id], NULL, work, &workers[id]) == 0);
    work(&workers[0]);
    for (unsigned id = 1; id < worker_count; id++)
        pthread_join(threads[id], NULL);
    touching = 0;
    for (size_t i = 0; i < touchers; i++)
        pthread_join(beside[i], NULL);
    for (unsigned id = 0; id < worker_count; id++) {
        area_t *areas[] = {&workers[id].window, &workers[id].heap, &workers[id].stack};
        myself = &workers[id];
        for (unsigned i = 0; i < 3; i++)
            check(areas[i], 0, areas[i]->pages, "at the end");
    }
    check(&stones, 0, stones.pages, "at the end, that nobody writes to");
    return 0;
}
