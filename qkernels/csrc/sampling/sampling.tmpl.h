/* The body of sampling, once for all tiers: what touches every logit. Maxima are exact in any order; e^x has one order anyway. */
#include "sampling/sampling.h"

/* The maximum of n <= QK_CHUNK elements without its NaNs; *nan says whether it has any. */
static inline float QK_TIER(chunk_max)(int dtype, const void *x, int n, int *nan)
{
    const char *p = (const char *)x;
    int64_t size = qk_itemsize(dtype);
    v16 lowest = v16_set1(-INFINITY), max[4] = {lowest, lowest, lowest, lowest};
    v16i magnitude = v16i_set1(0); /* above infinity's bits: a NaN */
    int i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++) {
            v16 v = v16_load_as(dtype, p + (i + 16 * j) * size, 16);
            max[j] = v16_max(v, max[j]);
            magnitude = v16i_max(magnitude, v16_as_i(v16_abs(v)));
        }
    for (; i < n; i += 16) {
        int left = n - i < 16 ? n - i : 16;
        v16 v = v16_select(m16_first(left), v16_load_as(dtype, p + i * size, left), lowest);
        max[0] = v16_max(v, max[0]);
        magnitude = v16i_max(magnitude, v16_as_i(v16_abs(v)));
    }
    *nan = m16_bits(v16i_gt(magnitude, v16i_set1(0x7F800000))) != 0;
    return v16_reduce_max(v16_max(v16_max(max[0], max[1]), v16_max(max[2], max[3])));
}

/* First (or last) position among n elements that equals value, or, nan, that is a NaN. There is one. */
static inline int QK_TIER(position)(int dtype, const void *x, int n, float value, int nan, int last)
{
    int found = 0;
    for (int i = 0; i < n; i += 16) {
        int left = n - i < 16 ? n - i : 16;
        v16 v = v16_load_as(dtype, (const char *)x + i * qk_itemsize(dtype), left);
        unsigned hits = (unsigned)m16_bits(nan ? v16_isnan(v) : v16_eq(v, v16_set1(value))) & ((1u << left) - 1);
        if (hits && !last)
            return i + __builtin_ctz(hits);
        if (hits)
            found = i + 31 - __builtin_clz(hits);
    }
    return found;
}

static void QK_TIER(argmax_rows)(const qk_argmax_args *a, int64_t first, int64_t last)
{
    int64_t size = qk_itemsize(a->dtype);
    for (int64_t row = first; row < last; row++) {
        const char *x = (const char *)a->x + row * a->n * size;
        float best = -INFINITY;
        int64_t where = 0;
        int has_nan = 0;
        for (int64_t c = 0; c < a->n && !(has_nan && !a->select_last); c += QK_CHUNK) {
            int nan;
            float max = QK_TIER(chunk_max)(a->dtype, x + c * size, (int)qk_min(QK_CHUNK, a->n - c), &nan);
            if (nan || (!has_nan && (max > best || (a->select_last && max == best)))) {
                best = max;
                where = c;
                has_nan |= nan;
            }
        }
        int n = (int)qk_min(QK_CHUNK, a->n - where);
        a->y[row] = where + QK_TIER(position)(a->dtype, x + where * size, n, best, has_nan, a->select_last);
    }
}

static void QK_TIER(widen)(const qk_sample_args *a, int64_t first, int64_t last)
{
    int64_t end = qk_min(a->n, last * QK_CHUNK);
    for (int64_t i = first * QK_CHUNK; i < end; i += 16) {
        int left = (int)qk_min(16, end - i);
        v16_store_as(QK_F32, a->x + i, v16_load_as(a->dtype, (const char *)a->logits + i * qk_itemsize(a->dtype), left), left);
    }
}

static void QK_TIER(penalize)(const qk_sample_args *a)
{
    v16 penalty = v16_set1(a->penalty);
    for (int64_t j = 0; j < a->n_previous; j++) {
        /* from the logit itself, so that an id which comes twice counts once */
        v16 v = v16_load_as(a->dtype, (const char *)a->logits + a->previous[j] * qk_itemsize(a->dtype), 1);
        v16_store_n(a->x + a->previous[j], v16_select(v16_lt(v, v16_zero()), v16_mul(v, penalty), v16_div(v, penalty)), 1);
    }
}

static void QK_TIER(scan)(const qk_sample_args *a, int64_t first, int64_t last)
{
    for (int64_t c = first; c < last; c++) {
        int nan, n = (int)qk_min(QK_CHUNK, a->n - c * QK_CHUNK);
        float max = QK_TIER(chunk_max)(QK_F32, a->values + c * QK_CHUNK, n, &nan);
        a->chunk_max[c] = nan ? NAN : max;
    }
}

static int64_t QK_TIER(collect)(const qk_sample_args *a, float bound)
{
    int64_t count = 0;
    v16 least = v16_set1(bound);
    for (int64_t c = 0; c * QK_CHUNK < a->n; c++) {
        int64_t end = qk_min(a->n, (c + 1) * QK_CHUNK);
        if (a->chunk_max[c] < bound)
            continue;
        for (int64_t i = c * QK_CHUNK; i < end; i += 16) {
            int left = (int)qk_min(16, end - i);
            unsigned hits = ~(unsigned)m16_bits(v16_lt(v16_load_as(QK_F32, a->values + i, left), least)) & ((1u << left) - 1);
            for (; hits; hits &= hits - 1, count++) {
                int64_t at = i + __builtin_ctz(hits);
                a->x[count] = a->values[at]; /* count <= at: nothing unread is overwritten */
                a->id[count] = (int32_t)at;
            }
        }
    }
    return count;
}

static void QK_TIER(weigh)(const qk_sample_args *a, int64_t first, int64_t last)
{
    v16 max = v16_set1(a->max), temperature = v16_set1(a->temperature);
    for (int64_t c = first; c < last; c++) {
        int64_t start = c * QK_CHUNK, end = qk_min(a->count, start + QK_CHUNK), sum = 0;
        for (int64_t i = start; i < end; i += 16) {
            int left = (int)qk_min(16, end - i);
            v16 v = v16_load_as(QK_F32, a->values + i, left);
            /* the maximum itself is 0 even where it is infinite */
            v16 below = v16_select(v16_eq(v, max), v16_zero(), v16_sub(v, max));
            v16_store_as(QK_F32, a->e + i, v16_exp(v16_div(below, temperature)), left);
        }
        for (int64_t i = start; i < end; i++)
            sum += (int64_t)(a->e[i] * a->scale);
        a->chunk_sum[c] = (uint64_t)sum;
    }
}

const qk_sampling_table QK_TIER(sampling_kernels) = {QK_TIER(argmax_rows), QK_TIER(widen),   QK_TIER(penalize),
                                                     QK_TIER(scan),        QK_TIER(collect), QK_TIER(weigh)};
