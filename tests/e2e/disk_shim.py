"""A disk that stalls, hangs or fails: a library that is loaded before the C library, and a file that says what it does.

The calls write, fsync, fdatasync, rename and unlink of files whose path has a certain text in it are changed while the file
exists; with "stall-all" also those that open, make, list and cut files and folders; with "fail-reads" only those that read, with
"fail-syncs" only fsync and fdatasync.
"""

import subprocess

SOURCE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Applies the file SHIM_FILE to a call on this path: "stall 2" waits for 2 s, "hang" waits until the file is gone,
   "fail 5" makes the call fail with errno 5. Returns the errno, or 0. */
static int apply(const char *path) {
    const char *where = getenv("SHIM_PATH"), *file = getenv("SHIM_FILE");
    if (where == NULL || file == NULL || strstr(path, where) == NULL) return 0;
    char text[32] = {0};
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return 0;
    int number = 0;
    if (sscanf(text, "fail %d", &number) == 1) return number;
    struct timespec wait = {0, 20 * 1000 * 1000};
    struct stat ignored;
    if (strncmp(text, "hang", 4) == 0) {
        while (stat(file, &ignored) == 0) nanosleep(&wait, NULL);
        return 0;
    }
    if (sscanf(text, "stall %d", &number) == 1 || sscanf(text, "stall-all %d", &number) == 1) {
        wait.tv_sec = number, wait.tv_nsec = 0;
        nanosleep(&wait, NULL);
    }
    return 0;
}

/* The path of a descriptor, or "". */
static const char *path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

static int apply_fd(int fd) {
    char path[PATH_MAX];
    return apply(path_of(fd, path));
}

/* Waits if the file says "stall-all". At the end of a folder errno stays as it was. */
static void wait_too(const char *path) {
    int before = errno, fd = -1;
    char text[32] = {0};
    const char *file = getenv("SHIM_FILE");
    if (file != NULL && (fd = open(file, O_RDONLY | O_CLOEXEC)) >= 0) {
        if (read(fd, text, sizeof text - 1) > 0 && strncmp(text, "stall-all", 9) == 0) apply(path);
        close(fd);
    }
    errno = before;
}

#define REAL(name) static __typeof__(name) *real; if (real == NULL) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define CHANGED(answer) do { int number = (answer); if (number != 0) { errno = number; return -1; } } while (0)

/* The errno of a call on this descriptor, if the file says so by the format, such as "fail-reads 5", or 0. */
static int fails_as(int fd, const char *format) {
    char path[PATH_MAX], text[32] = {0};
    const char *where = getenv("SHIM_PATH"), *file = getenv("SHIM_FILE");
    int before = errno, number = 0, does;
    if (where == NULL || file == NULL || strstr(path_of(fd, path), where) == NULL) return errno = before, 0;
    if ((does = open(file, O_RDONLY | O_CLOEXEC)) >= 0) {
        if (read(does, text, sizeof text - 1) <= 0 || sscanf(text, format, &number) != 1) number = 0;
        close(does);
    }
    return errno = before, number;
}

/* With SHIM_LOCKS every lock is granted, as on some file systems of the network. */
int flock(int fd, int what) { REAL(flock); return getenv("SHIM_LOCKS") != NULL ? 0 : real(fd, what); }

ssize_t read(int fd, void *bytes, size_t length) { REAL(read); CHANGED(fails_as(fd, "fail-reads %d")); return real(fd, bytes, length); }
ssize_t pread64(int fd, void *bytes, size_t length, off64_t at) { REAL(pread64); CHANGED(fails_as(fd, "fail-reads %d")); return real(fd, bytes, length, at); }
ssize_t write(int fd, const void *bytes, size_t length) { REAL(write); CHANGED(apply_fd(fd)); return real(fd, bytes, length); }
int fsync(int fd) { REAL(fsync); CHANGED(apply_fd(fd)); CHANGED(fails_as(fd, "fail-syncs %d")); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); CHANGED(apply_fd(fd)); CHANGED(fails_as(fd, "fail-syncs %d")); return real(fd); }
int rename(const char *from, const char *to) { REAL(rename); CHANGED(apply(from)); return real(from, to); }
int unlink(const char *path) { REAL(unlink); CHANGED(apply(path)); return real(path); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); wait_too(path); return real(path, mode); }
int rmdir(const char *path) { REAL(rmdir); wait_too(path); return real(path); }
int link(const char *from, const char *to) { REAL(link); wait_too(from); return real(from, to); }
DIR *opendir(const char *path) { REAL(opendir); wait_too(path); return real(path); }

int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64);
    char path[PATH_MAX];
    wait_too(path_of(fd, path));
    return real(fd, length);
}

struct dirent64 *readdir64(DIR *dir) {
    REAL(readdir64);
    char path[PATH_MAX];
    int before = errno;
    path_of(dirfd(dir), path);
    errno = before;
    wait_too(path);
    return real(dir);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    wait_too(path);
    return real(path, flags, mode);
}
"""


class DiskShim:
    """Changes the calls of a program that has `environment()`."""

    def __init__(self, folder):
        self.folder = folder
        self.library, self.file = folder / "shim.so", folder / "shim.does"
        source = folder / "shim.c"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl"], check=True)

    def environment(self, where):
        """For calls on paths with this text in them."""
        return {"LD_PRELOAD": str(self.library), "SHIM_PATH": str(where), "SHIM_FILE": str(self.file)}

    def granting_locks(self):
        """For a program whose locks are all granted, also those that others have."""
        return {"LD_PRELOAD": str(self.library), "SHIM_LOCKS": "1"}

    def begin(self, what):
        """From now on: "stall SECONDS", "stall-all SECONDS", "hang", "fail ERRNO", "fail-reads ERRNO" or "fail-syncs ERRNO"."""
        draft = self.folder / "shim.draft"
        draft.write_text(what)
        draft.rename(self.file)

    def end(self):
        """The disk is as it was; calls that hang go on."""
        self.file.unlink(missing_ok=True)
