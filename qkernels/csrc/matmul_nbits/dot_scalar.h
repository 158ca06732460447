/* Integer dot products of one tile, scalar tier: the specification. */

static inline void QK_TIER(tile_dot)(const uint8_t *tile, const int8_t *a, int bits, int digits, int split, int rows, v16i *dots)
{
    for (int r = 0; r < rows; r++, a += digits * QK_TILE)
        for (int k = 0; k < QK_TILE; k++) {
            int32_t value = digits == 2 ? 256 * a[k] + a[QK_TILE + k] : a[k];
            v16i *dot = &dots[split && k >= 16 ? rows + r : r];
            for (int j = 0; j < QK_COLUMNS; j++) {
                int code = bits == 2   ? tile[k / 16 * 64 + 4 * j + k % 4] >> k % 16 / 4 * 2 & 3
                           : bits == 8 ? tile[k / 4 * 64 + 4 * j + k % 4]
                                       : tile[k % 16 / 4 * 64 + 4 * j + k % 4] >> (k < 16 ? 0 : 4) & 15;
                dot->i[j] += code * value;
            }
        }
}
