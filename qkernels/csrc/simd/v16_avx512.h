/* v16, AVX-512 tier: one zmm register. The operations are specified in v16_scalar.h. */
#include <stdint.h>
#include <string.h>

typedef __m512 v16;
typedef __m512i v16i;
typedef __mmask16 m16;

#define V16_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define V16_ACCUMULATORS 16 /* that fit in the registers beside their operands */

static inline v16 v16_set1(float x) { return _mm512_set1_ps(x); }
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline m16 m16_first(int n) { return (m16)((1u << n) - 1); }
static inline int m16_bits(m16 m) { return m; }
static inline v16 v16_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(m16_first(n), p); }
static inline void v16_store_n(float *p, v16 a, int n) { _mm512_mask_storeu_ps(p, m16_first(n), a); }

static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v16_sqrt(v16 a) { return _mm512_sqrt_ps(a); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v16_fnma(v16 a, v16 b, v16 c) { return _mm512_fnmadd_ps(a, b, c); }
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
static inline v16 v16_round(v16 a) { return _mm512_roundscale_ps(a, V16_NEAREST); }
static inline v16 v16_floor(v16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
static inline v16 v16_ceil(v16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }

static inline v16i v16_as_i(v16 a) { return _mm512_castps_si512(a); }
static inline v16 v16i_as_f(v16i a) { return _mm512_castsi512_ps(a); }
static inline v16 v16_scale2(v16 a, v16 n) { return _mm512_scalef_ps(a, n); }
static inline v16 v16_scale2_floor(v16 a, v16 n) { return _mm512_scalef_ps(a, n); }
static inline v16 v16_lookup16(const float *table, v16i i) { return _mm512_permutexvar_ps(i, _mm512_loadu_ps(table)); }
static inline v16 v16_lookup32(const float *table, v16i i) { return _mm512_permutex2var_ps(_mm512_loadu_ps(table), i, _mm512_loadu_ps(table + 16)); }

static inline m16 v16_lt(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline m16 v16_eq(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline m16 v16_isnan(v16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline m16 v16i_gt(v16i a, v16i b) { return _mm512_cmpgt_epi32_mask(a, b); }
static inline m16 v16i_eq(v16i a, v16i b) { return _mm512_cmpeq_epi32_mask(a, b); }
static inline v16 v16_select(m16 m, v16 a, v16 b) { return _mm512_mask_blend_ps(m, b, a); }
static inline v16i v16i_select(m16 m, v16i a, v16i b) { return _mm512_mask_blend_epi32(m, b, a); }

static inline void v16_unzip(v16 a, v16 b, v16 *even, v16 *odd)
{
    __m512i lane = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, lane, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(lane, _mm512_set1_epi32(1)), b);
}
static inline void v16_zip(v16 even, v16 odd, v16 *a, v16 *b)
{
    __m512i lane = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(even, lane, odd);
    *b = _mm512_permutex2var_ps(even, _mm512_add_epi32(lane, _mm512_set1_epi32(8)), odd);
}

static inline v16i v16i_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline v16i v16i_load(const void *p) { return _mm512_loadu_si512(p); }
static inline void v16i_store(void *p, v16i a) { _mm512_storeu_si512(p, a); }
static inline v16i v16i_add(v16i a, v16i b) { return _mm512_add_epi32(a, b); }
static inline v16i v16i_sub(v16i a, v16i b) { return _mm512_sub_epi32(a, b); }
static inline v16i v16i_mul(v16i a, v16i b) { return _mm512_mullo_epi32(a, b); }
static inline v16i v16i_and(v16i a, v16i b) { return _mm512_and_si512(a, b); }
static inline v16i v16i_or(v16i a, v16i b) { return _mm512_or_si512(a, b); }
static inline v16i v16i_xor(v16i a, v16i b) { return _mm512_xor_si512(a, b); }
static inline v16i v16i_min(v16i a, v16i b) { return _mm512_min_epi32(a, b); }
static inline v16i v16i_max(v16i a, v16i b) { return _mm512_max_epi32(a, b); }
#define v16i_shl(a, n) _mm512_slli_epi32((a), (n))
#define v16i_shr(a, n) _mm512_srli_epi32((a), (n))
#define v16i_sra(a, n) _mm512_srai_epi32((a), (n))

static inline v16 v16i_to_f(v16i a) { return _mm512_cvtepi32_ps(a); }
static inline v16i v16_to_i(v16 a) { return _mm512_cvt_roundps_epi32(a, V16_NEAREST); }

static inline v16i v16i_load_u8(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline v16i v16i_load_i8(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline v16i v16i_load_u16(const void *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
static inline void v16i_store_u16(void *p, v16i a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(a)); }
static inline void v16i_stream(void *p, v16i a) { _mm512_stream_si512((__m512i *)p, a); }
static inline void v16i_stream_end(void) { _mm_sfence(); }
static inline void v16_lookup_u16(void *y, const void *x, const uint16_t *table)
{
    v16i codes = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    _mm256_storeu_si256((__m256i *)y, _mm512_cvtepi32_epi16(_mm512_i32gather_epi32(codes, table, 2)));
}
static inline void v16i_store_u8(void *p, v16i a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }

static inline v16 v16_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void v16_store_f16(uint16_t *p, v16 a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, V16_NEAREST)); }

static inline int v16_f16_differ(v16 a, v16 b)
{
    return _mm256_cmpneq_epi16_mask(_mm512_cvtps_ph(a, V16_NEAREST), _mm512_cvtps_ph(b, V16_NEAREST)) != 0;
}

static inline float v16_reduce_add(v16 a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float v16_reduce_max(v16 a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

static inline int32_t v16i_reduce_max(v16i a)
{
    __m256i b = _mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i c = _mm_max_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

static inline int32_t v16i_reduce_add(v16i a)
{
    __m256i b = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    c = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

/* the first additions of v16_reduce_add: lanes 0 to 7 of x, lanes 8 to 15 of y; x + y with x = (a.low, b.high) and y = (a.high, b.low) */
static inline v16 v16_halves(v16 x, v16 y) { return v16_add(_mm512_mask_blend_ps(0xFF00, x, y), _mm512_shuffle_f32x4(x, y, 0x4E)); }
/* the other ones, transposed while they are made: lane i is the sum of half i, of a pair's first, then its second */
static inline v16 v16_reduce_halves(const v16 *a)
{
    v16 c[4], d[2];
    for (int i = 0; i < 4; i++)
        c[i] = v16_add(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88), _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xDD));
    for (int i = 0; i < 2; i++)
        d[i] = v16_add(_mm512_mask_blend_ps(0xCCCC, c[2 * i], c[2 * i + 1]), _mm512_shuffle_ps(c[2 * i], c[2 * i + 1], 0x4E));
    v16 e = v16_add(_mm512_shuffle_ps(d[0], d[1], 0x88), _mm512_shuffle_ps(d[0], d[1], 0xDD));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), e);
}

/* lane i = v16_reduce_add(a[i]) */
static inline v16 v16_reduce_add_16(const v16 *a)
{
    v16 b[8];
    for (int i = 0; i < 8; i++)
        b[i] = v16_halves(a[2 * i], a[2 * i + 1]);
    return v16_reduce_halves(b);
}

/* (16, 16), rows of x `stride` apart and of y contiguous: pairs of rows, of these pairs, then quarters */
static inline void v16_transpose(const float *x, int64_t stride, float *y)
{
    v16 a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        v16 r = _mm512_loadu_ps(x + i * stride), t = _mm512_loadu_ps(x + (i + 1) * stride);
        a[i] = _mm512_unpacklo_ps(r, t);
        a[i + 1] = _mm512_unpackhi_ps(r, t);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d r = _mm512_castps_pd(a[i + j]), t = _mm512_castps_pd(a[i + 2 + j]);
            b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(r, t));
            b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(r, t));
        }
    for (int j = 0; j < 4; j++) {
        v16 low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88), high = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xDD);
        v16 low2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88), high2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xDD);
        _mm512_storeu_ps(y + 16 * j, _mm512_shuffle_f32x4(low, low2, 0x88));
        _mm512_storeu_ps(y + 16 * (4 + j), _mm512_shuffle_f32x4(high, high2, 0x88));
        _mm512_storeu_ps(y + 16 * (8 + j), _mm512_shuffle_f32x4(low, low2, 0xDD));
        _mm512_storeu_ps(y + 16 * (12 + j), _mm512_shuffle_f32x4(high, high2, 0xDD));
    }
}

/* 32 int16 */
static inline v16i v16i_load_i8_i16(const void *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)); }
static inline v16i v16i_dot_i16(v16i sum, v16i a, v16i b) { return _mm512_dpwssd_epi32(sum, a, b); }
/* the order: 0 to 7 and 16 to 23 in a, the others in b */
static inline void v16i_zip_i8(const void *p, const void *q, v16i *a, v16i *b)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)p), y = _mm256_loadu_si256((const __m256i *)q);
    *a = _mm512_cvtepi8_epi16(_mm256_unpacklo_epi8(x, y));
    *b = _mm512_cvtepi8_epi16(_mm256_unpackhi_epi8(x, y));
}
static inline void v16i_unzip(v16i a, v16i b, v16i *first, v16i *second)
{
    *first = _mm512_shuffle_i64x2(a, b, 0x44);
    *second = _mm512_shuffle_i64x2(a, b, 0xEE);
}
static inline v16i v16i_reduce_add_16(const v16i *a)
{
    v16i b[8];
    v16 c[4], d[2];
    for (int i = 0; i < 8; i++) {
        v16i x = a[2 * i], y = a[2 * i + 1];
        b[i] = v16i_add(_mm512_mask_blend_epi32(0xFF00, x, y), _mm512_shuffle_i32x4(x, y, 0x4E));
    }
    for (int i = 0; i < 4; i++) {
        v16i x = b[2 * i], y = b[2 * i + 1];
        c[i] = v16i_as_f(v16i_add(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xDD)));
    }
    for (int i = 0; i < 2; i++) {
        v16 x = c[2 * i], y = c[2 * i + 1];
        d[i] = v16i_as_f(v16i_add(v16_as_i(_mm512_mask_blend_ps(0xCCCC, x, y)), v16_as_i(_mm512_shuffle_ps(x, y, 0x4E))));
    }
    v16i e = v16i_add(v16_as_i(_mm512_shuffle_ps(d[0], d[1], 0x88)), v16_as_i(_mm512_shuffle_ps(d[0], d[1], 0xDD)));
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), e);
}
