/* Disks that no machine of ours has, by LD_PRELOAD:
 * below $FOLDED every path is made lower case, as by a disk that takes both cases for one name;
 * $BROKEN_READ, $BROKEN_WRITE and $BROKEN_FSYNC name a part of a path: what reads or writes there beyond the byte
 * $BROKEN_AT, or flushes, fails with EIO. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *folded(const char *path, char *buffer) {
    const char *root = getenv("FOLDED");
    size_t length = root ? strlen(root) : 0;
    if (!length || !path || strncmp(path, root, length) || strlen(path) >= PATH_MAX) return path;
    strcpy(buffer, path);
    for (char *at = buffer + length; *at; at++) *at = tolower((unsigned char)*at);
    return buffer;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FOLD(path) char room_##path[PATH_MAX]; path = folded(path, room_##path)

int open(const char *path, int flags, ...) {
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest);
    FOLD(path); return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest);
    FOLD(path); return REAL(open64)(path, flags, mode);
}
int stat(const char *path, struct stat *found) { FOLD(path); return REAL(stat)(path, found); }
int lstat(const char *path, struct stat *found) { FOLD(path); return REAL(lstat)(path, found); }
int stat64(const char *path, struct stat64 *found) { FOLD(path); return REAL(stat64)(path, found); }
int lstat64(const char *path, struct stat64 *found) { FOLD(path); return REAL(lstat64)(path, found); }
int fstatat(int at, const char *path, struct stat *found, int flags) {
    FOLD(path); return REAL(fstatat)(at, path, found, flags);
}
int fstatat64(int at, const char *path, struct stat64 *found, int flags) {
    FOLD(path); return REAL(fstatat64)(at, path, found, flags);
}
int rename(const char *path, const char *to) { FOLD(path); FOLD(to); return REAL(rename)(path, to); }
int link(const char *path, const char *to) { FOLD(path); FOLD(to); return REAL(link)(path, to); }
int unlink(const char *path) { FOLD(path); return REAL(unlink)(path); }
int mkdir(const char *path, mode_t mode) { FOLD(path); return REAL(mkdir)(path, mode); }

static int broken(const char *how, int file, off_t end) {
    const char *part = getenv(how), *at = getenv("BROKEN_AT");
    if (!part || end <= (at ? atoll(at) : 0)) return 0;
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strstr(path, part) != NULL;
}

#define EIO_IF(how, end) if (broken(how, file, end)) { errno = EIO; return -1; }

ssize_t pread(int file, void *data, size_t size, off_t at) {
    EIO_IF("BROKEN_READ", at + size) return REAL(pread)(file, data, size, at);
}
ssize_t pread64(int file, void *data, size_t size, off64_t at) {
    EIO_IF("BROKEN_READ", at + size) return REAL(pread64)(file, data, size, at);
}
ssize_t preadv(int file, const struct iovec *parts, int count, off_t at) {
    EIO_IF("BROKEN_READ", at + parts[0].iov_len) return REAL(preadv)(file, parts, count, at);
}
ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t at) {
    EIO_IF("BROKEN_READ", at + parts[0].iov_len) return REAL(preadv64)(file, parts, count, at);
}
ssize_t preadv2(int file, const struct iovec *parts, int count, off_t at, int flags) {
    EIO_IF("BROKEN_READ", at + parts[0].iov_len) return REAL(preadv2)(file, parts, count, at, flags);
}
ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t at, int flags) {
    EIO_IF("BROKEN_READ", at + parts[0].iov_len) return REAL(preadv64v2)(file, parts, count, at, flags);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    EIO_IF("BROKEN_WRITE", at + size) return REAL(pwrite)(file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    EIO_IF("BROKEN_WRITE", at + size) return REAL(pwrite64)(file, data, size, at);
}
int fsync(int file) { EIO_IF("BROKEN_FSYNC", LONG_MAX) return REAL(fsync)(file); }
