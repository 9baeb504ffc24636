/* One read that never comes back. To be loaded by LD_PRELOAD.
 *
 * On rank HANG_RANK call number HANG_CALL (from 1) of pread64, preadv64 and preadv64v2 together is a read of the named pipe
 * HANG_PIPE instead, to which nobody writes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long seen;

static void may_hang(void)
{
    const char *rank = getenv("PMI_RANK"), *hanging = getenv("HANG_RANK"), *call = getenv("HANG_CALL");
    char nothing;
    rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
    if (rank && hanging && call && atoi(rank) == atoi(hanging) && ++seen == atol(call))
        if (read(open(getenv("HANG_PIPE"), O_RDWR), &nothing, 1) < 0)
            abort();
}

ssize_t pread64(int file, void *data, size_t size, off64_t offset)
{
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    may_hang();
    return real(file, data, size, offset);
}

ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off64_t) = dlsym(RTLD_NEXT, "preadv64");
    may_hang();
    return real(file, parts, count, offset);
}

ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t offset, int flags)
{
    ssize_t (*real)(int, const struct iovec *, int, off64_t, int) = dlsym(RTLD_NEXT, "preadv64v2");
    may_hang();
    return real(file, parts, count, offset, flags);
}
