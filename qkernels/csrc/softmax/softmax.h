/* Softmax and its logarithm over rows. */
#ifndef QK_SOFTMAX_H
#define QK_SOFTMAX_H

#include "simd/tiers.h"

/* m = max(x); y = e^(x - m) / sum(e^(x - m)), or y = x - m - ln sum(e^(x - m)) */
typedef struct {
    const void *x;  /* (rows, n) of dtype */
    void *y;        /* (rows, n) of dtype; may be x */
    float *scratch; /* (threads, qk_softmax_rows(n), n) where dtype has 16 bits and log is 0, else not used */
    int dtype, log;
    int64_t rows, n;
} qk_softmax_args;

typedef struct {
    void (*softmax_rows)(const qk_softmax_args *args, int64_t first, int64_t last, float *scratch);
} qk_softmax_table;

QK_DECLARE_TABLES(qk_softmax_table, softmax);

/* how many rows are worked on together, pass by pass: each waits for the ends of reductions less often, and all stay in the first cache */
static inline int64_t qk_softmax_rows(int64_t n) { return qk_max(1, qk_min(16, 2048 / n)); }

void qk_softmax(int isa, int threads, const qk_softmax_args *args);

#endif
