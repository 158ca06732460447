/* Four k of an integer product, AVX2. vpmaddubsw would saturate (255 * 127 * 2 > 32767), so even and odd bytes are widened to 16 bits: vpmaddwd
 * adds two of their products into 32 bits exactly. The columns' bytes widen once for all rows; sixteen registers hold four rows of one panel. */
#define QK_INTEGER_ROWS 4
#define QK_INTEGER_PANELS 1

static inline __attribute__((always_inline)) void QK_TIER(dot_four)(const uint8_t *panel, int64_t panel_bytes, const uint8_t *a, int64_t width,
                                                                    const int rows, const int panels, v16i *sums)
{
    (void)panel_bytes, (void)panels;
    const __m256i low = _mm256_set1_epi16(0xFF);
    __m256i b_lo = _mm256_loadu_si256((const __m256i *)panel), b_hi = _mm256_loadu_si256((const __m256i *)panel + 1);
    __m256i even_lo = _mm256_srai_epi16(_mm256_slli_epi16(b_lo, 8), 8), even_hi = _mm256_srai_epi16(_mm256_slli_epi16(b_hi, 8), 8);
    __m256i odd_lo = _mm256_srai_epi16(b_lo, 8), odd_hi = _mm256_srai_epi16(b_hi, 8);
    QK_UNROLL
    for (int r = 0; r < rows; r++) {
        int32_t four;
        memcpy(&four, a + r * width, 4);
        __m256i v = _mm256_set1_epi32(four), even = _mm256_and_si256(v, low), odd = _mm256_srli_epi16(v, 8);
        sums[r].lo = _mm256_add_epi32(sums[r].lo, _mm256_add_epi32(_mm256_madd_epi16(even, even_lo), _mm256_madd_epi16(odd, odd_lo)));
        sums[r].hi = _mm256_add_epi32(sums[r].hi, _mm256_add_epi32(_mm256_madd_epi16(even, even_hi), _mm256_madd_epi16(odd, odd_hi)));
    }
}

/* four rows of 16 bytes to 16 columns of four, each byte xor flip */
static inline void QK_TIER(interleave)(const uint8_t *b, int64_t k_stride, uint8_t flip, uint8_t *to)
{
    __m128i r[4], x = _mm_set1_epi8((char)flip);
    for (int i = 0; i < 4; i++)
        r[i] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(b + i * k_stride)), x);
    __m128i low01 = _mm_unpacklo_epi8(r[0], r[1]), high01 = _mm_unpackhi_epi8(r[0], r[1]);
    __m128i low23 = _mm_unpacklo_epi8(r[2], r[3]), high23 = _mm_unpackhi_epi8(r[2], r[3]);
    _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi16(low01, low23));
    _mm_storeu_si128((__m128i *)to + 1, _mm_unpackhi_epi16(low01, low23));
    _mm_storeu_si128((__m128i *)to + 2, _mm_unpacklo_epi16(high01, high23));
    _mm_storeu_si128((__m128i *)to + 3, _mm_unpackhi_epi16(high01, high23));
}
