/* The body of elementwise, once for all tiers. */
#include "elementwise/elementwise.h"
#include "rows/sigmoid.h"

#include "elementwise/functions.h"

QK_FOLDED v16 QK_TIER(elementwise_value)(int op, int dtype, v16 a, v16 b, float alpha, float beta, int function)
{
    switch (op) {
    case QK_ADD: return v16_add(a, b);
    case QK_SUB: return v16_sub(a, b);
    case QK_MUL: return v16_mul(a, b);
    case QK_SILU_MUL: return v16_mul(QK_TIER(silu)(QK_F32, a), b);
    case QK_SIGMOID: return QK_TIER(sigmoid)(dtype, a);
    case QK_SILU: return QK_TIER(silu)(dtype, a);
    case QK_SWISH: return QK_TIER(swish)(dtype, a, alpha);
    case QK_DIV: return v16_div(a, b);
    case QK_NEG: return v16_neg(a);
    case QK_SQRT: return v16_sqrt(a);
    case QK_SWISH_MUL: return v16_mul(QK_TIER(swish)(QK_F32, a, alpha), b);
    case QK_SIMPLE: return QK_TIER(simple)(function, a, b, alpha, beta);
    default: return QK_TIER(function)(function, dtype, a, b, alpha, beta);
    }
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

/* op and dtype are constants at every call, so that each pair gets its own loop */
QK_FOLDED void QK_TIER(elementwise_row)(int op, int dtype, char *y, const char *a, int64_t a_step, const char *b, int64_t b_step, int64_t n,
                                        float alpha, float beta, int function)
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
                v[j] = QK_TIER(elementwise_value)(op, dtype, p, q, alpha, beta, function);
            }
            QK_UNROLL
            for (int j = 0; j < 4; j++)
                v16_store_as(dtype, y + 16 * j * size, v[j], 16);
        }
    for (; i < n; i += 16, a += a_next, b += b_next, y += 16 * size) {
        int left = (int)qk_min(16, n - i);
        const char *p = dense_a ? a : QK_TIER(elementwise_lanes)(a_lanes, a, a_step, left, size);
        const char *q = dense_b ? b : QK_TIER(elementwise_lanes)(b_lanes, b, b_step, left, size);
        v16 v = QK_TIER(elementwise_value)(op, dtype, v16_load_as(dtype, p, left), v16_load_as(dtype, q, left), alpha, beta, function);
        v16_store_as(dtype, y, v, left);
    }
}

/* A 16-bit element is its own index: a load from the table for each, about one a cycle, whatever the function. */
static void QK_TIER(lookup_row)(const uint16_t *table, uint16_t *y, const char *a, int64_t a_step, int64_t n)
{
    uint16_t x;
    if (a_step == 2)
        for (int64_t i = 0; i < n; i++)
            y[i] = table[((const uint16_t *)a)[i]];
    else
        for (int64_t i = 0; i < n; i++) {
            memcpy(&x, a + i * a_step, 2);
            y[i] = table[x];
        }
}

/* elements first..last-1 of y in C order */
static void QK_TIER(elementwise)(const qk_elementwise_args *e, int64_t first, int64_t last)
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
        if (e->op == QK_LOOKUP) {
            QK_TIER(lookup_row)(e->table, (uint16_t *)y, a, e->a_step[inner], n);
            continue;
        }
#define ROW(op, dtype) \
    case op * 3 + dtype: \
        QK_TIER(elementwise_row)(op, dtype, y, a, e->a_step[inner], b, e->b_step[inner], n, e->alpha, e->beta, e->function); \
        break;
#define ROWS(op) ROW(op, QK_F32) ROW(op, QK_F16) ROW(op, QK_BF16)
        switch (e->op * 3 + e->dtype) {
            /* clang-format off */
            ROWS(QK_ADD) ROWS(QK_SUB) ROWS(QK_MUL) ROWS(QK_SILU_MUL) ROWS(QK_SIGMOID) ROWS(QK_SILU) ROWS(QK_SWISH)
            ROWS(QK_DIV) ROWS(QK_NEG) ROWS(QK_SQRT) ROWS(QK_SWISH_MUL) ROWS(QK_FUNCTION) ROWS(QK_SIMPLE)
            /* clang-format on */
        }
#undef ROWS
#undef ROW
    }
}

const qk_elementwise_table QK_TIER(elementwise_kernels) = {QK_TIER(elementwise)};
