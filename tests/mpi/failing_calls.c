/* File calls that fail as a machine's would. To be loaded by LD_PRELOAD.
 *
 * Of the calls named FAIL_CALL (create, write, fsync, close, mkdir, rename) on paths that contain FAIL_PATH number FAIL_FROM
 * (1 if not given) and those after it fail on rank FAIL_RANK (0; -1 is all), FAIL_TIMES of them (all), with errno FAIL_ERRNO. To create is
 * to open with O_CREAT; of the calls of close only those count that close what was open for writing. The environment is read at each
 * call, and `count_again` says how many have failed, and counts from the beginning.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long seen, failed;

long count_again(void)
{
    long found = failed;
    seen = failed = 0;
    return found;
}

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int fails(const char *call, const char *path)
{
    const char *named = getenv("FAIL_CALL"), *part = getenv("FAIL_PATH");
    long first = number("FAIL_FROM", 1), rank = number("FAIL_RANK", 0), now;
    if (!named || strcmp(named, call) || !part || !strstr(path, part))
        return 0;
    if (rank >= 0 && rank != number("PMI_RANK", number("OMPI_COMM_WORLD_RANK", 0)))
        return 0;
    if (strstr(path, "_cid-") || strstr(path, ".locktest.")) /* Open MPI's files for a shared pointer, named after a file */
        return 0;
    now = ++seen;
    if (now < first || now - first >= number("FAIL_TIMES", LONG_MAX))
        return 0;
    failed++;
    errno = (int)number("FAIL_ERRNO", EIO);
    return 1;
}

static int fails_on(const char *call, int descriptor)
{
    char link[64], path[PATH_MAX];
    int before = errno;
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPENS(name)                                                                                                    \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        return flags & O_CREAT && fails("create", path) ? -1 : REAL(name)(path, flags, mode);                                               \
    }
OPENS(open)
OPENS(open64)

int close(int descriptor)
{
    int kept = errno, flags = fcntl(descriptor, F_GETFL);
    errno = kept;
    int broken = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fails_on("close", descriptor), reason = errno;
    int done = REAL(close)(descriptor);
    if (broken)
        errno = reason;
    return broken ? -1 : done;
}

#define WRITES(name, declared, given)                                                                                  \
    ssize_t name declared                                                                                              \
    {                                                                                                                  \
        return fails_on("write", descriptor) ? -1 : REAL(name) given;                                                  \
    }
WRITES(write, (int descriptor, const void *data, size_t size), (descriptor, data, size))
WRITES(pwrite, (int descriptor, const void *data, size_t size, off_t at), (descriptor, data, size, at))
WRITES(pwrite64, (int descriptor, const void *data, size_t size, off64_t at), (descriptor, data, size, at))
WRITES(pwritev, (int descriptor, const struct iovec *data, int count, off_t at), (descriptor, data, count, at))
WRITES(pwritev64, (int descriptor, const struct iovec *data, int count, off64_t at), (descriptor, data, count, at))

int fsync(int descriptor)
{
    return fails_on("fsync", descriptor) ? -1 : REAL(fsync)(descriptor);
}

int mkdir(const char *path, mode_t mode)
{
    return access(path, F_OK) && fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode);
}

int rename(const char *from, const char *to)
{
    return fails("rename", from) || fails("rename", to) ? -1 : REAL(rename)(from, to);
}
