// Calls about files, with all that they point to out of memory, in both directions.
#include "inthread_kit.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <linux/fs.h>
#include <linux/fiemap.h>

static char dir[] = "/tmp/zfolio-files-XXXXXX";

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int new_file(const char *name) {
    int file = open(in_dir(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    SETUP(file >= 0);
    return file;
}

static void begin(void) {
    strcpy(dir, "/tmp/zfolio-files-XXXXXX");
    SETUP(mkdtemp(dir) != NULL);
}

static void end(void) {
    DIR *all = opendir(dir);
    SETUP(all != NULL);
    for (struct dirent *entry; (entry = readdir(all));)
        if (entry->d_name[0] != '.')
            SETUP(unlinkat(dirfd(all), entry->d_name, entry->d_type == DT_DIR ? AT_REMOVEDIR : 0) == 0);
    closedir(all);
    SETUP(rmdir(dir) == 0);
}

static void paths(void) {
    begin();
    close(new_file("a"));
    char *a = text(in_dir("a")), *b = text(in_dir("b")), *c = text(in_dir("c")), *d = text(in_dir("d"));
    struct stat *about = place(sizeof *about);
    struct statx *more = place(sizeof *more);
    struct statfs *fs = place(sizeof *fs);
    struct timespec *times = place(2 * sizeof *times);
    char *link_text = place(200);
    times[0] = (struct timespec){1000, 0}, times[1] = (struct timespec){2000, 500};
    out();
    RIGHT(link(a, b) == 0);
    out();
    RIGHT(symlink(a, c) == 0);
    out();
    RIGHT(readlink(c, link_text, 200) == (ssize_t)strlen(a) && memcmp(link_text, a, strlen(a)) == 0);
    out();
    RIGHT(utimensat(AT_FDCWD, a, times, 0) == 0);
    out();
    RIGHT(stat(b, about) == 0 && about->st_nlink == 2 && about->st_mtim.tv_nsec == 500);
    out();
    RIGHT(lstat(c, about) == 0 && S_ISLNK(about->st_mode));
    out();
    RIGHT(statx(AT_FDCWD, a, 0, STATX_ALL, more) == 0 && more->stx_mtime.tv_sec == 2000);
    out();
    RIGHT(rename(b, d) == 0 && access(b, F_OK) == -1 && errno == ENOENT);
    out();
    RIGHT(faccessat(AT_FDCWD, d, R_OK, 0) == 0 && truncate(d, 12345) == 0);
    out();
    RIGHT(fstatat(AT_FDCWD, a, about, 0) == 0 && about->st_size == 12345);
    out();
    RIGHT(chmod(a, 0644) == 0 && statfs(a, fs) == 0 && fs->f_bsize > 0);
    out();
    RIGHT(mkdir(b, 0700) == 0 && chdir(b) == 0);
    char *where = place(200);
    out();
    RIGHT(getcwd(where, 200) && strcmp(where, b) == 0 && chdir("/") == 0);
    out();
    RIGHT(unlink(c) == 0 && unlink(d) == 0 && rmdir(b) == 0);
    struct {
        uint64_t flags, mode, resolve;
    } how = {O_RDONLY, 0, 0}, *how_out = put(&how, sizeof how);
    out();
    int file = (int)syscall(437, AT_FDCWD, a, how_out, sizeof how);
    RIGHT(file >= 0 && close(file) == 0);
    // Strings that do not end where memory does, or are not there.
    char *at_end = map_new(3 * PAGE);
    SETUP(mprotect(at_end + 2 * PAGE, PAGE, PROT_NONE) == 0);
    memset(at_end, 'x', 2 * PAGE);
    RIGHT(open(at_end + 2 * PAGE - 20, O_RDONLY) == -1 && errno == EFAULT);
    RIGHT(open(at_end, O_RDONLY) == -1 && errno == ENAMETOOLONG);
    strcpy(at_end + 2 * PAGE - strlen(a) - 1, a);
    RIGHT((file = open(at_end + 2 * PAGE - strlen(a) - 1, O_RDONLY)) >= 0 && close(file) == 0);
    SETUP(munmap(at_end, 3 * PAGE) == 0);
    end();
}

static void listings(void) {
    begin();
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%03d", i);
        close(new_file(name));
    }
    int all = open(dir, O_RDONLY | O_DIRECTORY), found = 0;
    char *entries = area + 8 * PAGE;
    for (long got;;) {
        out();
        got = syscall(SYS_getdents64, all, entries, 20000);
        RIGHT(got >= 0);
        if (got == 0)
            break;
        for (long at = 0; at < got; at += *(unsigned short *)(entries + at + 16))
            found += strncmp(entries + at + 19, "file-", 5) == 0;
    }
    RIGHT(found == 300);
    close(all);
    int file = new_file("with");
    char *name = text("user.zfolio"), *value = place(3000), *list = place(3000);
    memset(value, 'v', 3000);
    out();
    int set = fsetxattr(file, name, value, 3000, 0);
    RIGHT(set == 0 || errno == ENOTSUP || errno == ENOSPC);
    if (set == 0) {
        memset(value, 0, 3000);
        out();
        RIGHT(fgetxattr(file, name, value, 3000) == 3000 && value[0] == 'v' && value[2999] == 'v');
        out();
        RIGHT(flistxattr(file, list, 3000) >= 12);
    }
    struct file_handle *handle = place(sizeof *handle + 128);
    handle->handle_bytes = 128;
    char *path = text(in_dir("with"));
    int *mount_id = place(4);
    out();
    int named = name_to_handle_at(AT_FDCWD, path, handle, mount_id, 0);
    RIGHT(named == 0 ? handle->handle_bytes > 0 && *mount_id > 0 : errno == EOPNOTSUPP || errno == EPERM);
    close(file);
    end();
}

static void vectors(void) {
    begin();
    int file = new_file("v");
    fill_range(area, 200, 100);
    struct iovec *from = place(40 * sizeof *from), *to = (struct iovec *)(area + 250 * PAGE - 40);
    from = (struct iovec *)(area + 240 * PAGE - 40);
    for (int i = 0; i < 20; i++) {
        from[i] = (struct iovec){area + i * 5 * PAGE, PAGE};
        to[i] = (struct iovec){area + (100 + i * 5) * PAGE, PAGE};
    }
    out();
    RIGHT(pwritev2(file, from, 20, 0, 0) == 20 * PAGE);
    out();
    RIGHT(preadv2(file, to, 20, 0, 0) == 20 * PAGE);
    for (int i = 0; i < 20; i++)
        check_page(area + (100 + i * 5) * PAGE, 100 + i * 5, "through preadv2");
    // Overlapping: the later part of the file wins.
    for (int i = 0; i < 3; i++)
        to[i] = (struct iovec){area + 150 * PAGE, PAGE};
    out();
    RIGHT(preadv(file, to, 3, 0) == 3 * PAGE);
    check_page(area + 150 * PAGE, 110, "read over itself");
    // A vector that is not there, behind some that are: short, or refused.
    to[1].iov_base = (void *)16;
    out();
    RIGHT(preadv(file, to, 3, 0) == PAGE);
    check_page(area + 150 * PAGE, 100, "read before a fault");
    to[0].iov_base = (void *)16;
    RIGHT(preadv(file, to, 1, 0) == -1 && errno == EFAULT);
    RIGHT(readv(file, to, 2000) == -1 && errno == EINVAL);
    RIGHT(readv(file, (void *)0x7000dead0000, 2) == -1 && errno == EFAULT);
    // Within the buffer: the vectors themselves are overwritten by what they read.
    to[0] = (struct iovec){to, 64}, to[1] = (struct iovec){area, 64};
    out();
    RIGHT(preadv(file, to, 2, 0) == 128);
    close(file);
    end();
}

static void between(void) {
    begin();
    int one = new_file("one"), two = new_file("two"), fds[2], other[2];
    fill_range(area, 64, 900);
    SETUP(pipe(fds) == 0 && pipe(other) == 0 && write(one, area, 64 * PAGE) == 64 * PAGE);
    loff_t *from = put(&(loff_t){PAGE}, 8), *to = put(&(loff_t){0}, 8);
    memset(area, 0, 64 * PAGE);
    from = (loff_t *)(area + 100 * PAGE - 8), to = (loff_t *)(area + 120 * PAGE);
    *from = PAGE, *to = 0;
    out();
    RIGHT(splice(one, from, fds[1], NULL, 4 * PAGE, 0) == 4 * PAGE && *from == 5 * PAGE);
    out();
    RIGHT(tee(fds[0], other[1], 4 * PAGE, 0) == 4 * PAGE);
    out();
    RIGHT(splice(fds[0], NULL, two, to, 4 * PAGE, 0) == 4 * PAGE && *to == 4 * PAGE);
    out();
    RIGHT(read(other[0], area, 4 * PAGE) == 4 * PAGE);
    check_range(area, 4, 901, "through tee");
    *from = 8 * PAGE, *to = 0;
    out();
    ssize_t copied = copy_file_range(one, from, two, to, 8 * PAGE, 0);
    RIGHT(copied == 8 * PAGE ? *from == 16 * PAGE && *to == 8 * PAGE : errno == EXDEV);
    off_t *offset = (off_t *)(area + 130 * PAGE - 4);
    *offset = 2 * PAGE;
    RIGHT(lseek(two, 0, SEEK_SET) == 0);
    out();
    RIGHT(sendfile(two, one, offset, 6 * PAGE) == 6 * PAGE && *offset == 8 * PAGE);
    out();
    RIGHT(pread(two, area, 6 * PAGE, 0) == 6 * PAGE);
    check_range(area, 6, 902, "through sendfile");
    for (int i = 0; i < 2; i++)
        close(fds[i]), close(other[i]);
    close(one), close(two);
    end();
}

static void controls(void) {
    begin();
    int file = new_file("locked"), fds[2];
    SETUP(pipe(fds) == 0 && write(fds[1], "12345", 5) == 5);
    int *count = place(4);
    out();
    RIGHT(ioctl(fds[0], FIONREAD, count) == 0 && *count == 5);
    int *on = put(&(int){1}, 4);
    out();
    RIGHT(ioctl(fds[0], FIONBIO, on) == 0 && (fcntl(fds[0], F_GETFL) & O_NONBLOCK));
    struct winsize *size = place(sizeof *size);
    out();
    RIGHT(ioctl(fds[0], TIOCGWINSZ, size) == -1 && errno == ENOTTY);
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master >= 0) {
        *size = (struct winsize){33, 99, 0, 0};
        out();
        RIGHT(ioctl(master, TIOCSWINSZ, size) == 0);
        *size = (struct winsize){0};
        out();
        RIGHT(ioctl(master, TIOCGWINSZ, size) == 0 && size->ws_row == 33 && size->ws_col == 99);
        close(master);
    }
    struct flock *lock = put(&(struct flock){.l_type = F_WRLCK, .l_start = 10, .l_len = 20}, sizeof *lock);
    out();
    RIGHT(fcntl(file, F_SETLK, lock) == 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        lock->l_type = F_RDLCK, lock->l_pid = 0;
        out();
        RIGHT(fcntl(file, F_GETLK, lock) == 0 && lock->l_type == F_WRLCK && lock->l_pid == parent);
        RIGHT(lock->l_start == 10 && lock->l_len == 20);
        *lock = (struct flock){.l_type = F_WRLCK, .l_start = 100, .l_len = 20};
        out();
        RIGHT(fcntl(file, F_OFD_SETLK, lock) == 0);
        _exit(0);
    }
    expect_child(child, "locks");
    struct f_owner_ex *owner = put(&(struct f_owner_ex){F_OWNER_PID, parent}, sizeof *owner);
    out();
    RIGHT(fcntl(fds[0], F_SETOWN_EX, owner) == 0);
    owner->pid = 0;
    out();
    RIGHT(fcntl(fds[0], F_GETOWN_EX, owner) == 0 && owner->pid == parent);
    uint64_t *hint = put(&(uint64_t){2}, 8);
    out();
    RIGHT(fcntl(file, F_SET_RW_HINT, hint) == 0 || errno == EPERM || errno == EINVAL);
    close(file), close(fds[0]), close(fds[1]);
    end();
}

// The extents of a file lie behind the structure that the number of the ioctl tells of.
static void extents(void) {
    begin();
    int file = new_file("holes");
    enum { EXTENTS = 200 };
    for (int i = 0; i < EXTENTS; i++)
        SETUP(pwrite(file, "x", 1, (off_t)i * 64 * PAGE) == 1);
    SETUP(fsync(file) == 0);
    size_t bytes = sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent);
    struct fiemap *map = malloc(bytes), *far = (struct fiemap *)(area + 3 * PAGE - 64);
    memset(map, 0, bytes);
    map->fm_length = FIEMAP_MAX_OFFSET, map->fm_extent_count = EXTENTS;
    memset(area, 0, AREA * PAGE);
    memcpy(far, map, sizeof *map);
    static char stays[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
    memcpy(stays, map, sizeof *map);
    int bare = ioctl(file, FS_IOC_FIEMAP, stays), bare_errno = errno;
    out();
    RIGHT(ioctl(file, FS_IOC_FIEMAP, far) == bare && (bare == 0 || errno == bare_errno));
    RIGHT(bare != 0 || memcmp(far, stays, bytes) == 0);
    free(map);
    close(file);
    end();
}

// What is long comes whole from where it comes whole bare.
static void whole(void) {
    char *buffer = map_new(8 << 20);
    memset(buffer, 1, 8 << 20);
    out_of_memory(buffer, (8 << 20) / PAGE, 2);
    int zeros = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY);
    SETUP(zeros >= 0 && random >= 0);
    RIGHT(read(zeros, buffer, 4 << 20) == 4 << 20);
    for (size_t i = 0; i < 4 << 20; i++)
        RIGHT(buffer[i] == 0);
    RIGHT(read(random, buffer, 2 << 20) == 2 << 20);
    RIGHT(syscall(SYS_getrandom, buffer, 3 << 20, 0) == 3 << 20);
    close(zeros), close(random);
    SETUP(munmap(buffer, 8 << 20) == 0);
}

static int appended;

static void *appends(void *arg) {
    enum { RECORD = 700 << 10 };
    char *record = map_new(RECORD);
    memset(record, *(char *)arg, RECORD);
    for (int i = 0; i < 8; i++)
        RIGHT(write(appended, record, RECORD) == RECORD);
    return NULL;
}

// A write to the end of a file is one: what two threads write does not mix.
static void appending(void) {
    begin();
    appended = open(in_dir("log"), O_RDWR | O_CREAT | O_APPEND, 0600);
    SETUP(appended >= 0);
    pthread_t a, b;
    SETUP(pthread_create(&a, NULL, appends, "a") == 0 && pthread_create(&b, NULL, appends, "b") == 0);
    pthread_join(a, NULL), pthread_join(b, NULL);
    char *record = map_new(700 << 10);
    for (int i = 0; i < 16; i++) {
        RIGHT(read(appended, record, 0) == 0);
        RIGHT(pread(appended, record, 700 << 10, (off_t)i * (700 << 10)) == 700 << 10);
        for (size_t at = 1; at < 700 << 10; at++)
            RIGHT(record[at] == record[0]);
    }
    close(appended);
    end();
}

static volatile int too_large;

static void counts(int signal) {
    (void)signal;
    too_large++;
}

// (A write may be made in pieces, of which one may end where the file may not grow.)
static void limited(size_t most) {
    begin();
    int file = new_file("limited");
    size_t all = most + (512 << 10);
    char *bytes = map_new(all);
    too_large = 0;
    struct rlimit old, limit;
    SETUP(getrlimit(RLIMIT_FSIZE, &old) == 0);
    struct sigaction action = {.sa_handler = counts}, before;
    SETUP(sigaction(SIGXFSZ, &action, &before) == 0);
    limit = old, limit.rlim_cur = most;
    SETUP(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    RIGHT(write(file, bytes, all) == (ssize_t)most);
    RIGHT(too_large == 0);
    RIGHT(write(file, bytes, 1) == -1 && errno == EFBIG && too_large == 1);
    SETUP(setrlimit(RLIMIT_FSIZE, &old) == 0 && sigaction(SIGXFSZ, &before, NULL) == 0);
    close(file);
    munmap(bytes, all);
    end();
}

static void file_size_limit(void) {
    for (size_t most = 256 << 10; most <= 2 << 20; most += 256 << 10)
        limited(most);
}

CASES({"paths", paths}, {"listings", listings}, {"vectors", vectors}, {"between", between},
      {"controls", controls}, {"extents", extents}, {"whole", whole}, {"appending", appending},
      {"file_size_limit", file_size_limit})
