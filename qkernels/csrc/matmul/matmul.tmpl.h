/* The body of the float product, once for all tiers. QK_ROWS x QK_GROUPS vectors of sums are what the tier's registers hold. */
#include "matmul/matmul.h"

static inline __attribute__((always_inline)) v16 QK_TIER(load16)(const int dtype, const char *p)
{
    return dtype == QK_F32 ? v16_load((const float *)p) : dtype == QK_F16 ? v16_load_f16((const uint16_t *)p) : v16_load_bf16((const uint16_t *)p);
}

static inline __attribute__((always_inline)) void QK_TIER(some_rows)(const qk_matmul_panel *p, int64_t row, int64_t group, const int dtype,
                                                                     const int rows, const int groups)
{
    const int64_t size = dtype == QK_F32 ? 4 : 2;
    const float *a = p->a + row * p->k;
    const char *b = p->b + group * p->group_stride * size;
    v16 total[QK_ROWS * QK_GROUPS > 4 ? QK_ROWS * QK_GROUPS : 4];
    for (int i = 0; i < rows * groups; i++)
        total[i] = v16_zero();
    for (int64_t block = 0; block < p->k; block += QK_K_BLOCK) {
        v16 sum[QK_ROWS * QK_GROUPS > 4 ? QK_ROWS * QK_GROUPS : 4];
        QK_UNROLL
        for (int i = 0; i < rows * groups; i++)
            sum[i] = v16_zero();
        int64_t end = qk_min(block + QK_K_BLOCK, p->k);
        for (int64_t k = block; k < end; k++) {
            v16 w[QK_GROUPS > 4 ? QK_GROUPS : 4];
            QK_UNROLL
            for (int g = 0; g < groups; g++)
                w[g] = QK_TIER(load16)(dtype, b + (k * p->k_stride + g * p->group_stride) * size);
            QK_UNROLL
            for (int r = 0; r < rows; r++) {
                v16 x = v16_set1(a[r * p->k + k]);
                QK_UNROLL
                for (int g = 0; g < groups; g++)
                    sum[r * groups + g] = v16_fma(x, w[g], sum[r * groups + g]);
            }
        }
        QK_UNROLL
        for (int i = 0; i < rows * groups; i++)
            total[i] = v16_add(total[i], sum[i]);
    }
    for (int g = 0; g < groups; g++) {
        int64_t column = (group + g) * 16, y_size = qk_itemsize(p->y_dtype);
        int n = (int)qk_min(16, p->columns - column);
        v16 bias = p->bias ? v16_load_as(p->y_dtype, (const char *)p->bias + column * y_size, n) : v16_zero();
        for (int r = 0; r < rows; r++) {
            v16 y = p->bias ? v16_add(total[r * groups + g], bias) : total[r * groups + g];
            v16_store_as(p->y_dtype, p->y + ((row + r) * p->n + column) * y_size, y, n);
        }
    }
}

#define QK_FORM(name, dtype) \
    static void QK_TIER(name)(const qk_matmul_panel *p) \
    { \
        int64_t groups = (p->columns + 15) / 16, group = 0, row = 0; \
        if (p->rows == 1) { \
            for (; group + 4 <= groups; group += 4) \
                QK_TIER(some_rows)(p, 0, group, dtype, 1, 4); \
            for (; group < groups; group++) \
                QK_TIER(some_rows)(p, 0, group, dtype, 1, 1); \
            return; \
        } \
        for (; group + QK_GROUPS <= groups; group += QK_GROUPS) { \
            for (row = 0; row + QK_ROWS <= p->rows; row += QK_ROWS) \
                QK_TIER(some_rows)(p, row, group, dtype, QK_ROWS, QK_GROUPS); \
            for (; QK_ROWS > 4 && row + 4 <= p->rows; row += 4) \
                QK_TIER(some_rows)(p, row, group, dtype, 4, QK_GROUPS); \
            for (; row < p->rows; row++) \
                QK_TIER(some_rows)(p, row, group, dtype, 1, QK_GROUPS); \
        } \
        for (; group < groups; group++) { \
            for (row = 0; row + QK_ROWS <= p->rows; row += QK_ROWS) \
                QK_TIER(some_rows)(p, row, group, dtype, QK_ROWS, 1); \
            for (; QK_ROWS > 4 && row + 4 <= p->rows; row += 4) \
                QK_TIER(some_rows)(p, row, group, dtype, 4, 1); \
            for (; row < p->rows; row++) \
                QK_TIER(some_rows)(p, row, group, dtype, 1, 1); \
        } \
    }
QK_FORM(panel_f32, QK_F32)
QK_FORM(panel_f16, QK_F16)
QK_FORM(panel_bf16, QK_BF16)

static void QK_TIER(panel)(const qk_matmul_panel *p)
{
    if (p->b_dtype == QK_F32)
        QK_TIER(panel_f32)(p);
    else if (p->b_dtype == QK_F16)
        QK_TIER(panel_f16)(p);
    else
        QK_TIER(panel_bf16)(p);
}

static void QK_TIER(widen)(int dtype, const void *a, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i += 16) {
        int n = (int)qk_min(16, count - i);
        v16_store_as(QK_F32, y + i, v16_load_as(dtype, (const char *)a + 2 * i, n), n);
    }
}

static inline __attribute__((always_inline)) void QK_TIER(pack_elements)(const char *b, int64_t k, int64_t columns, int64_t k_stride,
                                                                         int64_t n_stride, char *panel, const size_t size)
{
    if (columns < 16)
        memset(panel, 0, (size_t)k * 16 * size);
    if (n_stride == 1)
        for (int64_t i = 0; i < k; i++)
            memcpy(panel + i * 16 * (int64_t)size, b + i * k_stride * (int64_t)size, (size_t)columns * size);
    else /* blocks of 16 k, so that both sides are read and written by whole cache lines */
        for (int64_t block = 0; block < k; block += 16)
            for (int64_t c = 0; c < columns; c++)
                for (int64_t i = block; i < qk_min(block + 16, k); i++)
                    memcpy(panel + (i * 16 + c) * (int64_t)size, b + (i * k_stride + c * n_stride) * (int64_t)size, size);
}

static void QK_TIER(pack)(int dtype, const char *b, int64_t k, int64_t columns, int64_t k_stride, int64_t n_stride, char *panel)
{
    if (dtype == QK_F32)
        QK_TIER(pack_elements)(b, k, columns, k_stride, n_stride, panel, 4);
    else
        QK_TIER(pack_elements)(b, k, columns, k_stride, n_stride, panel, 2);
}

const qk_matmul_table QK_TIER(matmul_kernels) = {QK_GROUPS, QK_TIER(widen), QK_TIER(panel), QK_TIER(pack)};
