/* folder: base */
/* Texts of others in errors: shown, and never a command to the terminal. Other conversions are printf's. */
#include <inttypes.h>
#include <limits.h>

#include "base/printable.h"
#include "tests/support/tandem_test.h"

static size_t format_kept(char *text, size_t size, const char *kept, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static size_t format_kept(char *text, size_t size, const char *kept, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t n = tandem_printable_format(text, size, kept, format, arguments);
    va_end(arguments);
    return n;
}

static void what_commands_a_terminal_is_shown(void **state)
{
    static const struct {
        const char *given, *shown;
    } texts[] = {
        {"plain ümlaut 層 🙂 \\x", "plain ümlaut 層 🙂 \\x"},
        {"\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"},
        {"a\nb\tc\rd\b\x7f", "a\\x0ab\\x09c\\x0dd\\x08\\x7f"},
        {"\xc2\x9b"
         "31m\xc2\x85\xc2\xa0",
         "\\u009b31m\\u0085\xc2\xa0"}, /* CSI and NEL in UTF-8 */
        {"\xe2\x80\xae"
         "gpj\xe2\x81\xa6\xe2\x80\x8b\xe2\x80\xa8",
         "\\u202egpj\\u2066\\u200b\\u2028"},
        {"\xd8\x9c\xef\xbb\xbf\xf3\xa0\x81\x81", "\\u061c\\ufeff\\ue0041"},
        {"\x9b"
         "31m \xff\xc3",
         "\\x9b31m \\xff\\xc3"}, /* no UTF-8 */
        {"\xc1\x9b \xe0\x82\x9b \xed\xa0\x80 \xf4\x90\x80\x80", "\\xc1\\x9b \\xe0\\x82\\x9b \\xed\\xa0\\x80 "
                                                                "\\xf4\\x90\\x80\\x80"}, /* nor these */
    };
    char text[256];
    tandem_error error;
    for (size_t i = 0; i < N_OF(texts); i++) {
        assert_int_equal(format_kept(text, sizeof text, "", "%s", texts[i].given), strlen(texts[i].shown));
        assert_string_equal(text, texts[i].shown);
        (void)tandem_error_set(&error, TANDEM_MALFORMED, "'%s'\n is wrong", texts[i].given);
        assert_memory_equal(error.text + 1, texts[i].shown, strlen(texts[i].shown));
        assert_non_null(strstr(error.text, "'\n is wrong"));
        (void)tandem_no_memory(&error, "for '%s'", texts[i].given);
        assert_non_null(strstr(error.text, texts[i].shown));
    }
    (void)format_kept(text, sizeof text, "\n\t", "%s|%c|%c", "a\n\tb\x1b", '\x1b', 'x');
    assert_string_equal(text, "a\n\tb\\x1b|\\x1b|x");
    (void)format_kept(text, sizeof text, "", "%.3s|%-4s|%4s|%.*s",
                      "ab\x1b"
                      "d",
                      "\x01", "é", 1, "xyz");
    assert_string_equal(text, "ab\\x1b|\\x01|  é|x");
}

#define SAME(...)                                                                                            \
    do {                                                                                                     \
        char ours[400], theirs[400];                                                                         \
        const size_t n = format_kept(ours, sizeof ours, "", __VA_ARGS__);                                    \
        assert_int_equal(n, snprintf(theirs, sizeof theirs, __VA_ARGS__));                                   \
        assert_string_equal(ours, theirs);                                                                   \
    } while (0)

static void all_else_is_as_printf_has_it(void **state)
{
    const int wide = -9, precise = 3;
    SAME("%d %i %5d|%-5d|%+d % d %05d %u %x %#X %o", -3, INT_MIN, 42, 42, 7, 7, 42, UINT_MAX, 255U, 255U, 8U);
    SAME("%ld %lu %lld %llu %zu %zd %jd %td %hd %hhu", LONG_MIN, ULONG_MAX, LLONG_MIN, ULLONG_MAX, SIZE_MAX,
         (ssize_t)-1, INTMAX_MIN, (ptrdiff_t)-5, (short)-2, (unsigned char)200);
    SAME("%" PRId64 " %" PRIu64 " %016" PRIx64, INT64_MIN, UINT64_MAX, UINT64_C(0xabc));
    SAME("%g %f %e %.3g %10.2f|%-10.2f|%a %G %+.0f %#.3g", 1.5, -2.25, 1e300, 3.14159, 2.5, 2.5, 0.1, 1e-9,
         2.5, 1.0);
    SAME("%Lg %Lf", 1.5L, 2.5L);
    SAME("%*d|%-*d|%.*f|%*.*f|%*s|%-*s|%.*s", 6, 1, 6, 2, precise, 1.23456, 9, 2, 3.14159, 6, "ab", 6, "ab",
         2, "abc");
    SAME("%*s|%*d|%.*d|%.*s", wide, "left", wide, 3, -1, 5, -1, "whole");
    SAME("100%% %s%% %c %p", "a", 'b', (void *)0x1234);
    SAME("%g %g %g %5.1f", NAN, INFINITY, -INFINITY, NAN);
}

static void a_text_is_cut_to_fit(void **state)
{
    char text[8] = "unused";
    assert_int_equal(format_kept(text, sizeof text, "", "%s-%d", "\x1b", 12345), 10);
    assert_string_equal(text, "\\x1b-12");
    assert_int_equal(format_kept(NULL, 0, "", "%s", "abc"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_commands_a_terminal_is_shown),
        cmocka_unit_test(all_else_is_as_printf_has_it),
        cmocka_unit_test(a_text_is_cut_to_fit),
    };
    return cmocka_run_group_tests_name("printable text", tests, NULL, NULL);
}
