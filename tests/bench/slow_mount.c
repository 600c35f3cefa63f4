/* A directory as a mounted filesystem each request to which takes a round trip of SLOW_US microseconds: real calls of a
 * real kernel, which knows names and attributes by heart for SLOW_KNOWN_S seconds, as an NFS client does, and asks at
 * each opening. `remote DIRECTORY MOUNTPOINT`; it stays in the foreground, and ends when it is unmounted. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char *source;
static long trip_us;
static double known_s;
static atomic_long trips;

static const char *there(const char *path, char *whole) {
    struct timespec pause = {trip_us / 1000000, trip_us % 1000000 * 1000};
    trips++;
    if (trip_us) nanosleep(&pause, NULL);
    snprintf(whole, PATH_MAX, "%s%s", source, path);
    return whole;
}

#define THERE(path) char whole[PATH_MAX]; there(path, whole)
#define ANSWER(call) return (call) < 0 ? -errno : 0

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config) {
    config->use_ino = 1;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = known_s;
    return NULL;
}
static int get_attributes(const char *path, struct stat *status, struct fuse_file_info *file) {
    if (file) { there(path, (char[PATH_MAX]){0}); ANSWER(fstat(file->fh, status)); }
    THERE(path);
    ANSWER(lstat(whole, status));
}
static int read_link(const char *path, char *target, size_t size) {
    THERE(path);
    ssize_t length = readlink(whole, target, size - 1);
    if (length < 0) return -errno;
    target[length] = 0;
    return 0;
}
static int list(const char *path, void *names, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *file,
                enum fuse_readdir_flags flags) {
    THERE(path);
    DIR *directory = opendir(whole);
    if (!directory) return -errno;
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat status = {.st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type)};
        fill(names, entry->d_name, &status, 0, 0);
    }
    closedir(directory);
    return 0;
}
static int open_file(const char *path, struct fuse_file_info *file) {
    THERE(path);
    int opened = open(whole, file->flags & ~O_NOFOLLOW);
    if (opened < 0) return -errno;
    file->fh = opened;
    return 0;
}
static int create_file(const char *path, mode_t mode, struct fuse_file_info *file) {
    THERE(path);
    int opened = open(whole, file->flags | O_CREAT, mode);
    if (opened < 0) return -errno;
    file->fh = opened;
    return 0;
}
static int read_file(const char *path, char *data, size_t size, off_t at, struct fuse_file_info *file) {
    there(path, (char[PATH_MAX]){0});
    ssize_t length = pread(file->fh, data, size, at);
    return length < 0 ? -errno : length;
}
static int write_file(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *file) {
    there(path, (char[PATH_MAX]){0});
    ssize_t length = pwrite(file->fh, data, size, at);
    return length < 0 ? -errno : length;
}
static int close_file(const char *path, struct fuse_file_info *file) { return close(file->fh); }
static int look_free(const char *path, struct statvfs *space) { THERE(path); ANSWER(statvfs(whole, space)); }
static int make_directory(const char *path, mode_t mode) { THERE(path); ANSWER(mkdir(whole, mode)); }
static int remove_file(const char *path) { THERE(path); ANSWER(unlink(whole)); }
static int remove_directory(const char *path) { THERE(path); ANSWER(rmdir(whole)); }
static int move(const char *from, const char *to, unsigned int flags) {
    char target[PATH_MAX];
    THERE(from);
    snprintf(target, sizeof target, "%s%s", source, to);
    ANSWER(renameat2(AT_FDCWD, whole, AT_FDCWD, target, flags));
}
static void end(void *unused) {
    const char *count = getenv("SLOW_COUNT");
    FILE *file = count ? fopen(count, "w") : NULL;
    if (file) { fprintf(file, "%ld\n", trips); fclose(file); }
}

static const struct fuse_operations operations = {
    .init = begin, .destroy = end, .getattr = get_attributes, .readlink = read_link, .readdir = list,
    .open = open_file, .create = create_file, .read = read_file, .write = write_file, .release = close_file,
    .statfs = look_free, .mkdir = make_directory, .unlink = remove_file, .rmdir = remove_directory, .rename = move,
};

int main(int count, char **words) {
    if (count != 3) return 2;
    source = words[1];
    trip_us = atol(getenv("SLOW_US") ? getenv("SLOW_US") : "0");
    known_s = atof(getenv("SLOW_KNOWN_S") ? getenv("SLOW_KNOWN_S") : "0");
    char *own[] = {words[0], "-f", "-o", "fsname=k3env-slow,subtype=slow,default_permissions,allow_other", words[2], NULL};
    return fuse_main(5, own, &operations, NULL);
}
