/* Sequences with a state that is carried from token to token: linear attention, and a causal convolution of few taps. */
#ifndef QK_RECURRENT_H
#define QK_RECURRENT_H

#include "simd/tiers.h"

/* For each token: state *= decay; v = beta (v - state^T k) for the delta rules; state += k v^T; y = scale state^T q. The state is float32. */
typedef struct {
    const void *q;      /* (batch, rows, heads, dk) of dtype */
    const void *k;      /* (batch, rows, kv_heads, dk) of dtype */
    const void *v;      /* (batch, rows, kv_heads, dv) of dtype */
    const float *decay; /* (batch, rows, kv_heads, decay_width), e^ of it already; null for none */
    const void *beta;   /* (batch, rows, beta_width) of dtype; null for none */
    const void *past;   /* (batch, kv_heads, dk, dv) of state_dtype; null for zeros */
    void *y;            /* (batch, rows, heads, dv) of dtype */
    void *present;      /* (batch, kv_heads, dk, dv) of state_dtype */
    int dtype, state_dtype;
    int64_t batch, rows, heads, kv_heads, dk, dv;
    int64_t decay_width; /* 1 or dk */
    int64_t beta_width;  /* 1 or kv_heads */
    float scale;
    float *scratch; /* (threads, qk_linear_attention_floats(dk)), aligned to 64 bytes */
} qk_linear_attention_args;

/* y[t] = bias + sum over j of weight[j] x[t - taps + 1 + j], x before its begin being the past; SiLU of it where asked for. */
typedef struct {
    const void *x;      /* (batch, channels, length) of dtype */
    const void *weight; /* (channels, taps) of dtype */
    const void *bias;   /* (channels) of dtype, or null */
    const void *past;   /* (batch, channels, taps - 1) of dtype; null for zeros */
    void *y;            /* (batch, channels, length) of dtype */
    void *present;      /* (batch, channels, taps - 1) of dtype */
    int dtype, silu;
    int64_t batch, channels, length, taps;
    float *scratch; /* (threads, qk_causal_conv_floats(length, taps)) */
} qk_causal_conv_args;

typedef struct {
    void (*linear_attention)(const qk_linear_attention_args *args, int64_t first, int64_t last, float *scratch);
    void (*causal_conv)(const qk_causal_conv_args *args, int64_t first, int64_t last, float *scratch);
} qk_recurrent_table;

QK_DECLARE_TABLES(qk_recurrent_table, recurrent);

/* units of work: 16 columns of one head's state; one channel */
static inline int64_t qk_linear_attention_units(const qk_linear_attention_args *a) { return a->batch * a->kv_heads * qk_ceil_div(a->dv, 16); }
static inline int64_t qk_linear_attention_floats(int64_t dk) { return 16 * dk + qk_ceil_div(dk, 16) * 16; }
static inline int64_t qk_causal_conv_floats(int64_t length, int64_t taps) { return qk_ceil_div(length + taps + 15, 16) * 16; }

void qk_linear_attention(int isa, int threads, const qk_linear_attention_args *args);
void qk_causal_conv(int isa, int threads, const qk_causal_conv_args *args);

#endif
