/* Root-mean-square normalization of rows, with an optional residual sum in front, and layer normalization. */
#ifndef QK_NORMALIZATION_H
#define QK_NORMALIZATION_H

#include "simd/tiers.h"

/* v = x (+ skip (+ bias)); inv = 1 / sqrt(mean(v^2) + epsilon); y = v * inv * scale. Null pointers are absent inputs or outputs. */
typedef struct {
    const void *x;     /* (rows, n) of x_dtype */
    const void *skip;  /* (rows, n) of x_dtype */
    const void *bias;  /* (n) of x_dtype */
    const void *scale; /* (n) of scale_dtype, or (rows, n) with scale_step n */
    void *y;           /* (rows, n) of y_dtype; may be x or skip */
    void *sum;         /* (rows, n) of x_dtype: v rounded once; may be x or skip */
    float *inv;        /* (rows) */
    int x_dtype, scale_dtype, y_dtype;
    int64_t rows, n, scale_step;
    float epsilon;
} qk_rms_args;

/* mean = mean(x); inv = 1 / sqrt(mean((x - mean)^2) + epsilon); y = (x - mean) * inv * scale (+ bias) */
typedef struct {
    const void *x;     /* (rows, n) of x_dtype */
    const void *scale; /* (n) of scale_dtype, or (rows, n) with scale_step n */
    const void *bias;  /* the same for bias; null: absent */
    void *y;           /* (rows, n) of x_dtype, null: not wanted; may be x */
    float *mean, *inv; /* (rows), null: not wanted */
    int x_dtype, scale_dtype, bias_dtype;
    int64_t rows, n, scale_step, bias_step;
    float epsilon;
} qk_layer_norm_args;

typedef struct {
    void (*rms_rows)(const qk_rms_args *args, int64_t first, int64_t last);
    void (*layer_norm_rows)(const qk_layer_norm_args *args, int64_t first, int64_t last);
} qk_normalization_table;

QK_DECLARE_TABLES(qk_normalization_table, normalization);

void qk_rms(int isa, int threads, const qk_rms_args *args);
void qk_layer_norm(int isa, int threads, const qk_layer_norm_args *args);

#endif
