// Direct reads and writes of a file system that takes its time: the kernel holds the pages of the
// buffer while a process (here a child) answers. Whoever moves such a page out meanwhile loses what
// is read into it. The file system is FUSE's own protocol, with one file. Needs /dev/fuse and the
// right to mount; where it cannot be had, each case says so and ends well.
#include "inthread_kit.h"
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { PAGES = 32, FILE_BYTES = 64 << 20, ROOT = 1, THE_FILE = 2, WRITES = 1 << 20, MICROSECONDS = 700000 };

static int root = -1; // of the file system, which has no place in the tree: it ends with this
static pid_t server;
static volatile int *slowly; // whether the server takes its time; it shares this

static uint64_t word_at(uint64_t offset) { return mix(offset + 1); }

static void answer(int fd, uint64_t unique, int error, const void *body, size_t bytes) {
    struct fuse_out_header head = {(uint32_t)(sizeof head + bytes), error, unique};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)body, bytes}};
    // (Whoever asked may have gone.)
    (void)!writev(fd, parts, bytes ? 2 : 1);
}

static struct fuse_attr attributes(uint64_t node) {
    struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = PAGE};
    attr.mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0666;
    attr.size = node == ROOT ? 0 : FILE_BYTES;
    return attr;
}

static void serve_write(int fd, uint64_t unique, const struct fuse_write_in *in) {
    const char *data = (const char *)(in + 1);
    int right = 1;
    for (uint64_t at = 0; at < in->size; at += 8)
        right &= *(const uint64_t *)(data + at) == word_at(in->offset + at);
    struct fuse_write_out out = {in->size, 0};
    answer(fd, unique, right ? 0 : -EILSEQ, &out, right ? sizeof out : 0);
}

// One request after another, for ever: the end of the mount ends it. What is read or written by
// the kernel's own buffers (that of a small page of the directory) is answered at once.
static void serve(int fd) {
    static union {
        struct fuse_in_header in;
        char bytes[WRITES + PAGE];
    } request;
    static char data[WRITES];
    for (;;) {
        // A write's bytes are copied as the request is read, so the wait comes before.
        if (*slowly)
            usleep(MICROSECONDS);
        ssize_t got = read(fd, &request, sizeof request);
        if (got < (ssize_t)sizeof request.in) {
            if (got < 0 && errno != ENODEV)
                continue;
            _exit(0);
        }
        const void *body = &request.in + 1;
        uint64_t unique = request.in.unique;
        switch (request.in.opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
            out.max_write = WRITES, out.max_readahead = 0;
            answer(fd, unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out out = {.nodeid = THE_FILE, .entry_valid = 100, .attr_valid = 100};
            out.attr = attributes(THE_FILE);
            answer(fd, unique, strcmp(body, "file") == 0 ? 0 : -ENOENT, &out, sizeof out);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr_valid = 100, .attr = attributes(request.in.nodeid)};
            answer(fd, unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
            answer(fd, unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ: {
            const struct fuse_read_in *in = body;
            for (uint64_t at = 0; at < in->size; at += 8)
                *(uint64_t *)(data + at) = word_at(in->offset + at);
            if (*slowly)
                usleep(MICROSECONDS);
            answer(fd, unique, 0, data, in->size);
            break;
        }
        case FUSE_WRITE: serve_write(fd, unique, body); break;
        case FUSE_FLUSH:
        case FUSE_RELEASE: answer(fd, unique, 0, NULL, 0); break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET: break;
        default: answer(fd, unique, -ENOSYS, NULL, 0);
        }
    }
}

static int is_mounted(void) {
    static int tried;
    if (tried++)
        return root >= 0;
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char at[] = "/tmp/zfolio_fuse_XXXXXX", options[128];
    SETUP(mkdtemp(at) != NULL);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fd, getuid(), getgid());
    if (fd < 0 || mount("zfolio", at, "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        printf("SKIPPED: no FUSE can be mounted here (errno %d)\n", errno);
        rmdir(at);
        return 0;
    }
    slowly = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SETUP(slowly != MAP_FAILED);
    server = fork();
    SETUP(server >= 0);
    if (server == 0)
        serve(fd);
    close(fd);
    root = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    // (However this process ends, nothing is left.)
    SETUP(umount2(at, MNT_DETACH) == 0 && rmdir(at) == 0 && root >= 0);
    return 1;
}

static void end_server(void) {
    if (root >= 0) {
        close(root);
        expect_child(server, "the file system");
    }
}

static volatile int over;

static void *squeezes(void *arg) {
    while (!over)
        squeeze();
    return arg;
}

static void check_words(const char *at, uint64_t offset, size_t bytes, const char *what) {
    for (size_t i = 0; i < bytes; i += 8)
        if (*(const uint64_t *)(at + i) != word_at(offset + i))
            die(1, what, at + i, "a wrong word after a direct transfer");
}

// Transfers while another thread goes over more memory than there may be.
static void transfer(int writes, int was_out, const char *what) {
    if (!is_mounted())
        return;
    int fd = openat(root, "file", O_RDWR);
    SETUP(fd >= 0);
    char *at = map_new((PAGES + 1) * PAGE);
    for (size_t i = 0; i < PAGES * PAGE; i += 8)
        *(uint64_t *)(at + i) = writes ? word_at(i) : i;
    if (was_out)
        out_of_memory(at, PAGES, 4);
    pthread_t thread;
    over = 0, *slowly = 1;
    SETUP(pthread_create(&thread, NULL, squeezes, NULL) == 0);
    ssize_t done = writes ? pwrite(fd, at, PAGES * PAGE, 0) : pread(fd, at, PAGES * PAGE, 0);
    over = 1, *slowly = 0;
    pthread_join(thread, NULL);
    RIGHT(done == PAGES * PAGE);
    check_words(at, 0, PAGES * PAGE, what);
    out_of_memory(at, PAGES, 4);
    check_words(at, 0, PAGES * PAGE, what);
    munmap(at, (PAGES + 1) * PAGE);
    close(fd);
}

static void reads(void) { transfer(0, 0, "read"); }
static void reads_into_what_is_out(void) { transfer(0, 1, "read into what was out"); }
static void writes(void) { transfer(1, 0, "written"); }
static void writes_what_is_out(void) { transfer(1, 1, "written from what was out"); }

int main(int argc, char **argv) {
    static const struct one_case cases[] = {{"reads", reads}, {"reads_into_what_is_out", reads_into_what_is_out},
        {"writes", writes}, {"writes_what_is_out", writes_what_is_out}, {NULL, NULL}};
    int status = run_cases(cases, argc, argv);
    end_server();
    return status;
}
