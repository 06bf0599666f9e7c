/* folder: base */
/* Quantities, nearest names, arenas, the status table and the random generator. */
#include <locale.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/nearest.h"
#include "base/philox.h"
#include "base/quantity.h"
#include "tests/support/tandem_test.h"

/* ---- quantities ---------------------------------------------------------------------------------------- */

static void bytes_are_read(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0B", 0},
        {"1B", 1},
        {"512 B", 512},
        {"12GiB", 12ull << 30},
        {"12 GiB", 12ull << 30},
        {"1.5KiB", 1536},
        {".5KiB", 512},
        {"1.KiB", 1024},
        {"3MiB", 3ull << 20},
        {"2TiB", 2ull << 40},
        {"1kB", 1000},
        {"25MB", 25000000},
        {"1e3MB", 1000000000},
        {"1.25E-1GB", 125000000},
        {"7TB", 7000000000000},
        {"0.4B", 0},
        {"0.5B", 1},
        {"18446744073709551615B", UINT64_MAX},
        {"18446744073709551614B", UINT64_MAX - 1},
        {"9007199254740993B", 9007199254740993u}, /* 2^53 + 1: lost on a way through double */
        {"0.0000000000000000000000000000001e31B", 1},
        {"000000000000000000000000000000000012B", 12},
        {"0e999999999999999999999B", 0},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        uint64_t bytes = 77;
        tandem_error error = {0};
        const tandem_status status = tandem_quantity_parse_bytes(&bytes, cases[i].text, &error);
        if (status != TANDEM_OK || bytes != cases[i].bytes)
            fail_msg("%s: %s, %llu: %s", cases[i].text, tandem_status_name(status), (unsigned long long)bytes,
                     error.text);
    }
}

static void times_are_read(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } cases[] = {
        {"200ns", 200},
        {"5us", 5000},
        {"5\u00b5s", 5000},
        {"5\u03bcs", 5000},
        {"3ms", 3000000},
        {"1.5s", 1500000000},
        {"1.1s", 1100000000},
        {"2min", 120000000000},
        {"1h", 3600000000000},
        {"1d", 86400000000000},
        {"9223372036854775807ns", INT64_MAX},
        {"9223372036.854775807s", INT64_MAX},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        int64_t ns = 77;
        tandem_error error = {0};
        const tandem_status status = tandem_quantity_parse_ns(&ns, cases[i].text, &error);
        if (status != TANDEM_OK || ns != cases[i].ns)
            fail_msg("%s: %s, %lld: %s", cases[i].text, tandem_status_name(status), (long long)ns,
                     error.text);
    }
}

static void rates_are_read(void **state)
{
    static const struct {
        const char *text;
        double bytes_per_s;
    } cases[] = {
        {"100Gbit/s", 12.5e9}, {"100Gbps", 12.5e9},  {"1bit/s", 0.125},           {"1.2GB/s", 1.2e9},
        {"1B/s", 1},           {"10Mbit/s", 1.25e6}, {"41.279125MBps", 41279125}, {"1GiB/s", 0x1p30},
        {"1KiBps", 1024},      {"2 Tbit/s", 250e9},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        double rate = -1;
        tandem_error error = {0};
        const tandem_status status = tandem_quantity_parse_bps(&rate, cases[i].text, &error);
        if (status != TANDEM_OK || rate != cases[i].bytes_per_s)
            fail_msg("%s: %s, %.17g: %s", cases[i].text, tandem_status_name(status), rate, error.text);
    }
}

static void ratios_are_read(void **state)
{
    static const struct {
        const char *text;
        double ratio;
    } cases[] = {{"3%", 0.03}, {"0%", 0}, {"250%", 2.5}, {"0.5%", 0.005}, {"100 %", 1}, {"12.5%", 0.125}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        double ratio = -1;
        assert_int_equal(tandem_quantity_parse_ratio(&ratio, cases[i].text, NULL), TANDEM_OK);
        if (ratio != cases[i].ratio) fail_msg("%s: %.17g", cases[i].text, ratio);
    }
}

/* One text through every parser; those whose units it lacks must refuse it, too. */
static void refused_by_all(const char *text)
{
    static const char *const unit_of_each[] = {"GiB", "ms", "Gbit/s", "%"};
    for (int which = 0; which < 4; which++) {
        uint64_t bytes = 77;
        int64_t ns = 77;
        double rate = 77, ratio = 77;
        tandem_error error = {0};
        tandem_status status = TANDEM_OK;
        switch (which) {
        case 0: status = tandem_quantity_parse_bytes(&bytes, text, &error); break;
        case 1: status = tandem_quantity_parse_ns(&ns, text, &error); break;
        case 2: status = tandem_quantity_parse_bps(&rate, text, &error); break;
        default: status = tandem_quantity_parse_ratio(&ratio, text, &error); break;
        }
        if (status != TANDEM_USAGE)
            fail_msg("\"%s\" read by parser %d: %s", text ? text : "NULL", which, tandem_status_name(status));
        assert_int_equal(error.status, TANDEM_USAGE);
        assert_non_null(strstr(error.text, "for example"));
        assert_non_null(strstr(error.text, unit_of_each[which]));
        assert_true(bytes == 77 && ns == 77 && rate == 77 && ratio == 77);
    }
}

static void nonsense_is_refused(void **state)
{
    static const char *const texts[] = {
        NULL,     "",         " ",          "12",        "0",        "0.03",           "-1B",
        "-5ms",   "+5ms",     "nan",        "NaN B",     "inf",      "infB",           "inf%",
        "B",      "ms",       "%",          ".B",        "..5B",     "1.2.3B",         "1..2ms",
        "5 B x",  "5B ",      "5  B",       " 5B",       "5 B\n",    "0x10B",          "0x10ms",
        "0x1p3%", "1,5s",     "1,5B",       "5bs",       "5gib",     "5Gib",           "5KB",
        "5K",     "5G",       "3%%",        "3 percent", "1e",       "1e B",           "1e+ms",
        "-0.0%",  "\xff\xfe", "5\xc2",      "1e400B",    "1e5000ms", "1e99999999999%", "5m",
        "5M",     "12GiB;",   "1e3000GB/s", "3e308%x",   "1e311%",   "1e4000Gbit/s",
    };
    for (size_t i = 0; i < N_OF(texts); i++) refused_by_all(texts[i]);
}

static void long_numbers_are_handled(void **state)
{
    char text[300];
    memset(text, '9', 200);
    const char *const units[] = {"", "B", "ns", "GB/s"};
    for (size_t i = 0; i < N_OF(units); i++) {
        strcpy(text + 200, units[i]);
        refused_by_all(text);
    }
    /* 200 digits after the point are no overflow. */
    memset(text, '3', 200);
    text[0] = '0';
    text[1] = '.';
    strcpy(text + 200, "GB");
    uint64_t bytes = 0;
    assert_int_equal(tandem_quantity_parse_bytes(&bytes, text, NULL), TANDEM_OK);
    assert_true(bytes == 333333333);
    /* Nor are zeros before a digit; a long text keeps the advice in the message. */
    memset(text, '0', 200);
    strcpy(text + 200, "7B");
    assert_int_equal(tandem_quantity_parse_bytes(&bytes, text, NULL), TANDEM_OK);
    assert_true(bytes == 7);
    /* Nobody types thousands of digits; exponents that cancel them are not followed. */
    static char longer[6000];
    memset(longer, '0', 5000);
    memcpy(longer, "0.", 2);
    strcpy(longer + 5000, "1e4999B");
    refused_by_all(longer);
}

static void ranges_end_where_the_types_do(void **state)
{
    uint64_t bytes = 77;
    int64_t ns = 77;
    double rate = 77;
    tandem_error error = {0};
    assert_int_equal(tandem_quantity_parse_bytes(&bytes, "18446744073709551616B", &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "too large"));
    assert_int_equal(tandem_quantity_parse_bytes(&bytes, "18446744073709551615.6B", NULL), TANDEM_USAGE);
    assert_int_equal(tandem_quantity_parse_bytes(&bytes, "16777216TiB", NULL), TANDEM_USAGE);
    assert_int_equal(tandem_quantity_parse_bytes(&bytes, "16777215TiB", NULL), TANDEM_OK);
    assert_true(bytes == 16777215ull << 40);
    assert_int_equal(tandem_quantity_parse_ns(&ns, "9223372036854775808ns", NULL), TANDEM_USAGE);
    assert_int_equal(tandem_quantity_parse_ns(&ns, "300000d", NULL), TANDEM_USAGE);
    assert_true(ns == 77);
    assert_int_equal(tandem_quantity_parse_bps(&rate, "0Gbit/s", &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "greater than zero"));
    assert_int_equal(tandem_quantity_parse_bps(&rate, "1e-3999Gbit/s", NULL), TANDEM_USAGE);
    assert_int_equal(tandem_quantity_parse_bps(&rate, "1e20B/s", NULL), TANDEM_USAGE);
    assert_true(rate == 77);
}

static void the_error_says_what_is_wrong(void **state)
{
    int64_t ns = 0;
    tandem_error error = {0};
    assert_int_equal(tandem_quantity_parse_ns(&ns, "5", &error), TANDEM_USAGE);
    assert_string_equal(error.text, "\"5\" is not a time: the unit is missing. Allowed units: ns, us, ms, s, "
                                    "min, h or d; "
                                    "for example 1.5ms.");
}

static void quantities_are_printed(void **state)
{
    char text[TANDEM_QUANTITY_TEXT];
#define PRINTS(kind, value, expected)                                                                        \
    assert_string_equal(tandem_quantity_print_##kind(text, sizeof text, value), expected)
    PRINTS(bytes, 0, "0 B");
    PRINTS(bytes, 1023, "1023 B");
    PRINTS(bytes, 1024, "1.00 KiB");
    PRINTS(bytes, 12897485, "12.3 MiB");
    PRINTS(bytes, 1023ull << 10, "0.999 MiB");
    PRINTS(bytes, (1ull << 20) - 1, "1.00 MiB");
    PRINTS(bytes, 999ull << 10, "999 KiB");
    PRINTS(bytes, 12ull << 30, "12.0 GiB");
    PRINTS(bytes, UINT64_MAX, "16.0 EiB");
    PRINTS(ns, 0, "0 ns");
    PRINTS(ns, 123, "123 ns");
    PRINTS(ns, -7, "-7 ns");
    PRINTS(ns, 1230000, "1.23 ms");
    PRINTS(ns, 999499, "999 us");
    PRINTS(ns, 999500, "1.00 ms");
    PRINTS(ns, -45600, "-45.6 us");
    PRINTS(ns, 1500000000, "1.50 s");
    PRINTS(ns, 119000000000, "119 s");
    PRINTS(ns, 120000000000, "2.00 min");
    PRINTS(ns, 7200000000000, "2.00 h");
    PRINTS(ns, 172800000000000, "2.00 d");
    PRINTS(ns, INT64_MIN, "-106752 d");
    PRINTS(bps, 12.5e9, "12.5 GB/s");
    PRINTS(bps, 0, "0 B/s");
    PRINTS(bps, 999.4, "999 B/s");
    PRINTS(bps, 0.125, "0.125 B/s");
    PRINTS(bps, (double)NAN, "nan B/s");
    PRINTS(bps, -(double)INFINITY, "-inf B/s");
    PRINTS(count, 987, "987");
    PRINTS(count, 25557032, "25.6 M");
    PRINTS(count, 0.5, "0.500");
    PRINTS(ratio, 0.0312, "3.12%");
    PRINTS(ratio, 0, "0%");
    PRINTS(ratio, 1, "100%");
    PRINTS(ratio, -0.05, "-5.00%");
    PRINTS(ratio, 0.000312, "0.0312%");
    PRINTS(ratio, 9.996, "1000%");
#undef PRINTS
    assert_string_equal(tandem_quantity_print_per_second(text, sizeof text, 1.234e9, "FLOP"), "1.23 GFLOP/s");
#define PRINTS_TO(kind, value, digits, expected)                                                             \
    assert_string_equal(tandem_quantity_print_##kind(text, sizeof text, value, digits), expected)
    PRINTS_TO(plain, 27812.6, 2, "28000");
    PRINTS_TO(plain, 27812.6, 3, "27800");
    PRINTS_TO(plain, 99.6, 2, "100");
    PRINTS_TO(plain, 9.96, 2, "10");
    PRINTS_TO(plain, 9.94, 2, "9.9");
    PRINTS_TO(plain, 0.0123456, 2, "0.012");
    PRINTS_TO(plain, 0, 2, "0");
    PRINTS_TO(plain, (double)NAN, 2, "nan");
    PRINTS_TO(ns_to, 45900000, 2, "46 ms");
    PRINTS_TO(ns_to, 149000000, 2, "150 ms");
    PRINTS_TO(ns_to, 999600, 2, "1.0 ms");
    PRINTS_TO(ns_to, 1234567, 3, "1.23 ms");
    PRINTS_TO(ns_to, 987, 2, "990 ns");
#undef PRINTS_TO
    char narrow[5] = "????";
    assert_string_equal(tandem_quantity_print_ns(narrow, sizeof narrow, 1230000), "1.23");
}

/* What is printed reads back to within half of its third digit. */
static void printed_quantities_read_back(void **state)
{
    for (uint32_t i = 0; i < 2000; i++) {
        const uint32_t counter[4] = {i, 0, 0, 0};
        const tandem_philox_block draw = tandem_philox(counter, 7);
        const uint64_t value = (((uint64_t)draw.word[0] << 32) | draw.word[1]) >> (draw.word[2] % 64) >> 1;
        char text[TANDEM_QUANTITY_TEXT];
        uint64_t bytes = 0;
        if (value < 1ull << 49) { /* beyond TiB only the printer goes */
            tandem_quantity_print_bytes(text, sizeof text, value);
            assert_int_equal(tandem_quantity_parse_bytes(&bytes, text, NULL), TANDEM_OK);
            assert_true(fabs((double)bytes - (double)value) <= 0.00502 * (double)value);
        }
        int64_t ns = 0;
        tandem_quantity_print_ns(text, sizeof text, (int64_t)value);
        assert_int_equal(tandem_quantity_parse_ns(&ns, text, NULL),
                         value > INT64_MAX - 86400000000000 ? TANDEM_USAGE : TANDEM_OK);
        assert_true(fabs((double)ns - (double)value) <= 0.00502 * (double)value);
    }
}

static void the_locale_changes_nothing(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8",
                                        "ru_RU.UTF-8"};
    const char *got = NULL;
    for (size_t i = 0; i < N_OF(names) && !got; i++) got = setlocale(LC_ALL, names[i]);
    if (!got) {
        puts("SKIP: no locale with a decimal comma is installed; apt-get install locales-all");
        skip();
    }
    int64_t ns = 0;
    char text[TANDEM_QUANTITY_TEXT];
    const tandem_status status = tandem_quantity_parse_ns(&ns, "1.5s", NULL);
    tandem_quantity_print_ns(text, sizeof text, 1230000);
    setlocale(LC_ALL, "C");
    assert_int_equal(status, TANDEM_OK);
    assert_true(ns == 1500000000);
    assert_string_equal(text, "1.23 ms");
}

/* ---- nearest names ------------------------------------------------------------------------------------- */

static const char *const words[] = {"profile", "replay", "allocate", "train", "compare",
                                    "int8",    "bf16",   NULL,       ""};

static void near_names_are_found(void **state)
{
    static const struct {
        const char *name, *nearest;
    } cases[] = {
        {"replay", "replay"},     {"REPLAY", "replay"},   {"rpelay", "replay"},  {"alocate", "allocate"},
        {"allocaet", "allocate"}, {"profiel", "profile"}, {"tarin", "train"},    {"itn8", "int8"},
        {"bfloat16", "bf16"},     {"int", "int8"},        {"compar", "compare"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        const char *const nearest = tandem_nearest(cases[i].name, words, N_OF(words));
        if (!nearest || strcmp(nearest, cases[i].nearest) != 0)
            fail_msg("%s: %s", cases[i].name, nearest ? nearest : "NULL");
    }
}

static void far_names_are_not(void **state)
{
    assert_null(tandem_nearest(NULL, words, N_OF(words)));
    assert_null(tandem_nearest("", words, N_OF(words)));
    assert_null(tandem_nearest("zz", words, N_OF(words)));
    assert_null(tandem_nearest("quicksilver", words, N_OF(words)));
    assert_null(tandem_nearest("replay", words, 0));
    char name[200];
    memset(name, 'a', sizeof name);
    name[199] = '\0';
    const char *const long_one[] = {name};
    assert_null(tandem_nearest(name, long_one, 1));
    assert_null(tandem_nearest("aaaa", long_one, 1));
    name[64] = '\0';
    assert_ptr_equal(tandem_nearest(name, long_one, 1), name);
}

static void the_first_of_equals_and_swaps_count_once(void **state)
{
    const char *const equals[] = {"abcd1", "abcd2", "abcd3"};
    assert_ptr_equal(tandem_nearest("abcd4", equals, 3), equals[0]);
    /* "ab" swapped is one edit away from "ba…", so it beats the one with two substitutions. */
    const char *const swap[] = {"xycdef", "bacdef"};
    assert_ptr_equal(tandem_nearest("abcdef", swap, 2), swap[1]);
    /* Exactly max(2, n/2) edits are near, one more is not: "abcdef" → 3. */
    const char *const three[] = {"abcxyz"};
    const char *const four[] = {"abwxyz"};
    assert_ptr_equal(tandem_nearest("abcdef", three, 1), three[0]);
    assert_null(tandem_nearest("abcdef", four, 1));
}

static void a_column_of_a_table_is_searched(void **state)
{
    (void)state;
    static const struct {
        int64_t before;
        const char *name;
    } rows[] = {{1, "ring"}, {2, "tree"}, {3, "hierarchical"}};
    tandem_hint hint;
    assert_int_equal(tandem_name_find("tree", &rows[0].name, N_OF(rows), sizeof rows[0], NULL), 1);
    assert_int_equal(tandem_name_find("hierarchical", &rows[0].name, N_OF(rows), sizeof rows[0], &hint), 2);
    assert_int_equal(tandem_name_find("tre", &rows[0].name, N_OF(rows), sizeof rows[0], &hint), -1);
    assert_string_equal(hint.text, " Did you mean 'tree'?");
    assert_int_equal(tandem_name_find(NULL, &rows[0].name, N_OF(rows), sizeof rows[0], &hint), -1);
    assert_string_equal(hint.text, "");
}

static void an_error_for_memory_says_what_for(void **state)
{
    (void)state;
    tandem_error error;
    assert_int_equal(tandem_no_memory(&error, "to read '%s'", "a.json"), TANDEM_NO_MEMORY);
    assert_int_equal(error.status, TANDEM_NO_MEMORY);
    assert_string_equal(error.text, "no memory to read 'a.json'");
    assert_int_equal(tandem_no_memory(NULL, "to read '%s'", "a.json"), TANDEM_NO_MEMORY);
}

/* ---- arena --------------------------------------------------------------------------------------------- */

static void a_list_has_one_word_or_one_for_each(void **state)
{
    static const struct {
        const char *list;
        int k, n;
        const char *word; /* NULL = refused */
    } cases[] = {
        {"a", 0, 1, "a"},         {"a", 2, 3, "a"},    {"a,bc,d", 0, 3, "a"}, {"a,bc,d", 1, 3, "bc"},
        {"a,bc,d", 2, 3, "d"},    {"a,b", 0, 3, NULL}, {"a,b,c", 0, 2, NULL}, {"", 0, 1, NULL},
        {"a,", 0, 2, "a"},        {"a,", 1, 2, NULL},  {",a", 0, 2, NULL},    {"1234567", 0, 1, "1234567"},
        {"12345678", 0, 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char word[8] = "before";
        assert_int_equal(tandem_list_word(word, sizeof word, cases[i].list, cases[i].k, cases[i].n),
                         cases[i].word != NULL);
        assert_string_equal(word, cases[i].word ? cases[i].word : "before");
    }
}

static void arena_memory_is_zeroed_aligned_and_apart(void **state)
{
    enum { N = 3000 };
    static struct {
        unsigned char *at;
        size_t bytes;
    } got[N];
    tandem_arena arena = {0};
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t counter[4] = {i, 1, 0, 0};
        const uint32_t word = tandem_philox(counter, 3).word[0];
        got[i].bytes = i % 500 == 499 ? 100000 + word % 3000000 : word % 300;
        got[i].at = tandem_arena_alloc(&arena, got[i].bytes);
        assert_non_null(got[i].at);
        assert_int_equal((uintptr_t)got[i].at % 16, 0);
        for (size_t k = 0; k < got[i].bytes; k++)
            if (got[i].at[k] != 0) fail_msg("allocation %u is not zero at %zu", i, k);
        memset(got[i].at, (int)(i % 255 + 1), got[i].bytes);
    }
    for (uint32_t i = 0; i < N; i++)
        for (size_t k = 0; k < got[i].bytes; k++)
            if (got[i].at[k] != i % 255 + 1) fail_msg("allocation %u was overwritten at %zu", i, k);
    tandem_arena_free(&arena);
    assert_null(arena.block);
    tandem_arena_free(&arena);
    assert_non_null(tandem_arena_alloc(&arena, 0)); /* and it can be used again */
    tandem_arena_free(&arena);
}

static void arena_refuses_what_cannot_be(void **state)
{
    tandem_arena arena = {0};
    assert_null(tandem_arena_alloc(&arena, SIZE_MAX));
    assert_null(tandem_arena_alloc(&arena, SIZE_MAX - 15));
    assert_null(tandem_arena_alloc(&arena, SIZE_MAX - 40));
    assert_null(tandem_arena_array(&arena, SIZE_MAX / 2, 3));
    assert_null(tandem_arena_array(&arena, (size_t)1 << 33, (size_t)1 << 33));
    assert_null(arena.block);
    int *const numbers = tandem_arena_array(&arena, 100, sizeof *numbers);
    assert_non_null(numbers);
    assert_null(tandem_arena_alloc(&arena, SIZE_MAX - 40)); /* what was given stays */
    numbers[99] = 5;
    const char *const text = tandem_arena_text(&arena, "tandem");
    assert_string_equal(text, "tandem");
    assert_int_equal(numbers[99], 5);
    assert_non_null(tandem_arena_array(&arena, 0, 8));
    tandem_arena_free(&arena);
}

static void a_large_array_wastes_no_room(void **state)
{
    tandem_arena arena = {0};
    unsigned char *const first = tandem_arena_alloc(&arena, 16);
    unsigned char *const large = tandem_arena_alloc(&arena, 10000000);
    unsigned char *const second = tandem_arena_alloc(&arena, 16);
    assert_non_null(large);
    assert_ptr_equal(second, first + 16);
    tandem_arena_free(&arena);
}

/* ---- status, Philox ------------------------------------------------------------------------------------ */

static void the_status_table_is_whole(void **state)
{
    for (int status = 0; status < TANDEM_N_STATUS; status++) {
        assert_true(strlen(tandem_status_name((tandem_status)status)) > 0);
        assert_true(strlen(tandem_status_meaning((tandem_status)status)) > 0);
    }
    assert_int_equal(tandem_status_exit_code(TANDEM_OK), 0);
    assert_int_equal(tandem_status_exit_code(TANDEM_USAGE), 2);
    assert_int_equal(tandem_status_exit_code(TANDEM_BUG), 70);
    assert_string_equal(tandem_status_name((tandem_status)1000), "BUG");
    assert_string_equal(tandem_status_name((tandem_status)-1), "BUG");
    assert_int_equal(tandem_error_set(NULL, TANDEM_IO, "unseen %d", 1), TANDEM_IO);
    tandem_error error = {0};
    char text[2 * TANDEM_ERROR_TEXT];
    memset(text, 'x', sizeof text);
    for (size_t i = 9; i < sizeof text; i += 10) text[i] = ' ';
    text[sizeof text - 1] = '\0';
    assert_int_equal(tandem_error_set(&error, TANDEM_RANK_FAILED, "%s", text), TANDEM_RANK_FAILED);
    assert_int_equal(error.rank, -1);
    assert_int_equal(strlen(error.text), TANDEM_ERROR_TEXT - 1);
}

/* The known answers published with Random123 for philox4x32-10. */
static void philox_gives_the_published_words(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], word[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < N_OF(known); i++) {
        const uint64_t key = (uint64_t)known[i].key[1] << 32 | known[i].key[0];
        const tandem_philox_block block = tandem_philox(known[i].counter, key);
        assert_memory_equal(block.word, known[i].word, sizeof block.word);
    }
    assert_true(tandem_philox_uniform(0) == 0.0f);
    assert_true(tandem_philox_uniform(UINT32_MAX) < 1.0f);
}

/* The last digit of a text represents this much. */
static double step_of_text(const char *text)
{
    const char *point = strchr(text, '.');
    double step = 1;
    if (point) {
        for (const char *c = point + 1; *c; c++) step /= 10;
        return step;
    }
    for (const char *c = text + strlen(text) - 1; c > text && *c == '0'; c--) step *= 10;
    return step;
}

static void digits_end_where_the_error_begins(void **state)
{
    static const struct {
        double value, half;
        const char *text;
    } by_hand[] = {{1.372, 1.5, "1"},
                   {143, 30, "140"},
                   {0.01234, 0.0004, "0.0123"},
                   {2.2, 0.1, "2.2"},
                   {0.04, 3, "0"},
                   {-0.04, 3, "0"},
                   {-1.26, 0.2, "-1.3"},
                   {0, NAN, "0"},
                   {0, 0, "0"},
                   {0.0123456, NAN, "0.012"},
                   {1.372, 0, "1.4"},
                   {9.96, 0.04, "9.96"},
                   {149999, 20000, "150000"},
                   {1e-12, 1e-13, "0.000000000"}};
    for (size_t k = 0; k < N_OF(by_hand); k++)
        assert_string_equal(tandem_quantity_known_to(by_hand[k].value, by_hand[k].half).text,
                            by_hand[k].text);
    for (int k = 0; k < 4000; k++) {
        const uint32_t counter[4] = {(uint32_t)k, 0, 0, 5};
        const tandem_philox_block drawn = tandem_philox(counter, 9);
        const double half = pow(10, 11 * (double)tandem_philox_uniform(drawn.word[0]) - 7),
                     value = half * 2000 * (double)tandem_philox_uniform(drawn.word[1]);
        const tandem_quantity printed = tandem_quantity_known_to(value, half);
        const char *text = printed.text;
        const double shown = strtod(text, NULL), step = step_of_text(text);
        if (fabs(shown - value) > 0.51 * fmax(fmin(step, half), half / 10) || (half < 1 && step > half))
            fail_msg("%.12g known to %.3g is '%s'", value, half, text);
        if (half < 1 && step < half / 10)
            fail_msg("%.12g known to %.3g has more digits: '%s'", value, half, text);
    }
    (void)state;
}

/* A path that is longer than the text, and what to do after it. */
static void an_error_that_does_not_fit_keeps_its_end(void **state)
{
    char path[3001] = "/first/";
    tandem_error error = {0};
    memset(path + 7, 'x', sizeof path - 8);
    memcpy(path + sizeof path - 13, "\xc3\xa9/last.onnx", 13);
    tandem_error_set(&error, TANDEM_IO, "model '%s' is of '%s'. Do something else", path, path);
    assert_true(strlen(error.text) < 400);
    assert_non_null(strstr(error.text, "model '/first/xxx"));
    assert_non_null(strstr(error.text, "xxx\xc3\xa9/last.onnx' is of '/first/"));
    assert_non_null(strstr(error.text, "last.onnx'. Do something else"));
    tandem_error_set(&error, TANDEM_IO, "it is %s", "short");
    assert_string_equal(error.text, "it is short");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_that_does_not_fit_keeps_its_end),
        cmocka_unit_test(bytes_are_read),
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(rates_are_read),
        cmocka_unit_test(ratios_are_read),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(long_numbers_are_handled),
        cmocka_unit_test(ranges_end_where_the_types_do),
        cmocka_unit_test(the_error_says_what_is_wrong),
        cmocka_unit_test(quantities_are_printed),
        cmocka_unit_test(digits_end_where_the_error_begins),
        cmocka_unit_test(printed_quantities_read_back),
        cmocka_unit_test(the_locale_changes_nothing),
        cmocka_unit_test(near_names_are_found),
        cmocka_unit_test(far_names_are_not),
        cmocka_unit_test(the_first_of_equals_and_swaps_count_once),
        cmocka_unit_test(a_column_of_a_table_is_searched),
        cmocka_unit_test(an_error_for_memory_says_what_for),
        cmocka_unit_test(a_list_has_one_word_or_one_for_each),
        cmocka_unit_test(arena_memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(arena_refuses_what_cannot_be),
        cmocka_unit_test(a_large_array_wastes_no_room),
        cmocka_unit_test(the_status_table_is_whole),
        cmocka_unit_test(philox_gives_the_published_words),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
