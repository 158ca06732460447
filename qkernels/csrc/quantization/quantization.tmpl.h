/* The body of quantization, once for all tiers. */
#include "quantization/quantization.h"

/* n codes from element `at` as float32 (exact but for int32, which is rounded); nothing outside them is read */
static inline __attribute__((always_inline)) v16 QK_TIER(load_codes)(const int code, const void *p, int64_t at, int n)
{
    uint8_t some[64] = {0};
    const int64_t size = code == QK_VALUE || code == QK_I32 ? 4 : code == QK_I16 || code == QK_U16 ? 2 : 1;
    const char *q = (const char *)p + at * size;
    v16i v;
    if (code == QK_VALUE)
        return v16_load_as(QK_F32, q, n);
    if (n < 16) {
        memcpy(some, q, (size_t)(n * size));
        q = (const char *)some;
    }
    switch (code) {
    case QK_I8: v = v16i_load_i8(q); break;
    case QK_I16: v = v16i_sra(v16i_shl(v16i_load_u16(q), 16), 16); break;
    case QK_U16: v = v16i_load_u16(q); break;
    case QK_I32: v = v16i_load(q); break;
    case QK_I4: v = v16i_sra(v16i_shl(v16i_load_u8(q), 28), 28); break;
    case QK_U4: v = v16i_and(v16i_load_u8(q), v16i_set1(15)); break;
    case QK_I2: v = v16i_sra(v16i_shl(v16i_load_u8(q), 30), 30); break;
    case QK_U2: v = v16i_and(v16i_load_u8(q), v16i_set1(3)); break;
    default: v = v16i_load_u8(q);
    }
    return v16i_to_f(v);
}

static inline __attribute__((always_inline)) void QK_TIER(store_codes)(const int code, void *p, int64_t at, v16i v, int n)
{
    uint8_t some[32];
    const int64_t size = code == QK_I16 || code == QK_U16 ? 2 : 1;
    char *q = (char *)p + at * size, *target = n < 16 ? (char *)some : q;
    if (code == QK_I4)
        v = v16i_and(v, v16i_set1(15));
    if (code == QK_I2)
        v = v16i_and(v, v16i_set1(3));
    if (size == 2)
        v16i_store_u16(target, v);
    else
        v16i_store_u8(target, v);
    if (n < 16)
        memcpy(q, some, (size_t)(n * size));
}

/* a rounded to a float type, as float32 */
static inline v16 QK_TIER(rounded)(int dtype, v16 a)
{
    uint16_t half[16];
    if (dtype == QK_F32)
        return a;
    v16_store_as(dtype, half, a, 16);
    return v16_load_as(dtype, half, 16);
}

typedef struct {
    int64_t x, scale, length;
} qk_linear_run;

static inline qk_linear_run QK_TIER(run_at)(const qk_linear_args *a, int64_t r)
{
    int64_t o = r / a->runs, j = r % a->runs;
    qk_linear_run run = {o * ((a->runs - 1) * a->length + a->last) + j * a->length, o * a->outer_step + j / a->repeat * a->step,
                         j == a->runs - 1 ? a->last : a->length};
    return run;
}

/* the 16 scales from `at` on, or the one at `at` */
static inline v16 QK_TIER(scales)(const qk_linear_args *a, int64_t at, int n)
{
    return v16_load_as(a->scale_dtype, (const char *)a->scale + at * qk_itemsize(a->scale_dtype), n);
}
static inline v16 QK_TIER(one_scale)(const qk_linear_args *a, int64_t at)
{
    float s[16];
    v16_store(s, QK_TIER(scales)(a, at, 1));
    return v16_set1(s[0]);
}
static inline __attribute__((always_inline)) v16 QK_TIER(one_zero)(const qk_linear_args *a, const int code, int64_t at)
{
    float z[16];
    if (!a->zero)
        return v16_zero();
    v16_store(z, QK_TIER(load_codes)(code, a->zero, at, 1));
    return v16_set1(z[0]);
}

static inline __attribute__((always_inline)) void QK_TIER(dequantize_some)(const qk_linear_args *a, const int code, int64_t at, int64_t scale_at,
                                                                           v16 scale, v16 zero, const int vector, int n)
{
    v16 v = QK_TIER(load_codes)(code, a->x, at, n);
    if (vector) {
        scale = QK_TIER(scales)(a, scale_at, n);
        if (a->zero)
            zero = QK_TIER(load_codes)(code, a->zero, scale_at, n);
    }
    v16_store_as(a->value_dtype, (char *)a->y + at * qk_itemsize(a->value_dtype), v16_mul(v16_sub(v, zero), scale), n);
}

static inline __attribute__((always_inline)) void QK_TIER(dequantize_as)(const qk_linear_args *a, int64_t first, int64_t last, const int code,
                                                                         const int vector)
{
    for (int64_t r = first; r < last; r++) {
        qk_linear_run run = QK_TIER(run_at)(a, r);
        v16 scale = v16_zero(), zero = v16_zero();
        if (!vector) {
            scale = QK_TIER(one_scale)(a, run.scale);
            zero = QK_TIER(one_zero)(a, code, run.scale);
        }
        int64_t i = 0;
        for (; i + 16 <= run.length; i += 16)
            QK_TIER(dequantize_some)(a, code, run.x + i, run.scale + i, scale, zero, vector, 16);
        if (i < run.length)
            QK_TIER(dequantize_some)(a, code, run.x + i, run.scale + i, scale, zero, vector, (int)(run.length - i));
    }
}

/* A NaN becomes the type's smallest code: max and min return their second operand then. The zero point is added after the clamp, which is
 * moved by it instead, so that nothing overflows. */
static inline __attribute__((always_inline)) void QK_TIER(quantize_some)(const qk_linear_args *a, const int code, int64_t at, int64_t scale_at,
                                                                         v16 scale, v16 zero, const int vector, int n)
{
    const int bits = code == QK_I16 || code == QK_U16 ? 16 : code == QK_I4 || code == QK_U4 ? 4 : code == QK_I2 || code == QK_U2 ? 2 : 8;
    const int is_signed = code == QK_I8 || code == QK_I16 || code == QK_I4 || code == QK_I2;
    const float low = is_signed ? -(float)(1 << (bits - 1)) : 0.0f, high = low + (float)((1 << bits) - 1);
    v16 v = QK_TIER(rounded)(a->precision, v16_load_as(a->value_dtype, (const char *)a->x + at * qk_itemsize(a->value_dtype), n));
    if (vector) {
        scale = QK_TIER(rounded)(a->precision, QK_TIER(scales)(a, scale_at, n));
        if (a->zero)
            zero = QK_TIER(load_codes)(code, a->zero, scale_at, n);
    }
    v = QK_TIER(rounded)(a->precision, v16_div(v, scale));
    if (code == QK_VALUE) {
        v16_store_as(QK_F32, (float *)a->y + at, v16_add(v, zero), n);
        return;
    }
    v = v16_min(v16_max(v16_round(v), v16_sub(v16_set1(low), zero)), v16_sub(v16_set1(high), zero));
    QK_TIER(store_codes)(code, a->y, at, v16_to_i(v16_add(v, zero)), n);
}

static inline __attribute__((always_inline)) void QK_TIER(quantize_as)(const qk_linear_args *a, int64_t first, int64_t last, const int code,
                                                                       const int vector)
{
    for (int64_t r = first; r < last; r++) {
        qk_linear_run run = QK_TIER(run_at)(a, r);
        v16 scale = v16_zero(), zero = v16_zero();
        if (!vector) {
            scale = QK_TIER(rounded)(a->precision, QK_TIER(one_scale)(a, run.scale));
            zero = QK_TIER(one_zero)(a, code, run.scale);
        }
        int64_t i = 0;
        for (; i + 16 <= run.length; i += 16)
            QK_TIER(quantize_some)(a, code, run.x + i, run.scale + i, scale, zero, vector, 16);
        if (i < run.length)
            QK_TIER(quantize_some)(a, code, run.x + i, run.scale + i, scale, zero, vector, (int)(run.length - i));
    }
}

/* each type of codes its own loops */
#define QK_EACH_CODE(EACH) EACH(QK_I8) EACH(QK_U8) EACH(QK_I16) EACH(QK_U16) EACH(QK_I4) EACH(QK_U4) EACH(QK_I2) EACH(QK_U2) EACH(QK_VALUE)

static void QK_TIER(dequantize)(const qk_linear_args *a, int64_t first, int64_t last)
{
#define QK_CASE(type) \
    case type: \
        if (a->vector) \
            QK_TIER(dequantize_as)(a, first, last, type, 1); \
        else \
            QK_TIER(dequantize_as)(a, first, last, type, 0); \
        return;
    switch (a->code) {
        QK_EACH_CODE(QK_CASE)
        QK_CASE(QK_I32)
    }
#undef QK_CASE
}

static void QK_TIER(quantize)(const qk_linear_args *a, int64_t first, int64_t last)
{
#define QK_CASE(type) \
    case type: \
        if (a->vector) \
            QK_TIER(quantize_as)(a, first, last, type, 1); \
        else \
            QK_TIER(quantize_as)(a, first, last, type, 0); \
        return;
    switch (a->code) {
        QK_EACH_CODE(QK_CASE)
    }
#undef QK_CASE
}
#undef QK_EACH_CODE

static void QK_TIER(range)(const float *x, int64_t n, float *low, float *high)
{
    v16 smallest = v16_zero(), largest = v16_zero();
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v16_load_as(QK_F32, x + i, (int)qk_min(16, n - i)); /* lanes beyond the end are 0, which counts anyway */
        smallest = v16_min(v, smallest);
        largest = v16_max(v, largest);
    }
    *low = -v16_reduce_max(v16_neg(smallest));
    *high = v16_reduce_max(largest);
}

static void QK_TIER(prepare_rows)(const qk_integer_args *a, int64_t first, int64_t last)
{
    int64_t width = qk_ceil_div(a->k, 4) * 4;
    uint8_t flip = a->a_signed ? 128 : 0;
    for (int64_t r = first; r < last; r++) {
        const uint8_t *from = a->a + r * a->k;
        uint8_t *to = a->rows + r * width;
        uint32_t sum = 0;
        for (int64_t k = 0; k < a->k; k++) {
            to[k] = from[k] ^ flip;
            sum += to[k];
        }
        memset(to + a->k, 0, (size_t)(width - a->k));
        a->sums[r] = (int32_t)sum;
    }
}

static void QK_TIER(pack_columns)(const qk_integer_args *a, int64_t batch, int64_t column, int groups, uint8_t *panels)
{
    static const uint8_t ones[4] = {1, 1, 1, 1};
    const uint8_t *b = a->b + a->b_batch[batch] + column * a->b_n_stride;
    int64_t panel_bytes = 64 + 64 * qk_ceil_div(a->k, 4);
    uint8_t flip = a->b_signed ? 0 : 128;
    v16i sums[4] = {v16i_set1(0), v16i_set1(0), v16i_set1(0), v16i_set1(0)};
    for (int64_t k = 0; k < a->k; k += 4, b += 4 * a->b_k_stride)
        for (int g = 0; g < groups; g++) {
            uint8_t *to = panels + g * panel_bytes + 64 + 16 * k;
            const uint8_t *from = b + 16 * g * a->b_n_stride;
            int rows = (int)qk_min(4, a->k - k), columns = (int)qk_min(16, a->n - column - 16 * g);
            if (rows == 4 && columns == 16 && a->b_n_stride == 1)
                QK_TIER(interleave)(from, a->b_k_stride, flip, to);
            else {
                memset(to, 0, 64);
                for (int c = 0; c < columns; c++)
                    for (int i = 0; i < rows; i++)
                        to[4 * c + i] = from[i * a->b_k_stride + c * a->b_n_stride] ^ flip;
            }
            QK_TIER(dot_four)(to, 0, ones, 0, 1, 1, sums + g);
        }
    for (int g = 0; g < groups; g++)
        v16i_store(panels + g * panel_bytes, sums[g]);
}

static inline v16i QK_TIER(load_ints)(const int32_t *p, int n)
{
    int32_t some[16] = {0};
    if (n == 16)
        return v16i_load(p);
    memcpy(some, p, 4 * (size_t)n);
    return v16i_load(some);
}

/* results of some rows in the 16 columns of a panel, from their sums, `step` of them apart */
static inline void QK_TIER(integer_finish)(const qk_integer_args *a, int64_t batch, int64_t column, const uint8_t *panel, int64_t row, int rows,
                                           const int32_t *sums, int step)
{
    int64_t at = (batch * a->m + row) * a->n + column, line = a->a_batch[batch] + row, columns = a->b_columns[batch] + column;
    int n = (int)qk_min(16, a->n - column);
    v16i b_zero = v16i_sub(QK_TIER(load_ints)(a->b_zero + columns, n), v16i_set1(a->b_signed ? 0 : 128));
    v16i b_sum = v16i_sub(v16i_load(panel), v16i_mul(b_zero, v16i_set1((int32_t)(uint32_t)a->k)));
    v16 b_scale = a->b_scale ? v16_load_as(QK_F32, a->b_scale + columns, n) : v16_zero();
    v16 bias = a->bias ? v16_load_as(QK_F32, a->bias + column, n) : v16_zero();
    float low = (a->y_code == QK_I8 ? -128.0f : 0.0f) - (float)a->y_zero;
    for (int r = 0; r < rows; r++, at += a->n, line++, sums += 16 * step) {
        v16i a_zero = v16i_set1(a->a_zero[line] + (a->a_signed ? 128 : 0));
        v16i sum = v16i_sub(v16i_sub(v16i_load(sums), v16i_mul(a_zero, b_sum)), v16i_mul(b_zero, v16i_set1(a->sums[line])));
        if (a->y_code == QK_I32) {
            int32_t some[16], *y = (int32_t *)a->y + at;
            v16i_store(n == 16 ? y : some, sum);
            if (n < 16)
                memcpy(y, some, 4 * (size_t)n);
            continue;
        }
        v16 scale = v16_mul(v16_set1(a->a_scale[line]), b_scale);
        if (a->y_code == QK_VALUE) {
            v16_store_as(QK_F32, (float *)a->y + at, v16_add(v16_mul(v16i_to_f(sum), scale), bias), n);
            continue;
        }
        scale = v16_div(scale, v16_set1(a->y_scale));
        v16 v = v16_round(v16_mul(v16i_to_f(sum), scale));
        v = v16_min(v16_max(v, v16_set1(low)), v16_set1(low + 255.0f)); /* NaN, from scales that are none, becomes the smallest code */
        QK_TIER(store_codes)(QK_U8, a->y, at, v16i_add(v16_to_i(v), v16i_set1(a->y_zero)), n);
    }
}

static inline __attribute__((always_inline)) void QK_TIER(integer_tile)(const qk_integer_args *a, int64_t batch, int64_t column, const uint8_t *panel,
                                                                        int64_t row, const int rows, const int panels)
{
    int64_t width = qk_ceil_div(a->k, 4) * 4, panel_bytes = 64 + 16 * width;
    const uint8_t *from = a->rows + (a->a_batch[batch] + row) * width;
    v16i sums[QK_INTEGER_ROWS * QK_INTEGER_PANELS];
    int32_t done[16 * QK_INTEGER_ROWS * QK_INTEGER_PANELS]; /* for a loop of its own: what it counts through is no register */
    QK_UNROLL
    for (int i = 0; i < rows * panels; i++)
        sums[i] = v16i_set1(0);
    for (int64_t k = 0; k < width; k += 4)
        QK_TIER(dot_four)(panel + 64 + 16 * k, panel_bytes, from + k, width, rows, panels, sums);
    QK_UNROLL
    for (int i = 0; i < rows * panels; i++)
        v16i_store(done + 16 * i, sums[i]);
    for (int p = 0; p < panels; p++)
        QK_TIER(integer_finish)(a, batch, column + 16 * p, panel + p * panel_bytes, row, rows, done + 16 * p, panels);
}

/* all panels for a few rows, which stay in the first cache */
static inline __attribute__((always_inline)) void QK_TIER(integer_rows)(const qk_integer_args *a, int64_t batch, int64_t column, int groups,
                                                                        const uint8_t *panels, int64_t row, const int rows)
{
    int64_t panel_bytes = 64 + 64 * qk_ceil_div(a->k, 4);
    int g = 0;
    for (; g + QK_INTEGER_PANELS <= groups; g += QK_INTEGER_PANELS)
        QK_TIER(integer_tile)(a, batch, column + 16 * g, panels + g * panel_bytes, row, rows, QK_INTEGER_PANELS);
    for (; g < groups; g++)
        QK_TIER(integer_tile)(a, batch, column + 16 * g, panels + g * panel_bytes, row, rows, 1);
}

static void QK_TIER(multiply_rows)(const qk_integer_args *a, int64_t batch, int64_t column, int groups, const uint8_t *panels, int64_t first,
                                   int64_t last)
{
    int64_t row = first;
    for (; row + QK_INTEGER_ROWS <= last; row += QK_INTEGER_ROWS)
        QK_TIER(integer_rows)(a, batch, column, groups, panels, row, QK_INTEGER_ROWS);
    for (; QK_INTEGER_ROWS > 4 && row + 4 <= last; row += 4)
        QK_TIER(integer_rows)(a, batch, column, groups, panels, row, 4);
    for (; row + 2 <= last; row += 2)
        QK_TIER(integer_rows)(a, batch, column, groups, panels, row, 2);
    for (; row < last; row++)
        QK_TIER(integer_rows)(a, batch, column, groups, panels, row, 1);
}

const qk_quantization_table QK_TIER(quantization_kernels) = {QK_TIER(dequantize),   QK_TIER(quantize),     QK_TIER(range),
                                                             QK_TIER(prepare_rows), QK_TIER(pack_columns), QK_TIER(multiply_rows)};
