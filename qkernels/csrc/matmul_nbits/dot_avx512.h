/* Integer dot products of one tile, AVX-512 VNNI.
 *
 * vpdpbusd zmm, zmm, m32{1to16}: per 32-bit lane (column), four unsigned bytes (weights) times four signed bytes (activations, the same
 * four for all lanes, broadcast from memory) added into the lane; nothing saturates. Weights unpack once for all rows.
 * Two digits: the high digit's sum is shifted by 8 bits and the low digit's goes on top of it. */

static inline __attribute__((always_inline)) __m512i QK_TIER(dpbusd)(__m512i sum, __m512i w, const int8_t *a)
{
    int32_t four;
    memcpy(&four, a, 4);
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}

/* The tile as operands of four k, for 16 columns. */
static inline __attribute__((always_inline)) void QK_TIER(operands)(const uint8_t *tile, const int bits, __m512i *w)
{
    const __m512i nibble = _mm512_set1_epi8(15), field = _mm512_set1_epi8(3);
    if (bits == 2) {
        QK_UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(tile + 64 * (g / 4)), 2 * (g % 4)), field);
    } else if (bits == 4) {
        QK_UNROLL
        for (int g = 0; g < 4; g++) {
            __m512i v = _mm512_loadu_si512(tile + 64 * g);
            w[g] = _mm512_and_si512(v, nibble);
            w[4 + g] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        }
    } else {
        QK_UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = _mm512_loadu_si512(tile + 64 * g);
    }
}

static inline __attribute__((always_inline)) void QK_TIER(tile_dot)(const uint8_t *tile, const int8_t *a, const int bits, const int digits,
                                                                    const int split, const int rows, v16i *dots)
{
    __m512i w[8];
    QK_TIER(operands)(tile, bits, w);
    QK_UNROLL
    for (int r = 0; r < rows; r++) {
        const int8_t *row = a + r * digits * QK_TILE, *last = row + (digits - 1) * QK_TILE;
        __m512i low = dots[r], high = split ? dots[rows + r] : _mm512_setzero_si512();
        if (digits == 2) {
            __m512i d = _mm512_setzero_si512(), e = _mm512_setzero_si512();
            QK_UNROLL
            for (int g = 0; g < 4; g++) {
                d = QK_TIER(dpbusd)(d, w[g], row + 4 * g);
                e = QK_TIER(dpbusd)(e, w[4 + g], row + 16 + 4 * g);
            }
            if (split) {
                low = _mm512_add_epi32(low, _mm512_slli_epi32(d, 8));
                high = _mm512_add_epi32(high, _mm512_slli_epi32(e, 8));
            } else
                low = _mm512_add_epi32(low, _mm512_slli_epi32(_mm512_add_epi32(d, e), 8));
        }
        QK_UNROLL
        for (int g = 0; g < 4; g++) {
            low = QK_TIER(dpbusd)(low, w[g], last + 4 * g);
            high = QK_TIER(dpbusd)(high, w[4 + g], last + 16 + 4 * g);
        }
        dots[r] = split ? low : _mm512_add_epi32(low, high);
        if (split)
            dots[rows + r] = high;
    }
}
