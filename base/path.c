/* path.c: follows a path link by link, as the kernel does, but only links of those whom the user trusts
 * (as fs.protected_symlinks does in folders with the sticky bit). */
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

static tandem_status fail_path(tandem_error *error, const char *path, int code)
{
    return tandem_error_set(error, code == ENOMEM ? TANDEM_NO_MEMORY : TANDEM_IO,
                            "'%.200s' cannot be written: %s", path, strerror(code));
}

bool tandem_path_trusts(uid_t owner, const struct stat *folder)
{
    const uid_t user = geteuid();
    if (owner == user || owner == 0) return true;
    return user != 0 && !(folder->st_mode & S_IWOTH) && owner == folder->st_uid;
}

/* The walk: `rest` is what is left of the path, from `at` on. */
typedef struct walk {
    int folder;
    struct stat of_folder;
    char *rest, *at;
    int n_link;
} walk;

static int enter_folder(walk *w, const char *name, int flags)
{
    const int next = w->folder < 0 ? open(name, O_PATH | O_DIRECTORY | O_CLOEXEC | flags)
                                   : openat(w->folder, name, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
    if (next < 0) return errno;
    if (w->folder >= 0) (void)close(w->folder);
    w->folder = next;
    return fstat(next, &w->of_folder) == 0 ? 0 : errno;
}

/* 0, or errno. */
static int begin_walk(walk *w, const char *path)
{
    *w = (walk){.folder = -1, .rest = strdup(path)};
    w->at = w->rest;
    if (!w->rest) return ENOMEM;
    if (!*path) return ENOENT;
    if (path[strlen(path) - 1] == '/') return EISDIR;
    return enter_folder(w, *path == '/' ? "/" : ".", 0);
}

/* The next component, cut out of the rest; NULL at its end. *is_last: nothing but slashes follows. */
static const char *next_component(walk *w, bool *is_last)
{
    while (*w->at == '/') w->at++;
    if (!*w->at) return NULL;
    const char *const name = w->at;
    w->at += strcspn(w->at, "/");
    *is_last = w->at[strspn(w->at, "/")] == '\0';
    if (*w->at) *w->at++ = '\0';
    return name;
}

static bool is_in_proc(const walk *w)
{
    struct statfs system;
    return fstatfs(w->folder, &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

/* What a link says takes its place in the rest. 0, or errno. */
static int follow_link(walk *w, const char *name)
{
    enum { MAX_LINKS = 40 }; /* as many as the kernel follows */
    char to[PATH_MAX], *rest = NULL;
    const ssize_t n = readlinkat(w->folder, name, to, sizeof to - 1);
    if (n < 0) return errno;
    to[n] = '\0';
    if (n == 0 || n == (ssize_t)sizeof to - 1) return n ? ENAMETOOLONG : ENOENT;
    if (++w->n_link > MAX_LINKS) return ELOOP;
    if (asprintf(&rest, "%s%s%s", to, *w->at ? "/" : "", w->at) < 0) return ENOMEM;
    free(w->rest);
    w->rest = w->at = rest;
    return *to == '/' ? enter_folder(w, "/", 0) : 0;
}

/* The text of a link in /proc is a path where the file still has one, and it is that file's. */
static bool leads_to_its_text(const walk *w, const char *name, const struct stat *target)
{
    char to[PATH_MAX];
    struct stat there;
    const ssize_t n = readlinkat(w->folder, name, to, sizeof to - 1);
    if (n <= 0) return false;
    to[n] = '\0';
    return fstatat(w->folder, to, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_dev == target->st_dev &&
           there.st_ino == target->st_ino;
}

static tandem_status refuse_link(const char *path, const char *name, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_IO,
        "'%.200s' is not written: the link '%.100s' on the way belongs to another user, in a "
        "folder that others may write to. Name the file that is meant.",
        path, name);
}

/* Stops at the last component. 0, or errno; refused links have an error already. */
static int end_walk(tandem_path *place, walk *w, const char *name)
{
    place->name = strdup(name);
    if (!place->name) return ENOMEM;
    place->folder = w->folder;
    place->of_folder = w->of_folder;
    w->folder = -1;
    return 0;
}

/* One component. 0, or errno; EREMOTE: a link that is not trusted. *is_done: it was the last. */
static int take_component(tandem_path *place, walk *w, const char *name, bool is_last, bool *is_done)
{
    const bool is_dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    *is_done = false;
    if (!is_last && is_dots) return enter_folder(w, name, O_NOFOLLOW);
    place->exists = fstatat(w->folder, name, &place->seen, AT_SYMLINK_NOFOLLOW) == 0;
    if (!place->exists && (errno != ENOENT || !is_last)) return errno;
    if (place->exists && S_ISLNK(place->seen.st_mode)) {
        struct stat target;
        if (!tandem_path_trusts(place->seen.st_uid, &w->of_folder)) return EREMOTE;
        if (!is_in_proc(w) || fstatat(w->folder, name, &target, 0) != 0) return follow_link(w, name);
        if (!is_last) return S_ISDIR(target.st_mode) ? enter_folder(w, name, 0) : ENOTDIR;
        if (leads_to_its_text(w, name, &target)) return follow_link(w, name);
        place->is_proc = true;
        place->seen = target;
    } else if (!is_last) {
        return S_ISDIR(place->seen.st_mode) ? enter_folder(w, name, O_NOFOLLOW) : ENOTDIR;
    }
    *is_done = true;
    return end_walk(place, w, name);
}

tandem_status tandem_path_follow(tandem_path *place, const char *path, tandem_error *error)
{
    walk w;
    tandem_path found = {0};
    tandem_status status = TANDEM_OK;
    bool is_last = false, is_done = false;
    int code = begin_walk(&w, path);
    while (code == 0 && !is_done) {
        const char *const name = next_component(&w, &is_last);
        code = name ? take_component(&found, &w, name, is_last, &is_done) : EISDIR;
        if (code == EREMOTE) status = refuse_link(path, name, error);
    }
    if (w.folder >= 0) (void)close(w.folder);
    free(w.rest);
    if (code == 0)
        *place = found;
    else if (status == TANDEM_OK)
        status = fail_path(error, path, code);
    return status;
}

void tandem_path_close(tandem_path *place)
{
    if (place->name) (void)close(place->folder);
    free(place->name);
    *place = (tandem_path){0};
}

/* --- What is there -------------------------------------------------------------------------------------- */

tandem_status tandem_path_check_target(const tandem_path *place, const char *path, bool in_place,
                                       tandem_error *error)
{
    const bool is_open = place->of_folder.st_mode & S_IWOTH;
    if (!place->exists || place->is_proc || !is_open) return TANDEM_OK;
    if (!tandem_path_trusts(place->seen.st_uid, &place->of_folder))
        return tandem_error_set(
            error, TANDEM_IO,
            "'%.200s' is not written: it belongs to another user, in a folder that all may "
            "write to. Give another name.",
            path);
    if (in_place && S_ISREG(place->seen.st_mode) && place->seen.st_nlink > 1)
        return tandem_error_set(
            error, TANDEM_IO,
            "'%.200s' is not written: the file has another name elsewhere, and its folder is one "
            "that all may write to. Give another name.",
            path);
    return TANDEM_OK;
}

/* −1: errno says why. What was looked at is what is opened. */
int tandem_path_open_at(const tandem_path *place, int flags)
{
    const int access = O_WRONLY | O_NOCTTY | O_CLOEXEC | (flags & O_APPEND);
    if (!place->exists) {
        if (flags & O_CREAT)
            return openat(place->folder, place->name, access | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
        errno = ENOENT;
        return -1;
    }
    struct stat now;
    const int opened = openat(place->folder, place->name, access | (place->is_proc ? 0 : O_NOFOLLOW));
    if (opened < 0) return -1;
    int code = fstat(opened, &now) == 0 ? 0 : errno;
    if (code == 0 && (now.st_dev != place->seen.st_dev || now.st_ino != place->seen.st_ino)) code = ESTALE;
    if (code == 0 && (flags & O_TRUNC) && S_ISREG(now.st_mode) && ftruncate(opened, 0) != 0) code = errno;
    if (code == 0) return opened;
    (void)close(opened);
    errno = code;
    return -1;
}

int tandem_path_open(const char *path, int flags, tandem_error *error)
{
    tandem_path place = {0};
    int opened = -1;
    tandem_status status = tandem_path_follow(&place, path, error);
    if (status == TANDEM_OK) status = tandem_path_check_target(&place, path, true, error);
    if (status == TANDEM_OK) {
        opened = tandem_path_open_at(&place, flags);
        if (opened < 0) (void)fail_path(error, path, errno);
    }
    tandem_path_close(&place);
    return opened;
}
