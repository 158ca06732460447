/* v16, AVX2 tier: two ymm registers, lanes 0..7 and 8..15. The operations are specified in v16_scalar.h. */
/* clang-format off */
#include <stdint.h>
#include <string.h>

#include "simd/lookup.h"

typedef struct { __m256 lo, hi; } v16;
typedef struct { __m256i lo, hi; } v16i;
typedef struct { __m256i lo, hi; } m16; /* a lane is all ones or all zeros */

#define V16_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define V16_ACCUMULATORS 4 /* that fit in the registers beside their operands */
#define V16_BOTH(type, expression_lo, expression_hi) (type){expression_lo, expression_hi}

static inline v16 v16_set1(float x) { return V16_BOTH(v16, _mm256_set1_ps(x), _mm256_set1_ps(x)); }
static inline v16 v16_load(const float *p) { return V16_BOTH(v16, _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
static inline void v16_store(float *p, v16 a) { _mm256_storeu_ps(p, a.lo); _mm256_storeu_ps(p + 8, a.hi); }
static inline m16 m16_first(int n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), count = _mm256_set1_epi32(n);
    return V16_BOTH(m16, _mm256_cmpgt_epi32(count, lane), _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8))));
}
static inline int m16_bits(m16 m)
{
    return _mm256_movemask_ps(_mm256_castsi256_ps(m.lo)) | _mm256_movemask_ps(_mm256_castsi256_ps(m.hi)) << 8;
}
static inline v16 v16_load_n(const float *p, int n)
{
    m16 m = m16_first(n);
    return V16_BOTH(v16, _mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi));
}
static inline void v16_store_n(float *p, v16 a, int n)
{
    m16 m = m16_first(n);
    _mm256_maskstore_ps(p, m.lo, a.lo);
    _mm256_maskstore_ps(p + 8, m.hi, a.hi);
}

static inline v16 v16_add(v16 a, v16 b) { return V16_BOTH(v16, _mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)); }
static inline v16 v16_sub(v16 a, v16 b) { return V16_BOTH(v16, _mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)); }
static inline v16 v16_mul(v16 a, v16 b) { return V16_BOTH(v16, _mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)); }
static inline v16 v16_div(v16 a, v16 b) { return V16_BOTH(v16, _mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)); }
static inline v16 v16_sqrt(v16 a) { return V16_BOTH(v16, _mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)); }
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return V16_BOTH(v16, _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
static inline v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return V16_BOTH(v16, _mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi));
}
static inline v16 v16_max(v16 a, v16 b) { return V16_BOTH(v16, _mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)); }
static inline v16 v16_min(v16 a, v16 b) { return V16_BOTH(v16, _mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)); }
static inline v16 v16_round(v16 a) { return V16_BOTH(v16, _mm256_round_ps(a.lo, V16_NEAREST), _mm256_round_ps(a.hi, V16_NEAREST)); }
static inline v16 v16_floor(v16 a) { return V16_BOTH(v16, _mm256_floor_ps(a.lo), _mm256_floor_ps(a.hi)); }
static inline v16 v16_ceil(v16 a) { return V16_BOTH(v16, _mm256_ceil_ps(a.lo), _mm256_ceil_ps(a.hi)); }

static inline v16i v16_as_i(v16 a) { return V16_BOTH(v16i, _mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)); }
static inline v16 v16i_as_f(v16i a) { return V16_BOTH(v16, _mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)); }

/* 2^n as a product of two normal powers: the first product is exact, so only the second rounds */
static inline __m256 v16_scale2_half(__m256 a, __m256 n)
{
    __m256i e = _mm256_cvtps_epi32(n), first = _mm256_srai_epi32(e, 1), second = _mm256_sub_epi32(e, first), bias = _mm256_set1_epi32(127);
    __m256 nan = _mm256_cmp_ps(n, n, _CMP_UNORD_Q);
    a = _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23)));
    a = _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23)));
    return _mm256_blendv_ps(a, n, nan);
}
static inline v16 v16_scale2(v16 a, v16 n) { return V16_BOTH(v16, v16_scale2_half(a.lo, n.lo), v16_scale2_half(a.hi, n.hi)); }
static inline v16 v16_scale2_floor(v16 a, v16 n) { return v16_scale2(a, v16_floor(n)); }
static inline __m256 v16_lookup16_half(__m256 low, __m256 high, __m256i i)
{
    __m256 bit_3 = _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)); /* as sign */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, i), _mm256_permutevar8x32_ps(high, i), bit_3);
}
static inline v16 v16_lookup16(const float *table, v16i i)
{
    __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
    return V16_BOTH(v16, v16_lookup16_half(low, high, i.lo), v16_lookup16_half(low, high, i.hi));
}
static inline v16 v16_lookup32(const float *table, v16i i)
{
    v16 low = v16_lookup16(table, i), high = v16_lookup16(table + 16, i);
    __m256 lo = _mm256_castsi256_ps(_mm256_slli_epi32(i.lo, 27)), hi = _mm256_castsi256_ps(_mm256_slli_epi32(i.hi, 27)); /* bit 4 as sign */
    return V16_BOTH(v16, _mm256_blendv_ps(low.lo, high.lo, lo), _mm256_blendv_ps(low.hi, high.hi, hi));
}

#define V16_COMPARE(a, b, how) \
    V16_BOTH(m16, _mm256_castps_si256(_mm256_cmp_ps((a).lo, (b).lo, how)), _mm256_castps_si256(_mm256_cmp_ps((a).hi, (b).hi, how)))
static inline m16 v16_lt(v16 a, v16 b) { return V16_COMPARE(a, b, _CMP_LT_OQ); }
static inline m16 v16_eq(v16 a, v16 b) { return V16_COMPARE(a, b, _CMP_EQ_OQ); }
static inline m16 v16_isnan(v16 a) { return V16_COMPARE(a, a, _CMP_UNORD_Q); }
static inline m16 v16i_gt(v16i a, v16i b) { return V16_BOTH(m16, _mm256_cmpgt_epi32(a.lo, b.lo), _mm256_cmpgt_epi32(a.hi, b.hi)); }
static inline m16 v16i_eq(v16i a, v16i b) { return V16_BOTH(m16, _mm256_cmpeq_epi32(a.lo, b.lo), _mm256_cmpeq_epi32(a.hi, b.hi)); }
static inline v16 v16_select(m16 m, v16 a, v16 b)
{
    return V16_BOTH(v16, _mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(m.lo)), _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(m.hi)));
}
static inline v16i v16i_select(m16 m, v16i a, v16i b)
{
    return V16_BOTH(v16i, _mm256_blendv_epi8(b.lo, a.lo, m.lo), _mm256_blendv_epi8(b.hi, a.hi, m.hi));
}

static inline __m256 v16_pick_half(__m256 lo, __m256 hi, int odd) /* every second of 16 lanes: shuffle works within 128 bits, permute mends the order */
{
    __m256 picked = odd ? _mm256_shuffle_ps(lo, hi, 0xDD) : _mm256_shuffle_ps(lo, hi, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(picked), 0xD8));
}
static inline void v16_unzip(v16 a, v16 b, v16 *even, v16 *odd)
{
    *even = V16_BOTH(v16, v16_pick_half(a.lo, a.hi, 0), v16_pick_half(b.lo, b.hi, 0));
    *odd = V16_BOTH(v16, v16_pick_half(a.lo, a.hi, 1), v16_pick_half(b.lo, b.hi, 1));
}
static inline v16 v16_zip_half(__m256 even, __m256 odd)
{
    __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    return V16_BOTH(v16, _mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
static inline void v16_zip(v16 even, v16 odd, v16 *a, v16 *b)
{
    *a = v16_zip_half(even.lo, odd.lo);
    *b = v16_zip_half(even.hi, odd.hi);
}

static inline v16i v16i_set1(int32_t x) { return V16_BOTH(v16i, _mm256_set1_epi32(x), _mm256_set1_epi32(x)); }
static inline v16i v16i_load(const void *p)
{
    return V16_BOTH(v16i, _mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)p + 1));
}
static inline void v16i_store(void *p, v16i a)
{
    _mm256_storeu_si256((__m256i *)p, a.lo);
    _mm256_storeu_si256((__m256i *)p + 1, a.hi);
}
static inline v16i v16i_add(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)); }
static inline v16i v16i_sub(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)); }
static inline v16i v16i_mul(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)); }
static inline v16i v16i_and(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)); }
static inline v16i v16i_or(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)); }
static inline v16i v16i_xor(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)); }
static inline v16i v16i_min(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_min_epi32(a.lo, b.lo), _mm256_min_epi32(a.hi, b.hi)); }
static inline v16i v16i_max(v16i a, v16i b) { return V16_BOTH(v16i, _mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)); }
#define v16i_shl(a, n) V16_BOTH(v16i, _mm256_slli_epi32((a).lo, (n)), _mm256_slli_epi32((a).hi, (n)))
#define v16i_shr(a, n) V16_BOTH(v16i, _mm256_srli_epi32((a).lo, (n)), _mm256_srli_epi32((a).hi, (n)))
#define v16i_sra(a, n) V16_BOTH(v16i, _mm256_srai_epi32((a).lo, (n)), _mm256_srai_epi32((a).hi, (n)))

static inline v16 v16i_to_f(v16i a) { return V16_BOTH(v16, _mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)); }
/* MXCSR's default rounding is nearest even; code that changes it breaks more than this */
static inline v16i v16_to_i(v16 a) { return V16_BOTH(v16i, _mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)); }

static inline v16i v16i_load_u8(const void *p)
{
    __m128i b = _mm_loadu_si128((const __m128i *)p);
    return V16_BOTH(v16i, _mm256_cvtepu8_epi32(b), _mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)));
}
static inline v16i v16i_load_i8(const void *p)
{
    __m128i b = _mm_loadu_si128((const __m128i *)p);
    return V16_BOTH(v16i, _mm256_cvtepi8_epi32(b), _mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)));
}
static inline v16i v16i_load_u16(const void *p)
{
    const __m128i *q = (const __m128i *)p;
    return V16_BOTH(v16i, _mm256_cvtepu16_epi32(_mm_loadu_si128(q)), _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)));
}
static inline __m256i v16i_low_u16(v16i a) /* the low halves of the 16 lanes, in order */
{
    __m256i m = _mm256_set1_epi32(0xFFFF), packed = _mm256_packus_epi32(_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m));
    return _mm256_permute4x64_epi64(packed, 0xD8);
}
static inline void v16i_store_u16(void *p, v16i a) { _mm256_storeu_si256((__m256i *)p, v16i_low_u16(a)); }
static inline void v16i_stream(void *p, v16i a)
{
    _mm256_stream_si256((__m256i *)p, a.lo);
    _mm256_stream_si256((__m256i *)p + 1, a.hi);
}
static inline void v16i_stream_end(void) { _mm_sfence(); }
static inline void v16_lookup_u16(void *y, const void *x, const uint16_t *table) { v16_lookup_u16_by_fours(y, x, table); }
static inline void v16i_store_u8(void *p, v16i a)
{
    __m256i h = _mm256_and_si256(v16i_low_u16(a), _mm256_set1_epi16(0xFF));
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
}

static inline v16 v16_load_f16(const uint16_t *p)
{
    const __m128i *q = (const __m128i *)p;
    return V16_BOTH(v16, _mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1)));
}
static inline void v16_store_f16(uint16_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, V16_NEAREST));
    _mm_storeu_si128((__m128i *)p + 1, _mm256_cvtps_ph(a.hi, V16_NEAREST));
}

static inline int v16_f16_differ(v16 a, v16 b)
{
    __m128i lo = _mm_cmpeq_epi16(_mm256_cvtps_ph(a.lo, V16_NEAREST), _mm256_cvtps_ph(b.lo, V16_NEAREST));
    __m128i hi = _mm_cmpeq_epi16(_mm256_cvtps_ph(a.hi, V16_NEAREST), _mm256_cvtps_ph(b.hi, V16_NEAREST));
    return _mm_movemask_epi8(_mm_and_si128(lo, hi)) != 0xFFFF;
}

static inline float v16_reduce_add(v16 a)
{
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float v16_reduce_max(v16 a)
{
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

static inline int32_t v16i_reduce_max(v16i a)
{
    __m256i b = _mm256_max_epi32(a.lo, a.hi);
    __m128i c = _mm_max_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

static inline int32_t v16i_reduce_add(v16i a)
{
    __m256i b = _mm256_add_epi32(a.lo, a.hi);
    __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    c = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

/* lane i = v16_reduce_add(a[i]): the same additions, transposed while they are made. x + y with x = (a.low, b.high) and
 * y = (a.high, b.low) sums the halves of a and of b at once. */
static inline __m256 v16_reduce_add_8_(const v16 *a)
{
    __m256 c[4], d[2];
    for (int i = 0; i < 4; i++) {
        __m256 x = _mm256_add_ps(a[i].lo, a[i].hi), y = _mm256_add_ps(a[i + 4].lo, a[i + 4].hi);
        c[i] = _mm256_add_ps(_mm256_blend_ps(x, y, 0xF0), _mm256_permute2f128_ps(x, y, 0x21));
    }
    for (int i = 0; i < 2; i++)
        d[i] = _mm256_add_ps(_mm256_blend_ps(c[2 * i], c[2 * i + 1], 0xCC), _mm256_shuffle_ps(c[2 * i], c[2 * i + 1], 0x4E));
    return _mm256_add_ps(_mm256_shuffle_ps(d[0], d[1], 0x88), _mm256_shuffle_ps(d[0], d[1], 0xDD));
}
static inline v16 v16_reduce_add_16(const v16 *a) { return V16_BOTH(v16, v16_reduce_add_8_(a), v16_reduce_add_8_(a + 8)); }

/* (8, 8), rows of x `stride` apart and of y 16: pairs of rows, of these pairs, then halves */
static inline void v16_transpose_8_(const float *x, int64_t stride, float *y)
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        __m256 r = _mm256_loadu_ps(x + i * stride), t = _mm256_loadu_ps(x + (i + 1) * stride);
        a[i] = _mm256_unpacklo_ps(r, t);
        a[i + 1] = _mm256_unpackhi_ps(r, t);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0x44);
            b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0xEE);
        }
    for (int j = 0; j < 4; j++) {
        _mm256_storeu_ps(y + 16 * j, _mm256_permute2f128_ps(b[j], b[4 + j], 0x20));
        _mm256_storeu_ps(y + 16 * (4 + j), _mm256_permute2f128_ps(b[j], b[4 + j], 0x31));
    }
}
/* (16, 16), rows of x `stride` apart and of y contiguous */
static inline void v16_transpose(const float *x, int64_t stride, float *y)
{
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 16; j += 8)
            v16_transpose_8_(x + i * stride + j, stride, y + 16 * j + i);
}

/* 32 int16 */
static inline v16i v16i_load_i8_i16(const void *p)
{
    const __m128i *x = (const __m128i *)p;
    return V16_BOTH(v16i, _mm256_cvtepi8_epi16(_mm_loadu_si128(x)), _mm256_cvtepi8_epi16(_mm_loadu_si128(x + 1)));
}
static inline v16i v16i_dot_i16(v16i sum, v16i a, v16i b)
{
    return V16_BOTH(v16i, _mm256_add_epi32(sum.lo, _mm256_madd_epi16(a.lo, b.lo)), _mm256_add_epi32(sum.hi, _mm256_madd_epi16(a.hi, b.hi)));
}
static inline v16i v16i_zip_i8_half(__m128i x, __m128i y)
{
    return V16_BOTH(v16i, _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y)), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, y)));
}
static inline void v16i_zip_i8(const void *p, const void *q, v16i *a, v16i *b)
{
    const __m128i *x = (const __m128i *)p, *y = (const __m128i *)q;
    *a = v16i_zip_i8_half(_mm_loadu_si128(x), _mm_loadu_si128(y));
    *b = v16i_zip_i8_half(_mm_loadu_si128(x + 1), _mm_loadu_si128(y + 1));
}
static inline void v16i_unzip(v16i a, v16i b, v16i *first, v16i *second) { *first = a, *second = b; }
static inline __m256i v16i_reduce_add_8_(const v16i *a)
{
    __m256i c[4], d[2];
    for (int i = 0; i < 4; i++) {
        __m256i x = _mm256_add_epi32(a[i].lo, a[i].hi), y = _mm256_add_epi32(a[i + 4].lo, a[i + 4].hi);
        c[i] = _mm256_add_epi32(_mm256_blend_epi32(x, y, 0xF0), _mm256_permute2x128_si256(x, y, 0x21));
    }
    for (int i = 0; i < 2; i++)
        d[i] = _mm256_hadd_epi32(c[2 * i], c[2 * i + 1]);
    return _mm256_hadd_epi32(d[0], d[1]);
}
static inline v16i v16i_reduce_add_16(const v16i *a) { return V16_BOTH(v16i, v16i_reduce_add_8_(a), v16i_reduce_add_8_(a + 8)); }
