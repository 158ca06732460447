/* What a product does to a row before it reads it, in float32 whatever the row's type: that of `rms_normalization` or of `silu_mul`. */
#ifndef QK_PROLOGUE_H
#define QK_PROLOGUE_H

#include "simd/tiers.h"

enum { QK_AS_IS = 0, QK_RMS_NORM = 1, QK_SWIGLU = 2 };

typedef struct {
    int kind;
    int scale_dtype;
    const void *scale; /* QK_RMS_NORM: (k) */
    float epsilon;
} qk_prologue;

/* Elements of a stored row for one of k: with QK_SWIGLU gate, then up. */
static inline int64_t qk_prologue_width(const qk_prologue *p, int64_t k) { return p->kind == QK_SWIGLU ? 2 * k : k; }

#endif
