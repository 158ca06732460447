/* Four k of an integer product, AVX-512 VNNI: vpdpbusd adds four products u8 * s8 to each lane, nothing saturates. Six rows by four panels are 24
 * sums, four registers of columns and one of a row. */
#define QK_INTEGER_ROWS 6
#define QK_INTEGER_PANELS 4

static inline __attribute__((always_inline)) void QK_TIER(dot_four)(const uint8_t *panel, int64_t panel_bytes, const uint8_t *a, int64_t width,
                                                                    const int rows, const int panels, v16i *sums)
{
    __m512i b[QK_INTEGER_PANELS];
    QK_UNROLL
    for (int p = 0; p < panels; p++)
        b[p] = _mm512_loadu_si512(panel + p * panel_bytes);
    QK_UNROLL
    for (int r = 0; r < rows; r++) {
        int32_t four;
        memcpy(&four, a + r * width, 4);
        __m512i v = _mm512_set1_epi32(four);
        QK_UNROLL
        for (int p = 0; p < panels; p++)
            sums[r * panels + p] = _mm512_dpbusd_epi32(sums[r * panels + p], v, b[p]);
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
