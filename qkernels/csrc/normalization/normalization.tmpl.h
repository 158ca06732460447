/* The body of normalization, once for all tiers. A row is read twice: for its sum of squares, then to be scaled.
 *
 * Sum of squares: vector i of a row goes to accumulator i mod 4, then (0 + 1) + (2 + 3) and the lanes' tree, whatever the tier. */
#include "normalization/normalization.h"

static inline v16 QK_TIER(rms_value)(const qk_rms_args *a, int64_t offset, int64_t column, int n)
{
    int64_t size = qk_itemsize(a->x_dtype);
    v16 v = v16_load_as(a->x_dtype, (const char *)a->x + offset * size, n);
    if (a->skip)
        v = v16_add(v, v16_load_as(a->x_dtype, (const char *)a->skip + offset * size, n));
    if (a->bias)
        v = v16_add(v, v16_load_as(a->x_dtype, (const char *)a->bias + column * size, n));
    return v;
}

static void QK_TIER(rms_rows)(const qk_rms_args *a, int64_t first, int64_t last)
{
    int64_t n = a->n;
    for (int64_t row = first; row < last; row++) {
        v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
        int64_t c = 0;
        for (; c + 64 <= n; c += 64)
            for (int j = 0; j < 4; j++) {
                v16 v = QK_TIER(rms_value)(a, row * n + c + 16 * j, c + 16 * j, 16);
                acc[j] = v16_fma(v, v, acc[j]);
            }
        for (int j = 0; c < n; c += 16, j++) {
            v16 v = QK_TIER(rms_value)(a, row * n + c, c, (int)qk_min(16, n - c));
            acc[j] = v16_fma(v, v, acc[j]);
        }
        float squares = v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
        v16 mean = v16_set1(squares / (float)n + a->epsilon);
        v16 inv = v16_div(v16_set1(1.0f), v16_sqrt(mean));
        if (a->inv)
            v16_store_n(a->inv + row, inv, 1);
        for (c = 0; c < n; c += 16) {
            int left = (int)qk_min(16, n - c);
            v16 v = QK_TIER(rms_value)(a, row * n + c, c, left);
            if (a->sum)
                v16_store_as(a->x_dtype, (char *)a->sum + (row * n + c) * qk_itemsize(a->x_dtype), v, left);
            if (a->y) {
                v16 g = v16_load_as(a->scale_dtype, (const char *)a->scale + c * qk_itemsize(a->scale_dtype), left);
                v16_store_as(a->y_dtype, (char *)a->y + (row * n + c) * qk_itemsize(a->y_dtype), v16_mul(v16_mul(v, inv), g), left);
            }
        }
    }
}

const qk_normalization_table QK_TIER(normalization_kernels) = {QK_TIER(rms_rows)};
