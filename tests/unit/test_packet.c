/* folder: runtime */
/* test_packet.c: what is written to a packet is read again, and a packet that is not whole is refused. */
#include "runtime/process/packet.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tandem_test.h"

typedef struct letter {
    int number;
    const char *text, *none;
    char *own;
    int64_t *numbers;
    size_t n;
    const double *borrowed;
} letter;

static void pack_letter(packet *p, letter *l)
{
    packet_value(p, &l->number, sizeof l->number);
    packet_value(p, &l->n, sizeof l->n);
    packet_text(p, &l->text);
    packet_text(p, &l->none);
    packet_own_text(p, &l->own);
    packet_array(p, &l->numbers, l->n, sizeof *l->numbers);
    packet_borrowed(p, (const void **)&l->borrowed, sizeof *l->borrowed);
}

static void pack_sample(packet *p)
{
    int64_t numbers[3] = {1, -2, INT64_MAX};
    const double value = 0.5;
    char own[] = "own";
    letter sent = {.number = 7, .text = "text", .own = own, .numbers = numbers, .n = 3, .borrowed = &value};
    pack_letter(p, &sent);
    assert_false(p->has_failed);
}

static void what_is_written_is_read_again(void **state)
{
    packet p = {0};
    letter got = {0};
    double value = 0;
    pack_sample(&p);
    packet_begin_reading(&p);
    pack_letter(&p, &got);
    assert_false(p.has_failed);
    assert_int_equal(p.read, p.n);
    assert_int_equal(got.number, 7);
    assert_string_equal(got.text, "text");
    assert_null(got.none);
    assert_string_equal(got.own, "own");
    assert_int_equal(got.numbers[1], -2);
    memcpy(&value, got.borrowed, sizeof value);
    assert_true(value == 0.5);
    free(got.own);
    free(got.numbers);
    packet_free(&p);
}

/* Every length but the whole one: it says so, reads nothing beyond its end, and leaves no memory. */
static void a_packet_that_is_cut_off_is_refused(void **state)
{
    packet whole = {0};
    pack_sample(&whole);
    for (size_t n = 0; n < whole.n; n++) {
        packet cut = {.bytes = malloc(n + 1), .n = n, .is_reading = 1};
        letter got = {0};
        memcpy(cut.bytes, whole.bytes, n);
        pack_letter(&cut, &got);
        assert_true(cut.has_failed);
        free(got.own);
        free(got.numbers);
        packet_free(&cut);
    }
    packet_free(&whole);
}

static void a_number_of_elements_that_cannot_be_is_refused(void **state)
{
    packet p = {0};
    uint64_t n = UINT64_MAX / 4;
    int64_t *numbers = NULL;
    packet_value(&p, &n, sizeof n);
    packet_begin_reading(&p);
    packet_array(&p, &numbers, 0, sizeof *numbers);
    assert_true(p.has_failed);
    assert_null(numbers);
    packet_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(a_packet_that_is_cut_off_is_refused),
        cmocka_unit_test(a_number_of_elements_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
