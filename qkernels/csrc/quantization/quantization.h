/* Linear quantization: codes from values and values from codes, and exact integer products.
 *
 * Every layout of scales (one, one per index of an axis, one per block) is walked as runs of contiguous elements. A run has either one scale
 * for all its elements or, where scales vary along the run, a vector of them. */
#ifndef QK_QUANTIZATION_H
#define QK_QUANTIZATION_H

#include "simd/tiers.h"

/* Types of codes. Those below 8 bits lie in the low bits of a byte each; QK_VALUE are codes that are numbers already, as float32. */
enum qk_code { QK_I8 = 0, QK_U8, QK_I16, QK_U16, QK_I32, QK_I4, QK_U4, QK_I2, QK_U2, QK_VALUE };

/* y = (x - zero) * scale, or codes = saturate(round(x / scale) + zero).
 *
 * outer * runs runs of `length` elements, the last of each outer one `last`; run j of o has its scale at
 * o * outer_step + j / repeat * step, from there on one per element if `vector`. */
typedef struct {
    const void *x;     /* codes to dequantize, or values of value_dtype to quantize */
    const void *scale; /* of scale_dtype */
    const void *zero;  /* of type code, null for 0 */
    void *y;           /* the other of the two */
    int code, value_dtype, scale_dtype;
    int precision; /* type in which the division is rounded; x and scale are rounded to it before */
    int vector;
    int64_t outer, runs, length, last, outer_step, repeat, step;
} qk_linear_args;

/* y = sum over k of (a - a_zero) * (b - b_zero), exact modulo 2^32; or that, scaled, rounded and saturated to 8 bits; or float32(sum) * (a_scale *
 * b_scale) + bias.
 *
 * a enters as unsigned bytes and b as signed ones, the other kinds moved by 128 with their zero points: four such products fit one lane of
 * a dot instruction. b is packed for it by groups of 16 columns, (k / 4, 16, 4), as its columns come up or once for all; the zero points enter as
 * a_zero * (sum of b - k * b_zero) + b_zero * (sum of a). */
typedef struct {
    const uint8_t *a;                             /* (a_rows, k) */
    const uint8_t *b;                             /* batches of (k, n) with the strides below; not read where there is `packed` */
    const uint8_t *packed;                        /* all ceil(n / 16) panels of the one b of all batches, by qk_integer_pack; or null */
    void *y;                                      /* (batches, m, n) int32, uint8, int8 or float32 */
    const int32_t *a_zero, *b_zero;               /* (a_rows), and n for each batch of b */
    const float *a_scale, *b_scale;               /* the same shapes; null for int32 results */
    const float *bias;                            /* (n), for float32 */
    const int64_t *a_batch, *b_batch, *b_columns; /* (batches): first row of a, first element of b, first of b's zero points */
    uint8_t *rows;                                /* scratch: (a_rows, 4 ceil(k / 4)) */
    int32_t *sums;                                /* scratch: (a_rows) */
    uint8_t *panels; /* scratch without `packed`: 4 panels for each thread, of 64 + 64 ceil(k / 4) bytes: sums of 16 columns, columns */
    float y_scale;
    int y_zero, y_code, a_signed, b_signed; /* y_code: QK_I32, QK_U8, QK_I8 or QK_VALUE */
    int64_t batches, m, n, k, a_rows, b_k_stride, b_n_stride;
} qk_integer_args;

typedef struct {
    void (*dequantize)(const qk_linear_args *args, int64_t first, int64_t last);
    void (*quantize)(const qk_linear_args *args, int64_t first, int64_t last);
    void (*range)(const float *x, int64_t n, float *low, float *high);
    void (*prepare_rows)(const qk_integer_args *args, int64_t first, int64_t last);
    /* one to four panels from `column` on, and their products with rows of a batch */
    void (*pack_columns)(const qk_integer_args *args, int64_t batch, int64_t column, int groups, uint8_t *panels);
    void (*multiply_rows)(const qk_integer_args *args, int64_t batch, int64_t column, int groups, const uint8_t *panels, int64_t first, int64_t last);
} qk_quantization_table;

QK_DECLARE_TABLES(qk_quantization_table, quantization);

void qk_dequantize(int isa, int threads, const qk_linear_args *args);
void qk_quantize(int isa, int threads, const qk_linear_args *args);
/* smallest and largest of x and 0, NaNs aside */
void qk_range(int isa, int threads, const float *x, int64_t n, float *low, float *high);
void qk_integer_matmul(int isa, int threads, const qk_integer_args *args);
/* The panels of a (k, n) matrix: of args b, b_batch[0], b_signed, k, n and the strides. */
void qk_integer_pack(int isa, int threads, const qk_integer_args *args, uint8_t *panels);

#endif
