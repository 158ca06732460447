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

/* the sum of x, or of (x - mean)^2, over a row */
QK_FOLDED float QK_TIER(layer_norm_sum)(int dtype, const char *x, int64_t n, int squares, v16 mean)
{
    v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t size = qk_itemsize(dtype), c = 0;
    for (; c + 64 <= n; c += 64)
        for (int j = 0; j < 4; j++) {
            v16 v = v16_load_as(dtype, x + (c + 16 * j) * size, 16), d = v16_sub(v, mean);
            acc[j] = squares ? v16_fma(d, d, acc[j]) : v16_add(acc[j], v);
        }
    for (int j = 0; c < n; c += 16, j++) {
        int left = (int)qk_min(16, n - c);
        v16 v = v16_load_as(dtype, x + c * size, left), d = v16_select(m16_first(left), v16_sub(v, mean), v16_zero());
        acc[j] = squares ? v16_fma(d, d, acc[j]) : v16_add(acc[j], v);
    }
    return v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
}

QK_FOLDED void QK_TIER(layer_norm_row)(int dtype, const qk_layer_norm_args *a, int64_t row)
{
    int64_t n = a->n, size = qk_itemsize(dtype), scale_size = qk_itemsize(a->scale_dtype), bias_size = qk_itemsize(a->bias_dtype);
    const char *x = (const char *)a->x + row * n * size, *scale = (const char *)a->scale + row * a->scale_step * scale_size;
    const char *bias = a->bias ? (const char *)a->bias + row * a->bias_step * bias_size : NULL;
    v16 mean = v16_set1(QK_TIER(layer_norm_sum)(dtype, x, n, 0, v16_zero()) / (float)n);
    v16 variance = v16_set1(QK_TIER(layer_norm_sum)(dtype, x, n, 1, mean) / (float)n + a->epsilon);
    v16 inv = v16_div(v16_set1(1.0f), v16_sqrt(variance));
    if (a->mean)
        v16_store_n(a->mean + row, mean, 1);
    if (a->inv)
        v16_store_n(a->inv + row, inv, 1);
    if (a->y)
        for (int64_t c = 0; c < n; c += 16) {
            int left = (int)qk_min(16, n - c);
            v16 v = v16_mul(v16_sub(v16_load_as(dtype, x + c * size, left), mean), inv);
            v16 g = v16_load_as(a->scale_dtype, scale + c * scale_size, left);
            v = bias ? v16_fma(v, g, v16_load_as(a->bias_dtype, bias + c * bias_size, left)) : v16_mul(v, g);
            v16_store_as(dtype, (char *)a->y + (row * n + c) * size, v, left);
        }
}

static void QK_TIER(layer_norm_rows)(const qk_layer_norm_args *a, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++)
        switch (a->x_dtype) {
        case QK_F32: QK_TIER(layer_norm_row)(QK_F32, a, row); break;
        case QK_F16: QK_TIER(layer_norm_row)(QK_F16, a, row); break;
        default: QK_TIER(layer_norm_row)(QK_BF16, a, row);
        }
}

const qk_normalization_table QK_TIER(normalization_kernels) = {QK_TIER(rms_rows), QK_TIER(layer_norm_rows)};
