/* The body of elementwise, once for all tiers. */
#include "elementwise/elementwise.h"
#include "rows/sigmoid.h"

#include "elementwise/functions.h"

#include "elementwise/functions_f32.h"

/* a 16-bit result of op is a number of the type as soon as it is one of float32: nothing is left to round */
QK_FOLDED int QK_TIER(is_exact)(int op) { return QK_SIGN <= op && op <= QK_LEAKY_RELU; }

/* alpha a rounded once, to a 16-bit type: beside 1.5 times a power of two the last place is the type's at the product's magnitude. Where that power is no float32,
 * the product is made 2^-40 as large. */
QK_FOLDED v16 QK_TIER(product_as)(int dtype, v16 alpha, v16 a)
{
    v16 large = v16_set1(0x1p100f), least = v16_set1(dtype == QK_F16 ? 0x1p-14f : 0x1p-126f), p = v16_mul(alpha, a), scale = v16_set1(1.0f);
    if (dtype == QK_BF16) {
        m16 is_large = v16_lt(large, v16_abs(p));
        scale = v16_select(is_large, v16_set1(0x1p40f), scale);
        a = v16_select(is_large, v16_mul(a, v16_set1(0x1p-40f)), a);
        p = v16_mul(alpha, a);
    }
    v16i binade = v16i_max(v16_as_i(least), v16i_min(v16i_and(v16_as_i(p), v16_as_i(v16_set1(INFINITY))), v16_as_i(large)));
    v16 c = v16i_as_f(v16i_add(binade, v16i_set1(((dtype == QK_F16 ? 13 : 16) << 23) + 0x400000))), y = v16_sub(v16_fma(alpha, a, c), c);
    y = v16i_as_f(v16i_or(v16_as_i(y), v16i_and(v16_as_i(p), v16i_set1(INT32_MIN))));
    return v16_mul(y, scale);
}

QK_FOLDED v16 QK_TIER(elementwise_value)(int op, int dtype, v16 a, v16 b, float alpha, float beta)
{
    v16 zero = v16_zero(), one = v16_set1(1.0f);
    switch (op) {
    case QK_ADD: return v16_add(a, b);
    case QK_SUB: return v16_sub(a, b);
    case QK_MUL: return v16_mul(a, b);
    case QK_DIV: return v16_div(a, b);
    case QK_PRELU: return v16_select(v16_lt(a, zero), v16_mul(a, b), a);
    case QK_SILU_MUL: return v16_mul(QK_TIER(silu)(a), b);
    case QK_SWISH_MUL: return v16_mul(QK_TIER(swish)(a, alpha), b);
    case QK_NEG: return v16_neg(a);
    case QK_ABS: return v16_abs(a);
    case QK_RELU: return v16_add(v16_max(zero, a), zero); /* -0 becomes 0 */
    case QK_SIGN: {
        v16 positive = v16_select(v16_lt(zero, a), one, v16_select(v16_eq(a, zero), zero, a));
        return v16_select(v16_lt(a, zero), v16_neg(one), positive);
    }
    case QK_FLOOR: return v16_floor(a);
    case QK_CEIL: return v16_ceil(a);
    case QK_ROUND: return v16_round(a);
    case QK_CLIP: return v16_min(v16_set1(beta), v16_max(v16_set1(alpha), a));
    case QK_THRESHOLDED_RELU: return v16_select(v16_lt(v16_set1(alpha), a), a, v16_select(v16_isnan(a), a, zero));
    case QK_RECIPROCAL: return v16_div(one, a); /* a quotient of 11 bits each is never as near to a tie as float32 rounds */
    case QK_BIAS_GELU:
    case QK_BIAS_GELU_TANH:
        if (dtype != QK_F32)
            return QK_TIER(bias_gelu)(op, dtype, a, b);
        break;
    case QK_LEAKY_RELU: {
        v16 product = dtype == QK_F32 ? v16_mul(v16_set1(alpha), a) : QK_TIER(product_as)(dtype, v16_set1(alpha), a);
        return v16_select(v16_lt(a, zero), product, a);
    }
    }
    return dtype == QK_F32 ? QK_TIER(function)(op, a, b, alpha, beta) : QK_TIER(exact_function)(op, dtype, a, b, alpha, beta);
}

/* n elements, one after the other at any distance, side by side */
static inline const char *QK_TIER(elementwise_lanes)(char *lanes, const char *p, int64_t step, int n, int64_t size)
{
    if (size == 4)
        for (int l = 0; l < n; l++)
            memcpy(lanes + 4 * l, p + l * step, 4);
    else
        for (int l = 0; l < n; l++)
            memcpy(lanes + 2 * l, p + l * step, 2);
    return lanes;
}

QK_FOLDED void QK_TIER(elementwise_store)(int op, int dtype, char *y, v16 v, int n)
{
    if (dtype == QK_BF16 && n == 16 && QK_TIER(is_exact)(op))
        v16i_store_u16(y, v16i_shr(v16_as_i(v), 16));
    else
        v16_store_as(dtype, y, v, n);
}

/* op and dtype are constants at every call but those of functions of 16-bit types, so that each pair gets its own loop */
QK_FOLDED void QK_TIER(elementwise_row)(int op, int dtype, char *y, const char *a, int64_t a_step, const char *b, int64_t b_step, int64_t n,
                                        float alpha, float beta)
{
    char a_lanes[64], b_lanes[64];
    int64_t size = qk_itemsize(dtype), i = 0, a_next = 16 * a_step, b_next = 16 * b_step;
    int dense_a = a_step == size, dense_b = b_step == size;
    if (!a_step) { /* one value: as if the same 16 came again and again */
        a = QK_TIER(elementwise_lanes)(a_lanes, a, 0, 16, size);
        dense_a = 1;
    }
    if (!b_step) {
        b = QK_TIER(elementwise_lanes)(b_lanes, b, 0, 16, size);
        dense_b = 1;
    }
    if (dense_a && dense_b)
        for (; i + 64 <= n; i += 64, a += 4 * a_next, b += 4 * b_next, y += 64 * size) {
            v16 v[4];
            QK_UNROLL
            for (int j = 0; j < 4; j++) {
                v16 p = v16_load_as(dtype, a + j * a_next, 16), q = v16_load_as(dtype, b + j * b_next, 16);
                v[j] = QK_TIER(elementwise_value)(op, dtype, p, q, alpha, beta);
            }
            QK_UNROLL
            for (int j = 0; j < 4; j++)
                QK_TIER(elementwise_store)(op, dtype, y + 16 * j * size, v[j], 16);
        }
    for (; i < n; i += 16, a += a_next, b += b_next, y += 16 * size) {
        int left = (int)qk_min(16, n - i);
        const char *p = dense_a ? a : QK_TIER(elementwise_lanes)(a_lanes, a, a_step, left, size);
        const char *q = dense_b ? b : QK_TIER(elementwise_lanes)(b_lanes, b, b_step, left, size);
        v16 v = QK_TIER(elementwise_value)(op, dtype, v16_load_as(dtype, p, left), v16_load_as(dtype, q, left), alpha, beta);
        QK_TIER(elementwise_store)(op, dtype, y, v, left);
    }
}

/* The bits of a 16-bit type, for which nothing needs widening: op is one of NEG, ABS, RELU, SIGN. */
QK_FOLDED uint16_t QK_TIER(code_value)(int op, int dtype, uint16_t c)
{
    uint16_t infinity = dtype == QK_F16 ? 0x7C00 : 0x7F80, one = dtype == QK_F16 ? 0x3C00 : 0x3F80, size = c & 0x7FFF;
    switch (op) {
    case QK_NEG: return c ^ 0x8000;
    case QK_ABS: return size;
    case QK_RELU: return (uint16_t)(c - 0x8000) <= infinity ? 0 : c; /* -0 to minus infinity */
    default: return size > infinity ? c : size ? (c & 0x8000) | one : 0;
    }
}

QK_FOLDED void QK_TIER(code_row)(int op, int dtype, char *y, const char *a, int64_t a_step, int64_t n)
{
    uint16_t *to = (uint16_t *)y, c;
    if (a_step == 2)
        for (int64_t i = 0; i < n; i++) {
            memcpy(&c, a + 2 * i, 2);
            to[i] = QK_TIER(code_value)(op, dtype, c);
        }
    else
        for (int64_t i = 0; i < n; i++, a += a_step) {
            memcpy(&c, a, 2);
            to[i] = QK_TIER(code_value)(op, dtype, c);
        }
}

static void QK_TIER(table_row)(char *y, const char *a, int64_t a_step, int64_t n, const uint16_t *table)
{
    uint16_t *to = (uint16_t *)y, code;
    int64_t i = 0;
    if (a_step == 2)
        for (; i + 32 <= n; i += 32, a += 64) {
            v16_lookup_u16(to + i, a, table);
            v16_lookup_u16(to + i + 16, a + 32, table);
        }
    for (; i < n; i++, a += a_step) {
        memcpy(&code, a, 2);
        to[i] = table[code];
    }
}

/* elements first..last-1 of y in C order */
static void QK_TIER(elementwise_rows)(const qk_elementwise_args *e, int64_t first, int64_t last)
{
    int inner = e->axes - 1;
    int64_t length = e->shape[inner], size = qk_itemsize(e->dtype), n;
    for (; first < last; first += n) {
        int64_t row = first / length, column = first % length;
        const char *a = e->a + column * e->a_step[inner], *b = e->b + column * e->b_step[inner];
        char *y = e->y + first * size;
        n = qk_min(length - column, last - first);
        for (int i = inner - 1; i >= 0; row /= e->shape[i], i--) {
            a += row % e->shape[i] * e->a_step[i];
            b += row % e->shape[i] * e->b_step[i];
        }
        if (e->table) {
            QK_TIER(table_row)(y, a, e->a_step[inner], n, e->table);
            continue;
        }
#define ROW(op, dtype) \
    case op * 3 + dtype: \
        QK_TIER(elementwise_row)(op, dtype, y, a, e->a_step[inner], b, e->b_step[inner], n, e->alpha, e->beta); \
        break;
#define CODES(op, dtype) \
    case op * 3 + dtype: \
        QK_TIER(code_row)(op, dtype, y, a, e->a_step[inner], n); \
        break;
#define ROWS(op) ROW(op, QK_F32) ROW(op, QK_F16) ROW(op, QK_BF16)
#define ROW_AND_CODES(op) ROW(op, QK_F32) CODES(op, QK_F16) CODES(op, QK_BF16)
        switch (e->op * 3 + e->dtype) {
            /* clang-format off */
            ROWS(QK_ADD) ROWS(QK_SUB) ROWS(QK_MUL) ROWS(QK_DIV) ROWS(QK_PRELU) ROWS(QK_SILU_MUL) ROWS(QK_SWISH_MUL)
            ROW_AND_CODES(QK_NEG) ROW_AND_CODES(QK_ABS) ROW_AND_CODES(QK_RELU) ROW_AND_CODES(QK_SIGN)
            ROWS(QK_FLOOR) ROWS(QK_CEIL) ROWS(QK_ROUND) ROWS(QK_CLIP) ROWS(QK_THRESHOLDED_RELU) ROWS(QK_LEAKY_RELU)
            ROWS(QK_RECIPROCAL) ROWS(QK_BIAS_GELU) ROWS(QK_BIAS_GELU_TANH) ROW(QK_POW, QK_F32) ROW(QK_SQRT, QK_F32) ROW(QK_HARD_SIGMOID, QK_F32)
            ROW(QK_HARD_SWISH, QK_F32) ROW(QK_SOFTSIGN, QK_F32) ROW(QK_SIGMOID, QK_F32) ROW(QK_SILU, QK_F32) ROW(QK_SWISH, QK_F32) ROW(QK_GELU, QK_F32)
            ROW(QK_GELU_TANH, QK_F32) ROW(QK_ERF, QK_F32) ROW(QK_EXP, QK_F32) ROW(QK_LOG, QK_F32) ROW(QK_SOFTPLUS, QK_F32) ROW(QK_MISH, QK_F32)
            ROW(QK_TANH, QK_F32) ROW(QK_SIN, QK_F32) ROW(QK_COS, QK_F32) ROW(QK_ELU, QK_F32) ROW(QK_CELU, QK_F32) ROW(QK_SELU, QK_F32)
                /* clang-format on */
                default : /* a function of a 16-bit type */
                          if (e->dtype == QK_F16)
                              QK_TIER(elementwise_row)(e->op, QK_F16, y, a, e->a_step[inner], b, e->b_step[inner], n, e->alpha, e->beta);
            else QK_TIER(elementwise_row)(e->op, QK_BF16, y, a, e->a_step[inner], b, e->b_step[inner], n, e->alpha, e->beta);
        }
#undef ROW_AND_CODES
#undef ROWS
#undef CODES
#undef ROW
    }
}

/* The same by pieces that go past the caches: y's lines are not read before they are written, and a's next piece is fetched while one is on its way. */
static void QK_TIER(elementwise_stream)(const qk_elementwise_args *e, int64_t first, int64_t last)
{
    _Alignas(64) char piece[1 << 14];
    int64_t size = qk_itemsize(e->dtype), n = (int64_t)sizeof piece / size;
    int64_t head = qk_min(last, first + (-(intptr_t)(e->y + first * size) & 63) / size);
    qk_elementwise_args part = *e;
    QK_TIER(elementwise_rows)(e, first, head);
    for (; head + n <= last; head += n) {
        const char *next = e->a + (head + n) * size;
        part.y = piece - head * size;
        QK_TIER(elementwise_rows)(&part, head, head + n);
        for (int64_t i = 0; i < (int64_t)sizeof piece; i += 64) {
            __builtin_prefetch(next + i);
            v16i_stream(e->y + head * size + i, v16i_load(piece + i));
        }
    }
    v16i_stream_end();
    QK_TIER(elementwise_rows)(e, head, last);
}

static void QK_TIER(elementwise)(const qk_elementwise_args *e, int64_t first, int64_t last)
{
    (e->stream ? QK_TIER(elementwise_stream) : QK_TIER(elementwise_rows))(e, first, last);
}

const qk_elementwise_table QK_TIER(elementwise_kernels) = {QK_TIER(elementwise)};
