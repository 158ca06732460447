/* Data movement: rows picked by index, and conversion between the float types. */
#ifndef QK_LAYOUT_H
#define QK_LAYOUT_H

#include "simd/tiers.h"

/* out[o, i, :] = data[o, index[i], :], all sizes and strides in bytes. A negative index counts from the end. */
typedef struct {
    const char *data;     /* (outer, size) blocks of `block` bytes, at any two strides */
    const int64_t *index; /* (count), each in [-size, size) */
    char *out;            /* (outer, count, block) */
    int64_t outer, size, count, block, outer_stride, row_stride;
} qk_gather_args;

/* y = x in another float type, rounded to nearest even */
typedef struct {
    const void *x; /* (n) of x_dtype */
    void *y;       /* (n) of y_dtype */
    int x_dtype, y_dtype;
    int64_t n;
} qk_cast_args;

typedef struct {
    void (*cast)(const qk_cast_args *args, int64_t first, int64_t last);
} qk_layout_table;

QK_DECLARE_TABLES(qk_layout_table, layout);

/* The position of the first index that is out of range, in which case nothing is copied; else -1. */
int64_t qk_gather(int threads, const qk_gather_args *args);
void qk_cast(int isa, int threads, const qk_cast_args *args);

#endif
