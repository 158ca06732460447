/* Root-mean-square normalization of a row, for any family's template: include it within a target region.
 *
 * A row is read twice: for its sum of squares, then to be scaled. Sum of squares: vector i of a row goes to accumulator i mod 4, then
 * (0 + 1) + (2 + 3) and the lanes' tree, whatever the tier. */
#include "normalization/normalization.h"

/* plain: neither skip nor bias, nor a wish for the sum */
QK_FOLDED v16 QK_TIER(rms_value)(int dtype, int plain, const qk_rms_args *a, int64_t offset, int64_t column, int n)
{
    int64_t size = qk_itemsize(dtype);
    v16 v = v16_load_as(dtype, (const char *)a->x + offset * size, n);
    if (!plain && a->skip)
        v = v16_add(v, v16_load_as(dtype, (const char *)a->skip + offset * size, n));
    if (!plain && a->bias)
        v = v16_add(v, v16_load_as(dtype, (const char *)a->bias + column * size, n));
    return v;
}

QK_FOLDED void QK_TIER(rms_scale)(int x_dtype, int scale_dtype, int y_dtype, int plain, const qk_rms_args *a, int64_t offset, int64_t column,
                                  const char *scale, int n, v16 inv)
{
    v16 v = QK_TIER(rms_value)(x_dtype, plain, a, offset, column, n);
    if (!plain && a->sum)
        v16_store_as(x_dtype, (char *)a->sum + offset * qk_itemsize(x_dtype), v, n);
    if (plain || a->y) {
        v16 g = v16_load_as(scale_dtype, scale + column * qk_itemsize(scale_dtype), n);
        v16_store_as(y_dtype, (char *)a->y + offset * qk_itemsize(y_dtype), v16_mul(v16_mul(v, inv), g), n);
    }
}

/* the types and `plain` are constants at the calls that matter, so that these get their own loops */
QK_FOLDED void QK_TIER(rms_row)(int x_dtype, int scale_dtype, int y_dtype, int plain, const qk_rms_args *a, int64_t row)
{
    v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t n = a->n, c = 0;
    for (; c + 64 <= n; c += 64) {
        QK_UNROLL
        for (int j = 0; j < 4; j++) {
            v16 v = QK_TIER(rms_value)(x_dtype, plain, a, row * n + c + 16 * j, c + 16 * j, 16);
            acc[j] = v16_fma(v, v, acc[j]);
        }
    }
    for (int j = 0; c < n; c += 16, j++) {
        v16 v = QK_TIER(rms_value)(x_dtype, plain, a, row * n + c, c, (int)qk_min(16, n - c));
        acc[j] = v16_fma(v, v, acc[j]);
    }
    float squares = v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
    v16 mean = v16_set1(squares / (float)n + a->epsilon);
    v16 inv = v16_div(v16_set1(1.0f), v16_sqrt(mean));
    if (a->inv)
        v16_store_n(a->inv + row, inv, 1);
    const char *scale = (const char *)a->scale + row * a->scale_step * qk_itemsize(scale_dtype);
    for (c = 0; c + 16 <= n; c += 16)
        QK_TIER(rms_scale)(x_dtype, scale_dtype, y_dtype, plain, a, row * n + c, c, scale, 16, inv);
    if (c < n)
        QK_TIER(rms_scale)(x_dtype, scale_dtype, y_dtype, plain, a, row * n + c, c, scale, (int)(n - c), inv);
}
