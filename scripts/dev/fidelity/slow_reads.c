/* Reads of files below SLOW_READS_FOLDER take longer by a given time. To be loaded by LD_PRELOAD.
 *
 * SLOW_READS_NS is added to a read that returns bytes, SLOW_READS_EMPTY_NS to one that returns none (the end of a file,
 * which most storage answers from what it knows of the file, without asking a server).
 *
 * SLOW_READS_LEDGER is a file to which each process appends a line at its end: how many reads that return bytes it
 * delayed, and the nanoseconds that these took, the added time with them.
 *
 * The time is slept after the call, to 20 us before its end, and the rest is spun. It is slept by the system call
 * nanosleep, which glibc does not use, so that a trace tells these sleeps from a program's own. Which file a descriptor stands for is
 * asked of /proc for every read: descriptors are closed and opened by calls that cannot be seen from here. What that
 * takes is part of the added time for files below the folder, and 1 to 2 us more for others.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SPUN_NS 20000

static long long now(void)
{
    struct timespec read;
    clock_gettime(CLOCK_MONOTONIC, &read);
    return read.tv_sec * 1000000000LL + read.tv_nsec;
}

static long long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoll(text) : 0;
}

static long long full_ns, empty_ns;
static _Atomic long long delayed_calls, delayed_ns;
static char folder[PATH_MAX];
static size_t folder_length;

__attribute__((constructor)) static void begin(void)
{
    const char *given = getenv("SLOW_READS_FOLDER");
    full_ns = number("SLOW_READS_NS");
    empty_ns = number("SLOW_READS_EMPTY_NS");
    if (given && snprintf(folder, sizeof folder, "%s/", given) < (int)sizeof folder)
        folder_length = strlen(folder);
}

__attribute__((destructor)) static void end(void)
{
    const char *ledger = getenv("SLOW_READS_LEDGER");
    FILE *file = ledger && delayed_calls ? fopen(ledger, "a") : NULL;
    if (file) {
        fprintf(file, "%lld %lld\n", (long long)delayed_calls, (long long)delayed_ns);
        fclose(file);
    }
}

static int below(int descriptor)
{
    char link[64], path[PATH_MAX];
    ssize_t length;
    if (!folder_length)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, sizeof path);
    return length >= (ssize_t)folder_length && !memcmp(path, folder, folder_length);
}

/* By default a sleep ends up to 50 us late. */
static void on_time(void)
{
    static __thread int asked;
    if (!asked) {
        prctl(PR_SET_TIMERSLACK, 1L);
        asked = 1;
    }
}

static ssize_t slow(int descriptor, long long called, ssize_t result)
{
    int kept = errno;
    long long began, until, left, added = result > 0 ? full_ns : empty_ns;
    if (result >= 0 && added > 0) {
        began = now();
        if (below(descriptor)) {
            until = began + added;
            on_time();
            while ((left = until - now() - SPUN_NS) > 0) {
                struct timespec rest = {left / 1000000000LL, left % 1000000000LL};
                syscall(SYS_nanosleep, &rest, NULL);
            }
            while (now() < until)
                ;
            if (result > 0) {
                delayed_calls++;
                delayed_ns += now() - called;
            }
        }
    }
    errno = kept;
    return result;
}

/* `parameters` with types, `arguments` without: the next library's function of the same name, slowed. */
#define SLOWED(name, parameters, arguments)                                   \
    ssize_t name parameters                                                   \
    {                                                                         \
        static ssize_t(*next) parameters;                                     \
        long long called = now();                                             \
        if (!next)                                                            \
            next = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);            \
        return slow(descriptor, called, next arguments);                      \
    }

SLOWED(read, (int descriptor, void *into, size_t size), (descriptor, into, size))
SLOWED(pread, (int descriptor, void *into, size_t size, off_t at), (descriptor, into, size, at))
SLOWED(pread64, (int descriptor, void *into, size_t size, off64_t at), (descriptor, into, size, at))
SLOWED(readv, (int descriptor, const struct iovec *into, int count), (descriptor, into, count))
SLOWED(preadv, (int descriptor, const struct iovec *into, int count, off_t at), (descriptor, into, count, at))
SLOWED(preadv64, (int descriptor, const struct iovec *into, int count, off64_t at), (descriptor, into, count, at))
SLOWED(preadv2, (int descriptor, const struct iovec *into, int count, off_t at, int flags),
       (descriptor, into, count, at, flags))
SLOWED(preadv64v2, (int descriptor, const struct iovec *into, int count, off64_t at, int flags),
       (descriptor, into, count, at, flags))
/* What read and pread become in programs built with _FORTIFY_SOURCE. */
SLOWED(__read_chk, (int descriptor, void *into, size_t size, size_t room), (descriptor, into, size, room))
SLOWED(__pread_chk, (int descriptor, void *into, size_t size, off_t at, size_t room),
       (descriptor, into, size, at, room))
SLOWED(__pread64_chk, (int descriptor, void *into, size_t size, off64_t at, size_t room),
       (descriptor, into, size, at, room))
