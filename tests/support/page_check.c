#include "tests/support/page_check.h"

#include <string.h>

enum { MAX_DEPTH = 64, NAME = 16 };

typedef struct page_reader {
    const char *html;
    size_t n, at;
    char open[MAX_DEPTH][NAME];
    int depth, n_script;
} page_reader;

static const char *const elements[] = {
    "html", "head",   "meta",  "link",    "title",   "style",  "body",   "a",       "svg",     "defs",
    "path", "header", "p",     "h1",      "h2",      "h3",     "h4",     "main",    "article", "nav",
    "ul",   "li",     "ol",    "section", "q",       "code",   "strong", "dl",      "dt",      "dd",
    "div",  "table",  "thead", "tbody",   "tr",      "th",     "td",     "caption", "figure",  "figcaption",
    "i",    "b",      "span",  "details", "summary", "footer", "script", "pattern", NULL};
static const char *const attributes[] = {"lang",
                                         "charset",
                                         "name",
                                         "content",
                                         "http-equiv",
                                         "rel",
                                         "href",
                                         "class",
                                         "width",
                                         "height",
                                         "id",
                                         "d",
                                         "viewBox",
                                         "role",
                                         "tabindex",
                                         "style",
                                         "scope",
                                         "aria-label",
                                         "preserveAspectRatio",
                                         "aria-hidden",
                                         "data-span",
                                         "patternUnits",
                                         "patternTransform",
                                         NULL};

static int is_listed(const char *const *list, const char *name, size_t n)
{
    for (; *list; list++)
        if (strlen(*list) == n && memcmp(*list, name, n) == 0) return 1;
    return 0;
}

static size_t name_length(const page_reader *r)
{
    size_t n = 0;
    while (r->at + n < r->n && (strchr("-", r->html[r->at + n]) || (r->html[r->at + n] | 32) >= 'a') &&
           r->html[r->at + n] != '>' && r->html[r->at + n] != '=' && r->html[r->at + n] && n < 32)
        n++;
    while (r->at + n < r->n && r->html[r->at + n] >= '0' && r->html[r->at + n] <= '9') n++; /* h1 */
    return n;
}

/* An attribute ` name="value"`. */
static const char *read_attribute(page_reader *r)
{
    r->at++;
    const char *const name = r->html + r->at;
    const size_t n = name_length(r);
    if (!is_listed(attributes, name, n)) return "an attribute that the writer does not write";
    r->at += n;
    if (r->at + 1 >= r->n || r->html[r->at] != '=' || r->html[r->at + 1] != '"')
        return "a value without quotes";
    const char *const value = r->html + r->at + 2, *const end = memchr(value, '"', r->n - r->at - 2);
    if (!end) return "a value without an end";
    if (memchr(value, '<', (size_t)(end - value))) return "a '<' in a value";
    if (n == 4 && memcmp(name, "href", n) == 0 && *value != '#' && strncmp(value, "data:,", 6) != 0)
        return "an address";
    r->at = (size_t)(end - r->html) + 1;
    return NULL;
}

static const char *read_end_tag(page_reader *r)
{
    r->at++;
    const char *const name = r->html + r->at;
    const size_t n = name_length(r);
    if (r->depth == 0 || strlen(r->open[r->depth - 1]) != n || memcmp(r->open[r->depth - 1], name, n) != 0)
        return "an end of another element";
    r->depth--;
    r->at += n;
    return r->at < r->n && r->html[r->at++] == '>' ? NULL : "an end that does not end";
}

/* Style and script are texts of the tree; they end at their end tag. */
static const char *skip_raw(page_reader *r, const char *end)
{
    const char *const found = memmem(r->html + r->at, r->n - r->at, end, strlen(end));
    if (!found) return "a text without an end";
    r->at = (size_t)(found - r->html);
    return NULL;
}

static const char *read_tag(page_reader *r)
{
    static const char *const empty[] = {"meta", "link", NULL};
    r->at++;
    if (r->at < r->n && r->html[r->at] == '!') return r->at == 1 ? skip_raw(r, "\n") : "a comment";
    if (r->at < r->n && r->html[r->at] == '/') return read_end_tag(r);
    const char *const name = r->html + r->at;
    const size_t n = name_length(r);
    const char *wrong = is_listed(elements, name, n) ? NULL : "an element that the writer does not write";
    if (wrong) return wrong;
    r->at += n;
    while (!wrong && r->at < r->n && r->html[r->at] == ' ') wrong = read_attribute(r);
    const int is_closed = r->at < r->n && r->html[r->at] == '/';
    r->at += (size_t)is_closed;
    if (wrong) return wrong;
    if (r->at >= r->n || r->html[r->at++] != '>') return "a tag that does not end";
    if (is_closed || is_listed(empty, name, n)) return NULL;
    if (r->depth == MAX_DEPTH || n >= NAME) return "elements too deep";
    memcpy(r->open[r->depth], name, n);
    r->open[r->depth++][n] = '\0';
    const int is_script = n == 6 && memcmp(name, "script", n) == 0;
    r->n_script += is_script;
    if (is_script) return skip_raw(r, "</script>");
    return n == 5 && memcmp(name, "style", n) == 0 ? skip_raw(r, "</style>") : NULL;
}

/* Bytes of a valid character that may be shown; 0 = none. */
static size_t character_length(const unsigned char *text, size_t n)
{
    if (text[0] < 0x80) return text[0] >= 0x20 || text[0] == '\n';
    const size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4 || length > n) return 0;
    for (size_t k = 1; k < length; k++)
        if ((text[k] & 0xc0) != 0x80) return 0;
    const int is_direction = text[0] == 0xe2 && ((text[1] == 0x80 && text[2] >= 0xaa && text[2] <= 0xae) ||
                                                 (text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9));
    return is_direction ? 0 : length;
}

const char *page_check(const char *html, size_t n, size_t *at)
{
    page_reader r = {.html = html, .n = n};
    const char *wrong = NULL;
    for (size_t k = 0; k < n;) {
        const size_t length = character_length((const unsigned char *)html + k, n - k);
        *at = k;
        if (!length) return "a control character, or no UTF-8";
        k += length;
    }
    while (!wrong && r.at < n) {
        *at = r.at;
        if (html[r.at] == '<')
            wrong = read_tag(&r);
        else
            r.at++;
    }
    if (!wrong && r.depth) wrong = "an element without an end";
    return !wrong && r.n_script != 1 ? "not one script" : wrong;
}
