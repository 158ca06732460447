/* Single floats of the three types, for code outside the tiers. */
/* clang-format off */
#ifndef QK_SCALAR_FLOAT_H
#define QK_SCALAR_FLOAT_H

#include <string.h>

#include "simd/tiers.h"

static inline float qk_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3FF, u;
    float f;
    if (exponent == 31)
        u = sign | 0x7F800000 | mantissa << 13 | (mantissa ? 0x400000 : 0);
    else if (exponent)
        u = sign | (exponent + 112) << 23 | mantissa << 13;
    else {
        f = (float)mantissa * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    memcpy(&f, &u, 4);
    return f;
}

static inline float qk_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float qk_load_scalar(int dtype, const void *p, int64_t i)
{
    return dtype == QK_F32 ? ((const float *)p)[i] : dtype == QK_F16 ? qk_f16_to_f32(((const uint16_t *)p)[i]) : qk_bf16_to_f32(((const uint16_t *)p)[i]);
}

#endif
