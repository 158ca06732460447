/* The body of the block-quantized product, once for all tiers; the integer dot product of a tile is the tier's own (dot_<tier>.h). */
#include "matmul_nbits/matmul_nbits.h"

#include "rows/prologue.tmpl.h"

static inline v16 QK_TIER(block_zero)(const qk_nbits *w, int64_t at)
{
    return w->zp_kind == QK_ZP_F32  ? v16_load((const float *)w->zero_points + at)
           : w->zp_kind == QK_ZP_U8 ? v16i_to_f(v16i_load_u8((const uint8_t *)w->zero_points + at))
                                    : v16_set1((float)(1 << (w->bits - 1)));
}

static inline v16 QK_TIER(block_scale)(const qk_nbits *w, int64_t at)
{
    const char *p = (const char *)w->scales;
    return w->scale_dtype == QK_BF16  ? v16_load_bf16((const uint16_t *)p + at)
           : w->scale_dtype == QK_F32 ? v16_load((const float *)p + at)
                                      : v16_load_f16((const uint16_t *)p + at);
}

/* Index of the first of the block's 16 scales, for part `part` (16 or 32 k) of a group's columns. */
static inline int64_t QK_TIER(block_of)(const qk_nbits *w, int64_t group, int64_t part)
{
    int64_t block = w->block_size <= QK_TILE ? part : part * QK_TILE / w->block_size;
    return (group * w->blocks + block) * QK_COLUMNS;
}

/* How far ahead of its use a tile is fetched: hardware's own fetching stays closer, and stops at the ends of pages. */
enum { QK_TIER(AHEAD) = 4096 };

/* A tile of the activations of `count` rows: their values, then their scales and sums by half and row where they are integers. */
typedef struct {
    const char *values;
    const float *scales;
    const int32_t *sums;
} QK_TIER(record);

static inline __attribute__((always_inline)) QK_TIER(record) QK_TIER(record_at)(const char *p, const int digits, const int split, const int count)
{
    QK_TIER(record) record = {p, (const float *)(p + count * digits * QK_TILE), 0};
    record.sums = (const int32_t *)(record.scales + (count << split));
    return record;
}

/* Integer sums of one part: y = fma(dot - zero * sum, s_a * s_w, y) for each row. */
static inline __attribute__((always_inline)) void QK_TIER(add_part)(const qk_nbits *w, const float *scales, const int32_t *sums, int64_t group,
                                                                    int64_t part, const int count, const v16i *dots, v16 *y)
{
    int64_t at = QK_TIER(block_of)(w, group, part);
    v16 scale = QK_TIER(block_scale)(w, at);
    if (w->zp_kind == QK_ZP_DEFAULT) {
        QK_UNROLL
        for (int r = 0; r < count; r++)
            y[r] = v16_fma(v16i_to_f(dots[r]), v16_mul(scale, v16_set1(scales[r])), y[r]);
        return;
    }
    v16 zero = QK_TIER(block_zero)(w, at);
    QK_UNROLL
    for (int r = 0; r < count; r++) {
        v16 dot = v16_fnma(zero, v16_set1((float)sums[r]), v16i_to_f(dots[r]));
        y[r] = v16_fma(dot, v16_mul(scale, v16_set1(scales[r])), y[r]);
    }
}

static inline __attribute__((always_inline)) void QK_TIER(integer_rows)(const qk_nbits *w, int past_caches, const char *a, int64_t group,
                                                                        const int bits, const int digits, const int split, const int count, v16 *y)
{
    const uint8_t *tile = w->tiles + group * w->k_tiles * (64 * bits);
    for (int64_t t = 0; t < w->k_tiles; t++, tile += 64 * bits, a += count * qk_nbits_record(digits, split)) {
        v16i dots[2 * QK_MAX_ROWS];
        QK_UNROLL
        for (int line = 0; line < bits; line++)
            if (past_caches)
                __builtin_prefetch(tile + QK_TIER(AHEAD) + 64 * line, 0, 0);
            else
                __builtin_prefetch(tile + QK_TIER(AHEAD) + 64 * line, 0, 2);
        QK_TIER(record) record = QK_TIER(record_at)(a, digits, split, count);
        QK_UNROLL
        for (int r = 0; r < count << split; r++)
            dots[r] = v16i_set1(w->zp_kind == QK_ZP_DEFAULT ? record.sums[r] : 0);
        QK_TIER(tile_dot)(tile, (const int8_t *)a, bits, digits, split, count, dots);
        QK_UNROLL
        for (int half = 0; half <= split; half++)
            QK_TIER(add_part)(w, record.scales + half * count, record.sums + half * count, group, (t << split) + half, count, dots + half * count, y);
    }
}

/* `rows` of the `count` rows that lie together */
static inline __attribute__((always_inline)) void QK_TIER(float_rows)(const qk_nbits *w, const float *values, int64_t group, const int bits,
                                                                      const int count, const int rows, v16 *y)
{
    int split = w->block_size == 16;
    const uint8_t *tile = w->tiles + group * w->k_tiles * (64 * bits);
    const v16i mask = v16i_set1((1 << bits) - 1);
    for (int64_t t = 0; t < w->k_tiles; t++, tile += 64 * bits) {
        v16 sum[2][QK_FLOAT_ROWS];
        int64_t at[2];
        for (int half = 0; half < 2; half++) {
            at[half] = QK_TIER(block_of)(w, group, split ? 2 * t + half : t);
            v16 zero = QK_TIER(block_zero)(w, at[half]);
            const float *a = values + t * count * QK_TILE + 16 * half;
            QK_UNROLL
            for (int r = 0; r < rows; r++)
                sum[half][r] = v16_zero();
            for (int g = 0; g < 4; g++) {
                v16i codes = v16i_load(tile + 64 * (bits == 2 ? half : bits == 4 ? g : 4 * half + g));
                if (bits == 2)
                    codes = v16i_shr(codes, 2 * g);
                if (bits == 4 && half)
                    codes = v16i_shr(codes, 4);
                QK_UNROLL
                for (int i = 0; i < 4; i++) {
                    v16 value = v16_sub(v16i_to_f(v16i_and(codes, mask)), zero);
                    codes = v16i_shr(codes, 8);
                    QK_UNROLL
                    for (int r = 0; r < rows; r++)
                        sum[half][r] = v16_fma(v16_set1(a[r * QK_TILE + 4 * g + i]), value, sum[half][r]);
                }
            }
        }
        QK_UNROLL
        for (int r = 0; r < rows; r++)
            if (split) {
                y[r] = v16_fma(sum[0][r], QK_TIER(block_scale)(w, at[0]), y[r]);
                y[r] = v16_fma(sum[1][r], QK_TIER(block_scale)(w, at[1]), y[r]);
            } else
                y[r] = v16_fma(v16_add(sum[0][r], sum[1][r]), QK_TIER(block_scale)(w, at[0]), y[r]);
    }
}

/* Sums of `count` rows from row m on to the result. */
static inline __attribute__((always_inline)) void QK_TIER(finish_rows)(const qk_nbits_args *args, int64_t m, int64_t group, const int count, v16 *y)
{
    int64_t column = group * QK_COLUMNS, size = qk_itemsize(args->dtype);
    int columns = (int)qk_min(QK_COLUMNS, args->w->n - column);
    v16 bias = args->bias ? v16_load_as(args->dtype, (const char *)args->bias + column * size, columns) : v16_zero();
    QK_UNROLL
    for (int r = 0; r < count; r++) {
        int64_t at = ((m + r) * args->w->n + column) * size;
        if (args->bias)
            y[r] = v16_add(y[r], bias);
        if (args->residual)
            y[r] = v16_add(y[r], v16_load_as(args->dtype, (const char *)args->residual + at, columns));
        v16_store_as(args->dtype, (char *)args->y + at, y[r], columns);
    }
}

static inline __attribute__((always_inline)) void QK_TIER(some_rows)(const qk_nbits_args *args, int64_t m, int64_t group, const int bits,
                                                                     const int digits, const int split, const int count)
{
    const qk_nbits *w = args->w;
    const char *a = args->scratch + m * w->k_tiles * qk_nbits_record(digits, split);
    v16 y[QK_MAX_ROWS];
    QK_UNROLL
    for (int r = 0; r < count; r++)
        y[r] = v16_zero();
    if (digits)
        QK_TIER(integer_rows)(w, args->past_caches, a, group, bits, digits, split, count, y);
    else
        for (int r = 0; r < count; r += QK_FLOAT_ROWS)
            QK_TIER(float_rows)(w, (const float *)a + r * QK_TILE, group, bits, count, count < QK_FLOAT_ROWS ? count : QK_FLOAT_ROWS, y + r);
    QK_TIER(finish_rows)(args, m, group, count, y);
}

/* The rows that are read together from row m on: QK_MAX_ROWS as long as there are as many left, then 8 if that is less, 4, 3, 2 and 1. */
static inline int QK_TIER(rows_from)(int64_t left)
{
    return left >= QK_MAX_ROWS ? QK_MAX_ROWS : left >= 8 && QK_MAX_ROWS > 8 ? 8 : (int)qk_min(4, left);
}

#ifdef QK_TILES
#include "matmul_nbits/tile_rows.h"
#else
/* Rows from the first on that tile registers multiply; the rest is left. */
static inline int64_t QK_TIER(tile_rows)(const qk_nbits_args *args, int64_t g_first, int64_t g_last, const int bits, const int digits,
                                         const int split)
{
    (void)args, (void)g_first, (void)g_last, (void)bits, (void)digits, (void)split;
    return 0;
}
#endif

/* Row counts and forms as constants of the compiler; QK_MAX_ROWS, 4, 8 or 16, is the tier's. */
#define QK_ROWS(n, bits, digits, split) \
    case n: \
        for (int64_t group = g_first; group < g_last; group++) \
            QK_TIER(some_rows)(args, m, group, bits, digits, split, n); \
        break;
#if QK_MAX_ROWS > 8
#define QK_MANY_ROWS(bits, digits, split) QK_ROWS(8, bits, digits, split) QK_ROWS(16, bits, digits, split)
#elif QK_MAX_ROWS > 4
#define QK_MANY_ROWS(bits, digits, split) QK_ROWS(8, bits, digits, split)
#else
#define QK_MANY_ROWS(bits, digits, split)
#endif
#define QK_FORM(name, bits, digits, split) \
    static void QK_TIER(name)(const qk_nbits_args *args, int64_t g_first, int64_t g_last) \
    { \
        int count; \
        for (int64_t m = QK_TIER(tile_rows)(args, g_first, g_last, bits, digits, split); m < args->m; m += count) { \
            count = QK_TIER(rows_from)(args->m - m); \
            switch (count) { \
                QK_ROWS(1, bits, digits, split) \
                QK_ROWS(2, bits, digits, split) \
                QK_ROWS(3, bits, digits, split) \
                QK_ROWS(4, bits, digits, split) \
                QK_MANY_ROWS(bits, digits, split) \
            } \
        } \
    }
QK_FORM(q2_f32, 2, 0, 0)
QK_FORM(q2_int8, 2, 1, 0)
QK_FORM(q2_int16, 2, 2, 0)
QK_FORM(q2_int8_block16, 2, 1, 1)
QK_FORM(q2_int16_block16, 2, 2, 1)
QK_FORM(q4_f32, 4, 0, 0)
QK_FORM(q4_int8, 4, 1, 0)
QK_FORM(q4_int16, 4, 2, 0)
QK_FORM(q4_int8_block16, 4, 1, 1)
QK_FORM(q4_int16_block16, 4, 2, 1)
QK_FORM(q8_f32, 8, 0, 0)
QK_FORM(q8_int8, 8, 1, 0)
QK_FORM(q8_int16, 8, 2, 0)
QK_FORM(q8_int8_block16, 8, 1, 1)
QK_FORM(q8_int16_block16, 8, 2, 1)

static void QK_TIER(multiply)(const qk_nbits_args *args, int64_t g_first, int64_t g_last)
{
    static void (*const forms[3][3][2])(const qk_nbits_args *, int64_t, int64_t) = {
        {{QK_TIER(q2_f32), QK_TIER(q2_f32)}, {QK_TIER(q2_int8), QK_TIER(q2_int8_block16)}, {QK_TIER(q2_int16), QK_TIER(q2_int16_block16)}},
        {{QK_TIER(q4_f32), QK_TIER(q4_f32)}, {QK_TIER(q4_int8), QK_TIER(q4_int8_block16)}, {QK_TIER(q4_int16), QK_TIER(q4_int16_block16)}},
        {{QK_TIER(q8_f32), QK_TIER(q8_f32)}, {QK_TIER(q8_int8), QK_TIER(q8_int8_block16)}, {QK_TIER(q8_int16), QK_TIER(q8_int16_block16)}}};
    forms[args->w->bits / 4][args->activations][args->w->block_size == 16](args, g_first, g_last);
}

/* One part of a row to integers. A scale that is not finite (an infinity or a NaN among the activations) makes the row NaN. */
static inline __attribute__((always_inline)) void QK_TIER(quantize_part)(const v16 *a, const int count, const int digits, int32_t factor, int8_t *q,
                                                                         float *scale, int32_t *sum)
{
    v16i largest = v16_as_i(v16_abs(a[0])), total = v16i_set1(0); /* as integers, so that a NaN is the largest of all */
    if (count == 2)
        largest = v16i_max(largest, v16_as_i(v16_abs(a[1])));
    int32_t bits = v16i_reduce_max(largest);
    float limit = digits == 2 ? 32512.0f : 127.0f, most;
    memcpy(&most, &bits, 4);
    /* not below the smallest normal number, so that its inverse is finite */
    float s = most / limit > 0x1p-126f ? most / limit : 0x1p-126f;
    v16 inverse = v16_set1(1.0f / s);
    QK_UNROLL
    for (int i = 0; i < count; i++) {
        v16i value = v16_to_i(v16_min(v16_max(v16_mul(a[i], inverse), v16_set1(-limit)), v16_set1(limit)));
        total = v16i_add(total, value);
        if (digits == 2) {
            v16i high = v16i_sra(v16i_add(value, v16i_set1(128)), 8);
            v16i_store_u8(q + 16 * i, high);
            v16i_store_u8(q + QK_TILE + 16 * i, v16i_sub(value, v16i_shl(high, 8)));
        } else
            v16i_store_u8(q + 16 * i, value);
    }
    *sum = factor * v16i_reduce_add(total);
    *scale = most < INFINITY ? s : NAN;
}

/* Row m, r-th of count that lie together. */
static inline __attribute__((always_inline)) void QK_TIER(prepare_row)(const qk_nbits_args *args, const char *row, int64_t m, int r, int count,
                                                                       const int dtype, const int digits, const int split)
{
    const qk_nbits *w = args->w;
    int32_t factor = w->zp_kind == QK_ZP_DEFAULT ? -(1 << (w->bits - 1)) : 1;
    int64_t record = qk_nbits_record(digits, split);
    char *to = args->scratch + (m - r) * w->k_tiles * record;
    for (int64_t t = 0; t < w->k_tiles; t++, to += count * record) {
        v16 a[2];
        int64_t k = t * QK_TILE;
        if (k + QK_TILE <= w->k) {
            a[0] = v16_load_as(dtype, row + k * qk_itemsize(dtype), 16);
            a[1] = v16_load_as(dtype, row + (k + 16) * qk_itemsize(dtype), 16);
        } else {
            a[0] = v16_load_as(dtype, row + k * qk_itemsize(dtype), (int)qk_min(16, w->k - k));
            a[1] = k + 16 < w->k ? v16_load_as(dtype, row + (k + 16) * qk_itemsize(dtype), (int)(w->k - k - 16)) : v16_zero();
        }
        if (!digits) {
            v16_store((float *)to + r * QK_TILE, a[0]);
            v16_store((float *)to + r * QK_TILE + 16, a[1]);
            continue;
        }
        int8_t *q = (int8_t *)to + r * digits * QK_TILE;
        float *scales = (float *)(to + count * digits * QK_TILE) + r;
        int32_t *sums = (int32_t *)(scales + (count << split));
        if (split) {
            QK_TIER(quantize_part)(a, 1, digits, factor, q, scales, sums);
            QK_TIER(quantize_part)(a + 1, 1, digits, factor, q + 16, scales + count, sums + count);
        } else
            QK_TIER(quantize_part)(a, 2, digits, factor, q, scales, sums);
    }
}

/* dtype: of the rows as the prologue, where there is one, leaves them in `buffer` */
static inline __attribute__((always_inline)) void QK_TIER(prepare_rows)(const qk_nbits_args *args, int64_t first, int64_t last, float *buffer,
                                                                        const int dtype)
{
    int split = args->w->block_size == 16;
    int64_t k = args->w->k, row_bytes = qk_prologue_width(&args->prologue, k) * qk_itemsize(args->dtype);
    for (int64_t m = 0, count; m < last; m += count) {
        count = QK_TIER(rows_from)(args->m - m);
        for (int64_t row = qk_max(m, first); row < qk_min(m + count, last); row++) {
            int r = (int)(row - m), c = (int)count;
            const char *x = (const char *)args->a + row * row_bytes;
            if (args->prologue.kind) {
                QK_TIER(prologue_row)(&args->prologue, args->dtype, x, k, buffer);
                x = (const char *)buffer;
            }
            if (args->activations == QK_ACT_F32)
                QK_TIER(prepare_row)(args, x, row, r, c, dtype, 0, 0);
            else if (args->activations == QK_ACT_INT8)
                split ? QK_TIER(prepare_row)(args, x, row, r, c, dtype, 1, 1) : QK_TIER(prepare_row)(args, x, row, r, c, dtype, 1, 0);
            else
                split ? QK_TIER(prepare_row)(args, x, row, r, c, dtype, 2, 1) : QK_TIER(prepare_row)(args, x, row, r, c, dtype, 2, 0);
        }
    }
}

static void QK_TIER(prepare)(const qk_nbits_args *args, int64_t first, int64_t last, float *row)
{
    if (args->dtype == QK_F32 || args->prologue.kind)
        QK_TIER(prepare_rows)(args, first, last, row, QK_F32);
    else if (args->dtype == QK_F16)
        QK_TIER(prepare_rows)(args, first, last, row, QK_F16);
    else
        QK_TIER(prepare_rows)(args, first, last, row, QK_BF16);
}

/* Smallest and largest of a block of one weight row; 1 if one of them is not finite. */
static inline int QK_TIER(range)(int dtype, const char *row, int64_t first, int64_t last, float *smallest, float *largest)
{
    v16 low = v16_set1(INFINITY), high = v16_set1(-INFINITY);
    v16i magnitude = v16i_set1(0);
    for (int64_t k = first; k < last; k += 16) {
        int n = (int)qk_min(16, last - k);
        v16 v = v16_load_as(dtype, row + k * qk_itemsize(dtype), n);
        magnitude = v16i_max(magnitude, v16_as_i(v16_abs(v)));
        low = v16_min(low, v16_select(m16_first(n), v, low));
        high = v16_max(high, v16_select(m16_first(n), v, high));
    }
    *smallest = -v16_reduce_max(v16_neg(low));
    *largest = v16_reduce_max(high);
    return m16_bits(v16i_gt(magnitude, v16i_set1(0x7F7FFFFF))) != 0;
}

/* Sixteen codes of a column, from k of its tile on; small ones are shifted four bytes at once, since none has bits to carry into the next. */
static inline void QK_TIER(place)(uint8_t *tile, int bits, int k, const uint32_t *words)
{
    if (bits == 2) {
        uint32_t word = words[0] | words[1] << 2 | words[2] << 4 | words[3] << 6;
        memcpy(tile + 64 * (k / 16), &word, 4);
        return;
    }
    for (int g = 0; g < 4; g++) {
        uint8_t *at = tile + 64 * (bits == 8 ? k / 4 + g : g);
        uint32_t low = 0;
        if (bits == 4 && k)
            memcpy(&low, at, 4);
        low |= bits == 4 && k ? words[g] << 4 : words[g];
        memcpy(at, &low, 4);
    }
}

static int QK_TIER(quantize)(const qk_nbits *w, const qk_nbits_part *parts, int dtype, int rounding, int64_t g_first, int64_t g_last)
{
    int bad = 0, top = (1 << w->bits) - 1;
    float middle = (float)(1 << (w->bits - 1));
    for (int64_t group = g_first; group < g_last; group++)
        for (int j = 0; j < QK_COLUMNS; j++) {
            int64_t column = group * QK_COLUMNS + j, inside = column;
            uint8_t *tiles = w->tiles + group * w->k_tiles * (64 * w->bits) + 4 * j;
            const qk_nbits_part *part = parts;
            if (column < w->n)
                for (; inside >= part->n; part++)
                    inside -= part->n;
            const char *row = column < w->n ? (const char *)part->rows + inside * w->k * qk_itemsize(dtype) : 0;
            for (int64_t block = 0; block < w->blocks; block++) {
                int64_t first = block * w->block_size, last = qk_min(first + w->block_size, w->k);
                int64_t at = (group * w->blocks + block) * QK_COLUMNS + j;
                float scale = 0, zero = middle, smallest, largest;
                if (row && first < last) {
                    bad |= QK_TIER(range)(dtype, row, first, last, &smallest, &largest) ? QK_NOT_FINITE : 0;
                    if (rounding == QK_SYMMETRIC_FULL)
                        scale = (largest > -smallest ? largest : smallest) / -middle;
                    else if (rounding == QK_SYMMETRIC_ABS)
                        scale = (largest > -smallest ? largest : -smallest) / (middle - 1);
                    else {
                        smallest = smallest < 0 ? smallest : 0;
                        largest = largest > 0 ? largest : 0;
                        scale = largest / (float)top - smallest / (float)top; /* each alone is finite */
                        zero = scale > 0 ? rintf(-smallest / scale) : middle;
                        zero = zero > (float)top ? (float)top : zero;
                    }
                }
                if (w->scale_dtype == QK_F32)
                    ((float *)w->scales)[at] = scale;
                else {
                    uint32_t bits;
                    memcpy(&bits, &scale, 4);
                    ((uint16_t *)w->scales)[at] = (uint16_t)(bits >> 16);
                    bad |= bits & 0xFFFF ? QK_SCALES_ROUNDED : 0;
                }
                if (w->zp_kind == QK_ZP_U8)
                    ((uint8_t *)w->zero_points)[at] = (uint8_t)zero;
                /* whole halves of tiles; codes beyond the row's end are the zero point */
                int64_t end = qk_min(qk_ceil_div(first + w->block_size, 16) * 16, w->k_tiles * QK_TILE);
                if (block == w->blocks - 1)
                    end = w->k_tiles * QK_TILE;
                for (int64_t k = first; k < end; k += 16) {
                    int n = row ? (int)qk_min(16, qk_max(0, last - k)) : 0;
                    v16 v = n ? v16_load_as(dtype, row + k * qk_itemsize(dtype), n) : v16_zero();
                    v16i code = v16i_set1((int32_t)zero);
                    if (scale != 0) {
                        v16 q = v16_add(v16_round(v16_div(v, v16_set1(scale))), v16_set1(zero));
                        code = v16_to_i(v16_min(v16_max(q, v16_zero()), v16_set1((float)top)));
                    }
                    uint32_t words[4]; /* of four codes */
                    v16i_store_u8((uint8_t *)words, code);
                    QK_TIER(place)(tiles + k / QK_TILE * (64 * w->bits), w->bits, (int)(k % QK_TILE), words);
                }
            }
        }
    return bad;
}

const qk_nbits_table QK_TIER(matmul_nbits_kernels) = {QK_TIER(prepare), QK_TIER(multiply), QK_TIER(quantize)};
