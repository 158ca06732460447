/* The body of normalization, once for all tiers. */
#include "normalization/normalization.h"

#include "rows/rms_norm.h"

static void QK_TIER(rms_rows)(const qk_rms_args *a, int64_t first, int64_t last)
{
    int plain = !a->skip && !a->bias && !a->sum && a->y, same = a->x_dtype == a->scale_dtype && a->x_dtype == a->y_dtype;
    for (int64_t row = first; row < last; row++)
#define ROW(dtype, plain) \
    case dtype * 2 + plain: QK_TIER(rms_row)(dtype, dtype, dtype, plain, a, row); break;
        switch (same ? a->x_dtype * 2 + plain : -1) {
        default:
            QK_TIER(rms_row)(a->x_dtype, a->scale_dtype, a->y_dtype, 0, a, row);
            break;
            /* clang-format off */
            ROW(QK_F32, 0) ROW(QK_F16, 0) ROW(QK_BF16, 0) ROW(QK_F32, 1) ROW(QK_F16, 1) ROW(QK_BF16, 1)
            /* clang-format on */
        }
#undef ROW
}

/* the sum of x, or of (x - mean)^2, over a row */
QK_FOLDED float QK_TIER(layer_norm_sum)(int dtype, const char *x, int64_t n, int squares, v16 mean)
{
    v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t size = qk_itemsize(dtype), c = 0;
    for (; c + 64 <= n; c += 64) {
        QK_UNROLL
        for (int j = 0; j < 4; j++) {
            v16 v = v16_load_as(dtype, x + (c + 16 * j) * size, 16), d = v16_sub(v, mean);
            acc[j] = squares ? v16_fma(d, d, acc[j]) : v16_add(acc[j], v);
        }
    }
    for (int j = 0; c < n; c += 16, j++) {
        int left = (int)qk_min(16, n - c);
        v16 v = v16_load_as(dtype, x + c * size, left), d = v16_select(m16_first(left), v16_sub(v, mean), v16_zero());
        acc[j] = squares ? v16_fma(d, d, acc[j]) : v16_add(acc[j], v);
    }
    return v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
}

QK_FOLDED void QK_TIER(layer_norm_finish)(int dtype, int scale_dtype, int bias_dtype, const char *x, const char *scale, const char *bias, char *y,
                                          int n, v16 mean, v16 inv)
{
    v16 v = v16_mul(v16_sub(v16_load_as(dtype, x, n), mean), inv), g = v16_load_as(scale_dtype, scale, n);
    v16_store_as(dtype, y, bias ? v16_fma(v, g, v16_load_as(bias_dtype, bias, n)) : v16_mul(v, g), n);
}

/* the types are constants at the calls that matter, so that these get their own loops */
QK_FOLDED void QK_TIER(layer_norm_row)(int dtype, int scale_dtype, int bias_dtype, const qk_layer_norm_args *a, int64_t row)
{
    int64_t n = a->n, size = qk_itemsize(dtype), scale_size = qk_itemsize(scale_dtype), bias_size = qk_itemsize(bias_dtype), c = 0;
    const char *x = (const char *)a->x + row * n * size, *scale = (const char *)a->scale + row * a->scale_step * scale_size;
    const char *bias = a->bias ? (const char *)a->bias + row * a->bias_step * bias_size : NULL;
    char *y = (char *)a->y + row * n * size;
    v16 mean = v16_set1(QK_TIER(layer_norm_sum)(dtype, x, n, 0, v16_zero()) / (float)n);
    v16 variance = v16_set1(QK_TIER(layer_norm_sum)(dtype, x, n, 1, mean) / (float)n + a->epsilon);
    v16 inv = v16_div(v16_set1(1.0f), v16_sqrt(variance));
    if (a->mean)
        v16_store_n(a->mean + row, mean, 1);
    if (a->inv)
        v16_store_n(a->inv + row, inv, 1);
    if (!a->y)
        return;
    for (; c + 16 <= n; c += 16) {
        const char *g = scale + c * scale_size, *b = bias ? bias + c * bias_size : NULL;
        QK_TIER(layer_norm_finish)(dtype, scale_dtype, bias_dtype, x + c * size, g, b, y + c * size, 16, mean, inv);
    }
    if (c < n) {
        const char *g = scale + c * scale_size, *b = bias ? bias + c * bias_size : NULL;
        QK_TIER(layer_norm_finish)(dtype, scale_dtype, bias_dtype, x + c * size, g, b, y + c * size, (int)(n - c), mean, inv);
    }
}

static void QK_TIER(layer_norm_rows)(const qk_layer_norm_args *a, int64_t first, int64_t last)
{
    int same = a->scale_dtype == a->x_dtype && (!a->bias || a->bias_dtype == a->x_dtype);
    for (int64_t row = first; row < last; row++)
        switch (same ? a->x_dtype : -1) {
        case QK_F32: QK_TIER(layer_norm_row)(QK_F32, QK_F32, QK_F32, a, row); break;
        case QK_F16: QK_TIER(layer_norm_row)(QK_F16, QK_F16, QK_F16, a, row); break;
        case QK_BF16: QK_TIER(layer_norm_row)(QK_BF16, QK_BF16, QK_BF16, a, row); break;
        default: QK_TIER(layer_norm_row)(a->x_dtype, a->scale_dtype, a->bias_dtype, a, row);
        }
}

const qk_normalization_table QK_TIER(normalization_kernels) = {QK_TIER(rms_rows), QK_TIER(layer_norm_rows)};
