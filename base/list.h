/* list.h: lists that people type, of one word for all of several things, or one word for each: "12GiB",
 * "12GiB,4GiB". */
#ifndef TANDEM_BASE_LIST_H
#define TANDEM_BASE_LIST_H

#include <stddef.h>

/* tandem_list_word: what `list` says for thing k of n, into word[size]. Returns 0, and leaves `word` as it
 * was, where the list has neither one word nor n, or where this one is empty or does not fit. */
int tandem_list_word(char *word, size_t size, const char *list, int k, int n);

#endif
