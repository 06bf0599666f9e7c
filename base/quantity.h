/* quantity.h: numbers with units, as users type and read them.
 *
 * A quantity has digits with an optional fraction and exponent ("12", "1.5", ".5", "2e3"), at most one space,
 * and a unit in the exact spelling below ("Gb" and "GB" differ by eight, so case matters). It has no sign,
 * "inf", "nan" or hexadecimal digits, and nothing before or after it. A number without a unit is an error,
 * even zero.
 *
 *   bytes   B  KiB MiB GiB TiB (1024)  kB MB GB TB (1000)
 *   time    ns us ms s min h d         ("µs" is "us")
 *   rate    bit/s kbit/s Mbit/s Gbit/s Tbit/s, B/s kB/s MB/s GB/s TB/s KiB/s MiB/s GiB/s TiB/s;
 *           also with "ps" for "/s", as in "41.279125MBps", and "bps kbps Mbps Gbps Tbps" for bits
 *   ratio   %
 *
 * Nothing depends on the locale. Digits after the 38th significant one count as zeros. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* tandem_quantity_parse_…: read `text` into *bytes, *ns, *bytes_per_s or *ratio ("3%" is 0.03). Bytes and ns
 * are rounded to the nearest integer, half upwards. A rate is in BYTES per second, in every unit:
 * "100Gbit/s" is 12.5e9; it lies in (0, 2^63]. TANDEM_USAGE: the text is NULL, empty, without a unit,
 * negative, followed by something else, or out of range; names the allowed units and an example. Outputs
 * unchanged. */
tandem_status tandem_quantity_parse_bytes(uint64_t *bytes, const char *text, tandem_error *error);
tandem_status tandem_quantity_parse_ns(int64_t *ns, const char *text, tandem_error *error);
tandem_status tandem_quantity_parse_bps(double *bytes_per_s, const char *text, tandem_error *error);
tandem_status tandem_quantity_parse_ratio(double *ratio, const char *text, tandem_error *error);

/* Large enough for every text below (with a unit of up to 16 bytes). */
enum { TANDEM_QUANTITY_TEXT = 48 };

/* tandem_quantity_print_…: writes three significant digits and the unit into text[size], cut to fit; returns
 * `text`:
 *   bytes       "512 B", "12.3 MiB"; exact below 1 KiB
 *   ns          "123 ns", "1.23 ms", "-45.6 us" for a difference; "s" up to two minutes, "min" up to two
 *               hours, "h" up to two days, then "d"
 *   bps         bytes per second: "12.5 GB/s" (powers of 1000)
 *   per_second  with the caller's unit: (1.23e9, "FLOP") is "1.23 GFLOP/s"
 *   count       "987" where it is whole and small, else "25.6 M"
 *   ratio       0.0312 is "3.12%"
 * Values that are not finite print as "inf", "-inf" or "nan" and the unit. */
char *tandem_quantity_print_bytes(char *text, size_t size, uint64_t bytes);
char *tandem_quantity_print_ns(char *text, size_t size, int64_t ns);
/* The same, and a number without a unit ("28000"), with 1 to 6 significant digits. */
char *tandem_quantity_print_ns_to(char *text, size_t size, int64_t ns, int digits);
char *tandem_quantity_print_plain(char *text, size_t size, double value, int digits);
char *tandem_quantity_print_bps(char *text, size_t size, double bytes_per_s);
char *tandem_quantity_print_per_second(char *text, size_t size, double per_s, const char *unit);
char *tandem_quantity_print_count(char *text, size_t size, double count);
char *tandem_quantity_print_ratio(char *text, size_t size, double ratio);
/* A number that is known to ± `half`: its digits end at the first digit of `half`, down to 1e-9.
 * 1.372 ± 1.5 is "1", 143 ± 30 is "140", 0.01234 ± 0.0004 is "0.0123". NaN or 0: the error is not known, and
 * the number has two significant digits. */
char *tandem_quantity_print_known_to(char *text, size_t size, double value, double half);

/* tandem_quantity_…: the same texts as values, which live until the end of the full expression:
 * printf("%s", tandem_quantity_ns(ns).text). */
typedef struct tandem_quantity {
    char text[TANDEM_QUANTITY_TEXT];
} tandem_quantity;
tandem_quantity tandem_quantity_bytes(uint64_t bytes);
tandem_quantity tandem_quantity_ns(int64_t ns);
tandem_quantity tandem_quantity_ns_to(int64_t ns, int digits);
tandem_quantity tandem_quantity_plain(double value, int digits);
tandem_quantity tandem_quantity_count(double count);
tandem_quantity tandem_quantity_ratio(double ratio);
tandem_quantity tandem_quantity_known_to(double value, double half);
