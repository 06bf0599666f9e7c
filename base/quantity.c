/* quantity.c: parses and prints numbers with units, independently of the locale. */
#include "base/plain_text.h"
#include "base/quantity.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct unit {
    const char *name;
    long double factor;
} unit;

/* What a kind of quantity allows; texts as the error shows them. */
typedef struct quantity_kind {
    const char *noun, *units, *example;
    const unit *unit; /* ends with a NULL name */
    long double max;
} quantity_kind;

static const unit byte_units[] = {
    {"B", 1},     {"KiB", 0x1p10L}, {"MiB", 0x1p20L}, {"GiB", 0x1p30L}, {"TiB", 0x1p40L},
    {"kB", 1e3L}, {"MB", 1e6L},     {"GB", 1e9L},     {"TB", 1e12L},    {NULL, 0},
};
static const unit time_units[] = {
    {"ns", 1},   {"us", 1e3L},   {"\u00b5s", 1e3L}, {"\u03bcs", 1e3L}, {"ms", 1e6L},
    {"s", 1e9L}, {"min", 60e9L}, {"h", 3600e9L},    {"d", 86400e9L},   {NULL, 0},
};
static const unit rate_units[] = {
    {"bit/s", 0.125L},  {"kbit/s", 125},    {"Mbit/s", 125e3L}, {"Gbit/s", 125e6L}, {"Tbit/s", 125e9L},
    {"bps", 0.125L},    {"kbps", 125},      {"Mbps", 125e3L},   {"Gbps", 125e6L},   {"Tbps", 125e9L},
    {"B/s", 1},         {"kB/s", 1e3L},     {"MB/s", 1e6L},     {"GB/s", 1e9L},     {"TB/s", 1e12L},
    {"Bps", 1},         {"kBps", 1e3L},     {"MBps", 1e6L},     {"GBps", 1e9L},     {"TBps", 1e12L},
    {"KiB/s", 0x1p10L}, {"MiB/s", 0x1p20L}, {"GiB/s", 0x1p30L}, {"TiB/s", 0x1p40L}, {"KiBps", 0x1p10L},
    {"MiBps", 0x1p20L}, {"GiBps", 0x1p30L}, {"TiBps", 0x1p40L}, {NULL, 0},
};
static const unit ratio_units[] = {{"%", 0.01L}, {NULL, 0}};

static const quantity_kind bytes_kind = {"a size", "B, KiB, MiB, GiB, TiB, kB, MB, GB or TB", "12GiB",
                                         byte_units, 0x1p64L};
static const quantity_kind ns_kind = {"a time", "ns, us, ms, s, min, h or d", "1.5ms", time_units, 0x1p63L};
static const quantity_kind bps_kind = {
    "a rate",
    "bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s or TiB/s",
    "100Gbit/s", rate_units, 0x1p63L};
static const quantity_kind ratio_kind = {"a ratio", "%", "3%", ratio_units, (long double)DBL_MAX};

enum { MAX_TEXT = 1000 }; /* bytes of a text: no exponent can overflow */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* 10^n × value. Up to n = 27 the power is exact in a 64-bit mantissa, so the result is rounded once. */
static long double scale_by_ten(long double value, int n)
{
    long double power = 1;
    for (int i = 0; i < (n < 0 ? -n : n); i++) power *= 10;
    return n < 0 ? value / power : value * power;
}

/* Reads digits [. digits] [e [+-] digits] at `text`. Returns what follows; NULL: no digit. strtod would
 * follow the locale of the host program. */
static const char *read_number(long double *value, const char *text)
{
    enum { EXPONENT_LIMIT = 4000 }; /* far outside every range, far inside long double's */
    unsigned __int128 mantissa = 0; /* twice as wide as any result */
    int significant = 0, exponent = 0;
    bool any = false, fraction = false;
    const char *at = text;
    for (; is_digit(*at) || (*at == '.' && !fraction); at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        any = true;
        if (significant < 38) {
            mantissa = mantissa * 10 + (unsigned)(*at - '0');
            significant += mantissa != 0;
            if (fraction && exponent > -EXPONENT_LIMIT) exponent--;
        } else if (!fraction && exponent < EXPONENT_LIMIT) {
            exponent++;
        }
    }
    if (!any) return NULL;
    if (*at == 'e' || *at == 'E') {
        const char *power = at + 1;
        const bool negative = *power == '-';
        power += *power == '-' || *power == '+';
        if (is_digit(*power)) {
            int n = 0;
            for (; is_digit(*power); power++) n = n < EXPONENT_LIMIT ? n * 10 + (*power - '0') : n;
            exponent += negative ? -n : n;
            at = power;
        }
    }
    if (exponent > EXPONENT_LIMIT) exponent = EXPONENT_LIMIT;
    if (exponent < -EXPONENT_LIMIT) exponent = -EXPONENT_LIMIT;
    *value = mantissa == 0 ? 0 : scale_by_ten((long double)mantissa, exponent);
    return at;
}

static tandem_status fail_quantity(tandem_error *error, const quantity_kind *k, const char *text,
                                   const char *why)
{
    /* A long text must leave room for the advice. */
    const bool cut = strlen(text) > 40;
    return tandem_error_set(error, TANDEM_USAGE,
                            "\"%.40s%s\" is not %s: %s. Allowed units: %s; for example %s.", text,
                            cut ? "…" : "", k->noun, why, k->units, k->example);
}

static tandem_status parse_quantity(long double *value, const quantity_kind *k, const char *text,
                                    tandem_error *error)
{
    if (!text || !*text) return fail_quantity(error, k, "", "it is empty");
    if (strnlen(text, MAX_TEXT + 1) > MAX_TEXT) return fail_quantity(error, k, text, "it is too long");
    if (*text == '-') return fail_quantity(error, k, text, "it must not be negative");
    long double number;
    const char *rest = read_number(&number, text);
    if (!rest) return fail_quantity(error, k, text, "it must begin with a digit");
    rest += *rest == ' ';
    if (!*rest) return fail_quantity(error, k, text, "the unit is missing");
    const unit *u = k->unit;
    while (u->name && strcmp(u->name, rest) != 0) u++;
    if (!u->name) return fail_quantity(error, k, text, "what follows the number is no unit of it");
    number *= u->factor;
    if (number > k->max) return fail_quantity(error, k, text, "it is too large");
    *value = number;
    return TANDEM_OK;
}

tandem_status tandem_quantity_parse_bytes(uint64_t *bytes, const char *text, tandem_error *error)
{
    long double value;
    const tandem_status status = parse_quantity(&value, &bytes_kind, text, error);
    if (status != TANDEM_OK) return status;
    /* "+ 0.5" would lose the last bit near 2^64. */
    value = roundl(value);
    if (value >= 0x1p64L) return fail_quantity(error, &bytes_kind, text, "it is too large");
    *bytes = (uint64_t)value;
    return TANDEM_OK;
}

tandem_status tandem_quantity_parse_ns(int64_t *ns, const char *text, tandem_error *error)
{
    long double value;
    const tandem_status status = parse_quantity(&value, &ns_kind, text, error);
    if (status != TANDEM_OK) return status;
    value = roundl(value);
    if (value >= 0x1p63L) return fail_quantity(error, &ns_kind, text, "it is too large");
    *ns = (int64_t)value;
    return TANDEM_OK;
}

tandem_status tandem_quantity_parse_bps(double *bytes_per_s, const char *text, tandem_error *error)
{
    long double value;
    const tandem_status status = parse_quantity(&value, &bps_kind, text, error);
    if (status != TANDEM_OK) return status;
    if ((double)value <= 0) /* times are quotients by it */
        return fail_quantity(error, &bps_kind, text, "it must be greater than zero");
    *bytes_per_s = (double)value;
    return TANDEM_OK;
}

tandem_status tandem_quantity_parse_ratio(double *ratio, const char *text, tandem_error *error)
{
    long double value;
    const tandem_status status = parse_quantity(&value, &ratio_kind, text, error);
    if (status == TANDEM_OK) *ratio = (double)value;
    return status;
}

static double power_of_10(int n)
{
    double power = 1;
    for (; n > 0; n--) power *= 10;
    return power;
}

/* `value` with n_digit significant digits; 0, and values that are not finite or very large, stay. */
static double round_to_digits(double value, int n_digit)
{
    int shift = n_digit - 1;
    double v = fabs(value);
    if (v == 0 || !(v < 1e18 && v > 1e-18)) return value;
    for (; v >= 10; shift--) v /= 10;
    for (; v < 1; shift++) v *= 10;
    const double power = power_of_10(shift < 0 ? -shift : shift);
    return shift < 0 ? (double)llround(value / power) * power : (double)llround(value * power) / power;
}

/* `value` with n_digit significant digits (down to 1e-6), then `before` and `after` as the unit. Uses
 * integers, since printf's decimal point follows the locale. */
static char *print_digits(char *text, size_t size, double value, int n_digit, const char *before,
                          const char *after)
{
    const double min_scaled = 0.9995 * power_of_10(n_digit - 1);
    const char *sign = signbit(value) && value != 0 ? "-" : "";
    const double v = fabs(value);
    if (!isfinite(v) || v >= 1e15 || (v > 0 && v < 1e-6)) { /* no point in any of them */
        (void)tandem_plain_print(text, size, "%s%.0e%s%s", sign, v, before, after);
        return text;
    }
    long long power = 1;
    int decimals = 0;
    for (; v > 0 && v * (double)power < min_scaled && decimals < 6; decimals++) power *= 10;
    const long long digits = llround(v * (double)power);
    if (decimals == 0)
        (void)snprintf(text, size, "%s%lld%s%s", sign, digits, before, after);
    else
        (void)snprintf(text, size, "%s%lld.%0*lld%s%s", sign, digits / power, decimals, digits % power,
                       before, after);
    return text;
}

static char *print_3_digits(char *text, size_t size, double value, const char *before, const char *after)
{
    return print_digits(text, size, value, 3, before, after);
}

char *tandem_quantity_print_plain(char *text, size_t size, double value, int digits)
{
    return print_digits(text, size, round_to_digits(value, digits), digits, "", "");
}

char *tandem_quantity_print_known_to(char *text, size_t size, double value, double half)
{
    enum { MAX_DECIMALS = 9, MAX_ZEROS = 9 };
    long long power = 1, step = 1; /* what is printed is a multiple of step / power */
    int decimals = 0, zeros = 0;
    const int is_unknown = !(half > 0) && value != 0;
    if (is_unknown || !(fabs(value) < 1e9)) return tandem_quantity_print_plain(text, size, value, 2);
    for (; half > 0 && 1.0 / (double)power > half && decimals < MAX_DECIMALS; decimals++) power *= 10;
    for (; (double)step * 10 <= half && zeros < MAX_ZEROS; zeros++) step *= 10;
    const long long digits = llround(fabs(value) * (double)power / (double)step) * step;
    const char *sign = value < 0 && digits > 0 ? "-" : "";
    if (decimals == 0)
        (void)snprintf(text, size, "%s%lld", sign, digits);
    else
        (void)snprintf(text, size, "%s%lld.%0*lld", sign, digits / power, decimals, digits % power);
    return text;
}

char *tandem_quantity_print_bytes(char *text, size_t size, uint64_t bytes)
{
    static const char *const units[] = {" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    if (bytes < 1024) {
        (void)snprintf(text, size, "%u B", (unsigned)bytes);
        return text;
    }
    double value = (double)bytes / 1024;
    int i = 0;
    for (; value >= 999.5 && i < 5; i++) value /= 1024;
    return print_3_digits(text, size, value, units[i], "");
}

static char *print_time(char *text, size_t size, int64_t ns, int digits)
{
    static const struct {
        const char *name;
        double ns, until; /* below this many of it */
    } units[] = {
        {" us", 1e3, 999.5}, {" ms", 1e6, 999.5}, {" s", 1e9, 120},
        {" min", 60e9, 120}, {" h", 3600e9, 48},  {" d", 86400e9, HUGE_VAL},
    };
    const double value = (double)ns;
    if (fabs(value) < 1000) {
        (void)snprintf(text, size, "%d ns", (int)ns);
        return text;
    }
    int i = 0;
    while (fabs(value) / units[i].ns >= units[i].until) i++;
    return print_digits(text, size, value / units[i].ns, digits, units[i].name, "");
}

char *tandem_quantity_print_ns(char *text, size_t size, int64_t ns) { return print_time(text, size, ns, 3); }

char *tandem_quantity_print_ns_to(char *text, size_t size, int64_t ns, int digits)
{
    return print_time(text, size, (int64_t)round_to_digits((double)ns, digits), digits);
}

static char *print_decimal(char *text, size_t size, double value, const char *const prefix[6],
                           const char *after)
{
    int i = 0;
    for (; isfinite(value) && fabs(value) >= 999.5 && i < 5; i++) value /= 1000;
    return print_3_digits(text, size, value, prefix[i], after);
}

char *tandem_quantity_print_bps(char *text, size_t size, double bytes_per_s)
{
    return tandem_quantity_print_per_second(text, size, bytes_per_s, "B");
}

char *tandem_quantity_print_per_second(char *text, size_t size, double per_s, const char *unit_name)
{
    static const char *const prefix[6] = {" ", " k", " M", " G", " T", " P"};
    char after[32];
    (void)snprintf(after, sizeof after, "%s/s", unit_name);
    return print_decimal(text, size, per_s, prefix, after);
}

char *tandem_quantity_print_count(char *text, size_t size, double count)
{
    static const char *const prefix[6] = {"", " k", " M", " G", " T", " P"};
    if (fabs(count) < 999.5 && count == rint(count)) { /* "3 operators", not "3.00" */
        (void)snprintf(text, size, "%d", (int)count);
        return text;
    }
    return print_decimal(text, size, count, prefix, "");
}

char *tandem_quantity_print_ratio(char *text, size_t size, double ratio)
{
    return print_3_digits(text, size, ratio * 100, "%", "");
}

tandem_quantity tandem_quantity_bytes(uint64_t bytes)
{
    tandem_quantity printed = {""};
    (void)tandem_quantity_print_bytes(printed.text, sizeof printed.text, bytes);
    return printed;
}

tandem_quantity tandem_quantity_ns(int64_t ns)
{
    tandem_quantity printed = {""};
    (void)tandem_quantity_print_ns(printed.text, sizeof printed.text, ns);
    return printed;
}

tandem_quantity tandem_quantity_ns_to(int64_t ns, int digits)
{
    tandem_quantity printed = {""};
    (void)tandem_quantity_print_ns_to(printed.text, sizeof printed.text, ns, digits);
    return printed;
}

tandem_quantity tandem_quantity_plain(double value, int digits)
{
    tandem_quantity printed = {""};
    (void)tandem_quantity_print_plain(printed.text, sizeof printed.text, value, digits);
    return printed;
}

tandem_quantity tandem_quantity_known_to(double value, double half)
{
    tandem_quantity printed = {""};
    (void)tandem_quantity_print_known_to(printed.text, sizeof printed.text, value, half);
    return printed;
}

tandem_quantity tandem_quantity_count(double count)
{
    tandem_quantity printed = {""};
    (void)tandem_quantity_print_count(printed.text, sizeof printed.text, count);
    return printed;
}

tandem_quantity tandem_quantity_ratio(double ratio)
{
    tandem_quantity printed = {""};
    (void)tandem_quantity_print_ratio(printed.text, sizeof printed.text, ratio);
    return printed;
}
