/* heap.h: binary heaps. TANDEM_HEAP(push, pop, item, context, before) defines two functions of a file:
 *   push(heap, n, one, context)  adds one to a heap of *n items; the array must have room
 *   pop(heap, n, context)        removes and returns the first item; *n > 0
 * before(context, a, b): whether item a comes out before item b; a strict order. Cost: O(log n)
 * comparisons. */
#pragma once

/* NOLINTBEGIN(bugprone-macro-parentheses): types and names of functions are written without them. */
#define TANDEM_HEAP(push, pop, item, context, before)                                                        \
    static void push(item *heap, int *n, item one, context of)                                               \
    {                                                                                                        \
        int at = (*n)++;                                                                                     \
        for (; at > 0 && before(of, one, heap[(at - 1) / 2]); at = (at - 1) / 2)                             \
            heap[at] = heap[(at - 1) / 2];                                                                   \
        heap[at] = one;                                                                                      \
    }                                                                                                        \
                                                                                                             \
    static item pop(item *heap, int *n, context of)                                                          \
    {                                                                                                        \
        item const top = heap[0];                                                                            \
        item const last = heap[--*n];                                                                        \
        int at = 0;                                                                                          \
        for (int child = 1; child < *n; at = child, child = 2 * at + 1) {                                    \
            if (child + 1 < *n && before(of, heap[child + 1], heap[child])) child++;                         \
            if (!before(of, heap[child], last)) break;                                                       \
            heap[at] = heap[child];                                                                          \
        }                                                                                                    \
        if (*n > 0) heap[at] = last;                                                                         \
        return top;                                                                                          \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
