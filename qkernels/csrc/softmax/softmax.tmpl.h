/* The body of softmax, once for all tiers. A row is read for its maximum, then for the exponentials and their sum, which stay in y (float32) or
 * in scratch (16 bits, so that only the quotient is rounded), then scaled; several short rows go through each pass together.
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
    for (; c + 64 <= n; c += 64) {
        QK_UNROLL
        for (int j = 0; j < 4; j++)
            m[j] = v16_max(v16_load_as(dtype, x + (c + 16 * j) * qk_itemsize(dtype), 16), m[j]);
    }
    for (; c < n; c += 16)
        m[0] = v16_max(QK_TIER(softmax_load)(dtype, x, c, (int)qk_min(16, n - c), least), m[0]);
    return v16_reduce_max(v16_max(v16_max(m[0], m[1]), v16_max(m[2], m[3])));
}

/* e^x for x <= 0 and NaN, error below 1 ulp; 0 below -104. x = (n + j/16) ln 2 + r, |r| <= ln 2 / 32; e^r - 1 = q by a polynomial off by 2^-29;
 * e^x = 2^n (T + T q) with T = 2^(j/16). */
static inline v16 QK_TIER(softmax_exp)(v16 x)
{
    static const float t[16] = {0x1.000000p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f, 0x1.306fe0p+0f, 0x1.3dea64p+0f,
                                0x1.4bfdaep+0f, 0x1.5ab07ep+0f, 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
    v16 shift = v16_set1(0x1.8p19f);
    x = v16_max(v16_set1(-105.0f), x);
    v16 shifted = v16_fma(x, v16_set1(0x1.715476p+0f), shift), n_j = v16_sub(shifted, shift);      /* its last bits count sixteenths */
    v16 r = v16_fnma(n_j, v16_set1(-0x1.05c610p-29f), v16_fnma(n_j, v16_set1(0x1.62e430p-1f), x)); /* the inner difference is exact */
    v16 q = v16_fma(v16_fma(v16_set1(0x1.555738p-3f), r, v16_set1(0x1.000222p-1f)), v16_mul(r, r), r), power = v16_lookup16(t, v16_as_i(shifted));
    return v16_scale2_floor(v16_fma(power, q, power), n_j);
}

/* the sum of e^(x - m); the exponentials to e, if there is one */
QK_FOLDED float QK_TIER(softmax_sum)(int dtype, const char *x, int64_t n, v16 m, float *e)
{
    v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t c = 0;
    for (; c + 64 <= n; c += 64) {
        QK_UNROLL
        for (int j = 0; j < 4; j++) {
            v16 p = QK_TIER(softmax_exp)(v16_sub(v16_load_as(dtype, x + (c + 16 * j) * qk_itemsize(dtype), 16), m));
            if (e)
                v16_store(e + c + 16 * j, p);
            acc[j] = v16_add(acc[j], p);
        }
    }
    for (int j = 0; c < n; c += 16, j++) {
        int left = (int)qk_min(16, n - c);
        v16 p = QK_TIER(softmax_exp)(v16_sub(QK_TIER(softmax_load)(dtype, x, c, left, v16_zero()), m));
        if (left < 16)
            p = v16_select(m16_first(left), p, v16_zero());
        if (e)
            v16_store_n(e + c, p, left);
        acc[j] = v16_add(acc[j], p);
    }
    return v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
}

/* up to 16 rows of n elements, in three passes; e is where exponentials stay */
QK_FOLDED void QK_TIER(softmax_block)(int dtype, int log, const char *x, char *y, int64_t n, int rows, float *e)
{
    int64_t size = qk_itemsize(dtype);
    float most[16], factor[16];
    for (int r = 0; r < rows; r++)
        most[r] = QK_TIER(softmax_max)(dtype, x + r * n * size, n);
    for (int r = 0; r < rows; r++)
        factor[r] = QK_TIER(softmax_sum)(dtype, x + r * n * size, n, v16_set1(most[r]), log ? NULL : e + r * n);
    v16 sums = v16_load_n(factor, rows);
    v16_store_n(factor, log ? d16_to_f(d16_log(d16_of(sums))) : v16_div(v16_set1(1.0f), sums), rows);
    for (int r = 0; r < rows; r++, x += n * size, y += n * size, e += log ? 0 : n) {
        v16 m = v16_set1(most[r]), f = v16_set1(factor[r]);
        for (int64_t c = 0; c < n; c += 16) {
            int left = (int)qk_min(16, n - c);
            v16 v = log ? v16_sub(v16_sub(v16_load_as(dtype, x + c * size, left), m), f) : v16_mul(v16_load_as(QK_F32, e + c, left), f);
            v16_store_as(dtype, y + c * size, v, left);
        }
    }
}

static void QK_TIER(softmax_rows)(const qk_softmax_args *a, int64_t first, int64_t last, float *scratch)
{
    int64_t block = qk_softmax_rows(a->n);
    for (int64_t row = first; row < last; row += block) {
        const char *x = (const char *)a->x + row * a->n * qk_itemsize(a->dtype);
        char *y = (char *)a->y + row * a->n * qk_itemsize(a->dtype);
        int rows = (int)qk_min(block, last - row);
#define BLOCK(dtype, log, e) \
    case dtype * 2 + log: QK_TIER(softmax_block)(dtype, log, x, y, a->n, rows, e); break;
        switch (a->dtype * 2 + a->log) {
            /* clang-format off */
            BLOCK(QK_F32, 0, (float *)y) BLOCK(QK_F16, 0, scratch) BLOCK(QK_BF16, 0, scratch)
            BLOCK(QK_F32, 1, scratch) BLOCK(QK_F16, 1, scratch) BLOCK(QK_BF16, 1, scratch)
            /* clang-format on */
        }
#undef BLOCK
    }
}

const qk_softmax_table QK_TIER(softmax_kernels) = {QK_TIER(softmax_rows)};
