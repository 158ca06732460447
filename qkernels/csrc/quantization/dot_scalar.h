/* Four k of an integer product, scalar tier: the specification. a: (rows) of four unsigned bytes, width apart; panel: 16 columns of four signed. */

static inline void QK_TIER(dot_four)(const uint8_t *panel, const uint8_t *a, int64_t width, int rows, v16i *sums)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 16; c++) {
            int32_t dot = 0;
            for (int i = 0; i < 4; i++)
                dot += a[r * width + i] * (int8_t)panel[4 * c + i];
            sums[r].i[c] = (int32_t)((uint32_t)sums[r].i[c] + (uint32_t)dot);
        }
}

/* four rows of 16 bytes to 16 columns of four, each byte xor flip */
static inline void QK_TIER(interleave)(const uint8_t *b, int64_t k_stride, uint8_t flip, uint8_t *to)
{
    for (int c = 0; c < 16; c++)
        for (int i = 0; i < 4; i++)
            to[4 * c + i] = b[i * k_stride + c] ^ flip;
}
