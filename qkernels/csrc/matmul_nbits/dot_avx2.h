/* Integer dot products of one tile, AVX2.
 *
 * 4 bits: vpmaddubsw adds two products u8 * s8 into 16 bits. With weights of at most 15 a pair is at most 15 * 128 * 2 = 3840 in size, and
 * eight of them, a whole tile's, 30720: nothing saturates, so one vpmaddwd a tile widens them.
 * 2 bits: the same; a tile's sum is at most 8 * 3 * 128 * 2 = 6144.
 * 8 bits: pairs would saturate; even and odd bytes are widened to 16 bits and multiplied by vpmaddwd. */

static inline __m256i QK_TIER(four)(const int8_t *a)
{
    int32_t four;
    memcpy(&four, a, 4);
    return _mm256_set1_epi32(four);
}

/* sums of one half of the columns (8) over the 16 or 32 k of the given vectors; weights at tile, a vector of 64 bytes apart */
static inline __attribute__((always_inline)) __m256i QK_TIER(half_dot4)(const uint8_t *tile, const int8_t *a, const int low, const int high)
{
    const __m256i nibble = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    QK_UNROLL
    for (int g = 0; g < 4; g++) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(tile + 64 * g));
        if (low)
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_and_si256(v, nibble), QK_TIER(four)(a + 4 * g)));
        if (high)
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(v, 4), nibble), QK_TIER(four)(a + 16 + 4 * g)));
    }
    return _mm256_madd_epi16(sum, one);
}

static inline __attribute__((always_inline)) __m256i QK_TIER(half_dot2)(const uint8_t *tile, const int8_t *a, const int first, const int last)
{
    const __m256i field = _mm256_set1_epi8(3), one = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    QK_UNROLL
    for (int g = first; g < last; g++) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(tile + 64 * (g / 4)));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(v, 2 * (g % 4)), field), QK_TIER(four)(a + 4 * g)));
    }
    return _mm256_madd_epi16(sum, one);
}

static inline __attribute__((always_inline)) __m256i QK_TIER(half_dot8)(const uint8_t *tile, const int8_t *a, const int first, const int last)
{
    const __m256i even = _mm256_set1_epi16(0xFF);
    __m256i sum = _mm256_setzero_si256();
    QK_UNROLL
    for (int g = first; g < last; g++) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(tile + 64 * g)), b = QK_TIER(four)(a + 4 * g);
        __m256i b_even = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8), b_odd = _mm256_srai_epi16(b, 8);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_and_si256(v, even), b_even));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_srli_epi16(v, 8), b_odd));
    }
    return sum;
}

static inline __attribute__((always_inline)) __m256i QK_TIER(half_dot)(const uint8_t *tile, const int8_t *a, const int bits, const int digits,
                                                                       const int low, const int high)
{
    __m256i sum = _mm256_setzero_si256();
    QK_UNROLL
    for (int d = 0; d < digits; d++, a += QK_TILE) {
        sum = _mm256_slli_epi32(sum, 8);
        sum = _mm256_add_epi32(sum, bits == 2   ? QK_TIER(half_dot2)(tile, a, low ? 0 : 4, high ? 8 : 4)
                                    : bits == 4 ? QK_TIER(half_dot4)(tile, a, low, high)
                                                : QK_TIER(half_dot8)(tile, a, low ? 0 : 4, high ? 8 : 4));
    }
    return sum;
}

static inline __attribute__((always_inline)) void QK_TIER(tile_dot)(const uint8_t *tile, const int8_t *a, const int bits, const int digits,
                                                                    const int split, const int rows, v16i *dots)
{
    QK_UNROLL
    for (int r = 0; r < rows; r++, a += digits * QK_TILE) {
        dots[r].lo = _mm256_add_epi32(dots[r].lo, QK_TIER(half_dot)(tile, a, bits, digits, 1, !split));
        dots[r].hi = _mm256_add_epi32(dots[r].hi, QK_TIER(half_dot)(tile + 32, a, bits, digits, 1, !split));
        if (split) {
            dots[rows + r].lo = _mm256_add_epi32(dots[rows + r].lo, QK_TIER(half_dot)(tile, a, bits, digits, 0, 1));
            dots[rows + r].hi = _mm256_add_epi32(dots[rows + r].hi, QK_TIER(half_dot)(tile + 32, a, bits, digits, 0, 1));
        }
    }
}
