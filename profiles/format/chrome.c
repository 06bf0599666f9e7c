/* chrome.c: writes Chrome trace events without printf, whose cost would dominate large traces. */
#include "profiles/format/chrome.h"

#include "profiles/format/json_write.h"

enum { DIGITS = 32 };

static void flush_chrome(tandem_chrome *chrome)
{
    if (chrome->n) (void)fwrite(chrome->buffer, 1, chrome->n, chrome->stream);
    chrome->n = 0;
}

/* A string in quotes. Ensures room for the rest of an event after it. Most strings need no escapes. */
static void put_json_string(tandem_chrome *chrome, const char *text)
{
    enum { LONGEST = TANDEM_CHROME_CAPACITY - TANDEM_CHROME_EVENT - 2 };
    size_t n = 0;
    while ((unsigned char)(text[n] - 0x20) < 0x5f && text[n] != '"' && text[n] != '\\') n++;
    if (chrome->n + n > LONGEST || text[n]) flush_chrome(chrome);
    if (text[n] || n > LONGEST) {
        tandem_json_write_text(chrome->stream, text);
        return;
    }
    char *const to = chrome->buffer + chrome->n;
    to[0] = '"';
    memcpy(to + 1, text, n);
    to[n + 1] = '"';
    chrome->n += n + 2;
}

/* --- Numbers -------------------------------------------------------------------------------------------- */

/* Writes the digits of a number so that they end at `end`; returns their begin. */
static char *write_digits_before(char *end, uint64_t value)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    for (; value >= 100; value /= 100) memcpy(end -= 2, pairs + 2 * (value % 100), 2);
    if (value >= 10) return memcpy(end - 2, pairs + 2 * value, 2);
    *--end = (char)('0' + value);
    return end;
}

static uint64_t magnitude_of(int64_t value) { return value < 0 ? 0 - (uint64_t)value : (uint64_t)value; }

/* Appends the last bytes of `text`, from `first` on. */
static void put_digits(tandem_chrome *chrome, const char text[DIGITS], const char *first)
{
    const size_t n = (size_t)(text + DIGITS - first);
    memcpy(chrome->buffer + chrome->n, first, n);
    chrome->n += n;
}

void tandem_chrome_integer(tandem_chrome *chrome, int64_t value)
{
    char text[DIGITS], *first = write_digits_before(text + DIGITS, magnitude_of(value));
    if (value < 0) *--first = '-';
    put_digits(chrome, text, first);
}

void tandem_chrome_us(tandem_chrome *chrome, int64_t ns)
{
    char text[DIGITS], *const end = text + DIGITS;
    const uint64_t magnitude = magnitude_of(ns), whole = magnitude / 1000;
    const unsigned rest = (unsigned)(magnitude - 1000 * whole);
    end[-1] = (char)('0' + rest % 10);
    end[-2] = (char)('0' + rest / 10 % 10);
    end[-3] = (char)('0' + rest / 100);
    end[-4] = '.';
    char *first = write_digits_before(end - 4, whole);
    if (ns < 0) *--first = '-';
    put_digits(chrome, text, first);
}

/* --- Events --------------------------------------------------------------------------------------------- */

static void begin_event(tandem_chrome *chrome, char phase, const char *name, int pid, int tid)
{
    if (chrome->n > TANDEM_CHROME_CAPACITY - TANDEM_CHROME_EVENT) flush_chrome(chrome);
    tandem_chrome_put(chrome, chrome->n_event++ ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
    chrome->buffer[chrome->n++] = phase;
    tandem_chrome_put(chrome, "\",\"name\":");
    put_json_string(chrome, name);
    tandem_chrome_put(chrome, ",\"pid\":");
    tandem_chrome_integer(chrome, pid);
    tandem_chrome_put(chrome, ",\"tid\":");
    tandem_chrome_integer(chrome, tid);
}

void tandem_chrome_event(tandem_chrome *chrome, char phase, const char *name, const char *category, int pid,
                         int tid, int64_t ts_ns)
{
    begin_event(chrome, phase, name, pid, tid);
    tandem_chrome_put(chrome, ",\"cat\":\"");
    tandem_chrome_put(chrome, category);
    tandem_chrome_put(chrome, "\",\"ts\":");
    tandem_chrome_us(chrome, ts_ns);
}

void tandem_chrome_name(tandem_chrome *chrome, const char *kind, int pid, int tid, const char *name)
{
    begin_event(chrome, 'M', kind, pid, tid);
    tandem_chrome_put(chrome, ",\"args\":{\"name\":");
    put_json_string(chrome, name);
    tandem_chrome_put(chrome, "}}");
}

void tandem_chrome_begin(tandem_chrome *chrome, FILE *stream, const char *const *about)
{
    chrome->stream = stream;
    chrome->n_event = 0;
    chrome->n = 0;
    tandem_chrome_put(chrome, "{\"displayTimeUnit\":\"ns\"");
    for (int k = 0; about && about[k]; k += 2) {
        tandem_chrome_put(chrome, k ? "," : ",\"otherData\":{");
        put_json_string(chrome, about[k]);
        tandem_chrome_put(chrome, ":");
        put_json_string(chrome, about[k + 1]);
        if (!about[k + 2]) tandem_chrome_put(chrome, "}");
    }
    tandem_chrome_put(chrome, ",\"traceEvents\":[");
}

void tandem_chrome_end(tandem_chrome *chrome)
{
    flush_chrome(chrome);
    tandem_chrome_put(chrome, "\n]}\n");
    flush_chrome(chrome);
}
