/* Arithmetic with NumPy's broadcasting, and functions of single elements. */
#ifndef QK_ELEMENTWISE_H
#define QK_ELEMENTWISE_H

#include "simd/tiers.h"

enum qk_elementwise_op {
    /* of two operands */
    QK_ADD,
    QK_SUB,
    QK_MUL,
    QK_DIV,
    QK_PRELU,     /* a < 0 ? b a : a */
    QK_SILU_MUL,  /* silu(a) b */
    QK_SWISH_MUL, /* a sigmoid(alpha a) b */
    QK_BIAS_GELU, /* gelu(a + b) */
    QK_BIAS_GELU_TANH,
    QK_POW,
    /* of one, an operation or two of the processor */
    QK_NEG,
    QK_ABS,
    QK_RELU,
    QK_SIGN,
    QK_FLOOR,
    QK_CEIL,
    QK_ROUND,
    QK_CLIP,             /* to [alpha, beta] */
    QK_THRESHOLDED_RELU, /* a <= alpha ? 0 : a */
    QK_LEAKY_RELU,       /* a < 0 ? alpha a : a */
    QK_RECIPROCAL,
    /* of one, functions */
    QK_FUNCTIONS,
    QK_SQRT = QK_FUNCTIONS,
    QK_HARD_SIGMOID, /* alpha a + beta within 0 and 1 */
    QK_HARD_SWISH,
    QK_SOFTSIGN,
    QK_SIGMOID,
    QK_SILU,
    QK_SWISH, /* a sigmoid(alpha a) */
    QK_GELU,
    QK_GELU_TANH,
    QK_ERF,
    QK_EXP,
    QK_LOG,
    QK_SOFTPLUS,
    QK_MISH,
    QK_TANH,
    QK_SIN,
    QK_COS,
    QK_ELU,  /* a < 0 ? alpha (e^a - 1) : a */
    QK_CELU, /* a < 0 ? alpha (e^(a / alpha) - 1) : a */
    QK_SELU  /* a < 0 ? beta alpha (e^a - 1) : beta a */
};

/* y = op(a, b) or op(a). Axes are collapsed as far as the strides allow; a stride of 0 repeats. */
typedef struct {
    const char *a, *b; /* of dtype, strides in bytes; b is a where op takes one operand */
    char *y;           /* of dtype, C-contiguous; may be exactly a or b */
    int op, dtype, axes;
    float alpha, beta;     /* 0 where op has no use for them */
    const uint16_t *table; /* set by the driver: the result of every code, or NULL */
    int stream;            /* set by the driver: y is one row and larger than caches */
    int64_t shape[64], a_step[64], b_step[64];
} qk_elementwise_args;

typedef struct {
    void (*elementwise)(const qk_elementwise_args *args, int64_t first, int64_t last);
} qk_elementwise_table;

QK_DECLARE_TABLES(qk_elementwise_table, elementwise);

void qk_elementwise(int isa, int threads, qk_elementwise_args *args);

/* tables.c */
typedef void qk_elementwise_run(const qk_elementwise_args *args, int64_t first, int64_t last);
const uint16_t *qk_elementwise_codes(int isa, qk_elementwise_run *run, const qk_elementwise_args *args, int64_t n);

#endif
