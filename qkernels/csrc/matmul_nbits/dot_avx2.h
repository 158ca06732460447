/* Integer dot products of one tile, AVX2.
 *
 * vpmaddubsw adds two products u8 * s8 into 16 bits. With weights of at most 15 a pair is at most 15 * 128 * 2 = 3840 in size, and eight of
 * them, a whole tile's, 30720: nothing saturates, so one vpmaddwd a tile widens them, times what the digit and the plane weigh. Weights of
 * 8 bits, whose pairs would saturate, are two planes of 4 bits.
 *
 * An operand of four k is unpacked, used for some rows and forgotten: their sums, not the tile, stay in the 16 registers. Compilers would add
 * in another order, and carry operands over on the stack; QK_OPAQUE hides a value's origin from them. */
#define QK_OPAQUE(constraint, value) __asm__("" : constraint(value))

/* Planes of four k of 8 columns: k 4 g and on, weights at tile, a vector of 64 bytes apart. */
static inline __attribute__((always_inline)) void QK_TIER(operand)(const uint8_t *tile, const int bits, const int g, __m256i *w)
{
    const __m256i nibble = _mm256_set1_epi8(15), field = _mm256_set1_epi8(3);
    __m256i v = _mm256_loadu_si256((const __m256i *)(tile + 64 * (bits == 2 ? g / 4 : bits == 4 ? g % 4 : g)));
    if (bits == 2)
        w[0] = _mm256_and_si256(_mm256_srli_epi16(v, 2 * (g % 4)), field);
    else if (bits == 4)
        w[0] = _mm256_and_si256(g < 4 ? v : _mm256_srli_epi16(v, 4), nibble);
    else {
        w[0] = _mm256_and_si256(v, nibble);
        w[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
    }
}

/* sums of 8 columns over operands first..last-1, for `rows` rows */
static inline __attribute__((always_inline)) void QK_TIER(half_dot)(const uint8_t *tile, const int8_t *a, const int bits, const int digits,
                                                                    const int first, const int last, const int rows, __m256i *sums)
{
    const int planes = bits == 8 ? 2 : 1;
    __m256i pairs[8], w[2];
    QK_UNROLL
    for (int i = 0; i < rows * digits * planes; i++)
        pairs[i] = _mm256_setzero_si256();
    QK_UNROLL
    for (int g = first; g < last; g++) {
        QK_TIER(operand)(tile, bits, g, w);
        QK_UNROLL
        for (int r = 0; r < rows * digits; r++) {
            int32_t four;
            memcpy(&four, a + r * QK_TILE + 4 * g, 4);
            __m256i b = _mm256_set1_epi32(four);
            QK_UNROLL
            for (int p = 0; p < planes; p++) {
                pairs[r * planes + p] = _mm256_add_epi16(pairs[r * planes + p], _mm256_maddubs_epi16(w[p], b));
                QK_OPAQUE("+x", pairs[r * planes + p]);
            }
        }
    }
    QK_UNROLL
    for (int r = 0; r < rows; r++) {
        sums[r] = _mm256_setzero_si256();
        QK_UNROLL
        for (int i = 0; i < digits * planes; i++) {
            int weight = (i / planes < digits - 1 ? 256 : 1) * (i % planes ? 16 : 1);
            sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs[r * digits * planes + i], _mm256_set1_epi16((int16_t)weight)));
        }
    }
}

/* The same of all 16 columns, on top of dots. */
static inline __attribute__((always_inline)) void QK_TIER(some_dots)(const uint8_t *tile, const int8_t *a, const int bits, const int digits,
                                                                     const int first, const int last, const int rows, v16i *dots)
{
    const uint8_t *right = tile + 32;
    __m256i sums[8];
    QK_OPAQUE("+r", tile);
    QK_OPAQUE("+r", a);
    QK_TIER(half_dot)(tile, a, bits, digits, first, last, rows, sums);
    QK_UNROLL
    for (int r = 0; r < rows; r++)
        dots[r].lo = _mm256_add_epi32(dots[r].lo, sums[r]);
    QK_OPAQUE("+r", right);
    QK_OPAQUE("+r", a);
    QK_TIER(half_dot)(right, a, bits, digits, first, last, rows, sums);
    QK_UNROLL
    for (int r = 0; r < rows; r++)
        dots[r].hi = _mm256_add_epi32(dots[r].hi, sums[r]);
}

static inline __attribute__((always_inline)) void QK_TIER(tile_dot)(const uint8_t *tile, const int8_t *a, const int bits, const int digits,
                                                                    const int split, const int rows, v16i *dots)
{
    const int most = 8 / (digits * (bits == 8 ? 2 : 1));
    QK_UNROLL
    for (int r = 0; r < rows; r += most) {
        const int together = rows - r < most ? rows - r : most;
        const int8_t *from = a + r * digits * QK_TILE;
        QK_TIER(some_dots)(tile, from, bits, digits, 0, split ? 4 : 8, together, dots + r);
        if (split)
            QK_TIER(some_dots)(tile, from, bits, digits, 4, 8, together, dots + rows + r);
    }
}
