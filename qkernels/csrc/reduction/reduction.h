/* Sum, mean and maximum over one axis. */
#ifndef QK_REDUCTION_H
#define QK_REDUCTION_H

#include "simd/tiers.h"

enum qk_reduction_op { QK_SUM = 0, QK_MEAN = 1, QK_MAX = 2 };
enum { QK_STRIP = 256 };

/* y[o, i] = op over k of x[o, k, i]. Sums are made in double precision and rounded once. */
typedef struct {
    const void *x; /* (outer, n, inner) of dtype, n and inner at least 1 */
    void *y;       /* (outer, inner) of dtype */
    int op, dtype;
    int64_t outer, n, inner;
} qk_reduction_args;

/* results first..last-1, in units of rows where inner is 1, else of strips of QK_STRIP columns */
typedef struct {
    void (*reduce)(const qk_reduction_args *args, int64_t first, int64_t last);
} qk_reduction_table;

QK_DECLARE_TABLES(qk_reduction_table, reduction);

int64_t qk_reduction_units(const qk_reduction_args *args);
void qk_reduction(int isa, int threads, const qk_reduction_args *args);

#endif
