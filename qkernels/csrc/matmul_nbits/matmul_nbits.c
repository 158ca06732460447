#include "matmul_nbits/matmul_nbits.h"

#include <omp.h>
#include <string.h>

#include "simd/scalar_float.h"

static const qk_nbits_table *const tables[QK_ISA_COUNT] = QK_TABLES_AMX(matmul_nbits);

/* What of its weights a thread keeps in its L2 while all rows pass. */
enum { WEIGHT_BYTES = 384 << 10 };

int64_t qk_nbits_scratch(const qk_nbits *w, int activations, int64_t m) { return m * w->k_tiles * qk_nbits_record(activations, w->block_size == 16); }

static void share(const qk_nbits_table *table, const qk_nbits_args *args, int thread, int threads)
{
    const qk_nbits *w = args->w;
    int64_t first = w->groups * thread / threads, last = w->groups * (thread + 1) / threads;
    int64_t step = qk_max(1, WEIGHT_BYTES / qk_max(1, w->k_tiles * 64 * w->bits));
    for (; first < last; first += step)
        table->multiply(args, first, qk_min(first + step, last));
}

/* prefetchnta leaves the outer caches to others. On AMD's cores a step gains by it; on Intel's it halves the rate of reading. */
static int past_caches(void)
{
#if QK_X86
    return __builtin_cpu_is("amd") != 0;
#else
    return 0;
#endif
}

void qk_nbits_matmul(int isa, int threads, const qk_nbits_args *given)
{
    const qk_nbits_table *table = tables[isa];
    qk_nbits_args filled = *given, *args = &filled;
    args->past_caches = past_caches();
    if (threads == 1 || args->m == 1)
        table->prepare(args, 0, args->m, args->rows);
    if (threads == 1) {
        share(table, args, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        if (args->m > 1) {
            table->prepare(args, args->m * t / n, args->m * (t + 1) / n, args->rows + t * qk_nbits_row_floats(args->w->k));
#pragma omp barrier
        }
        share(table, args, t, n);
    }
}

int qk_nbits_quantize(int isa, int threads, const qk_nbits *w, const qk_nbits_part *parts, int dtype, int rounding)
{
    int bad = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : bad) if (threads > 1)
    for (int t = 0; t < threads; t++)
        bad |= tables[isa]->quantize(w, parts, dtype, rounding, w->groups * t / threads, w->groups * (t + 1) / threads);
    return bad;
}

/* Where the code of (column, k) lies: its byte, and its shift in it. */
static int64_t code_at(const qk_nbits *w, int64_t column, int64_t k, int *shift)
{
    int64_t group = column / QK_COLUMNS, j = column % QK_COLUMNS, tile = (group * w->k_tiles + k / QK_TILE) * (64 * w->bits), within = k % QK_TILE;
    *shift = w->bits == 2 ? within % 16 / 4 * 2 : w->bits == 4 ? within / 16 * 4 : 0;
    int64_t vector = w->bits == 2 ? within / 16 : w->bits == 4 ? within % 16 / 4 : within / 4;
    return tile + vector * 64 + 4 * j + within % 4;
}

static int64_t block_at(const qk_nbits *w, int64_t column, int64_t block)
{
    return (column / QK_COLUMNS * w->blocks + block) * QK_COLUMNS + column % QK_COLUMNS;
}

static uint8_t element(const uint8_t *p, int64_t at, int bits) { return bits == 8 ? p[at] : (uint8_t)(p[at * bits / 8] >> (at * bits & 7)); }

/* The part of pack for columns whose codes lie along K in whole bytes: a tile at a time. Returns how many k are done. */
static int64_t pack_tiles(const qk_nbits *w, const qk_nbits_source *s, int64_t column)
{
    int64_t bytes = QK_TILE * w->bits / 8, tiles = w->k / QK_TILE;
    if (w->bits == 2 || s->code_bits != w->bits || s->code_k != 1 || s->order || s->code_column * w->bits % 8)
        return 0;
    const uint8_t *from = s->codes + column * s->code_column * w->bits / 8;
    uint8_t *to = w->tiles + column / QK_COLUMNS * w->k_tiles * 64 * w->bits + 4 * (column % QK_COLUMNS);
    uint64_t flip = (uint64_t)s->flip * (w->bits == 4 ? 0x1111111111111111 : 0x0101010101010101), low = 0x0F0F0F0F0F0F0F0F;
    for (int64_t t = 0; t < tiles; t++, from += bytes, to += 64 * w->bits) {
        uint64_t q[4];
        uint8_t out[32];
        memcpy(q, from, (size_t)bytes);
        if (w->bits == 8)
            for (int i = 0; i < 4; i++)
                q[i] ^= flip;
        else { /* of codes 2 j and 2 j + 1 in a byte to j and j + 16 */
            uint64_t even = ((q[0] ^ flip) & low) | ((q[1] ^ flip) & low) << 4, odd = ((q[0] ^ flip) >> 4 & low) | ((q[1] ^ flip) & ~low);
            for (int i = 0; i < 8; i++) {
                out[2 * i] = (uint8_t)(even >> 8 * i);
                out[2 * i + 1] = (uint8_t)(odd >> 8 * i);
            }
        }
        for (int g = 0; g < w->bits; g++)
            memcpy(to + 64 * g, (w->bits == 8 ? (const uint8_t *)q : out) + 4 * g, 4);
    }
    return tiles * QK_TILE;
}

void qk_nbits_pack(int threads, const qk_nbits *w, const qk_nbits_source *s)
{
    int64_t blocks = qk_ceil_div(w->k, w->block_size), tile_bytes = 64 * w->bits, size = qk_itemsize(w->scale_dtype);
    int64_t zero_size = w->zp_kind == QK_ZP_U8 ? 1 : 4;
    int mask = (1 << w->bits) - 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t group = 0; group < w->groups; group++) {
        int64_t first = group * QK_COLUMNS, last = qk_min(w->n, first + QK_COLUMNS);
        memset(w->tiles + group * w->k_tiles * tile_bytes, 0, (size_t)(w->k_tiles * tile_bytes));
        memset((char *)w->scales + group * w->blocks * QK_COLUMNS * size, 0, (size_t)(w->blocks * QK_COLUMNS * size));
        if (w->zp_kind)
            memset((char *)w->zero_points + group * w->blocks * QK_COLUMNS * zero_size, 0, (size_t)(w->blocks * QK_COLUMNS * zero_size));
        int64_t done = 0;
        for (int64_t column = first; column < last; column++)
            done = pack_tiles(w, s, column);
        for (int64_t k = done; k < w->k; k++) {
            int shift;
            int64_t from = s->order ? s->order[k] : k;
            uint8_t *at = w->tiles + code_at(w, first, k, &shift);
            for (int64_t column = first; from >= 0 && column < last; column++, at += 4)
                *at |= (uint8_t)(((element(s->codes, column * s->code_column + from * s->code_k, s->code_bits) ^ s->flip) & mask) << shift);
        }
        for (int64_t block = 0; block < blocks; block++) {
            int64_t from = s->blocks ? s->blocks[block] : block, at = block_at(w, first, block);
            for (int64_t column = first; column < last; column++, at++) {
                memcpy((char *)w->scales + at * size, (const char *)s->scales + (column * s->scale_column + from * s->scale_block) * size,
                       (size_t)size);
                if (w->zp_kind == QK_ZP_F32)
                    ((float *)w->zero_points)[at] = ((const float *)s->zeros)[column * s->zero_column + from * s->zero_block];
                else if (w->zp_kind == QK_ZP_U8)
                    ((uint8_t *)w->zero_points)[at] =
                        (uint8_t)((element((const uint8_t *)s->zeros, column * s->zero_column + from * s->zero_block, s->zero_bits) ^ s->flip) &
                                  mask);
            }
        }
    }
}

void qk_nbits_unpack(int threads, const qk_nbits *w, uint8_t *b, void *scales, uint8_t *zero_points_u8, float *zero_points_f32)
{
    int64_t blocks = qk_ceil_div(w->k, w->block_size), row_bytes = blocks * w->block_size * w->bits / 8;
    int64_t zp_bytes = qk_ceil_div(blocks * w->bits, 8), size = qk_itemsize(w->scale_dtype);
    int mask = (1 << w->bits) - 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t column = 0; column < w->n; column++) {
        memset(b + column * row_bytes, 0, (size_t)row_bytes);
        if (zero_points_u8)
            memset(zero_points_u8 + column * zp_bytes, 0, (size_t)zp_bytes);
        for (int64_t k = 0; k < w->k; k++) {
            int shift;
            int64_t at = code_at(w, column, k, &shift);
            b[column * row_bytes + k * w->bits / 8] |= (uint8_t)((w->tiles[at] >> shift & mask) << (k * w->bits & 7));
        }
        for (int64_t block = 0; block < blocks; block++) {
            int64_t at = block_at(w, column, block);
            memcpy((char *)scales + (column * blocks + block) * size, (const char *)w->scales + at * size, (size_t)size);
            if (zero_points_f32)
                zero_points_f32[column * blocks + block] = ((const float *)w->zero_points)[at];
            if (zero_points_u8)
                zero_points_u8[column * zp_bytes + block * w->bits / 8] |= (uint8_t)(((const uint8_t *)w->zero_points)[at] << (block * w->bits & 7));
        }
    }
}

void qk_nbits_take_rows(int threads, const qk_nbits *w, const int64_t *rows, int64_t count, float *y)
{
    int mask = (1 << w->bits) - 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t r = 0; r < count; r++)
        for (int64_t k = 0; k < w->k; k++) {
            int shift;
            int64_t at = code_at(w, rows[r], k, &shift), block = block_at(w, rows[r], k / w->block_size);
            float zero = w->zp_kind == QK_ZP_F32  ? ((const float *)w->zero_points)[block]
                         : w->zp_kind == QK_ZP_U8 ? (float)((const uint8_t *)w->zero_points)[block]
                                                  : (float)(1 << (w->bits - 1));
            y[r * w->k + k] = ((float)(w->tiles[at] >> shift & mask) - zero) * qk_load_scalar(w->scale_dtype, w->scales, block);
        }
}
