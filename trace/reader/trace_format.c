/* trace_format.c: detects the format of a recorded file by its name or its first bytes. */
#include <stdlib.h>
#include <string.h>

#include "tandem/advanced/whatif.h"
#include "trace/reader/read_events.h"

/* No CSV begins like that. JSON may contain control characters. */
static int is_binary(const tandem_input *input)
{
    enum { N_PROBED_BYTES = 256 };
    if (input->bytes[input->at] == '{' || input->bytes[input->at] == '[') return 0;
    for (size_t k = input->at; k < input->end && k < input->at + N_PROBED_BYTES; k++)
        if (input->bytes[k] < '\t' || (input->bytes[k] > '\r' && input->bytes[k] < ' ')) return 1;
    return 0;
}

static int has_suffix(const char *path, const char *ending)
{
    const size_t n = strlen(path), n_ending = strlen(ending);
    return n > n_ending && strcmp(path + n - n_ending, ending) == 0;
}

/* Whether a file named like a Chakra trace is JSON, as PyTorch's own execution traces are. A Chakra trace may
 * begin with '{', too: the length of its first message. */
static int is_json_object(const tandem_input *input)
{
    size_t k = input->at;
    if (k == input->end || input->bytes[k] != '{') return 0;
    for (k++; k < input->end && strchr(" \t\r\n", input->bytes[k]) && input->bytes[k]; k++)
        ;
    return k < input->end && (input->bytes[k] == '"' || input->bytes[k] == '}');
}

static tandem_status detect_text_format(tandem_trace_format *format, tandem_input *input, tandem_error *error)
{
    int is_there = 1;
    const tandem_status more =
        input->at == input->end ? tandem_input_refill(input, &is_there, error) : TANDEM_OK;
    if (more != TANDEM_OK) return more;
    *format = TANDEM_TRACE_FORMAT_CHAKRA;
    if (is_binary(input)) return TANDEM_OK;
    tandem_json_stream json = {.input = input, .error = error};
    const char first = tandem_json_stream_peek(&json);
    is_there = 1;
    if (json.status != TANDEM_OK) return json.status;
    *format = TANDEM_TRACE_FORMAT_PIPELINE_CSV;
    if (first != '{' && first != '[') return TANDEM_OK;
    tandem_events events;
    tandem_event *const event = calloc(1, sizeof *event);
    if (!event) return tandem_no_memory(error, "to read '%.200s'", input->source);
    tandem_events_open(&events, input, error);
    tandem_status status = TANDEM_OK;
    while (status == TANDEM_OK && is_there && event->phase != 'X')
        status = tandem_events_next(&events, event, &is_there);
    *format = event->phase == 'X' && event->kind.n && event->task != INT64_MIN ? TANDEM_TRACE_FORMAT_STEP
                                                                               : TANDEM_TRACE_FORMAT_TORCH;
    free(event);
    return status;
}

tandem_status tandem_trace_format_detect(tandem_trace_format *format, const char *path, tandem_error *error)
{
    tandem_input input = {0};
    tandem_trace_format found = TANDEM_TRACE_FORMAT_PIPELINE_CSV;
    const int is_named_chakra = has_suffix(path, ".et") || has_suffix(path, ".et.gz");
    int is_there = 0;
    tandem_status status = tandem_input_open(&input, path, error);
    if (status == TANDEM_OK && is_named_chakra) status = tandem_input_refill(&input, &is_there, error);
    if (status == TANDEM_OK && is_named_chakra && !is_json_object(&input))
        found = TANDEM_TRACE_FORMAT_CHAKRA;
    else if (status == TANDEM_OK)
        status = detect_text_format(&found, &input, error);
    if (status == TANDEM_OK) *format = found;
    tandem_input_close(&input);
    return status;
}
