/* The body of the float product, once for all tiers. QK_ROWS x QK_GROUPS vectors of sums are what the tier's registers hold. */
#include "matmul/matmul.h"

#include "rows/prologue.tmpl.h"

static inline __attribute__((always_inline)) v16 QK_TIER(load16)(const int dtype, const char *p)
{
    return dtype == QK_F32 ? v16_load((const float *)p) : dtype == QK_F16 ? v16_load_f16((const uint16_t *)p) : v16_load_bf16((const uint16_t *)p);
}

static inline __attribute__((always_inline)) void QK_TIER(some_rows)(const qk_matmul_panel *p, int64_t row, int64_t group, const int dtype,
                                                                     const int rows, const int groups)
{
    const int64_t size = dtype == QK_F32 ? 4 : 2, group_bytes = p->group_stride * size, k_bytes = p->k_stride * size;
    const float *a = p->a + row * qk_matmul_row(p->k);
    const char *b = p->b + group * group_bytes;
    v16 total[QK_ROWS * QK_GROUPS > 4 ? QK_ROWS * QK_GROUPS : 4];
    for (int i = 0; i < rows * groups; i++)
        total[i] = v16_zero();
    for (int64_t block = 0; block < p->k; block += QK_K_BLOCK) {
        v16 sum[QK_ROWS * QK_GROUPS > 4 ? QK_ROWS * QK_GROUPS : 4];
        QK_UNROLL
        for (int i = 0; i < rows * groups; i++)
            sum[i] = v16_zero();
        int64_t end = qk_min(block + QK_K_BLOCK, p->k);
        for (int64_t k = block; k < end; k += 16) {
            const float *x = a + k * rows;
            const char *w16 = b + k * k_bytes;
            int count = (int)qk_min(16, end - k);
            /* many rows come from the last cache, for every four groups anew */
            QK_UNROLL
            for (int r = 0; r < rows && rows > 1; r++)
                __builtin_prefetch(x + 16 * r + 1024);
            for (int i = 0; i < count; i++) {
                v16 w[QK_GROUPS > 4 ? QK_GROUPS : 4];
                QK_UNROLL
                for (int g = 0; g < groups; g++)
                    w[g] = QK_TIER(load16)(dtype, w16 + i * k_bytes + g * group_bytes);
                QK_UNROLL
                for (int r = 0; r < rows; r++) {
                    v16 each = v16_set1(x[16 * r + i]);
                    QK_UNROLL
                    for (int g = 0; g < groups; g++)
                        sum[r * groups + g] = v16_fma(each, w[g], sum[r * groups + g]);
                }
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
            int64_t at = ((row + r) * p->n + column) * y_size;
            v16 y = p->bias ? v16_add(total[r * groups + g], bias) : total[r * groups + g];
            if (p->residual)
                y = v16_add(y, v16_load_as(p->y_dtype, p->residual + at, n));
            v16_store_as(p->y_dtype, p->y + at, y, n);
        }
    }
}

/* Chunks of QK_ROWS rows as long as there are as many left, then of 4, then single ones, which take more groups at once. */
#define QK_FORM(name, dtype) \
    static void QK_TIER(name)(const qk_matmul_panel *p) \
    { \
        int64_t groups = (p->columns + 15) / 16, row = 0, group; \
        for (; row + QK_ROWS <= p->rows; row += QK_ROWS) { \
            for (group = 0; group + QK_GROUPS <= groups; group += QK_GROUPS) \
                QK_TIER(some_rows)(p, row, group, dtype, QK_ROWS, QK_GROUPS); \
            for (; group < groups; group++) \
                QK_TIER(some_rows)(p, row, group, dtype, QK_ROWS, 1); \
        } \
        for (; QK_ROWS > 4 && row + 4 <= p->rows; row += 4) { \
            for (group = 0; group + QK_GROUPS <= groups; group += QK_GROUPS) \
                QK_TIER(some_rows)(p, row, group, dtype, 4, QK_GROUPS); \
            for (; group < groups; group++) \
                QK_TIER(some_rows)(p, row, group, dtype, 4, 1); \
        } \
        for (; row < p->rows; row++) { \
            for (group = 0; group + 4 <= groups; group += 4) \
                QK_TIER(some_rows)(p, row, group, dtype, 1, 4); \
            for (; group < groups; group++) \
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

static void QK_TIER(prepare)(const qk_matmul_args *args, int64_t first, int64_t last, float *buffer)
{
    int64_t m = args->m, k_row = qk_matmul_row(args->k), full = m / QK_ROWS * QK_ROWS, fours = full + (m - full) / 4 * 4;
    for (int64_t row = first; row < last; row++) {
        int64_t matrix = row - row % m, at = row % m;
        int64_t count = at < full ? QK_ROWS : at < fours ? 4 : 1, r = at < full ? at % QK_ROWS : at < fours ? (at - full) % 4 : 0;
        const char *from = (const char *)args->a + row * qk_prologue_width(&args->prologue, args->k) * qk_itemsize(args->a_dtype);
        float *to = args->prepared + (matrix + at - r) * k_row + 16 * r;
        int dtype = args->a_dtype;
        if (args->prologue.kind) {
            QK_TIER(prologue_row)(&args->prologue, dtype, from, args->k, buffer);
            from = (const char *)buffer, dtype = QK_F32;
        }
        for (int64_t k = 0; k < args->k; k += 16)
            v16_store(to + k * count, v16_load_as(dtype, from + k * qk_itemsize(dtype), (int)qk_min(16, args->k - k)));
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

const qk_matmul_table QK_TIER(matmul_kernels) = {QK_TIER(prepare), QK_TIER(panel), QK_TIER(pack)};
