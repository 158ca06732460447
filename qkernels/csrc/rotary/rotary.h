/* Rotary position embedding of every head of every token. */
#ifndef QK_ROTARY_H
#define QK_ROTARY_H

#include "simd/tiers.h"

/* The first 2 * half elements of a head are `half` planes, each turned by its angle; the others are copied. Token (b, s) takes row
 * positions[b * sequence + s] of the caches or, without positions, row first_row + b * batch_rows + s. */
typedef struct {
    const void *x;            /* (batch, sequence, heads, head_size) of dtype, a head's elements side by side, other strides in bytes */
    void *y;                  /* the same; may be x with the same strides */
    const void *cos, *sin;    /* (rows, half) of cache_dtype */
    const int64_t *positions; /* (batch, sequence) or null */
    int dtype, cache_dtype;
    int interleaved; /* the planes are elements (2i, 2i + 1), else (i, half + i) */
    int64_t batch, sequence, heads, head_size, half;
    int64_t x_batch, x_sequence, x_head, y_batch, y_sequence, y_head;
    int64_t first_row, batch_rows, rows;
} qk_rotary_args;

typedef struct {
    void (*tokens)(const qk_rotary_args *args, int64_t first, int64_t last);
} qk_rotary_table;

QK_DECLARE_TABLES(qk_rotary_table, rotary);

/* The index in positions of the first that is outside [0, rows), in which case nothing is computed; else -1. */
int64_t qk_rotary(int isa, int threads, const qk_rotary_args *args);

#endif
