/* One read that never comes back. To be loaded by LD_PRELOAD.
 *
 * On rank HANG_RANK call number HANG_CALL (from 1) of pread64, preadv64 and preadv64v2 together is made on an eventfd, of the same bytes and
 * offset: the kernel shows a read that waits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long seen;

static int hangs(void)
{
    const char *rank = getenv("PMI_RANK"), *hanging = getenv("HANG_RANK"), *call = getenv("HANG_CALL");
    return rank && hanging && call && atoi(rank) == atoi(hanging) && ++seen == atol(call);
}

ssize_t pread64(int file, void *data, size_t size, off64_t offset)
{
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    return real(hangs() ? eventfd(0, 0) : file, data, size, offset);
}

ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off64_t) = dlsym(RTLD_NEXT, "preadv64");
    return real(hangs() ? eventfd(0, 0) : file, parts, count, offset);
}

ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t offset, int flags)
{
    ssize_t (*real)(int, const struct iovec *, int, off64_t, int) = dlsym(RTLD_NEXT, "preadv64v2");
    return real(hangs() ? eventfd(0, 0) : file, parts, count, offset, flags);
}
