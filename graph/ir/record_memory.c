/* record_memory.c: a graph's own copy of what a framework allocates in a step (record.h), with operators in
 * the place of calls. */
#include "graph/ir/record_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tandem_status refuse_block(tandem_error *error, int b, const char *what)
{
    return tandem_error_set(error, TANDEM_WRONG_GRAPH, "block %d of the recorded memory %s", b, what);
}

static bool is_event(const tandem_recorded_memory *memory, int event, int min)
{
    return event >= min && event <= memory->n_event;
}

static tandem_status check_block(const tandem_recorded_memory *memory, int b, tandem_error *error)
{
    const tandem_recorded_block *const block = &memory->block[b];
    if (block->bytes < 0 || block->bytes > TANDEM_MAX_RECORDED_BYTES)
        return refuse_block(error, b, "has an impossible size");
    if (block->born < 0 || block->born >= block->freed || !is_event(memory, block->freed, 1))
        return refuse_block(error, b, "is not released after it is allocated, in the step's events");
    if (b > 0 && block->born < memory->block[b - 1].born)
        return refuse_block(error, b, "is allocated before the one before it");
    if (!is_event(memory, block->rest, -1))
        return refuse_block(error, b, "is read at an event that the step does not have");
    if (block->n_reader < 0 || block->first_reader < 0 ||
        block->first_reader > memory->n_reader - block->n_reader)
        return refuse_block(error, b, "has readers that are not in the list");
    return TANDEM_OK;
}

static tandem_status check_product(const tandem_recorded_memory *memory, int p, int n_call,
                                   tandem_error *error)
{
    const tandem_recorded_product *const product = &memory->product[p];
    const int has_events =
        is_event(memory, product->forward, -1) && is_event(memory, product->forward_end, product->forward) &&
        is_event(memory, product->backward, -1) && is_event(memory, product->backward_end, product->backward);
    if (product->call < 0 || product->call >= n_call || !has_events)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                "product %d of the recorded memory has a call or an event that the step does "
                                "not have",
                                p);
    return TANDEM_OK;
}

static tandem_status check_memory(const tandem_recorded_memory *memory, int n_call, tandem_error *error)
{
    const int64_t max = TANDEM_MAX_RECORDED_BYTES;
    tandem_status status = TANDEM_OK;
    if (memory->weight_bytes < 0 || memory->weight_bytes > max || memory->trained_bytes < 0 ||
        memory->trained_bytes > max || memory->largest_bytes < 0 ||
        memory->largest_bytes > memory->trained_bytes)
        status = tandem_error_set(error, TANDEM_WRONG_GRAPH, "the recorded memory has impossible weights");
    if (status == TANDEM_OK &&
        (memory->n_block < 0 || memory->n_block > TANDEM_MAX_RECORDED_BLOCK || memory->n_event < 0 ||
         memory->n_event > 2 * TANDEM_MAX_RECORDED_BLOCK || memory->n_reader < 0 || memory->n_product < 0 ||
         memory->n_product > n_call || !is_event(memory, memory->backward, 0)))
        status = tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                  "the recorded memory has %d blocks and %d events; allowed are %d and twice "
                                  "as many",
                                  memory->n_block, memory->n_event, TANDEM_MAX_RECORDED_BLOCK);
    for (int b = 0; b < memory->n_block && status == TANDEM_OK; b++) status = check_block(memory, b, error);
    for (int p = 0; p < memory->n_product && status == TANDEM_OK; p++)
        status = check_product(memory, p, n_call, error);
    for (int r = 0; r < memory->n_reader && status == TANDEM_OK; r++)
        if (memory->reader[r].product < 0 || memory->reader[r].product >= memory->n_product ||
            (unsigned)memory->reader[r].role > TANDEM_KEEPS_SECOND ||
            !is_event(memory, memory->reader[r].event, 0))
            status = tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                      "reader %d of the recorded memory is no product of the step", r);
    return status;
}

static size_t bytes_of_array(int n, size_t size) { return (size_t)n * size; }

void tandem_recorded_memory_close(tandem_recorded_memory *memory)
{
    if (memory) free((void *)memory->channels_last);
    free(memory);
}

static tandem_status copy_memory(tandem_recorded_memory **out, const tandem_recorded_memory *memory,
                                 const int *op_of_call, int n_call, tandem_error *error)
{
    const tandem_status status = check_memory(memory, n_call, error);
    if (status != TANDEM_OK) return status;
    const size_t blocks = bytes_of_array(memory->n_block, sizeof *memory->block),
                 products = bytes_of_array(memory->n_product, sizeof *memory->product),
                 readers = bytes_of_array(memory->n_reader, sizeof *memory->reader);
    tandem_recorded_memory *const copy = malloc(sizeof *copy + blocks + products + readers);
    if (!copy) return tandem_no_memory(error, "for %d recorded blocks", memory->n_block);
    *copy = *memory;
    tandem_recorded_block *const block = (tandem_recorded_block *)(copy + 1);
    tandem_recorded_product *const product = (tandem_recorded_product *)((char *)block + blocks);
    tandem_recorded_reader *const reader = (tandem_recorded_reader *)((char *)product + products);
    if (blocks) memcpy(block, memory->block, blocks);
    if (products) memcpy(product, memory->product, products);
    if (readers) memcpy(reader, memory->reader, readers);
    for (int p = 0; p < copy->n_product; p++) product[p].call = op_of_call[product[p].call];
    copy->block = block;
    copy->product = product;
    copy->reader = reader;
    copy->channels_last = NULL;
    *out = copy;
    return TANDEM_OK;
}

tandem_status tandem_graph_set_memory(tandem_graph *graph, const tandem_recorded_memory *memory,
                                      const int *op_of_call, int n_call, tandem_error *error)
{
    tandem_recorded_memory *copy = NULL, *other = NULL;
    tandem_status status = copy_memory(&copy, memory, op_of_call, n_call, error);
    if (status == TANDEM_OK && memory->channels_last)
        status = copy_memory(&other, memory->channels_last, op_of_call, n_call, error);
    if (status != TANDEM_OK) {
        tandem_recorded_memory_close(copy);
        return status;
    }
    copy->channels_last = other;
    tandem_recorded_memory_close(graph->memory);
    graph->memory = copy;
    return TANDEM_OK;
}
