/* scratch_files.h: folders and files that tests make, count and remove. */
#ifndef TANDEM_TESTS_SUPPORT_SCRATCH_FILES_H
#define TANDEM_TESTS_SUPPORT_SCRATCH_FILES_H

#include <stddef.h>

/* A folder in memory where there is one: tests commit thousands of transactions, and each waits for its disk.
 * */
const char *scratch(void);

/* Set-up and teardown of a test that works in a folder of its own: *state is a test_folder. */
typedef struct test_folder {
    char folder[64], path[96]; /* path: "tandem.db" within the folder */
} test_folder;
int test_folder_open(void **state);
int test_folder_close(void **state);

int count_files(const char *folder);  /* hidden ones, too; −1 where the folder cannot be read */
int empty_folder(const char *folder); /* removes its files and the folders below it; returns how many went */
void write_test_file(const char *path, const void *bytes, size_t n);

#endif
