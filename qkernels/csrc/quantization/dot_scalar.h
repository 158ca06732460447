/* Four k of an integer product, scalar tier: the specification. a: (rows) of four unsigned bytes, width apart; panels: 16 columns of four signed,
 * panel_bytes apart; sums: (rows, panels). */
#define QK_INTEGER_ROWS 4
#define QK_INTEGER_PANELS 1

static inline void QK_TIER(dot_four)(const uint8_t *panel, int64_t panel_bytes, const uint8_t *a, int64_t width, int rows, int panels, v16i *sums)
{
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < panels; p++)
            for (int c = 0; c < 16; c++) {
                int32_t dot = 0, *sum = &sums[r * panels + p].i[c];
                for (int i = 0; i < 4; i++)
                    dot += a[r * width + i] * (int8_t)panel[p * panel_bytes + 4 * c + i];
                *sum = (int32_t)((uint32_t)*sum + (uint32_t)dot);
            }
}

/* four rows of 16 bytes to 16 columns of four, each byte xor flip */
static inline void QK_TIER(interleave)(const uint8_t *b, int64_t k_stride, uint8_t flip, uint8_t *to)
{
    for (int c = 0; c < 16; c++)
        for (int i = 0; i < 4; i++)
            to[4 * c + i] = b[i * k_stride + c] ^ flip;
}
