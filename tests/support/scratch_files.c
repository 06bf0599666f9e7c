#include "tests/support/scratch_files.h"

#include <dirent.h>
#include <unistd.h>

#include "tests/support/tandem_test.h"

const char *scratch(void) { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }

int test_folder_open(void **state)
{
    test_folder *const f = calloc(1, sizeof *f);
    if (!f) return -1;
    (void)snprintf(f->folder, sizeof f->folder, "%s/tandem_test_XXXXXX", scratch());
    if (!mkdtemp(f->folder)) {
        free(f);
        return -1;
    }
    (void)snprintf(f->path, sizeof f->path, "%s/tandem.db", f->folder);
    *state = f;
    return 0;
}

int test_folder_close(void **state)
{
    test_folder *const f = *state;
    (void)empty_folder(f->folder);
    (void)rmdir(f->folder);
    free(f);
    return 0;
}

int count_files(const char *folder)
{
    int n = 0;
    DIR *const all = opendir(folder);
    if (!all) return -1;
    for (const struct dirent *one; (one = readdir(all)) != NULL;)
        n += strcmp(one->d_name, ".") != 0 && strcmp(one->d_name, "..") != 0;
    (void)closedir(all);
    return n;
}

int empty_folder(const char *folder)
{
    int n = 0;
    DIR *const all = opendir(folder);
    if (!all) return 0;
    for (const struct dirent *one; (one = readdir(all)) != NULL;) {
        char name[600];
        if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0) continue;
        (void)snprintf(name, sizeof name, "%s/%s", folder, one->d_name);
        if (one->d_type == DT_DIR) n += empty_folder(name);
        n += (one->d_type == DT_DIR ? rmdir(name) : unlink(name)) == 0;
    }
    (void)closedir(all);
    return n;
}

void write_test_file(const char *path, const void *bytes, size_t n)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}
