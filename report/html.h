/* html.h: the one place in which text enters a page. */
#pragma once

#include <stdint.h>
#include <stdio.h>

/* printf into the page, but each %s is escaped: for elements, and for attributes in double quotes. Text that
 * is no UTF-8 becomes U+FFFD. Characters that control the direction or the terminal are written as [U+202E].
 * Text over REPORT_LONGEST bytes is cut, and ends with an ellipsis. Knows %s, %d, %lld, %zu, %g, %f with
 * their digits, and %%. */
enum { REPORT_LONGEST = 400 };
void report_put(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, but no text is cut before 16 times as many bytes: for lines that a reader may want to repeat. */
void report_put_whole(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Quantities with units; a number that is not finite is a dash. */
enum { REPORT_TEXT = 64 };
typedef struct report_quantity {
    char text[REPORT_TEXT];
} report_quantity;
report_quantity report_ns(double ns);
report_quantity report_bytes(double bytes);
report_quantity report_ratio(double ratio);        /* "3.12%" */
report_quantity report_signed_ratio(double ratio); /* "+3.12%" */
report_quantity report_time_of_day(double ns);     /* since 1970: "2026-11-22 14:05 UTC" */
report_quantity report_number(double value);       /* four digits */
