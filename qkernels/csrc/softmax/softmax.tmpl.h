/* The body of softmax, once for all tiers. A row is read for its maximum, then for the exponentials and their sum, which stay in y (float32) or
 * in scratch (16 bits, so that only the quotient is rounded), then scaled.
 *
 * A NaN reaches its exponential and so the sum and the whole row. A row of minus infinities has x - m = NaN: the result is NaN, as in ONNX's
 * reference. Sum: vector i to accumulator i mod 4, then (0 + 1) + (2 + 3) and the lanes' tree, whatever the tier. */
#include "softmax/softmax.h"

QK_FOLDED v16 QK_TIER(softmax_load)(int dtype, const char *x, int64_t c, int n, v16 beyond)
{
    v16 v = v16_load_as(dtype, x + c * qk_itemsize(dtype), n);
    return n == 16 ? v : v16_select(m16_first(n), v, beyond);
}

QK_FOLDED float QK_TIER(softmax_max)(int dtype, const char *x, int64_t n)
{
    v16 least = v16_set1(-INFINITY), m[4] = {least, least, least, least};
    int64_t c = 0;
    for (; c + 64 <= n; c += 64)
        for (int j = 0; j < 4; j++)
            m[j] = v16_max(v16_load_as(dtype, x + (c + 16 * j) * qk_itemsize(dtype), 16), m[j]);
    for (; c < n; c += 16)
        m[0] = v16_max(QK_TIER(softmax_load)(dtype, x, c, (int)qk_min(16, n - c), least), m[0]);
    return v16_reduce_max(v16_max(v16_max(m[0], m[1]), v16_max(m[2], m[3])));
}

/* the sum of e^(x - m); the exponentials to e, if there is one */
QK_FOLDED float QK_TIER(softmax_sum)(int dtype, const char *x, int64_t n, v16 m, float *e)
{
    v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t c = 0;
    for (; c + 64 <= n; c += 64)
        for (int j = 0; j < 4; j++) {
            v16 p = v16_exp(v16_sub(v16_load_as(dtype, x + (c + 16 * j) * qk_itemsize(dtype), 16), m));
            if (e)
                v16_store(e + c + 16 * j, p);
            acc[j] = v16_add(acc[j], p);
        }
    for (int j = 0; c < n; c += 16, j++) {
        int left = (int)qk_min(16, n - c);
        v16 p = v16_exp(v16_sub(QK_TIER(softmax_load)(dtype, x, c, left, v16_zero()), m));
        if (left < 16)
            p = v16_select(m16_first(left), p, v16_zero());
        if (e)
            v16_store_n(e + c, p, left);
        acc[j] = v16_add(acc[j], p);
    }
    return v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
}

QK_FOLDED void QK_TIER(softmax_row)(int dtype, const char *x, char *y, int64_t n, int log, float *e)
{
    v16 m = v16_set1(QK_TIER(softmax_max)(dtype, x, n));
    v16 sum = v16_set1(QK_TIER(softmax_sum)(dtype, x, n, m, e)), inverse = v16_div(v16_set1(1.0f), sum);
    v16 log_sum = log ? d16_to_f(d16_log(d16_of(sum))) : sum;
    for (int64_t c = 0; c < n; c += 16) {
        int left = (int)qk_min(16, n - c);
        v16 v = log ? v16_sub(v16_sub(v16_load_as(dtype, x + c * qk_itemsize(dtype), left), m), log_sum) : v16_mul(v16_load_as(QK_F32, e + c, left), inverse);
        v16_store_as(dtype, y + c * qk_itemsize(dtype), v, left);
    }
}

static void QK_TIER(softmax_rows)(const qk_softmax_args *a, int64_t first, int64_t last, float *scratch)
{
    for (int64_t row = first; row < last; row++) {
        const char *x = (const char *)a->x + row * a->n * qk_itemsize(a->dtype);
        char *y = (char *)a->y + row * a->n * qk_itemsize(a->dtype);
#define ROW(dtype, log, e) \
    case dtype * 2 + log: \
        QK_TIER(softmax_row)(dtype, x, y, a->n, log, e); \
        break;
        switch (a->dtype * 2 + a->log) {
            ROW(QK_F32, 0, (float *)y) ROW(QK_F16, 0, scratch) ROW(QK_BF16, 0, scratch)
            ROW(QK_F32, 1, NULL) ROW(QK_F16, 1, NULL) ROW(QK_BF16, 1, NULL)
        }
#undef ROW
    }
}

const qk_softmax_table QK_TIER(softmax_kernels) = {QK_TIER(softmax_rows)};
