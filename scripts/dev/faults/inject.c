/* One fault in the calls that a program makes on files below INJECT_FOLDER. To be loaded by LD_PRELOAD.
 *
 * Each call on a file or directory below the folder is written down in INJECT_LOG/RANK, a line each: what it is called
 * (variants of one call have one name), `r`, `w` or `-` for what its descriptor was opened for, and where below the
 * folder. INJECT_FAULT is "RANK CALL NUMBER HOW VALUE LAST": on that rank, the calls of that name from NUMBER to LAST (counted
 * from 0) meet a fault. HOW is `errno` (the call is not made, and fails so), `short` (a read or write of VALUE thousandths
 * of its bytes, at least one) or `delay` (of VALUE ms, before the call). A line of a call that was hit begins with `!`.
 *
 * A rank is what PMI_RANK says; processes without it are let alone, unless INJECT_RANK stands for it. A descriptor's file is asked
 * of /proc for every call: C libraries open and close by calls that cannot be seen from here. A close that fails has closed.
 *
 * Not seen: what the C library calls itself (streams of fopen, its asynchronous reads and writes), io_uring and
 * libaio, and pages of a mapped file.
 */
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* A program that asks for 64-bit offsets calls open64, others open: both are here, so neither may stand for the other. */
#ifdef _FILE_OFFSET_BITS
#error "not with _FILE_OFFSET_BITS"
#endif

enum how { NONE, ERRNO, SHORT, DELAY };

struct fault {
    enum how how;
    long value;
};

static char folder[PATH_MAX];
static size_t folder_length;
static int log_file = -1;
static char call_hit[32];
static enum how how_hit;
static long first_hit, last_hit, value_hit;
static long seen;

__attribute__((constructor)) static void begin(void)
{
    const char *given = getenv("INJECT_FOLDER"), *logs = getenv("INJECT_LOG"), *what = getenv("INJECT_FAULT");
    const char *rank = getenv("PMI_RANK");
    char path[PATH_MAX], word[16];
    int of_rank;
    rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
    rank = rank ? rank : getenv("INJECT_RANK");
    if (!given || !logs || !rank || snprintf(folder, sizeof folder, "%s/", given) >= (int)sizeof folder)
        return;
    if (snprintf(path, sizeof path, "%s/%d", logs, atoi(rank)) >= (int)sizeof path)
        return;
    log_file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_file < 0)
        return;
    if (log_file < 100) { /* out of the way of a program's own */
        int aside = (int)syscall(SYS_fcntl, log_file, F_DUPFD_CLOEXEC, 900);
        if (aside >= 0) {
            syscall(SYS_close, log_file);
            log_file = aside;
        }
    }
    folder_length = strlen(folder);
    if (what &&
        sscanf(what, "%d %31s %ld %15s %ld %ld", &of_rank, call_hit, &first_hit, word, &value_hit, &last_hit) == 6 &&
        of_rank == atoi(rank))
        how_hit = !strcmp(word, "errno") ? ERRNO : !strcmp(word, "short") ? SHORT : !strcmp(word, "delay") ? DELAY : NONE;
}

/* The path of a descriptor; of a name given with one (at), that below it. Empty where that is not known. */
static void path_of(int at, const char *name, char path[PATH_MAX])
{
    char link[64];
    ssize_t length = 0;
    path[0] = 0;
    if (name && name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    if (at < 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    length = syscall(SYS_readlink, link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    if (length > 0 && name && name[0])
        snprintf(path + length, (size_t)(PATH_MAX - length), "/%s", name);
}

/* What is to happen to a call; what it is on is written down, if that is below the folder. */
static struct fault meet(const char *call, char way, int at, const char *name)
{
    struct fault none = {NONE, 0}, found = none;
    char path[PATH_MAX], line[PATH_MAX + 64];
    int kept = errno, length;
    if (!folder_length)
        return none;
    path_of(at, name, path);
    if (strncmp(path, folder, folder_length)) {
        errno = kept;
        return none;
    }
    if (!way) {
        int flags = (int)syscall(SYS_fcntl, at, F_GETFL);
        way = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY ? 'w' : 'r';
    }
    if (how_hit && !strcmp(call, call_hit)) {
        long number = __atomic_fetch_add(&seen, 1, __ATOMIC_SEQ_CST);
        if (number >= first_hit && number <= last_hit) {
            found.how = how_hit;
            found.value = value_hit;
        }
    }
    length = snprintf(line, sizeof line, "%s%s %c %s\n", found.how ? "!" : "", call, way, path + folder_length);
    if (syscall(SYS_write, log_file, line, (size_t)length) < 0)
        abort();
    if (found.how == DELAY) {
        struct timespec rest = {found.value / 1000, found.value % 1000 * 1000000};
        syscall(SYS_nanosleep, &rest, NULL);
    }
    errno = kept;
    return found;
}

static char way_of(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT ? 'w' : 'r';
}

/* How many of `size` bytes a short call is asked for. */
static size_t shortened(struct fault found, size_t size)
{
    size_t some = (size_t)((double)size * (double)found.value / 1000);
    return found.how != SHORT || size < 2 ? size : some < 1 ? 1 : some;
}

/* The same of several pieces: `into` has room for as many; how many are left. */
static int shortened_pieces(struct fault found, const struct iovec *from, int count, struct iovec *into)
{
    size_t size = 0, left;
    int i;
    for (i = 0; i < count; i++)
        size += from[i].iov_len;
    left = shortened(found, size);
    for (i = 0; i < count && left; i++) {
        into[i] = from[i];
        if (into[i].iov_len > left)
            into[i].iov_len = left;
        left -= into[i].iov_len;
    }
    return i;
}

#define NEXT(type, name, parameters)                               \
    static type(*next) parameters;                                 \
    if (!next) {                                                   \
        int kept_ = errno;                                         \
        next = (type(*) parameters)dlsym(RTLD_NEXT, #name);        \
        errno = kept_;                                             \
    }

/* A call `as`, that fails by returning `failing` with errno set, on what `way`, `at` and `path` say. */
#define FAILING(type, failing, as, name, parameters, arguments, way, at, path) \
    type name parameters                                                       \
    {                                                                          \
        struct fault found;                                                    \
        NEXT(type, name, parameters)                                           \
        found = meet(as, way, at, path);                                       \
        if (found.how == ERRNO) {                                              \
            errno = (int)found.value;                                          \
            return failing;                                                    \
        }                                                                      \
        return next arguments;                                                 \
    }

#define ON_FILE(as, name, parameters, arguments) FAILING(int, -1, as, name, parameters, arguments, 0, file, NULL)
#define ON_PATH(as, name, parameters, arguments) FAILING(int, -1, as, name, parameters, arguments, '-', -1, path)
#define ON_PATH_AT(as, name, parameters, arguments) FAILING(int, -1, as, name, parameters, arguments, '-', at, path)

/* Opening: the mode is there only with O_CREAT, and passed on in any case. */
#define OPENING(name)                                                 \
    int name(const char *path, int flags, ...)                        \
    {                                                                 \
        struct fault found;                                           \
        va_list rest;                                                 \
        mode_t mode;                                                  \
        NEXT(int, name, (const char *, int, ...))                     \
        va_start(rest, flags);                                        \
        mode = va_arg(rest, mode_t);                                  \
        va_end(rest);                                                 \
        found = meet("open", way_of(flags), -1, path);                \
        if (found.how == ERRNO) {                                     \
            errno = (int)found.value;                                 \
            return -1;                                                \
        }                                                             \
        return next(path, flags, mode);                               \
    }

#define OPENING_AT(name)                                              \
    int name(int at, const char *path, int flags, ...)                \
    {                                                                 \
        struct fault found;                                           \
        va_list rest;                                                 \
        mode_t mode;                                                  \
        NEXT(int, name, (int, const char *, int, ...))                \
        va_start(rest, flags);                                        \
        mode = va_arg(rest, mode_t);                                  \
        va_end(rest);                                                 \
        found = meet("open", way_of(flags), at, path);                \
        if (found.how == ERRNO) {                                     \
            errno = (int)found.value;                                 \
            return -1;                                                \
        }                                                             \
        return next(at, path, flags, mode);                           \
    }

OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)
FAILING(int, -1, "open", __open_2, (const char *path, int flags), (path, flags), way_of(flags), -1, path)
FAILING(int, -1, "open", __open64_2, (const char *path, int flags), (path, flags), way_of(flags), -1, path)
FAILING(int, -1, "open", creat, (const char *path, mode_t mode), (path, mode), 'w', -1, path)
FAILING(int, -1, "open", creat64, (const char *path, mode_t mode), (path, mode), 'w', -1, path)
FAILING(FILE *, NULL, "open", fopen, (const char *path, const char *mode), (path, mode), mode[0] == 'r' ? 'r' : 'w', -1, path)
FAILING(FILE *, NULL, "open", fopen64, (const char *path, const char *mode), (path, mode), mode[0] == 'r' ? 'r' : 'w', -1,
        path)

int close(int file)
{
    struct fault found;
    int result;
    NEXT(int, close, (int))
    found = meet("close", 0, file, NULL);
    result = next(file);
    if (found.how == ERRNO) {
        errno = (int)found.value;
        return -1;
    }
    return result;
}

/* Calls that move bytes. */
#define MOVING(as, name, parameters, arguments)                       \
    ssize_t name parameters                                           \
    {                                                                 \
        struct fault found;                                           \
        NEXT(ssize_t, name, parameters)                               \
        found = meet(as, 0, file, NULL);                              \
        if (found.how == ERRNO) {                                     \
            errno = (int)found.value;                                 \
            return -1;                                                \
        }                                                             \
        size = shortened(found, size);                                \
        return next arguments;                                        \
    }

MOVING("read", read, (int file, void *to, size_t size), (file, to, size))
MOVING("read", __read_chk, (int file, void *to, size_t size, size_t room), (file, to, size, room))
MOVING("pread", pread, (int file, void *to, size_t size, off_t offset), (file, to, size, offset))
MOVING("pread", pread64, (int file, void *to, size_t size, off64_t offset), (file, to, size, offset))
MOVING("pread", __pread_chk, (int file, void *to, size_t size, off_t offset, size_t room), (file, to, size, offset, room))
MOVING("pread", __pread64_chk, (int file, void *to, size_t size, off64_t offset, size_t room),
       (file, to, size, offset, room))
MOVING("write", write, (int file, const void *from, size_t size), (file, from, size))
MOVING("pwrite", pwrite, (int file, const void *from, size_t size, off_t offset), (file, from, size, offset))
MOVING("pwrite", pwrite64, (int file, const void *from, size_t size, off64_t offset), (file, from, size, offset))
MOVING("sendfile", sendfile64, (int file, int from, off64_t *offset, size_t size), (file, from, offset, size))
MOVING("copy_file_range", copy_file_range,
       (int from, off64_t *from_offset, int file, off64_t *offset, size_t size, unsigned flags),
       (from, from_offset, file, offset, size, flags))

#define MOVING_PIECES(as, name, parameters, arguments)                \
    ssize_t name parameters                                           \
    {                                                                 \
        struct fault found;                                           \
        struct iovec few[IOV_MAX];                                    \
        NEXT(ssize_t, name, parameters)                               \
        found = meet(as, 0, file, NULL);                              \
        if (found.how == ERRNO) {                                     \
            errno = (int)found.value;                                 \
            return -1;                                                \
        }                                                             \
        if (found.how == SHORT && count <= IOV_MAX) {                 \
            count = shortened_pieces(found, pieces, count, few);      \
            pieces = few;                                             \
        }                                                             \
        return next arguments;                                        \
    }

MOVING_PIECES("read", readv, (int file, const struct iovec *pieces, int count), (file, pieces, count))
MOVING_PIECES("pread", preadv, (int file, const struct iovec *pieces, int count, off_t offset),
              (file, pieces, count, offset))
MOVING_PIECES("pread", preadv64, (int file, const struct iovec *pieces, int count, off64_t offset),
              (file, pieces, count, offset))
MOVING_PIECES("pread", preadv2, (int file, const struct iovec *pieces, int count, off_t offset, int flags),
              (file, pieces, count, offset, flags))
MOVING_PIECES("pread", preadv64v2, (int file, const struct iovec *pieces, int count, off64_t offset, int flags),
              (file, pieces, count, offset, flags))
MOVING_PIECES("write", writev, (int file, const struct iovec *pieces, int count), (file, pieces, count))
MOVING_PIECES("pwrite", pwritev, (int file, const struct iovec *pieces, int count, off_t offset),
              (file, pieces, count, offset))
MOVING_PIECES("pwrite", pwritev64, (int file, const struct iovec *pieces, int count, off64_t offset),
              (file, pieces, count, offset))
MOVING_PIECES("pwrite", pwritev2, (int file, const struct iovec *pieces, int count, off_t offset, int flags),
              (file, pieces, count, offset, flags))
MOVING_PIECES("pwrite", pwritev64v2, (int file, const struct iovec *pieces, int count, off64_t offset, int flags),
              (file, pieces, count, offset, flags))

ON_FILE("fsync", fsync, (int file), (file))
ON_FILE("fdatasync", fdatasync, (int file), (file))
ON_FILE("ftruncate", ftruncate, (int file, off_t size), (file, size))
ON_FILE("ftruncate", ftruncate64, (int file, off64_t size), (file, size))
ON_PATH("truncate", truncate, (const char *path, off_t size), (path, size))
ON_PATH("truncate", truncate64, (const char *path, off64_t size), (path, size))
ON_FILE("fallocate", fallocate, (int file, int mode, off_t offset, off_t size), (file, mode, offset, size))
ON_FILE("fallocate", fallocate64, (int file, int mode, off64_t offset, off64_t size), (file, mode, offset, size))
ON_FILE("flock", flock, (int file, int how), (file, how))

/* These return the number of the error. */
FAILING(int, (int)found.value, "fallocate", posix_fallocate, (int file, off_t offset, off_t size), (file, offset, size), 0,
        file, NULL)
FAILING(int, (int)found.value, "fallocate", posix_fallocate64, (int file, off64_t offset, off64_t size),
        (file, offset, size), 0, file, NULL)
FAILING(int, (int)found.value, "fadvise", posix_fadvise, (int file, off_t offset, off_t size, int advice),
        (file, offset, size, advice), 0, file, NULL)
FAILING(int, (int)found.value, "fadvise", posix_fadvise64, (int file, off64_t offset, off64_t size, int advice),
        (file, offset, size, advice), 0, file, NULL)

/* Of fcntl the locks. */
#define CONTROLLING(name)                                                                       \
    int name(int file, int command, ...)                                                        \
    {                                                                                           \
        va_list rest;                                                                           \
        void *argument;                                                                         \
        NEXT(int, name, (int, int, ...))                                                        \
        va_start(rest, command);                                                                \
        argument = va_arg(rest, void *);                                                        \
        va_end(rest);                                                                           \
        if (command == F_SETLK || command == F_SETLKW || command == F_GETLK) {                  \
            struct fault found = meet("fcntl", 0, file, NULL);                                  \
            if (found.how == ERRNO) {                                                           \
                errno = (int)found.value;                                                       \
                return -1;                                                                      \
            }                                                                                   \
        }                                                                                       \
        return next(file, command, argument);                                                   \
    }
CONTROLLING(fcntl)
CONTROLLING(fcntl64)

ON_FILE("fstat", fstat, (int file, struct stat *into), (file, into))
ON_FILE("fstat", fstat64, (int file, struct stat64 *into), (file, into))
ON_FILE("fstat", __fxstat, (int version, int file, struct stat *into), (version, file, into))
ON_FILE("fstat", __fxstat64, (int version, int file, struct stat64 *into), (version, file, into))
ON_PATH("stat", stat, (const char *path, struct stat *into), (path, into))
ON_PATH("stat", stat64, (const char *path, struct stat64 *into), (path, into))
ON_PATH("stat", __xstat, (int version, const char *path, struct stat *into), (version, path, into))
ON_PATH("stat", __xstat64, (int version, const char *path, struct stat64 *into), (version, path, into))
ON_PATH("stat", lstat, (const char *path, struct stat *into), (path, into))
ON_PATH("stat", lstat64, (const char *path, struct stat64 *into), (path, into))
ON_PATH("stat", __lxstat, (int version, const char *path, struct stat *into), (version, path, into))
ON_PATH("stat", __lxstat64, (int version, const char *path, struct stat64 *into), (version, path, into))
ON_PATH_AT("stat", fstatat, (int at, const char *path, struct stat *into, int flags), (at, path, into, flags))
ON_PATH_AT("stat", fstatat64, (int at, const char *path, struct stat64 *into, int flags), (at, path, into, flags))
ON_PATH_AT("stat", __fxstatat, (int version, int at, const char *path, struct stat *into, int flags),
           (version, at, path, into, flags))
ON_PATH_AT("stat", __fxstatat64, (int version, int at, const char *path, struct stat64 *into, int flags),
           (version, at, path, into, flags))
ON_PATH_AT("stat", statx, (int at, const char *path, int flags, unsigned mask, struct statx *into),
           (at, path, flags, mask, into))
ON_PATH("access", access, (const char *path, int mode), (path, mode))
ON_PATH_AT("access", faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags))
ON_PATH("statfs", statvfs, (const char *path, struct statvfs *into), (path, into))
ON_PATH("statfs", statvfs64, (const char *path, struct statvfs64 *into), (path, into))
ON_FILE("statfs", fstatvfs, (int file, struct statvfs *into), (file, into))
ON_FILE("statfs", fstatvfs64, (int file, struct statvfs64 *into), (file, into))
ON_PATH("statfs", statfs, (const char *path, struct statfs *into), (path, into))
ON_PATH("statfs", statfs64, (const char *path, struct statfs64 *into), (path, into))

ON_PATH("rename", rename, (const char *path, const char *to), (path, to))
ON_PATH_AT("rename", renameat, (int at, const char *path, int to_at, const char *to), (at, path, to_at, to))
ON_PATH("unlink", unlink, (const char *path), (path))
ON_PATH_AT("unlink", unlinkat, (int at, const char *path, int flags), (at, path, flags))
ON_PATH("rmdir", rmdir, (const char *path), (path))
ON_PATH("mkdir", mkdir, (const char *path, mode_t mode), (path, mode))
ON_PATH_AT("mkdir", mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
FAILING(DIR *, NULL, "opendir", opendir, (const char *path), (path), 'r', -1, path)
FAILING(DIR *, NULL, "opendir", fdopendir, (int file), (file), 'r', file, NULL)
FAILING(struct dirent *, NULL, "readdir", readdir, (DIR * stream), (stream), 'r', dirfd(stream), NULL)
FAILING(struct dirent64 *, NULL, "readdir", readdir64, (DIR * stream), (stream), 'r', dirfd(stream), NULL)
FAILING(ssize_t, -1, "readlink", readlink, (const char *path, char *into, size_t size), (path, into, size), '-', -1, path)

/* What mincore is asked of: the last file below the folder that this thread has mapped. */
static __thread void *mapped;
static __thread char mapped_path[PATH_MAX];

#define MAPPING(name, offset_type)                                                                      \
    void *name(void *where, size_t size, int access, int flags, int file, offset_type offset)           \
    {                                                                                                   \
        struct fault found = {NONE, 0};                                                                 \
        void *result;                                                                                   \
        NEXT(void *, name, (void *, size_t, int, int, int, offset_type))                                \
        if (file >= 0)                                                                                  \
            found = meet("mmap", 0, file, NULL);                                                        \
        if (found.how == ERRNO) {                                                                       \
            errno = (int)found.value;                                                                   \
            return MAP_FAILED;                                                                          \
        }                                                                                               \
        result = next(where, size, access, flags, file, offset);                                        \
        if (folder_length && file >= 0 && result != MAP_FAILED) {                                       \
            mapped = result;                                                                            \
            path_of(file, NULL, mapped_path);                                                           \
        }                                                                                               \
        return result;                                                                                  \
    }
MAPPING(mmap, off_t)
MAPPING(mmap64, off64_t)

FAILING(int, -1, "mincore", mincore, (void *where, size_t size, unsigned char *into), (where, size, into), 'r', -1,
        where == mapped ? mapped_path : "")
