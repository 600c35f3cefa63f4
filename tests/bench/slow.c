/* A filesystem on which each call that names something takes a round trip of SLOW_US microseconds, below SLOW_ROOT;
 * preloaded into a process and those that it starts. It stands in for a network filesystem whose client knows nothing
 * by heart, which is the worst that one can be. SLOW_COUNT names a file that gets a line for each such call. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void trip(int at, const char *path) {
    const char *root = getenv("SLOW_ROOT"), *us = getenv("SLOW_US"), *count = getenv("SLOW_COUNT");
    char directory[PATH_MAX], link[64];
    if (!root || !us || !path) return;
    const char *where = path;
    if (path[0] != '/') {
        snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
        ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, directory, sizeof directory - 1);
        if (size < 0) return;
        directory[size] = 0;
        where = directory;
    }
    if (strncmp(where, root, strlen(root))) return;
    struct timespec pause = {0, atol(us) * 1000};
    syscall(SYS_nanosleep, &pause, NULL);
    if (count) {
        int file = syscall(SYS_openat, AT_FDCWD, count, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        char line[2 * PATH_MAX];
        int size = snprintf(line, sizeof line, "%s/%s\n", path[0] == '/' ? "" : where, path);
        if (file >= 0) { syscall(SYS_write, file, line, size); syscall(SYS_close, file); }
    }
}

#define OPEN(named)                                                   \
    int named(const char *path, int flags, ...) {                     \
        va_list rest; va_start(rest, flags);                          \
        int mode = va_arg(rest, int); va_end(rest);                   \
        trip(AT_FDCWD, path);                                         \
        return syscall(SYS_openat, AT_FDCWD, path, flags, mode);      \
    }
#define OPENAT(named)                                                 \
    int named(int at, const char *path, int flags, ...) {             \
        va_list rest; va_start(rest, flags);                          \
        int mode = va_arg(rest, int); va_end(rest);                   \
        trip(at, path);                                               \
        return syscall(SYS_openat, at, path, flags, mode);            \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

int fstatat(int at, const char *path, struct stat *status, int flags) {
    if (path && path[0]) trip(at, path);
    return syscall(SYS_newfstatat, at, path, status, flags);
}
int fstatat64(int at, const char *path, struct stat64 *status, int flags) {
    return fstatat(at, path, (struct stat *)status, flags);
}
int stat(const char *path, struct stat *status) { return fstatat(AT_FDCWD, path, status, 0); }
int lstat(const char *path, struct stat *status) { return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW); }
int stat64(const char *path, struct stat64 *status) { return fstatat64(AT_FDCWD, path, status, 0); }
int lstat64(const char *path, struct stat64 *status) { return fstatat64(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW); }

DIR *opendir(const char *path) {
    DIR *(*real)(const char *) = (DIR *(*)(const char *))dlsym(RTLD_NEXT, "opendir");
    trip(AT_FDCWD, path);
    return real(path);
}
ssize_t readlink(const char *path, char *link, size_t size) {
    trip(AT_FDCWD, path);
    return syscall(SYS_readlinkat, AT_FDCWD, path, link, size);
}
int access(const char *path, int mode) {
    trip(AT_FDCWD, path);
    return syscall(SYS_faccessat, AT_FDCWD, path, mode);
}
FILE *fopen(const char *path, const char *mode) {
    FILE *(*real)(const char *, const char *) = (FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, "fopen");
    trip(AT_FDCWD, path);
    return real(path, mode);
}
FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }
