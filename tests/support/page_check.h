/* page_check.h: the laws that hold for every page, whatever it is drawn from. */
#pragma once

#include <stddef.h>

/* NULL, or the first law that the page breaks: elements that are opened are closed in order, attributes are
 * in quotes, no element, attribute or address is there that the writer does not write, no control character,
 * valid UTF-8, exactly one script. *at is where. */
const char *page_check(const char *html, size_t n, size_t *at);
