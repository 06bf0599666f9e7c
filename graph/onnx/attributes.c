/* attributes.c: attributes of the node that is being lowered. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <string.h>

const Onnx__Attribute *onnx_attribute(const onnx_import *import, const char *name)
{
    const Onnx__Node *const node = import->node[import->current].message;
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->name && strcmp(node->attribute[i]->name, name) == 0)
            return node->attribute[i];
    return NULL;
}

int64_t onnx_int(const onnx_import *import, const char *name, int64_t otherwise)
{
    const Onnx__Attribute *const a = onnx_attribute(import, name);
    return a && a->has_i ? a->i : otherwise;
}

float onnx_float(const onnx_import *import, const char *name, float otherwise)
{
    const Onnx__Attribute *const a = onnx_attribute(import, name);
    return a && a->has_f ? a->f : otherwise;
}

const int64_t *onnx_ints(const onnx_import *import, const char *name, size_t *n)
{
    const Onnx__Attribute *const a = onnx_attribute(import, name);
    *n = a ? a->n_ints : 0;
    return *n ? a->ints : NULL;
}

bool onnx_has_text(const onnx_import *import, const char *name, const char *text)
{
    const Onnx__Attribute *const a = onnx_attribute(import, name);
    return a && a->has_s && a->s.len == strlen(text) && memcmp(a->s.data, text, a->s.len) == 0;
}

const Onnx__Tensor *onnx_tensor(const onnx_import *import, const char *name)
{
    const Onnx__Attribute *const a = onnx_attribute(import, name);
    return a ? a->t : NULL;
}

bool onnx_axis(onnx_import *import, int64_t given, int n_dim, int *axis)
{
    if (given < -n_dim || given >= n_dim)
        return onnx_fail_node(import, "axis %" PRId64 " of %d dimensions; allowed are %d to %d", given, n_dim,
                              -n_dim, n_dim - 1);
    *axis = (int)(given < 0 ? given + n_dim : given);
    return true;
}

bool onnx_permutation(onnx_import *import, int n_dim, int *axis)
{
    size_t n;
    unsigned seen = 0;
    const int64_t *const perm = onnx_ints(import, "perm", &n);
    if (perm && n != (size_t)n_dim)
        return onnx_fail_node(import, "%zu axes; allowed are %d, as its input has", n, n_dim);
    for (int d = 0; d < n_dim; d++) {
        axis[d] = n_dim - 1 - d;
        if (perm && !onnx_axis(import, perm[d], n_dim, &axis[d])) return false;
        if (seen >> axis[d] & 1)
            return onnx_fail_node(import, "axis %d occurs twice; allowed is once", axis[d]);
        seen |= 1u << axis[d];
    }
    return true;
}

bool onnx_axes(onnx_import *import, const char *name, int slot, int n_dim, int *axis, int *n)
{
    size_t n_given = 0;
    const int64_t *const given = onnx_ints(import, name, &n_given);
    const onnx_value *const v = onnx_input(import, slot);
    *n = -1;
    if (!given && v->kind == ONNX_ABSENT) return true;
    if (!given && v->kind != ONNX_CONSTANT) return onnx_refuse(import, "its axes are computed");
    const size_t wanted = given ? n_given : (size_t)v->constant->n;
    unsigned seen = 0;
    if (wanted > ONNX_MAX_DIM)
        return onnx_fail_node(import, "%zu axes; allowed are at most %d", wanted, ONNX_MAX_DIM);
    for (size_t i = 0; i < wanted; i++) {
        const int64_t one = given ? given[i] : onnx_whole(v->constant->number[i]);
        if (!onnx_axis(import, one, n_dim, &axis[i])) return false;
        if (seen >> axis[i] & 1)
            return onnx_fail_node(import, "axis %d is given twice; allowed is once", axis[i]);
        seen |= 1u << axis[i];
    }
    *n = (int)wanted;
    return true;
}
