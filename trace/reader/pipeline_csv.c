/* pipeline_csv.c: reads a pipeline trace from CSV, line by line. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "trace/reader/pipeline_trace.h"
#include "trace/reader/read_input.h"

enum column {
    DP_RANK,
    STAGE,
    STEP,
    OPTYPE,
    SEQ_ID,
    START,
    DURATION,
    N_REQUIRED,
    CHUNK = N_REQUIRED,
    TP_RANK,
    N_COLUMN
};
static const char *const column_name[N_COLUMN] = {"dp_rank",  "stage",  "step",        "optype", "seq_id",
                                                  "start_us", "dur_us", "model_chunk", "tp_rank"};

enum { MAX_CELLS = 64 };

typedef struct csv_cell {
    const char *text;
    size_t n;
} csv_cell;

typedef struct csv_reader {
    tandem_input *input;
    tandem_error *error;
    int64_t line; /* number of the current line */
    int cell_of[N_COLUMN];
    int n_cell; /* in the heading */
    tandem_pipeline_ops rows;
} csv_reader;

/* --- Lines ---------------------------------------------------------------------------------------------- */

static tandem_status refuse_cell(const csv_reader *r, const char *column, const char *expected, csv_cell got)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s', line %lld: %s must be %s, got '%.*s'",
                            r->input->source, (long long)r->line, column, expected,
                            (int)(got.n < 60 ? got.n : 60), got.text);
}

/* Returns the number of cells; fills in the first MAX_CELLS. */
static int split_csv_cells(csv_cell *cells, const char *line, size_t n)
{
    int count = 0;
    for (const char *at = line, *const end = line + n;; count++) {
        const char *const comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        if (count < MAX_CELLS) cells[count] = (csv_cell){at, (size_t)((comma ? comma : end) - at)};
        if (!comma) return count + 1;
        at = comma + 1;
    }
}

static tandem_status refuse_missing_column(const csv_reader *r, int column, const csv_cell *cells, int n)
{
    char name[MAX_CELLS][TANDEM_NEAREST_LENGTH];
    const char *names[MAX_CELLS];
    for (int i = 0; i < n; i++) {
        (void)snprintf(name[i], sizeof name[i], "%.*s", (int)(cells[i].n < 63 ? cells[i].n : 63),
                       cells[i].text);
        names[i] = name[i];
    }
    const char *const near = tandem_nearest(column_name[column], names, (size_t)n);
    return tandem_error_set(r->error, TANDEM_MALFORMED,
                            "'%.200s', line 1: no column %s%s%s%s. A trace names its columns dp_rank, stage, "
                            "step, optype, seq_id, start_us, dur_us; model_chunk and tp_rank are optional",
                            r->input->source, column_name[column], near ? " (is it '" : "", near ? near : "",
                            near ? "'?)" : "");
}

static tandem_status read_csv_heading(csv_reader *r)
{
    csv_cell cells[MAX_CELLS];
    const char *line = NULL;
    size_t n = 0;
    const tandem_status status = tandem_input_read_line(r->input, &line, &n, r->error);
    if (status != TANDEM_OK) return status;
    r->line = 1;
    r->n_cell = line ? split_csv_cells(cells, line, n) : 0;
    if (r->n_cell > MAX_CELLS)
        return tandem_error_set(r->error, TANDEM_MALFORMED,
                                "'%.200s', line 1: %d columns; expected at most %d", r->input->source,
                                r->n_cell, MAX_CELLS);
    for (int column = 0; column < N_COLUMN; column++) {
        const size_t length = strlen(column_name[column]);
        r->cell_of[column] = -1;
        for (int i = 0; i < r->n_cell; i++)
            if (cells[i].n == length && memcmp(cells[i].text, column_name[column], length) == 0)
                r->cell_of[column] = i;
        if (r->cell_of[column] < 0 && column < N_REQUIRED)
            return refuse_missing_column(r, column, cells, r->n_cell);
    }
    return TANDEM_OK;
}

/* --- Cells ---------------------------------------------------------------------------------------------- */

static tandem_status read_integer_cell(const csv_reader *r, const csv_cell *cells, enum column column,
                                       int64_t min, int64_t max, int64_t *value)
{
    const csv_cell c = cells[r->cell_of[column]];
    const int is_negative = c.n > 0 && c.text[0] == '-';
    int64_t number = 0;
    size_t i = (size_t)is_negative;
    for (; i < c.n && c.text[i] >= '0' && c.text[i] <= '9' && number <= max; i++)
        number = 10 * number + (c.text[i] - '0');
    if (is_negative) number = -number;
    if (i == c.n && c.n > (size_t)is_negative && number >= min && number <= max) {
        *value = number;
        return TANDEM_OK;
    }
    char expected[80];
    (void)snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)min,
                   (long long)max);
    return refuse_cell(r, column_name[column], expected, c);
}

static tandem_status read_time_cell(csv_reader *r, const csv_cell *cells, enum column column, int64_t *ns)
{
    int64_t value = 0;
    const csv_cell c = cells[r->cell_of[column]];
    const int code = tandem_input_parse_us(&value, c.text, c.n);
    if (code == -1) return refuse_cell(r, column_name[column], "a number of us", c);
    if (column == DURATION && (code == -2 || !tandem_input_clamp_duration(&value, &r->rows.n_negative)))
        return refuse_cell(r, column_name[column], TANDEM_INPUT_DURATIONS, c);
    if (code == -2) return refuse_cell(r, column_name[column], "a time within 73 years of its origin", c);
    *ns = value;
    return TANDEM_OK;
}

static tandem_status read_kind_cell(const csv_reader *r, csv_cell c, int64_t *kind)
{
    *kind = tandem_pipeline_op_kind_find(c.text, c.n);
    if (*kind >= 0) return TANDEM_OK;
    char name[TANDEM_NEAREST_LENGTH];
    const char *names[TANDEM_N_PIPELINE_OP_KIND];
    for (int k = 0; k < TANDEM_N_PIPELINE_OP_KIND; k++) names[k] = tandem_pipeline_op_kind_name(k);
    (void)snprintf(name, sizeof name, "%.*s", (int)(c.n < 63 ? c.n : 63), c.text);
    return tandem_error_set(
        r->error, TANDEM_MALFORMED,
        "'%.200s', line %lld: no operator type '%s'.%s There are forward-compute, backward-compute, "
        "forward- and backward-send and -recv, params-all-gather, gc, layernorm-grads-all-reduce, "
        "embedding-grads-all-reduce, grads-reduce-scatter, optimizer-clip-main-grad, optimizer",
        r->input->source, (long long)r->line, name,
        tandem_nearest_hint(name, names, TANDEM_N_PIPELINE_OP_KIND).text);
}

static tandem_status read_csv_row(csv_reader *r, const char *line, size_t n)
{
    csv_cell cells[MAX_CELLS];
    static const int64_t min_of[N_COLUMN] = {[SEQ_ID] = -1, [CHUNK] = -1, [TP_RANK] = -1};
    static const int64_t max_of[N_COLUMN] = {/* 0: no integer */ [DP_RANK] = INT32_MAX - 1,
                                             [STAGE] = INT16_MAX - 1,
                                             [STEP] = INT32_MAX - 1,
                                             [SEQ_ID] = INT32_MAX - 1,
                                             [CHUNK] = INT16_MAX - 1,
                                             [TP_RANK] = INT16_MAX - 1};
    int64_t value[N_COLUMN] = {0};
    const int count = split_csv_cells(cells, line, n);
    if (count != r->n_cell)
        return tandem_error_set(r->error, TANDEM_MALFORMED,
                                "'%.200s', line %lld: %d cells; expected %d, as in line 1", r->input->source,
                                (long long)r->line, count, r->n_cell);
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < N_COLUMN && status == TANDEM_OK; k++)
        if (max_of[k] && r->cell_of[k] >= 0)
            status = read_integer_cell(r, cells, (enum column)k, min_of[k], max_of[k], &value[k]);
    if (status == TANDEM_OK) status = read_kind_cell(r, cells[r->cell_of[OPTYPE]], &value[OPTYPE]);
    if (status == TANDEM_OK) status = read_time_cell(r, cells, START, &value[START]);
    if (status == TANDEM_OK) status = read_time_cell(r, cells, DURATION, &value[DURATION]);
    if (status != TANDEM_OK) return status;
    const tandem_pipeline_op op = {.start_ns = value[START],
                                   .duration_ns = value[DURATION],
                                   .step = (int32_t)value[STEP],
                                   .dp_rank = (int32_t)value[DP_RANK],
                                   .sequence = (int32_t)value[SEQ_ID],
                                   .stage = (int16_t)value[STAGE],
                                   .tp_rank = (int16_t)(value[TP_RANK] < 0 ? 0 : value[TP_RANK]),
                                   .chunk = (int16_t)(value[CHUNK] < 0 ? 0 : value[CHUNK]),
                                   .kind = (uint8_t)value[OPTYPE]};
    return tandem_pipeline_ops_add(&r->rows, &op, r->input->source, r->error);
}

/* --- Files ---------------------------------------------------------------------------------------------- */

/* `bytes` NULL: the source is a path. */
static tandem_status read_csv(tandem_pipeline_trace **pipeline, const char *source, const void *bytes,
                              size_t n_byte, tandem_error *error)
{
    tandem_input input = {0};
    csv_reader r = {.input = &input, .error = error};
    const char *line = NULL;
    size_t n = 0;
    tandem_status status = bytes ? tandem_input_open_bytes(&input, bytes, n_byte, source, error)
                                 : tandem_input_open(&input, source, error);
    if (status == TANDEM_OK) status = read_csv_heading(&r);
    while (status == TANDEM_OK) {
        status = tandem_input_read_line(&input, &line, &n, error);
        if (status != TANDEM_OK || !line) break;
        r.line++;
        if (n > 0) status = read_csv_row(&r, line, n);
    }
    if (status == TANDEM_OK) status = tandem_pipeline_trace_open(pipeline, &r.rows, source, error);
    free(r.rows.op);
    tandem_input_close(&input);
    return status;
}

tandem_status tandem_pipeline_trace_read(tandem_pipeline_trace **pipeline, const char *path,
                                         tandem_error *error)
{
    return read_csv(pipeline, path, NULL, 0, error);
}

tandem_status tandem_pipeline_trace_parse(tandem_pipeline_trace **pipeline, const void *bytes, size_t n,
                                          const char *source, tandem_error *error)
{
    return read_csv(pipeline, source, bytes ? bytes : "", n, error);
}
