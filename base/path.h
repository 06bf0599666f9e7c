/* path.h: follows a path to what is to be written, component by component. The kernel follows every link; in
 * a folder that others may write to, a link of theirs leads where they please. */
#ifndef TANDEM_BASE_PATH_H
#define TANDEM_BASE_PATH_H

#include <stdbool.h>
#include <sys/stat.h>

#include "tandem/status.h"

/* The last component of a path, after all links are followed, in its folder. Of a file that a link in /proc
 * leads to, which may have no path: the link. */
typedef struct tandem_path {
    char *name;       /* NULL: nothing is open */
    int folder;       /* a descriptor, for openat and its like */
    bool exists;      /* then `seen` is what was there */
    bool is_proc;     /* `name` is such a link, which is to be followed */
    struct stat seen; /* with is_proc: of what it leads to */
    struct stat of_folder;
} tandem_path;

/* May a file or link of `owner` in a folder be followed or written to? Those of the user and of root always;
 * those of the folder's owner where not all may write to it. Root trusts root alone. */
bool tandem_path_trusts(uid_t owner, const struct stat *folder);

/* tandem_path_follow: the components of `path` one by one. TANDEM_IO: one is missing, is no folder, or is a
 * link that is not trusted; names it. TANDEM_NO_MEMORY. */
tandem_status tandem_path_follow(tandem_path *place, const char *path, tandem_error *error);

/* tandem_path_check_target: what exists there may be written to: TANDEM_IO where it is a file of another user
 * in a folder that all may write to. `in_place`: it is not replaced, so that a file with several names is
 * refused there, too. */
tandem_status tandem_path_check_target(const tandem_path *place, const char *path, bool in_place,
                                       tandem_error *error);

/* tandem_path_open: opens what is there for writing, in place. `flags`: O_APPEND, O_TRUNC, O_CREAT; a new
 * file has mode 0666 less the umask. −1: *error says why. tandem_path_open_at: the same of a path that was
 * followed. −1: errno says why. */
int tandem_path_open(const char *path, int flags, tandem_error *error);
int tandem_path_open_at(const tandem_path *place, int flags);

void tandem_path_close(tandem_path *place); /* an all-zero one is fine */

#endif
