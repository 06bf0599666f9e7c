/* made.c: what this command is, for all that it writes: its line, the version, the machine and the seed.
 *
 * No time of day, and no option that only says where output goes: the same work gives the same bytes. A
 * command that another one runs says the line that the user typed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/host.h"
#include "cli/cli.h"

static tandem_made made;
static int is_full;     /* whether a word had no room */
static int is_finished; /* a command that this one runs adds nothing */

/* --- The line ------------------------------------------------------------------------------------------- */

static int is_plain_word(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-";
    return *word && word[strspn(word, plain)] == '\0';
}

static int is_utf8(const char *text)
{
    json_t *const string = json_string(text);
    json_decref(string);
    return string != NULL;
}

/* Bytes of `byte` in $'…'; written to `to`, which may be NULL. */
static size_t put_quoted_byte(char *to, unsigned char byte, int as_hex)
{
    char text[8];
    int n;
    if (byte == '\'' || byte == '\\')
        n = snprintf(text, sizeof text, "\\%c", byte);
    else if (byte < 0x20 || byte == 0x7f || (as_hex && byte >= 0x80))
        n = snprintf(text, sizeof text, "\\x%02x", byte);
    else
        n = snprintf(text, sizeof text, "%c", byte);
    if (to) memcpy(to, text, (size_t)n);
    return (size_t)n;
}

/* `name`, "" or "--option=", and the word as a shell reads it: as it is, in '…', or in $'…'. */
static void append_word(const char *name, const char *word)
{
    const int as_hex = !is_utf8(word);
    int is_simple = !as_hex; /* may be in '…' */
    size_t n = strlen(made.command), length = strlen(name) + sizeof " $''";
    for (const char *at = word; *at; at++) {
        is_simple &= *at != '\'' && (unsigned char)*at >= 0x20 && *at != 0x7f;
        length += put_quoted_byte(NULL, (unsigned char)*at, as_hex);
    }
    if (is_full) return;
    if (n + length + sizeof " …" > sizeof made.command) {
        is_full = 1;
        (void)tandem_append(made.command, sizeof made.command, " …");
        return;
    }
    if (is_plain_word(word)) {
        (void)tandem_append(made.command, sizeof made.command, " %s%s", name, word);
        return;
    }
    (void)tandem_append(made.command, sizeof made.command, " %s%s", name, is_simple ? "'" : "$'");
    n = strlen(made.command);
    for (const char *at = word; *at; at++)
        if (is_simple)
            made.command[n++] = *at;
        else
            n += put_quoted_byte(made.command + n, (unsigned char)*at, as_hex);
    made.command[n++] = '\'';
    made.command[n] = '\0';
}

void cli_made_begin(const char *call) { (void)snprintf(made.command, sizeof made.command, "%s", call); }

void cli_made_add(const char *option, const char *value)
{
    char name[64] = "";
    if (is_finished) return;
    if (option) (void)snprintf(name, sizeof name, "--%s%s", option, value ? "=" : "");
    if (value)
        append_word(name, value);
    else
        append_word("", name);
}

/* --- Whole ---------------------------------------------------------------------------------------------- */

void cli_made_finish(const cli_options *options, const cli_command *command)
{
    tandem_host host = {.n_cpu = 0};
    if (is_finished) return;
    char cpu[TANDEM_HOST_CPU];
    tandem_host_read(&host);
    (void)snprintf(cpu, sizeof cpu, "%s", is_utf8(host.cpu) ? host.cpu : "");
    (void)snprintf(made.version, sizeof made.version, "%s", TANDEM_VERSION);
    (void)snprintf(made.host, sizeof made.host, "%s%s%d CPU%s, %s", cpu, *cpu ? ", " : "", host.n_cpu,
                   host.n_cpu == 1 ? "" : "s", host.name_hash);
    for (const int *key = command->option; *key != OPTION_END; key++)
        if (*key == OPTION_SEED) (void)snprintf(made.seed, sizeof made.seed, "%" PRIu64, options->seed);
    is_finished = 1;
}

const tandem_made *cli_made(void) { return &made; }

json_t *cli_made_json(void)
{
    json_t *const object =
        json_pack("{s:s,s:s,s:s}", "command", made.command, "version", made.version, "host", made.host);
    if (object && made.seed[0])
        json_object_set_new(object, "seed", json_integer((json_int_t)strtoll(made.seed, NULL, 10)));
    return object;
}
