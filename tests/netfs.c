/* A network filesystem's client, as one process sees it below NETFS_ROOT; preloaded. It stands in for NFS, whose client
 * and server can't be had where these tests run.
 *
 * Names are known by heart for NETFS_LAG seconds, also that one is absent, and lead to what they led to before, as
 * NFS's cached directory entries do. A file that is opened is read anew (close-to-open). Who changes a directory itself
 * looks at its names anew. While the file NETFS_STALL exists, every call below the root waits, as on a dead server. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAMES 4096
static struct { ino_t parent; char name[256]; int fd, used, error; double since; } cache[NAMES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int sys_open(int at, const char *path, int flags, int mode) {
    return syscall(SYS_openat, at, path, flags, mode);
}

/* The path below the root that is meant, or 0. */
static int below(int at, const char *path, char *whole) {
    const char *root = getenv("NETFS_ROOT");
    if (!root || !path) return 0;
    if (path[0] == '/') {
        snprintf(whole, PATH_MAX, "%s", path);
    } else {
        char link[64], dir[PATH_MAX];
        if (at == AT_FDCWD) return 0;
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, dir, sizeof dir - 1);
        if (size < 0) return 0;
        dir[size] = 0;
        snprintf(whole, PATH_MAX, "%.2000s/%.2000s", dir, path);
    }
    size_t length = strlen(root);
    return !strncmp(whole, root, length) && whole[length] == '/';
}

static void stall(void) {
    const char *file = getenv("NETFS_STALL");
    while (file && syscall(SYS_faccessat, AT_FDCWD, file, F_OK) == 0) {
        struct timespec pause = {0, 50000000};
        syscall(SYS_nanosleep, &pause, NULL);
    }
}

/* An O_PATH descriptor of a name in a directory, kept; -1 with errno where the name is known to be absent. */
static int entry(int parent, const char *name) {
    struct stat status;
    const char *lag = getenv("NETFS_LAG");
    syscall(SYS_fstat, parent, &status);
    int free = -1;
    for (int at = 0; at < NAMES; at++) {
        if (!cache[at].used) { if (free < 0) free = at; continue; }
        if (cache[at].parent != status.st_ino || strcmp(cache[at].name, name)) continue;
        if (now() - cache[at].since < (lag ? atof(lag) : 0)) { errno = cache[at].error; return cache[at].fd; }
        if (cache[at].fd >= 0) close(cache[at].fd);
        cache[at].used = 0;
        if (free < 0 || at < free) free = at;
    }
    int fd = sys_open(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0), error = fd < 0 ? errno : 0;
    if (free >= 0) {
        cache[free].parent = status.st_ino, cache[free].fd = fd, cache[free].used = 1;
        cache[free].error = error, cache[free].since = now();
        snprintf(cache[free].name, sizeof cache[free].name, "%s", name);
    }
    errno = error;
    return fd;
}

static void forget(int parent) {
    struct stat status;
    if (syscall(SYS_fstat, parent, &status)) return;
    for (int at = 0; at < NAMES; at++)
        if (cache[at].used && cache[at].parent == status.st_ino) {
            if (cache[at].fd >= 0) close(cache[at].fd);
            cache[at].used = 0;
        }
}

/* The directory that a path's last name is in, as this client knows it; its name in `last`. */
static int parent_of(int at, char *path, char **last) {
    static int root = -1;
    const char *top = getenv("NETFS_ROOT");
    if (root < 0) root = fcntl(sys_open(AT_FDCWD, top, O_PATH | O_DIRECTORY | O_CLOEXEC, 0), F_DUPFD_CLOEXEC, 900);
    int directory = root;
    char *rest = path + strlen(top) + 1;
    if (at >= 0) directory = at, rest = path; /* relative to a directory that is open */
    for (char *slash; (slash = strchr(rest, '/')); rest = slash + 1) {
        *slash = 0;
        directory = entry(directory, rest);
        if (directory < 0) return -1;
    }
    *last = rest;
    return directory;
}

#define MINE(at, path)                                                        \
    char whole[PATH_MAX], *name;                                              \
    int mine = below(at, path, whole), relative = mine && (path)[0] != '/';   \
    if (mine) stall();                                                        \
    if (relative) snprintf(whole, sizeof whole, "%s", path)

#define PARENT(at) (parent_of(relative ? (at) : -1, whole, &name))
#define GUARDED(type, ...)               \
    type result;                         \
    pthread_mutex_lock(&lock);           \
    __VA_ARGS__;                         \
    int kept = errno;                    \
    pthread_mutex_unlock(&lock);         \
    errno = kept;                        \
    return result

static int opened(int at, const char *path, int flags, int mode) {
    MINE(at, path);
    if (!mine) return sys_open(at, path, flags, mode);
    GUARDED(int, {
        int parent = PARENT(at), fd;
        if (parent < 0) result = -1;
        else if (flags & O_CREAT && (entry(parent, name) < 0 || flags & O_EXCL)) {
            result = sys_open(parent, name, flags, mode);
            forget(parent);
        } else if ((fd = entry(parent, name)) < 0) result = -1;
        else {
            struct stat status;
            char link[64];
            syscall(SYS_fstat, fd, &status);
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            if (S_ISLNK(status.st_mode)) result = -1, errno = ELOOP;
            else result = sys_open(AT_FDCWD, link, flags & ~(O_NOFOLLOW | O_CREAT), mode);
        }
    });
}

#define OPEN(named)                                   \
    int named(const char *path, int flags, ...) {     \
        va_list rest;                                 \
        va_start(rest, flags);                        \
        int mode = va_arg(rest, int);                 \
        va_end(rest);                                 \
        return opened(AT_FDCWD, path, flags, mode);   \
    }
#define OPENAT(named)                                         \
    int named(int at, const char *path, int flags, ...) {     \
        va_list rest;                                         \
        va_start(rest, flags);                                \
        int mode = va_arg(rest, int);                         \
        va_end(rest);                                         \
        return opened(at, path, flags, mode);                 \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

int fstatat(int at, const char *path, struct stat *status, int flags) {
    MINE(at, path);
    if (!mine) return syscall(SYS_newfstatat, at, path, status, flags);
    GUARDED(int, {
        int parent = PARENT(at), fd = parent < 0 ? -1 : entry(parent, name);
        result = fd < 0 ? -1 : syscall(SYS_newfstatat, fd, "", status, AT_EMPTY_PATH);
    });
}
int fstatat64(int at, const char *path, struct stat64 *status, int flags) {
    return fstatat(at, path, (struct stat *)status, flags);
}
int stat(const char *path, struct stat *status) { return fstatat(AT_FDCWD, path, status, 0); }
int lstat(const char *path, struct stat *status) { return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW); }
int stat64(const char *path, struct stat64 *status) { return fstatat64(AT_FDCWD, path, status, 0); }
int lstat64(const char *path, struct stat64 *status) { return fstatat64(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW); }

/* Changes go to the server, by name, in the directories that this client knows. */
#define CHANGE(at, path, call)                          \
    MINE(at, path);                                     \
    if (!mine) { int parent = at; name = (char *)path; return call; } \
    GUARDED(int, {                                      \
        int parent = PARENT(at);                        \
        result = parent < 0 ? -1 : call;                \
        int error = errno;                              \
        if (parent >= 0) forget(parent);                \
        errno = error;                                  \
    })
int mkdirat(int at, const char *path, mode_t mode) { CHANGE(at, path, syscall(SYS_mkdirat, parent, name, mode)); }
int unlinkat(int at, const char *path, int flags) { CHANGE(at, path, syscall(SYS_unlinkat, parent, name, flags)); }
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int renameat(int from, const char *old, int to, const char *new) {
    char target[PATH_MAX], *last;
    MINE(from, old);
    if (!mine || !below(to, new, target)) return syscall(SYS_renameat2, from, old, to, new, 0);
    if (new[0] != '/') snprintf(target, sizeof target, "%s", new);
    GUARDED(int, {
        int source = PARENT(from), into = parent_of(new[0] != '/' ? to : -1, target, &last);
        result = source < 0 || into < 0 ? -1 : syscall(SYS_renameat2, source, name, into, last, 0);
        int error = errno;
        if (source >= 0) forget(source);
        if (into >= 0) forget(into);
        errno = error;
    });
}
int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }
