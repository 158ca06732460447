/* Arithmetic with NumPy's broadcasting, and the sigmoid family. */
#ifndef QK_ELEMENTWISE_H
#define QK_ELEMENTWISE_H

#include "simd/tiers.h"

enum qk_elementwise_op {
    QK_ADD = 0,
    QK_SUB = 1,
    QK_MUL = 2,
    QK_SILU_MUL = 3,
    QK_SIGMOID = 4,
    QK_SILU = 5,
    QK_SWISH = 6,
    QK_DIV = 7,
    QK_NEG = 8,
    QK_SQRT = 9,
    QK_SWISH_MUL = 10,
    QK_FUNCTION = 11,
    QK_SIMPLE = 12,
    QK_LOOKUP = 13
};

/* which function, where op is QK_FUNCTION or, from QK_ABS on, QK_SIMPLE: functions.h */
enum qk_elementwise_function {
    QK_GELU = 0,
    QK_BIAS_GELU = 1,
    QK_GELU_TANH = 2,
    QK_BIAS_GELU_TANH = 3,
    QK_ERF = 4,
    QK_EXP = 5,
    QK_LOG = 6,
    QK_SOFTPLUS = 7,
    QK_TANH = 8,
    QK_SIN = 10,
    QK_COS = 11,
    QK_POW = 12,
    QK_SOFTSIGN = 13,
    QK_ELU = 14,
    QK_CELU = 15,
    QK_SELU = 16,
    QK_MISH = 17,
    QK_HARD_SIGMOID = 18,
    QK_HARD_SWISH = 19,
    QK_LEAKY_RELU = 20,
    QK_ABS = 21,
    QK_FLOOR = 22,
    QK_CEIL = 23,
    QK_ROUND = 24,
    QK_SIGN = 25,
    QK_RELU = 26,
    QK_CLIP = 27,
    QK_THRESHOLDED_RELU = 28,
    QK_PRELU = 29,
    QK_RECIPROCAL = 9
};

/* y = op(a, b) or op(a). Axes are collapsed as far as the strides allow; a stride of 0 repeats. */
typedef struct {
    const char *a, *b; /* of dtype, strides in bytes; b is a where op takes one operand */
    char *y;           /* of dtype, C-contiguous; may be exactly a or b */
    int op, function, dtype, axes;
    float alpha, beta;     /* a function's attributes; QK_SWISH, QK_SWISH_MUL: a * sigmoid(alpha * a) */
    const uint16_t *table; /* QK_LOOKUP: the result's bits for each of the 65,536 inputs of a 16-bit type */
    int64_t shape[64], a_step[64], b_step[64];
} qk_elementwise_args;

typedef struct {
    void (*elementwise)(const qk_elementwise_args *args, int64_t first, int64_t last);
} qk_elementwise_table;

QK_DECLARE_TABLES(qk_elementwise_table, elementwise);

void qk_elementwise(int isa, int threads, const qk_elementwise_args *args);

#endif
