/* tied.c: whether a matrix holds an embedding's table turned: exporters compute the transpose of a table that
 * a head shares, and store both. */
#include "graph/onnx/onnx_types.h"

#include <assert.h>
#include <stdlib.h>

enum { BLOCK_NUMBERS = 1 << 21, N_LOOK = 64 };

typedef struct turned_table {
    onnx_import *import;
    const Onnx__Tensor *table, *turned;
    int64_t rows, width; /* of the table */
} turned_table;

/* Numbers of places that are spread over the table: in a different matrix one of them differs soon. */
static bool look(const turned_table *t, bool *is_equal)
{
    const int64_t n = t->rows * t->width;
    *is_equal = true;
    for (int64_t i = 0; i < N_LOOK && *is_equal; i++) {
        const int64_t k = i * (n - 1) / N_LOOK;
        float a, b;
        if (!onnx_tensor_read_part(t->import, t->table, n, k, 1, NULL, &a) ||
            !onnx_tensor_read_part(t->import, t->turned, n, k % t->width * t->rows + k / t->width, 1, NULL,
                                   &b))
            return false;
        *is_equal = a == b;
    }
    return true;
}

/* *is_flat: all numbers so far are one: that says nothing of a copy. */
static bool compare_rows(const turned_table *t, int64_t first, int64_t n, float *rows, float *column,
                         bool *is_equal, bool *is_flat)
{
    const int64_t all = t->rows * t->width;
    assert(rows && column);
    if (!onnx_tensor_read_part(t->import, t->table, all, first * t->width, n * t->width, NULL, rows))
        return false;
    for (int64_t c = 0; c < t->width && *is_equal; c++) {
        if (!onnx_tensor_read_part(t->import, t->turned, all, c * t->rows + first, n, NULL, column))
            return false;
        for (int64_t r = 0; r < n && *is_equal; r++) {
            *is_equal = rows[r * t->width + c] == column[r];
            *is_flat = *is_flat && column[r] == rows[0];
        }
    }
    return true;
}

static bool compare(const turned_table *t, bool *is_equal)
{
    bool is_flat = true, fine = look(t, is_equal);
    const int64_t most = BLOCK_NUMBERS / t->width < 1 ? 1 : BLOCK_NUMBERS / t->width;
    float *const rows = malloc((size_t)(most * t->width) * sizeof *rows), *const column = malloc(
                                                                              (size_t)most * sizeof *column);
    if (!rows || !column) fine = onnx_no_memory(t->import);
    for (int64_t first = 0; first < t->rows && fine && *is_equal; first += most)
        fine = compare_rows(t, first, t->rows - first < most ? t->rows - first : most, rows, column, is_equal,
                            &is_flat);
    free(rows);
    free(column);
    *is_equal = *is_equal && !is_flat;
    return fine;
}

bool onnx_find_turned_table(onnx_import *import, const onnx_value *matrix, int *table)
{
    const int index = import->weight[matrix->weight].tensor;
    const Onnx__Tensor *const turned = onnx_file_tensor(import, index);
    *table = -1;
    if (!turned || !onnx_tensor_has_data(turned) || matrix->view.n_dim != 2 ||
        !onnx_view_is_plain(&matrix->view) || matrix->rows)
        return true;
    for (int i = 0; i < import->n_record && *table < 0; i++) {
        const onnx_record *const r = &import->record[i];
        if (r->kind != TANDEM_OP_EMBEDDING || r->n != onnx_view_dim(&matrix->view, 1) ||
            r->start != onnx_view_dim(&matrix->view, 0) || import->weight[r->parameter[0].weight].n_use != 1)
            continue;
        const turned_table t = {.import = import,
                                .table =
                                    onnx_file_tensor(import, import->weight[r->parameter[0].weight].tensor),
                                .turned = turned,
                                .rows = r->n,
                                .width = r->start};
        bool is_equal = false;
        if (!t.table || t.table == turned || !onnx_tensor_has_data(t.table)) continue;
        if (!onnx_tensor_check(import, t.table, r->n * r->start) ||
            !onnx_tensor_check(import, turned, r->n * r->start) || !compare(&t, &is_equal))
            return false;
        if (is_equal) *table = i;
    }
    return true;
}
