/* d16, AVX-512 tier: two zmm registers of eight doubles. The operations are specified in d16_scalar.h. */
/* clang-format off */
#include <stdint.h>
#include <string.h>

typedef struct { __m512d lo, hi; } d16;

#define D16_BOTH(expression_lo, expression_hi) (d16){expression_lo, expression_hi}

static inline d16 d16_set1(double x) { return D16_BOTH(_mm512_set1_pd(x), _mm512_set1_pd(x)); }
static inline d16 d16_of(v16 a) { return D16_BOTH(_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1))); }
static inline d16 d16_load_f(const float *p) { return D16_BOTH(_mm512_cvtps_pd(_mm256_loadu_ps(p)), _mm512_cvtps_pd(_mm256_loadu_ps(p + 8))); }
static inline v16 d16_to_f(d16 a) { return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.lo)), _mm512_cvtpd_ps(a.hi), 1); }
static inline d16 d16_add(d16 a, d16 b) { return D16_BOTH(_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)); }
static inline d16 d16_sub(d16 a, d16 b) { return D16_BOTH(_mm512_sub_pd(a.lo, b.lo), _mm512_sub_pd(a.hi, b.hi)); }
static inline d16 d16_mul(d16 a, d16 b) { return D16_BOTH(_mm512_mul_pd(a.lo, b.lo), _mm512_mul_pd(a.hi, b.hi)); }
static inline d16 d16_div(d16 a, d16 b) { return D16_BOTH(_mm512_div_pd(a.lo, b.lo), _mm512_div_pd(a.hi, b.hi)); }
static inline d16 d16_fma(d16 a, d16 b, d16 c) { return D16_BOTH(_mm512_fmadd_pd(a.lo, b.lo, c.lo), _mm512_fmadd_pd(a.hi, b.hi, c.hi)); }
static inline d16 d16_fnma(d16 a, d16 b, d16 c) { return D16_BOTH(_mm512_fnmadd_pd(a.lo, b.lo, c.lo), _mm512_fnmadd_pd(a.hi, b.hi, c.hi)); }
static inline d16 d16_max(d16 a, d16 b) { return D16_BOTH(_mm512_max_pd(a.lo, b.lo), _mm512_max_pd(a.hi, b.hi)); }
static inline d16 d16_min(d16 a, d16 b) { return D16_BOTH(_mm512_min_pd(a.lo, b.lo), _mm512_min_pd(a.hi, b.hi)); }
static inline d16 d16_round(d16 a)
{
    return D16_BOTH(_mm512_roundscale_pd(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                    _mm512_roundscale_pd(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline d16 d16_and(d16 a, d16 b) { return D16_BOTH(_mm512_and_pd(a.lo, b.lo), _mm512_and_pd(a.hi, b.hi)); }
static inline d16 d16_or(d16 a, d16 b) { return D16_BOTH(_mm512_or_pd(a.lo, b.lo), _mm512_or_pd(a.hi, b.hi)); }
static inline d16 d16_xor(d16 a, d16 b) { return D16_BOTH(_mm512_xor_pd(a.lo, b.lo), _mm512_xor_pd(a.hi, b.hi)); }
static inline d16 d16_shl52(d16 a)
{
    return D16_BOTH(_mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(a.lo), 52)), _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(a.hi), 52)));
}
static inline d16 d16_shr52(d16 a)
{
    return D16_BOTH(_mm512_castsi512_pd(_mm512_srli_epi64(_mm512_castpd_si512(a.lo), 52)), _mm512_castsi512_pd(_mm512_srli_epi64(_mm512_castpd_si512(a.hi), 52)));
}
static inline d16 d16_select_lt(d16 a, d16 b, d16 x, d16 y)
{
    return D16_BOTH(_mm512_mask_blend_pd(_mm512_cmp_pd_mask(a.lo, b.lo, _CMP_LT_OQ), y.lo, x.lo),
                    _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a.hi, b.hi, _CMP_LT_OQ), y.hi, x.hi));
}
static inline d16 d16_sixteenths_power(d16 x)
{
    return D16_BOTH(_mm512_castsi512_pd(_mm512_slli_epi64(_mm512_srli_epi64(_mm512_castpd_si512(x.lo), 4), 52)),
                    _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_srli_epi64(_mm512_castpd_si512(x.hi), 4), 52)));
}
static inline d16 d16_sixteenths_lookup(const double *table, d16 x)
{
    __m512d low = _mm512_loadu_pd(table), high = _mm512_loadu_pd(table + 8);
    return D16_BOTH(_mm512_permutex2var_pd(low, _mm512_castpd_si512(x.lo), high), _mm512_permutex2var_pd(low, _mm512_castpd_si512(x.hi), high));
}
static inline double d16_reduce_add(d16 a)
{
    __m512d b = _mm512_add_pd(a.lo, a.hi);
    __m256d c = _mm256_add_pd(_mm512_castpd512_pd256(b), _mm512_extractf64x4_pd(b, 1));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(c), _mm256_extractf128_pd(c, 1));
    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}
static inline void d16_store(double *p, d16 a)
{
    _mm512_storeu_pd(p, a.lo);
    _mm512_storeu_pd(p + 8, a.hi);
}
static inline d16 d16_load(const double *p) { return D16_BOTH(_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)); }
#undef D16_BOTH
