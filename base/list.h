/* list.h: lists in options: one word for all of n things, or one for each: "12GiB", "12GiB,4GiB". */
#pragma once

#include <stddef.h>

/* tandem_list_word: the word of `list` for thing k of n, into word[size]. Returns 0 and leaves `word`
 * unchanged where the list has neither 1 nor n words, or where this one is empty or does not fit. */
int tandem_list_word(char *word, size_t size, const char *list, int k, int n);
