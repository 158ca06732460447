/* The body of reduction, once for all tiers.
 *
 * Sum of a row: vector i goes to accumulator i mod 4, of 16 doubles each, then (0 + 1) + (2 + 3) and the lanes' tree. Sum of columns: row
 * after row, QK_STRIP columns side by side in memory close by, 4 rows at a time.
 * Maximum: a NaN anywhere is the result; its order matters to nothing but the sign of zero, and is fixed too. */
#include "reduction/reduction.h"

/* the larger, NaN before all */
QK_FOLDED v16 QK_TIER(larger)(v16 v, v16 m) { return v16_select(v16_isnan(v), v, v16_max(v, m)); }

/* 16 elements, or n; float32 widens as it is read */
QK_FOLDED d16 QK_TIER(reduce_load)(int dtype, const char *x, int n)
{
    return dtype == QK_F32 && n == 16 ? d16_load_f((const float *)x) : d16_of(v16_load_as(dtype, x, n));
}

QK_FOLDED v16 QK_TIER(reduce_result)(int op, int dtype, d16 sum, int64_t n)
{
    return d16_finish(dtype, op == QK_MEAN ? d16_div(sum, d16_set1((double)n)) : sum);
}

QK_FOLDED void QK_TIER(reduce_row)(int op, int dtype, const char *x, int64_t n, char *y)
{
    int64_t size = qk_itemsize(dtype), c = 0;
    v16 result;
    if (op == QK_MAX) {
        v16 least = v16_set1(-INFINITY), m[4] = {least, least, least, least};
        float lanes[16];
        for (; c + 64 <= n; c += 64)
            for (int j = 0; j < 4; j++)
                m[j] = QK_TIER(larger)(v16_load_as(dtype, x + (c + 16 * j) * size, 16), m[j]);
        for (; c < n; c += 16) {
            int left = (int)qk_min(16, n - c);
            m[0] = QK_TIER(larger)(v16_select(m16_first(left), v16_load_as(dtype, x + c * size, left), least), m[0]);
        }
        result = QK_TIER(larger)(QK_TIER(larger)(m[0], m[1]), QK_TIER(larger)(m[2], m[3]));
        v16_store(lanes, result);
        for (int l = 1; l < 16; l++)
            lanes[0] = lanes[l] > lanes[0] || lanes[l] != lanes[l] ? lanes[l] : lanes[0];
        result = v16_set1(lanes[0]);
    } else {
        d16 sum[4] = {d16_zero(), d16_zero(), d16_zero(), d16_zero()};
        for (; c + 64 <= n; c += 64)
            for (int j = 0; j < 4; j++)
                sum[j] = d16_add(sum[j], QK_TIER(reduce_load)(dtype, x + (c + 16 * j) * size, 16));
        for (int j = 0; c < n; c += 16, j++)
            sum[j] = d16_add(sum[j], d16_of(v16_load_as(dtype, x + c * size, (int)qk_min(16, n - c))));
        d16 total = d16_add(d16_add(sum[0], sum[1]), d16_add(sum[2], sum[3]));
        result = QK_TIER(reduce_result)(op, dtype, d16_set1(d16_reduce_add(total)), n);
    }
    v16_store_as(dtype, y, result, 1);
}

/* `rows` rows into the sums or maxima so far of 1 to 16 columns: in their order, so the number is of no consequence */
QK_FOLDED void QK_TIER(reduce_into)(int op, int dtype, const char *x, int64_t step, int rows, int columns, double *sum, float *most)
{
    if (op == QK_MAX) {
        v16 m = v16_load(most);
        for (int k = 0; k < rows; k++)
            m = QK_TIER(larger)(v16_load_as(dtype, x + k * step, columns), m);
        v16_store(most, m);
    } else {
        d16 a = d16_load(sum);
        for (int k = 0; k < rows; k++)
            a = d16_add(a, QK_TIER(reduce_load)(dtype, x + k * step, columns));
        d16_store(sum, a);
    }
}

/* 1 to QK_STRIP columns */
QK_FOLDED void QK_TIER(reduce_columns)(int op, int dtype, const char *x, int64_t n, int64_t inner, int64_t columns, char *y)
{
    double sum[QK_STRIP];
    float most[QK_STRIP];
    int64_t size = qk_itemsize(dtype), step = inner * size, whole = columns / 16 * 16;
    int tail = (int)(columns - whole);
    for (int64_t i = 0; i < columns; i += 16) {
        d16_store(sum + i, d16_zero());
        v16_store(most + i, v16_set1(-INFINITY));
    }
    for (int64_t k = 0; k < n; k += 4) {
        int rows = (int)qk_min(4, n - k);
        const char *p = x + k * step;
        for (int64_t i = 0; i < whole; i += 16)
            if (rows == 4)
                QK_TIER(reduce_into)(op, dtype, p + i * size, step, 4, 16, sum + i, most + i);
            else
                QK_TIER(reduce_into)(op, dtype, p + i * size, step, rows, 16, sum + i, most + i);
        if (tail)
            QK_TIER(reduce_into)(op, dtype, p + whole * size, step, rows, tail, sum + whole, most + whole);
    }
    for (int64_t i = 0; i < columns; i += 16)
        v16_store_as(dtype, y + i * size, op == QK_MAX ? v16_load(most + i) : QK_TIER(reduce_result)(op, dtype, d16_load(sum + i), n),
                     (int)qk_min(16, columns - i));
}

static void QK_TIER(reduce)(const qk_reduction_args *r, int64_t first, int64_t last)
{
    int64_t size = qk_itemsize(r->dtype), strips = qk_ceil_div(r->inner, QK_STRIP);
    for (int64_t u = first; u < last; u++) {
        int64_t o = u / strips, i = u % strips * QK_STRIP;
        const char *x = (const char *)r->x + (o * r->n * r->inner + i) * size;
        char *y = (char *)r->y + (o * r->inner + i) * size;
        int64_t columns = qk_min(QK_STRIP, r->inner - i);
#define UNIT(op, dtype) \
    case op * 3 + dtype: \
        if (r->inner == 1) \
            QK_TIER(reduce_row)(op, dtype, x, r->n, y); \
        else \
            QK_TIER(reduce_columns)(op, dtype, x, r->n, r->inner, columns, y); \
        break;
#define UNITS(op) UNIT(op, QK_F32) UNIT(op, QK_F16) UNIT(op, QK_BF16)
        switch (r->op * 3 + r->dtype) {
            UNITS(QK_SUM) UNITS(QK_MEAN) UNITS(QK_MAX)
        }
#undef UNITS
#undef UNIT
    }
}

const qk_reduction_table QK_TIER(reduction_kernels) = {QK_TIER(reduce)};
