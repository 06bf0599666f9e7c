/* messages.c: what a rank reports to the process that started it, through a pipe. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/process/ranks.h"

enum { MAX_MESSAGE_BYTES = 1 << 30 };

static int write_whole(int to, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    while (n > 0) {
        const ssize_t written = write(to, at, n);
        if (written < 0 && errno != EINTR) return -1;
        if (written > 0) at += written, n -= (size_t)written;
    }
    return 0;
}

/* 1; 0: the end came first; −1: errno says why. */
static int read_whole(int from, void *bytes, size_t n)
{
    unsigned char *at = bytes;
    while (n > 0) {
        const ssize_t got = read(from, at, n);
        if (got == 0) return 0;
        if (got < 0 && errno != EINTR) return -1;
        if (got > 0) at += got, n -= (size_t)got;
    }
    return 1;
}

int message_write(int to, const message *head, const void *bytes)
{
    const int failed = write_whole(to, head, sizeof *head);
    return failed ? failed : write_whole(to, bytes, (size_t)head->bytes);
}

int message_read(int from, message *head, void **bytes)
{
    int got = read_whole(from, head, sizeof *head);
    if (got <= 0) return got;
    if (head->bytes > MAX_MESSAGE_BYTES) return -1;
    void *const read = malloc((size_t)head->bytes + 1);
    if (!read) return -1;
    got = read_whole(from, read, (size_t)head->bytes);
    if (got <= 0) {
        free(read);
        return got;
    }
    ((char *)read)[head->bytes] = '\0';
    *bytes = read;
    return 1;
}
