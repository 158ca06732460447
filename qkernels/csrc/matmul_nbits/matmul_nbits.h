/* Products with block-quantized weights: y = a · w^T (+ bias), w (N, K) in 2, 4 or 8 bits with a scale, and a zero point, per block along K.
 *
 * Packed layout, the same for every tier. Columns (outputs) come in groups of 16, k in tiles of 32:
 *
 *   2 bits   a tile is 2 vectors of 64 bytes. Byte 4 j + i of vector g holds column j: k = 16 g + 4 f + i in its bits 2 f and 2 f + 1.
 *            Masks and shifts turn each vector into 4 operands of a four-byte dot product.
 *   4 bits   a tile is 4 vectors of 64 bytes. Byte 4 j + i of vector g holds column j: k = 4 g + i in the low nibble and
 *            k = 16 + 4 g + i in the high one. A mask and a shift turn the tile into 8 operands of a four-byte dot product.
 *   8 bits   a tile is 8 vectors of 64 bytes. Byte 4 j + i of vector g holds column j, k = 4 g + i.
 *
 * Weights are unsigned; the zero point enters as -zero_point * sum(a). Scales are (groups, blocks, 16) in float32, float16 or bfloat16,
 * whichever loses nothing; zero points likewise as bytes or float32, or absent for 2^(bits - 1). Where N or K is no multiple,
 * columns are padded with scale 0 and k with activations 0.
 *
 * Activations, per row and block of 32 (16 where the weights' blocks have 16), are
 *   f32     as they are: a block's sum is two fma chains, k 0..15 and 16..31, added; then one fma with the scale;
 *   int8    round(a / s) in -127..127 with s = max|a| / 127;
 *   int16   round(a / s) in -32512..32512, as two int8 digits 256 h + l: integer products at the precision of the digits' pair.
 * The integer dot product of a block is exact; then y = fma(dot, s_a * s_w, y), blocks in order. So every tier gives the same bits. */
#ifndef QK_MATMUL_NBITS_H
#define QK_MATMUL_NBITS_H

#include "rows/prologue.h"
#include "simd/tiers.h"

enum { QK_COLUMNS = 16, QK_TILE = 32 };
enum qk_activations { QK_ACT_F32 = 0, QK_ACT_INT8 = 1, QK_ACT_INT16 = 2 }; /* the value is the number of int8 digits */
enum qk_zero_points { QK_ZP_DEFAULT = 0, QK_ZP_U8 = 1, QK_ZP_F32 = 2 };
enum qk_rounding { QK_SYMMETRIC_FULL = 0, QK_SYMMETRIC_ABS = 1, QK_ASYMMETRIC = 2 };
enum qk_quantized { QK_NOT_FINITE = 1, QK_SCALES_ROUNDED = 2 }; /* bits: a weight is not finite; a scale is no bfloat16 */

typedef struct {
    uint8_t *tiles;    /* (groups, tiles, 64 * bits) */
    void *scales;      /* (groups, blocks, 16) of scale_dtype */
    void *zero_points; /* (groups, blocks, 16) of zp_kind, null for the default */
    int bits, scale_dtype, zp_kind;
    int64_t n, k, block_size;        /* block_size: a power of two >= 16, or any number >= k for one block */
    int64_t groups, k_tiles, blocks; /* blocks of one column; for block_size 16 rounded up to whole tiles */
} qk_nbits;

typedef struct {
    const qk_nbits *w;
    const void *a;        /* (m, k) of dtype, or what the prologue makes that of */
    const void *bias;     /* (n) of dtype, or null */
    const void *residual; /* (m, n) of dtype, or null; may be y */
    void *y;              /* (m, n) of dtype */
    int dtype, activations;
    int64_t m;
    int past_caches; /* the driver's: fetch weights ahead past the outer caches */
    qk_prologue prologue;
    char *scratch; /* qk_nbits_scratch bytes, aligned to 64 */
    float *rows;   /* with a prologue: qk_nbits_row_floats for each thread */
} qk_nbits_args;

/* Bytes of a row's share of a tile of prepared activations: 32 floats, or digits x 32 int8, a scale and a sum for each part (32 k; `split`:
 * twice 16 k). Rows lie together in chunks of as many as a kernel takes at once, the chunk's tiles one after the other; in a tile the values
 * row by row, then the scales, then the sums, both by part and row. A sum is that of the integers, times -2^(bits - 1) where zero points are
 * the default. */
static inline int qk_nbits_record(int digits, int split) { return digits ? digits * QK_TILE + (8 << split) : 4 * QK_TILE; }

/* One source of weight rows for quantization; several are stacked along N. */
typedef struct {
    const void *rows; /* (n, k) of dtype */
    int64_t n;
} qk_nbits_part;

/* Weights to pack. Strides count elements; codes and byte zero points have one each `bits` bits, the first in a byte's lowest. */
typedef struct {
    const uint8_t *codes;     /* element column * code_column + k * code_k */
    const void *scales;       /* of scale_dtype: column * scale_column + block * scale_block */
    const void *zeros;        /* bytes or float32 as zp_kind says: column * zero_column + block * zero_block */
    const int64_t *order;     /* (k): where packed k comes from, -1 for nowhere; null for k itself */
    const int64_t *blocks;    /* (blocks): where a packed block's scale comes from; null for the block itself */
    int code_bits, zero_bits; /* bits that an element takes: w->bits, or 8 */
    int flip;                 /* xor of codes and zero points: 2^(bits - 1) makes signed ones unsigned */
    int64_t code_column, code_k, scale_column, scale_block, zero_column, zero_block;
} qk_nbits_source;

typedef struct {
    void (*prepare)(const qk_nbits_args *args, int64_t first, int64_t last, float *row);
    void (*multiply)(const qk_nbits_args *args, int64_t g_first, int64_t g_last); /* all rows with some groups of columns */
    int (*quantize)(const qk_nbits *w, const qk_nbits_part *parts, int dtype, int rounding, int64_t g_first, int64_t g_last);
} qk_nbits_table;

QK_DECLARE_TABLES_AMX(qk_nbits_table, matmul_nbits);

/* Of a prologue's row, which begins at a cache line. */
static inline int64_t qk_nbits_row_floats(int64_t k) { return (k + 15) / 16 * 16; }
int64_t qk_nbits_scratch(const qk_nbits *w, int activations, int64_t m);
void qk_nbits_matmul(int isa, int threads, const qk_nbits_args *args);
/* Quantize and pack the stacked rows of parts; scales are float32 or bfloat16. Returns bits of qk_quantized. */
int qk_nbits_quantize(int isa, int threads, const qk_nbits *w, const qk_nbits_part *parts, int dtype, int rounding);
void qk_nbits_pack(int threads, const qk_nbits *w, const qk_nbits_source *source);
/* To the serialized form: b (n, blocks, block_size * bits / 8), scales (n, blocks), zero points packed in rows of whole bytes. */
void qk_nbits_unpack(int threads, const qk_nbits *w, uint8_t *b, void *scales, uint8_t *zero_points_u8, float *zero_points_f32);
void qk_nbits_take_rows(int threads, const qk_nbits *w, const int64_t *rows, int64_t count, float *y);

#endif
