/* step_memory.c: reads the blocks, readers and products of a captured module's memory, which are rows of
 * numbers: a step has some thousand of them. */
#include "graph/recording/step_memory.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_NUMBERS = 6, PRODUCT_NUMBERS = 6, READER_NUMBERS = 3, MAX_ROW = 6, ALL = MAX_ROW };

static tandem_status refuse_row(const tandem_json_location *location, const char *member, size_t row)
{
    char what[64];
    (void)snprintf(what, sizeof what, "has a wrong row %zu", row);
    return tandem_json_refuse(location, member, what);
}

/* The first n members of a row, whole numbers; `but`: one that is any number, and is not read. */
static bool read_memory_row(int64_t number[MAX_ROW], const json_t *row, size_t n, size_t size, size_t but)
{
    if (!json_is_array(row) || json_array_size(row) != size) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *const one = json_array_get(row, i);
        if (!(i == but ? json_is_number(one) : json_is_integer(one))) return false;
        number[i] = i == but ? 0 : json_integer_value(one);
        if (i > 0 && (number[i] < INT_MIN || number[i] > INT_MAX)) return false;
    }
    return true;
}

/* The bytes of a block with `more` samples, of its row. */
static int64_t grown_bytes(int64_t bytes, const json_t *row, int64_t more)
{
    const double grown = (double)bytes + nearbyint(json_number_value(json_array_get(row, 1)) * (double)more);
    if (bytes < 0) return -1; /* refused with the graph */
    return grown < 0 ? 0 : grown < 0x1p52 ? (int64_t)grown : INT64_MAX;
}

static bool read_readers(tandem_recorded_block *block, tandem_recorded_reader *reader, int *n_reader,
                         const json_t *rows)
{
    int64_t number[MAX_ROW];
    if (!json_is_array(rows)) return false;
    block->first_reader = *n_reader;
    block->n_reader = (int)json_array_size(rows);
    for (size_t r = 0; r < json_array_size(rows); r++) {
        if (!read_memory_row(number, json_array_get(rows, r), READER_NUMBERS, READER_NUMBERS, ALL))
            return false;
        if (number[0] < INT_MIN || number[0] > INT_MAX) return false;
        if (number[2] < TANDEM_READS_FIRST || number[2] > TANDEM_KEEPS_SECOND) return false;
        reader[(*n_reader)++] =
            (tandem_recorded_reader){(int)number[0], (int)number[1], (tandem_recorded_role)number[2]};
    }
    return true;
}

static bool read_block(tandem_recorded_block *block, tandem_recorded_reader *reader, int *n_reader,
                       const json_t *row, int64_t more)
{
    int64_t number[MAX_ROW];
    if (!read_memory_row(number, row, BLOCK_NUMBERS, BLOCK_NUMBERS + 1, 1)) return false;
    *block = (tandem_recorded_block){.bytes = grown_bytes(number[0], row, more),
                                     .born = (int)number[2],
                                     .freed = (int)number[3],
                                     .rest = (int)number[4],
                                     .is_gradient = number[5] != 0};
    return read_readers(block, reader, n_reader, json_array_get(row, BLOCK_NUMBERS));
}

static bool read_product(tandem_recorded_product *product, const json_t *row)
{
    int64_t number[MAX_ROW];
    if (!read_memory_row(number, row, PRODUCT_NUMBERS, PRODUCT_NUMBERS, ALL)) return false;
    if (number[0] < 0 || number[0] > INT_MAX) return false;
    *product = (tandem_recorded_product){(int)number[0], (int)number[1], (int)number[2],
                                         (int)number[3], (int)number[4], (int)number[5]};
    return true;
}

static size_t count_readers(const json_t *blocks)
{
    size_t n = 0;
    for (size_t b = 0; b < json_array_size(blocks); b++)
        n += json_array_size(json_array_get(json_array_get(blocks, b), BLOCK_NUMBERS));
    return n;
}

static tandem_status read_head(tandem_recorded_memory *head, int64_t *more, int64_t batch,
                               const tandem_json_location *location, const json_t *object)
{
    static const char *const allowed[] = {
        "batch",           "other_batch",   "n_event",  "backward", "weights",       "trained", "largest",
        "keeps_gradients", "has_fast_bf16", "products", "blocks",   "channels_last", NULL};
    static const char *const booleans[] = {"keeps_gradients", "has_fast_bf16"};
    int64_t n_event = 0, backward = 0, recorded = batch, other = 0;
    tandem_status status = tandem_json_check_members(location, object, allowed);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&recorded, location, object, "batch", 1, INT32_MAX, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&other, location, object, "other_batch", 0, INT32_MAX, 1);
    if (status == TANDEM_OK)
        status =
            tandem_json_integer(&n_event, location, object, "n_event", 0, 2 * TANDEM_MAX_RECORDED_BLOCK, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&backward, location, object, "backward", 0, n_event, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&head->weight_bytes, location, object, "weights", 0, INT64_MAX, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&head->trained_bytes, location, object, "trained", 0, INT64_MAX, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&head->largest_bytes, location, object, "largest", 0, INT64_MAX, 1);
    for (size_t k = 0; k < 2 && status == TANDEM_OK; k++)
        if (!json_is_boolean(json_object_get(object, booleans[k])))
            status = tandem_json_refuse(location, booleans[k], "must be true or false");
    if (status == TANDEM_OK)
        status = tandem_json_bool(&head->keeps_gradients, location, object, "keeps_gradients");
    if (status == TANDEM_OK)
        status = tandem_json_bool(&head->has_fast_bf16, location, object, "has_fast_bf16");
    *more = batch - recorded;
    head->has_growth = other > 0;
    head->n_event = (int)n_event;
    head->backward = (int)backward;
    return status;
}

static tandem_status read_rows(tandem_recorded_memory *memory, tandem_recorded_block *block,
                               tandem_recorded_product *product, tandem_recorded_reader *reader, int64_t more,
                               const tandem_json_location *location, const json_t *object)
{
    const json_t *const blocks = json_object_get(object, "blocks"), *const products =
                                                                        json_object_get(object, "products");
    memory->n_reader = 0;
    for (int b = 0; b < memory->n_block; b++)
        if (!read_block(&block[b], reader, &memory->n_reader, json_array_get(blocks, (size_t)b), more))
            return refuse_row(location, "blocks", (size_t)b);
    for (int p = 0; p < memory->n_product; p++)
        if (!read_product(&product[p], json_array_get(products, (size_t)p)))
            return refuse_row(location, "products", (size_t)p);
    memory->block = block;
    memory->product = product;
    memory->reader = reader;
    return TANDEM_OK;
}

/* One step's, without that in another order of images. */
static tandem_status read_step(tandem_recorded_memory **memory, int64_t batch,
                               const tandem_json_location *location, const json_t *object)
{
    tandem_recorded_memory head = {0};
    int64_t more = 0;
    tandem_status status = read_head(&head, &more, batch, location, object);
    const json_t *const blocks = json_object_get(object, "blocks"), *const products =
                                                                        json_object_get(object, "products");
    const size_t n_block = json_array_size(blocks), n_product = json_array_size(products),
                 n_reader = count_readers(blocks);
    if (status == TANDEM_OK && (!json_is_array(blocks) || n_block > TANDEM_MAX_RECORDED_BLOCK))
        status = tandem_json_refuse(location, "blocks", "must be an array of at most 1000000 rows");
    if (status == TANDEM_OK && (!json_is_array(products) || n_product > TANDEM_MAX_RECORDED_CALL))
        status = tandem_json_refuse(location, "products", "must be an array of at most 16000 rows");
    if (status != TANDEM_OK) return status;
    head.n_block = (int)n_block;
    head.n_product = (int)n_product;
    tandem_recorded_memory *const made =
        malloc(sizeof *made + n_block * sizeof *made->block + n_product * sizeof *made->product +
               n_reader * sizeof *made->reader);
    if (!made) return tandem_no_memory(location->error, "for %zu recorded blocks", n_block);
    tandem_recorded_block *const block = (tandem_recorded_block *)(made + 1);
    tandem_recorded_product *const product = (tandem_recorded_product *)(block + n_block);
    *made = head;
    status = read_rows(made, block, product, (tandem_recorded_reader *)(product + n_product), more, location,
                       object);
    if (status == TANDEM_OK)
        *memory = made;
    else
        free(made);
    return status;
}

tandem_status tandem_recorded_memory_read(tandem_recorded_memory **memory, int64_t batch,
                                          tandem_json_location *location, const json_t *object)
{
    tandem_recorded_memory *made = NULL, *other = NULL;
    const json_t *const last = json_object_get(object, "channels_last");
    if (!object || json_is_null(object)) {
        *memory = NULL;
        return TANDEM_OK;
    }
    (void)snprintf(location->path, sizeof location->path, "memory");
    tandem_status status = read_step(&made, batch, location, object);
    if (status == TANDEM_OK && last && !json_is_null(last)) {
        (void)snprintf(location->path, sizeof location->path, "memory.channels_last");
        status = read_step(&other, batch, location, last);
    }
    location->path[0] = '\0';
    if (status != TANDEM_OK) {
        tandem_recorded_memory_close(made);
        return status;
    }
    made->channels_last = other;
    *memory = made;
    return TANDEM_OK;
}
_Static_assert(TANDEM_MAX_RECORDED_BLOCK == 1000000 && TANDEM_MAX_RECORDED_CALL == 16000,
               "the messages above say so");
