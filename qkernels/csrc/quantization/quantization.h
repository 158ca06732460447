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

typedef struct {
    void (*dequantize)(const qk_linear_args *args, int64_t first, int64_t last);
    void (*quantize)(const qk_linear_args *args, int64_t first, int64_t last);
} qk_quantization_table;

QK_DECLARE_TABLES(qk_quantization_table, quantization);

void qk_dequantize(int isa, int threads, const qk_linear_args *args);
void qk_quantize(int isa, int threads, const qk_linear_args *args);

#endif
