/* json_write.c: writes JSON strings and numbers. */
#include "profiles/format/json_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"

/* Bytes of the UTF-8 sequence at `text`; 0 if it is invalid. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        /* the second byte excludes overlong forms and surrogates */
        unsigned char mask, lead, min_second, max_second;
        size_t length;
    } patterns[] = {
        {0xe0, 0xc0, 0x80, 0xbf, 2}, {0xff, 0xe0, 0xa0, 0xbf, 3}, {0xff, 0xed, 0x80, 0x9f, 3},
        {0xf0, 0xe0, 0x80, 0xbf, 3}, {0xff, 0xf0, 0x90, 0xbf, 4}, {0xff, 0xf4, 0x80, 0x8f, 4},
        {0xf8, 0xf0, 0x80, 0xbf, 4},
    };
    if (text[0] < 0x80) return 1;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        if ((text[0] & patterns[i].mask) != patterns[i].lead) continue;
        if (text[0] < 0xc2 || text[0] > 0xf4 || text[1] < patterns[i].min_second ||
            text[1] > patterns[i].max_second)
            return 0;
        for (size_t b = 2; b < patterns[i].length; b++)
            if ((text[b] & 0xc0) != 0x80) return 0;
        return patterns[i].length;
    }
    return 0;
}

void tandem_json_write_text(FILE *stream, const char *text)
{
    (void)fputc('"', stream);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        const size_t length = utf8_length(at);
        if (*at == '"' || *at == '\\')
            (void)fprintf(stream, "\\%c", *at);
        else if (*at < 0x20)
            (void)fprintf(stream, "\\u%04x", *at);
        else if (length == 0)
            (void)fputs("\\ufffd", stream);
        else
            (void)fwrite(at, 1, length, stream);
        at += length ? length : 1;
    }
    (void)fputc('"', stream);
}

void tandem_json_write_real(FILE *stream, double value)
{
    char digits[40];
    int precision = 1;
    if (!isfinite(value)) {
        (void)fputs("null", stream);
        return;
    }
    do (void)tandem_plain_print(digits, sizeof digits, "%.*g", precision, value);
    while (tandem_plain_read(digits, NULL) != value && ++precision <= 17);
    (void)fputs(digits, stream);
}
