/* v16, what follows from the tier's own operations: written once, included by every tier after its header. */
#include "simd/tiers.h"

#if defined(__clang__)
#define V16_UNUSED __attribute__((unused))
#else
#define V16_UNUSED
#endif

static inline v16 v16_zero(void) { return v16_set1(0.0f); }
static inline v16 v16_neg(v16 a) { return v16i_as_f(v16i_xor(v16_as_i(a), v16i_set1(INT32_MIN))); }
static inline v16 v16_abs(v16 a) { return v16i_as_f(v16i_and(v16_as_i(a), v16i_set1(INT32_MAX))); }

static inline v16 v16_load_bf16(const uint16_t *p) { return v16i_as_f(v16i_shl(v16i_load_u16(p), 16)); }

/* round to nearest even; a NaN keeps its high payload bits and becomes quiet, so it never rounds into an infinity */
static inline v16i v16_to_bf16(v16 a)
{
    v16i u = v16_as_i(a), even = v16i_and(v16i_shr(u, 16), v16i_set1(1));
    v16i rounded = v16i_shr(v16i_add(u, v16i_add(even, v16i_set1(0x7FFF))), 16);
    return v16i_select(v16_isnan(a), v16i_or(v16i_shr(u, 16), v16i_set1(0x40)), rounded);
}
static inline void v16_store_bf16(uint16_t *p, v16 a) { v16i_store_u16(p, v16_to_bf16(a)); }

/* n in 1..16 elements of any of the three float types; lanes beyond n are zero. Nothing outside p[0..n) is touched. */
static inline v16 v16_load_as(int dtype, const void *p, int n)
{
    uint16_t half[16] = {0};
    const uint16_t *h = (const uint16_t *)p;
    if (dtype == QK_F32)
        return n == 16 ? v16_load((const float *)p) : v16_load_n((const float *)p, n);
    if (n < 16) {
        memcpy(half, p, 2 * (size_t)n);
        h = half;
    }
    return dtype == QK_F16 ? v16_load_f16(h) : v16_load_bf16(h);
}
static inline void v16_store_as(int dtype, void *p, v16 a, int n)
{
    uint16_t half[16], *h = n == 16 ? (uint16_t *)p : half;
    if (dtype == QK_F32) {
        if (n == 16)
            v16_store((float *)p, a);
        else
            v16_store_n((float *)p, a, n);
        return;
    }
    if (dtype == QK_F16)
        v16_store_f16(h, a);
    else
        v16_store_bf16(h, a);
    if (n < 16)
        memcpy(p, half, 2 * (size_t)n);
}

/* 1 unless y and every number within 2^-21.5 of it, relative to y (6 units in its last place where it is subnormal), round to one float16 or bfloat16,
 * lane by lane. If y's error is less than that, the exact value rounds to it too: a fast approximation then gives the correctly rounded result, and else a
 * better one decides. */
static inline int v16_is_near_tie(int dtype, v16 y)
{
    if (dtype == QK_F16) /* y is normal in float32 from float16's smallest number on */
        return v16_f16_differ(v16_mul(y, v16_set1(1.0f - 0x1p-21f)), v16_mul(y, v16_set1(1.0f + 0x1p-21f)));
    v16i rest = v16i_and(v16i_sub(v16_as_i(y), v16i_set1(0x8000 - 6)), v16i_set1(0xFFFF)); /* a tie ends in 0x8000 */
    return m16_bits(v16i_gt(v16i_set1(13), rest)) != 0;
}

/* e^x, error below 1 ulp; 0 below -104, infinity above 89, NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 7, its coefficients Taylor's, whose remainder is 5e-9 there. */
static inline v16 v16_exp(v16 x)
{
    x = v16_min(v16_set1(90.0f), v16_max(v16_set1(-105.0f), x));
    v16 n = v16_round(v16_mul(x, v16_set1(0x1.715476p+0f)));
    v16 r = v16_fnma(n, v16_set1(0x1.62e4p-1f), x); /* ln 2 to 15 bits, so n times it is exact */
    r = v16_fnma(n, v16_set1(0x1.7f7d1cp-20f), r);
    v16 p = v16_set1(0x1.a01a02p-13f); /* 1/7! */
    p = v16_fma(p, r, v16_set1(0x1.6c16c2p-10f));
    p = v16_fma(p, r, v16_set1(0x1.111112p-7f));
    p = v16_fma(p, r, v16_set1(0x1.555556p-5f));
    p = v16_fma(p, r, v16_set1(0x1.555556p-3f));
    p = v16_fma(p, r, v16_set1(0.5f));
    v16 q = v16_fma(v16_mul(p, r), r, r);
    return v16_scale2(v16_add(v16_set1(1.0f), q), n);
}
