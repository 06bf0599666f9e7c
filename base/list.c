/* list.c: one word of a list with commas. */
#include "base/list.h"

#include <string.h>

int tandem_list_word(char *word, size_t size, const char *list, int k, int n)
{
    int n_word = 1;
    for (const char *c = list; *c; c++) n_word += *c == ',';
    if (n_word != 1 && n_word != n) return 0;
    for (int at = 0; at < k && n_word > 1; at++) list += strcspn(list, ",") + 1;
    const size_t length = strcspn(list, ",");
    if (length == 0 || length >= size) return 0;
    memcpy(word, list, length);
    word[length] = '\0';
    return 1;
}
