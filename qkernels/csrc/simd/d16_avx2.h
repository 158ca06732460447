/* d16, AVX2 tier: four ymm registers of four doubles. The operations are specified in d16_scalar.h. */
/* clang-format off */
#include <stdint.h>
#include <string.h>

typedef struct { __m256d q[4]; } d16;

#define D16_QUARTERS(expression) \
    d16 r; \
    QK_UNROLL \
    for (int i = 0; i < 4; i++) \
        r.q[i] = expression; \
    return r;

static inline d16 d16_set1(double x) { D16_QUARTERS(_mm256_set1_pd(x)) }
static inline d16 d16_of(v16 a)
{
    d16 r;
    r.q[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(a.lo));
    r.q[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1));
    r.q[2] = _mm256_cvtps_pd(_mm256_castps256_ps128(a.hi));
    r.q[3] = _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1));
    return r;
}
static inline d16 d16_load_f(const float *p) { D16_QUARTERS(_mm256_cvtps_pd(_mm_loadu_ps(p + 4 * i))) }
static inline v16 d16_to_f(d16 a)
{
    v16 r;
    r.lo = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a.q[0])), _mm256_cvtpd_ps(a.q[1]), 1);
    r.hi = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a.q[2])), _mm256_cvtpd_ps(a.q[3]), 1);
    return r;
}
static inline d16 d16_add(d16 a, d16 b) { D16_QUARTERS(_mm256_add_pd(a.q[i], b.q[i])) }
static inline d16 d16_sub(d16 a, d16 b) { D16_QUARTERS(_mm256_sub_pd(a.q[i], b.q[i])) }
static inline d16 d16_mul(d16 a, d16 b) { D16_QUARTERS(_mm256_mul_pd(a.q[i], b.q[i])) }
static inline d16 d16_div(d16 a, d16 b) { D16_QUARTERS(_mm256_div_pd(a.q[i], b.q[i])) }
static inline d16 d16_fma(d16 a, d16 b, d16 c) { D16_QUARTERS(_mm256_fmadd_pd(a.q[i], b.q[i], c.q[i])) }
static inline d16 d16_fnma(d16 a, d16 b, d16 c) { D16_QUARTERS(_mm256_fnmadd_pd(a.q[i], b.q[i], c.q[i])) }
static inline d16 d16_max(d16 a, d16 b) { D16_QUARTERS(_mm256_max_pd(a.q[i], b.q[i])) }
static inline d16 d16_min(d16 a, d16 b) { D16_QUARTERS(_mm256_min_pd(a.q[i], b.q[i])) }
static inline d16 d16_round(d16 a) { D16_QUARTERS(_mm256_round_pd(a.q[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)) }
static inline d16 d16_and(d16 a, d16 b) { D16_QUARTERS(_mm256_and_pd(a.q[i], b.q[i])) }
static inline d16 d16_or(d16 a, d16 b) { D16_QUARTERS(_mm256_or_pd(a.q[i], b.q[i])) }
static inline d16 d16_xor(d16 a, d16 b) { D16_QUARTERS(_mm256_xor_pd(a.q[i], b.q[i])) }
static inline d16 d16_shl52(d16 a) { D16_QUARTERS(_mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(a.q[i]), 52))) }
static inline d16 d16_shr52(d16 a) { D16_QUARTERS(_mm256_castsi256_pd(_mm256_srli_epi64(_mm256_castpd_si256(a.q[i]), 52))) }
static inline d16 d16_select_lt(d16 a, d16 b, d16 x, d16 y)
{
    D16_QUARTERS(_mm256_blendv_pd(y.q[i], x.q[i], _mm256_cmp_pd(a.q[i], b.q[i], _CMP_LT_OQ)))
}
static inline d16 d16_sixteenths_power(d16 x) { D16_QUARTERS(_mm256_castsi256_pd(_mm256_slli_epi64(_mm256_srli_epi64(_mm256_castpd_si256(x.q[i]), 4), 52))) }
static inline d16 d16_sixteenths_lookup(const double *table, d16 x)
{
    D16_QUARTERS(_mm256_i64gather_pd(table, _mm256_and_si256(_mm256_castpd_si256(x.q[i]), _mm256_set1_epi64x(15)), 8))
}
static inline double d16_reduce_add(d16 a)
{
    __m256d c = _mm256_add_pd(_mm256_add_pd(a.q[0], a.q[2]), _mm256_add_pd(a.q[1], a.q[3]));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(c), _mm256_extractf128_pd(c, 1));
    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}
static inline void d16_store(double *p, d16 a)
{
    for (int i = 0; i < 4; i++)
        _mm256_storeu_pd(p + 4 * i, a.q[i]);
}
static inline d16 d16_load(const double *p) { D16_QUARTERS(_mm256_loadu_pd(p + 4 * i)) }
#undef D16_QUARTERS
