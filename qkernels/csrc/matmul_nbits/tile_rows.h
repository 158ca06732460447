/* Integer products of 16 rows by tile registers, AMX.
 *
 * A tile register holds 16 rows of up to 64 bytes. tdpbsud multiplies rows of signed bytes (activations: 16 rows of 32 k, as they lie) by 8 rows of
 * 16 columns of four unsigned bytes (weights, unpacked) and adds into 16 rows of 16 sums of 32 bits; nothing saturates. What the sums become is the other
 * tiers', to the bit.
 *
 * Weights are unpacked for many rows and many k at once: a load of a tile waits for stores right before it. The products of a tile run beside the
 * additions of the one before. Registers: 0 activations, 1 weights, 2 and 3 the sums of the digits. */
enum { QK_TIER(STRIP) = 32, QK_TIER(STRIP_ROWS) = 128 }; /* tiles of k unpacked together, and rows that share them */

typedef struct {
    _Alignas(64) uint8_t weights[QK_TIER(STRIP)][8][64];
    _Alignas(64) v16 y[QK_TIER(STRIP_ROWS)];
    _Alignas(64) int32_t sums[2][16][16]; /* by digit */
} QK_TIER(strip);

/* The operands of an unpacked tile for the activations' high or only digit; then the products with them and with the low digit. */
static inline __attribute__((always_inline)) void QK_TIER(tile_load)(const uint8_t *weights, const char *a, const int digits)
{
    _tile_loadd(1, weights, 64);
    _tile_loadd(0, a, digits * QK_TILE);
}

static inline __attribute__((always_inline)) void QK_TIER(tile_multiply)(const char *a, const int digits)
{
    _tile_zero(2);
    _tile_dpbsud(2, 0, 1);
    if (digits == 2) {
        _tile_loadd(0, a + QK_TILE, 2 * QK_TILE);
        _tile_zero(3);
        _tile_dpbsud(3, 0, 1);
    }
}

/* The strip's tiles t_first..t_last-1 for 16 rows, whose records begin at a, on top of y. One tile ahead: its operands are loaded before the sums of the
 * one before are stored, since loads may wait for stores that come earlier. */
static inline __attribute__((always_inline)) void QK_TIER(strip_rows)(QK_TIER(strip) * strip, const qk_nbits *w, const char *a, int64_t group,
                                                                      int64_t t_first, int64_t t_last, const int digits, const int symmetric, v16 *to)
{
    const int64_t record_bytes = 16 * qk_nbits_record(digits, 0);
    v16 y[16];
    QK_UNROLL
    for (int r = 0; r < 16; r++)
        y[r] = to[r];
    a += t_first * record_bytes;
    QK_TIER(tile_load)(strip->weights[0][0], a, digits);
    QK_TIER(tile_multiply)(a, digits);
    for (int64_t t = t_first; t < t_last; t++, a += record_bytes) {
        if (t + 1 < t_last)
            QK_TIER(tile_load)(strip->weights[t + 1 - t_first][0], a + record_bytes, digits);
        _tile_stored(2, strip->sums[0], 64);
        if (digits == 2)
            _tile_stored(3, strip->sums[1], 64);
        if (t + 1 < t_last)
            QK_TIER(tile_multiply)(a + record_bytes, digits);
        QK_TIER(record) record = QK_TIER(record_at)(a, digits, 0, 16);
        int64_t at = QK_TIER(block_of)(w, group, t);
        v16 scale = QK_TIER(block_scale)(w, at), zero = symmetric ? v16_zero() : QK_TIER(block_zero)(w, at);
        QK_UNROLL
        for (int r = 0; r < 16; r++) {
            v16i sum = v16i_load(strip->sums[0][r]);
            if (digits == 2)
                sum = v16i_add(v16i_shl(sum, 8), v16i_load(strip->sums[1][r]));
            v16 dot =
                symmetric ? v16i_to_f(v16i_add(sum, v16i_set1(record.sums[r]))) : v16_fnma(zero, v16_set1((float)record.sums[r]), v16i_to_f(sum));
            y[r] = v16_fma(dot, v16_mul(scale, v16_set1(record.scales[r])), y[r]);
        }
    }
    QK_UNROLL
    for (int r = 0; r < 16; r++)
        to[r] = y[r];
}

/* Rows from the first on that tile registers multiply; the rest is left. */
static inline __attribute__((always_inline)) int64_t QK_TIER(tile_rows)(const qk_nbits_args *args, int64_t g_first, int64_t g_last, const int bits,
                                                                        const int digits, const int split)
{
    const qk_nbits *w = args->w;
    int64_t rows = digits && !split ? args->m / 16 * 16 : 0;
    if (!rows)
        return 0;
    const qk_tile_shapes shapes = {.palette = 1, .row_bytes = {32, 64, 64, 64}, .rows = {16, 8, 16, 16}};
    QK_TIER(strip) strip;
    _tile_loadconfig(&shapes);
    for (int64_t m_first = 0, m_last; m_first < rows; m_first = m_last) {
        m_last = qk_min(rows, m_first + QK_TIER(STRIP_ROWS));
        for (int64_t group = g_first; group < g_last; group++) {
            for (int64_t r = 0; r < m_last - m_first; r++)
                strip.y[r] = v16_zero();
            for (int64_t t_first = 0, t_last; t_first < w->k_tiles; t_first = t_last) {
                const uint8_t *tile = w->tiles + (group * w->k_tiles + t_first) * (64 * bits);
                t_last = qk_min(w->k_tiles, t_first + QK_TIER(STRIP));
                for (int64_t t = t_first; t < t_last; t++, tile += 64 * bits) {
                    v16i operands[8];
                    QK_TIER(operands)(tile, bits, operands);
                    QK_UNROLL
                    for (int g = 0; g < 8; g++)
                        v16i_store(strip.weights[t - t_first][g], operands[g]);
                }
                for (int64_t m = m_first; m < m_last; m += 16) {
                    const char *a = args->scratch + m * w->k_tiles * qk_nbits_record(digits, 0);
                    if (w->zp_kind == QK_ZP_DEFAULT)
                        QK_TIER(strip_rows)(&strip, w, a, group, t_first, t_last, digits, 1, strip.y + (m - m_first));
                    else
                        QK_TIER(strip_rows)(&strip, w, a, group, t_first, t_last, digits, 0, strip.y + (m - m_first));
                }
            }
            for (int64_t m = m_first; m < m_last; m += 16)
                QK_TIER(finish_rows)(args, m, group, 16, strip.y + (m - m_first));
        }
    }
    _tile_release();
    return rows;
}
