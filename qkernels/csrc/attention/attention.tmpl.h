/* The body of attention, once for all tiers; attention.h states the numerics. Tiles (how many rows and keys or columns are held in
 * registers at once) depend on the tier and on what is left to do; no result depends on them, since each score and each o[d] is its own
 * chain of additions. */
#include "attention/attention.h"
#include "rotary/rotary_row.h"

#include <math.h>

#define QK_TILED static inline __attribute__((always_inline))
/* clang-format off */
#if V16_ACCUMULATORS > 1
#define QK_EACH QK_UNROLL for /* over a tile in registers */
#else
#define QK_EACH for
#endif
/* clang-format on */
#if V16_ACCUMULATORS == 4 /* gcc's allocator must be told: hold an operand in its two registers, keep finished sums out of them */
#define QK_HOLD(a) __asm__("" : "+x"((a).lo), "+x"((a).hi))
#define QK_TO_MEMORY(a) __asm__ volatile("" : : "r"(a) : "memory")
#else
#define QK_HOLD(a) (void)(a)
#define QK_TO_MEMORY(a) (void)(a)
#endif

enum { QK_PIECE = QK_ATTENTION_PIECE, QK_ROWS = QK_ATTENTION_ROWS, QK_TURN_ROWS = 12 /* for which transposing keys pays */ };

/* One thread's working memory; strides are padded to 16 and the padding of q and k is zero. */
typedef struct {
    float *q;                                 /* (rows, d), rows up to QK_ROWS */
    float *s;                                 /* (rows, QK_PIECE): scores, then probabilities */
    float *o;                                 /* (rows, dv) of one piece */
    float *total;                             /* (rows, dv) of the pieces so far */
    float *k, *v;                             /* (QK_PIECE, d), (QK_PIECE, dv): widened */
    float *m, *l, *m_total, *l_total;         /* (rows) */
    int64_t d, dv;                            /* padded */
    int lo[QK_ROWS], hi[QK_ROWS];             /* the keys of the piece that a row sees */
    float q_scale[QK_ROWS], p_scale[QK_ROWS]; /* of rows of codes */
    float p_largest[QK_ROWS];                 /* of a row's probabilities, of which p_scale is made */
    const uint8_t *blocks[QK_ROWS];           /* of the piece that a row sees; null: all */
} qk_attention_work;

/* What is wanted next, fetched into the second-level cache row by row while the present keys are worked on: the values of this piece
 * during its scores, the keys of the next piece during its values. Not where the tiles read in the order in which memory lies: there hardware
 * fetches ahead, and better. */
typedef struct {
    const char *p;
    int64_t stride, bytes; /* of a row */
    int rows;
} qk_attention_ahead;

static inline int QK_TIER(in_order)(const qk_attention_work *w, int rows)
{
    return V16_ACCUMULATORS == 16 && rows <= 4 && (w->d == 128 || w->d == 64) && w->dv <= 128;
}

/* inlined by force: of a function that only prefetches, gcc drops the calls */
QK_TILED void QK_TIER(fetch)(const qk_attention_ahead *ahead, int first, int last)
{
    int64_t rows = qk_min(last, ahead->rows) - first, bytes = ahead->bytes;
    const char *p = ahead->p + first * ahead->stride;
    if (bytes == ahead->stride) /* one run of lines */
        bytes *= rows, rows = qk_min(rows, 1);
    for (; rows > 0; rows--, p += ahead->stride)
        for (int64_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(p + i, 0, 2);
}

static qk_attention_work QK_TIER(attention_work)(const qk_attention_args *a, float *p)
{
    qk_attention_work w; /* not set to zero: this is a step's time for a few keys */
    int64_t rows = qk_attention_held(a);
    w.d = qk_attention_pad(a->d);
    w.dv = qk_attention_pad(a->dv);
    w.q = p;
    w.s = w.q + rows * w.d;
    w.o = w.s + rows * QK_PIECE;
    w.total = w.o + rows * w.dv;
    w.k = w.total + rows * w.dv;
    w.v = w.k + QK_PIECE * w.d;
    w.m = w.v + QK_PIECE * w.dv;
    w.l = w.m + rows;
    w.m_total = w.l + rows;
    w.l_total = w.m_total + rows;
    return w;
}

static inline const void *QK_TIER(at)(const void *p, int dtype, int64_t element) { return (const char *)p + qk_cache_bytes(dtype, element); }

static inline const float *QK_TIER(scales)(const float *scales, int64_t at) { return scales ? scales + at : NULL; }

/* of an array with these strides the row of query `row` of a head */
static inline const void *QK_TIER(token)(const qk_attention_args *a, const void *p, int dtype, int64_t b, int64_t head, int64_t row,
                                         int64_t batch_stride, int64_t head_stride, int64_t row_stride)
{
    return QK_TIER(at)(p, dtype, (a->starts ? a->starts[b] * row_stride : b * batch_stride) + head * head_stride + row * row_stride);
}

/* 16 codes of a cache as floats, n of them there */
static inline v16 QK_TIER(load_codes)(const void *x, int dtype, int n)
{
    uint8_t bytes[16] = {0};
    if (dtype == QK_CACHE_I8) {
        if (n < 16)
            x = memcpy(bytes, x, (size_t)n);
        return v16i_to_f(v16i_load_i8(x));
    }
    for (int i = 0; i < n; i++)
        bytes[i] = ((const uint8_t *)x)[i / 2] >> 4 * (i % 2) & 15;
    return v16i_to_f(v16i_sub(v16i_load_u8(bytes), v16i_set1(8)));
}

/* 16 elements of keys or values in the type that a tile reads */
QK_TILED v16 QK_TIER(load_element)(const int dtype, const void *p)
{
    return dtype == QK_CACHE_I8 ? v16i_to_f(v16i_load_i8(p)) : v16_load_as(dtype, p, 16);
}

QK_TILED void QK_TIER(widen_vectors)(const int dtype, const char *x, int64_t stride, float *y, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++, x += qk_cache_bytes(dtype, stride), y += n)
        for (int64_t c = 0; c < n; c += 16)
            v16_store(y + c, QK_TIER(load_element)(dtype, x + qk_cache_bytes(dtype, c)));
}

/* (rows, n) of any type, codes by their scales, to float32 rows of n padded to 16 with zeros */
static void QK_TIER(widen)(const void *x, int dtype, int64_t stride, const float *scale, float *y, int64_t rows, int64_t n)
{
    if (!scale && n % 16 == 0 && dtype != QK_CACHE_U4) {
        /* clang-format off */
        switch (dtype) {
        case QK_F32: QK_TIER(widen_vectors)(QK_F32, x, stride, y, rows, n); break;
        case QK_F16: QK_TIER(widen_vectors)(QK_F16, x, stride, y, rows, n); break;
        case QK_BF16: QK_TIER(widen_vectors)(QK_BF16, x, stride, y, rows, n); break;
        default: QK_TIER(widen_vectors)(QK_CACHE_I8, x, stride, y, rows, n);
        }
        /* clang-format on */
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c += 16) {
            const void *from = QK_TIER(at)(x, dtype, r * stride + c);
            int left = (int)qk_min(16, n - c);
            v16 v = dtype > QK_BF16 ? QK_TIER(load_codes)(from, dtype, left) : v16_load_as(dtype, from, left);
            if (scale)
                v = v16_mul(v, v16_load_as(QK_F32, scale + c, left));
            v16_store(y + r * qk_attention_pad(n) + c, v);
        }
}

/* 16 codes of which n are there, as int32 */
static inline v16i QK_TIER(load_bytes)(const int8_t *x, int64_t n)
{
    int8_t bytes[16] = {0};
    return v16i_load_i8(n >= 16 ? x : memcpy(bytes, x, (size_t)qk_max(0, n)));
}

/* (rows, n) bytes as int16 rows of n padded to 32 with zeros */
static void QK_TIER(widen_codes)(const int8_t *x, int64_t stride, int16_t *y, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++, x += stride, y += qk_attention_pad_codes(n))
        for (int64_t c = 0; c < qk_attention_pad_codes(n); c += 16)
            v16i_store_u16(y + c, QK_TIER(load_bytes)(x + c, n - c));
}

/* (rows, n) bytes as pairs (x[2 r][c], x[2 r + 1][c]) of int16: rows / 2 rows, rounded up, of n padded to 16 pairs, with zeros */
static void QK_TIER(widen_pairs)(const int8_t *x, int64_t stride, int32_t *y, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r += 2, x += 2 * stride, y += qk_attention_pad(n))
        for (int64_t c = 0; c < n; c += 16) {
            v16i low = QK_TIER(load_bytes)(x + c, n - c), high = r + 1 < rows ? QK_TIER(load_bytes)(x + stride + c, n - c) : v16i_set1(0);
            v16i_store(y + c, v16i_or(v16i_and(low, v16i_set1(0xFFFF)), v16i_shl(high, 16)));
        }
}

/* n floats into a cache of any type; x is padded to 16 */
static void QK_TIER(narrow)(const float *x, int dtype, const float *scale, void *y, int64_t n)
{
    float limit = dtype == QK_CACHE_I8 ? 128 : 8;
    uint8_t codes[16];
    for (int64_t c = 0; c < n; c += 16) {
        int left = (int)qk_min(16, n - c);
        char *to = (char *)QK_TIER(at)(y, dtype, c);
        if (dtype <= QK_BF16) {
            v16_store_as(dtype, to, v16_load(x + c), left);
            continue;
        }
        v16 q = v16_round(v16_div(v16_load(x + c), v16_load_as(QK_F32, scale + c, left)));
        q = v16_min(v16_max(q, v16_set1(-limit)), v16_set1(limit - 1));
        v16i_store_u8(codes, v16_to_i(dtype == QK_CACHE_I8 ? q : v16_add(q, v16_set1(8))));
        if (dtype == QK_CACHE_I8)
            memcpy(to, codes, (size_t)left);
        else
            for (int i = 0; i < left; i += 2)
                to[i / 2] = (char)(codes[i] | codes[i + 1] << 4);
    }
}

/* The scale of codes up to `limit`: 0 where all of them are, and NaN where one is not finite, so that it shows */
static inline float QK_TIER(scale_to)(float largest, float limit) { return largest < INFINITY ? largest / limit : NAN; }

/* of n floats */
static float QK_TIER(scale_of)(const float *x, int64_t n, float limit)
{
    v16 top = v16_zero();
    for (int64_t c = 0; c < n; c += 16) {
        v16 v = v16_abs(v16_load(x + c));
        top = v16_max(top, v16_select(v16_isnan(v), v16_set1(INFINITY), v));
    }
    return QK_TIER(scale_to)(v16_reduce_max(top), limit);
}

/* 16 floats as codes; the limit is for a scale that lost bits below the smallest normal number */
static inline v16i QK_TIER(codes)(const float *x, float scale, float limit)
{
    v16 q = v16_div(v16_load(x), v16_set1(scale));
    return v16_to_i(v16_min(v16_max(q, v16_set1(-limit)), v16_set1(limit)));
}

/* n floats as signed bytes by a scale of their own, which it returns */
static float QK_TIER(narrow_row)(const float *x, int8_t *y, int64_t n)
{
    float scale = QK_TIER(scale_of)(x, n, 127);
    if (!(scale > 0)) {
        memset(y, 0, (size_t)n);
        return scale;
    }
    for (int64_t c = 0; c < n; c += 16) {
        uint8_t codes[16];
        v16i_store_u8(codes, QK_TIER(codes)(x + c, scale, 127));
        memcpy(y + c, codes, (size_t)qk_min(16, n - c));
    }
    return scale;
}

/* The same in place, as int16: n floats become n codes at the same address, with zeros up to a multiple of 32. */
static float QK_TIER(narrow_in_place)(float *x, int64_t n)
{
    float scale = QK_TIER(scale_of)(x, n, QK_CODE_LIMIT);
    int16_t *y = (int16_t *)x;
    for (int64_t c = 0; c < n; c += 16)
        v16i_store_u16(y + c, scale > 0 ? QK_TIER(codes)(x + c, scale, QK_CODE_LIMIT) : v16i_set1(0));
    if (n % 32)
        memset(y + n / 16 * 16, 0, 32);
    return scale;
}

/* float32 vectors of n lanes; whole ones without a mask, since what a masked store wrote cannot be forwarded to a load */
static inline v16 QK_TIER(load)(const float *p, int64_t n) { return v16_load_as(QK_F32, p, (int)qk_min(16, n)); }
static inline void QK_TIER(store)(float *p, v16 x, int64_t n) { v16_store_as(QK_F32, p, x, (int)qk_min(16, n)); }

/* n floats += bias, rounded to a type; x is padded to 16, and the padding stays */
static inline void QK_TIER(add_bias)(float *x, const float *bias, int dtype, int64_t n)
{
    uint16_t half[16];
    if (dtype == QK_F32 && n % 16 == 0) {
        for (int64_t c = 0; c < n; c += 16)
            v16_store(x + c, v16_add(v16_load(x + c), v16_load(bias + c)));
        return;
    }
    for (int64_t c = 0; c < n; c += 16) {
        v16 sum = v16_add(v16_load(x + c), QK_TIER(load)(bias + c, n - c));
        if (dtype != QK_F32) {
            v16_store_as(dtype, half, sum, 16);
            sum = v16_load_as(dtype, half, 16);
        }
        QK_TIER(store)(x + c, sum, n - c);
    }
}

/* One head of a token: widened, with its bias, normalized with `weight` (the bits of RMS normalization: vector i to accumulator i mod 4), rotated by a row
 * of the tables (the bits of rotary embedding: each product rounded). y has d padded to 16, the padding zero. */
static void QK_TIER(prepare)(const qk_attention_args *a, const void *x, const float *bias, const float *weight, float epsilon, int64_t b,
                             int64_t query, float *y)
{
    int64_t d = a->d, half = a->half;
    QK_TIER(widen)(x, a->q_dtype, 0, NULL, y, 1, d);
    if (bias)
        QK_TIER(add_bias)(y, bias, a->q_dtype, d);
    if (weight) {
        v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
        int64_t c = 0;
        for (; c + 64 <= d; c += 64)
            QK_EACH (int j = 0; j < 4; j++)
                acc[j] = v16_fma(v16_load(y + c + 16 * j), v16_load(y + c + 16 * j), acc[j]);
        QK_EACH (int j = 0; j < 4; j++)
            if (c + 16 * j < d)
                acc[j] = v16_fma(v16_load(y + c + 16 * j), v16_load(y + c + 16 * j), acc[j]);
        float squares = v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
        v16 inv = v16_div(v16_set1(1.0f), v16_sqrt(v16_set1(squares / (float)d + epsilon)));
        for (c = 0; c < d; c += 16)
            QK_TIER(store)(y + c, v16_mul(v16_mul(v16_load(y + c), inv), QK_TIER(load)(weight + c, d - c)), d - c);
    }
    if (a->cos) {
        int64_t row = a->positions ? a->positions[(a->starts ? a->starts[b] : b * a->rows) + query] : qk_attention_past(a, b) + query;
        row *= half;
        y += a->turned;
        if (a->interleaved)
            QK_TIER(rotary_interleaved)(QK_F32, y, y, QK_F32, a->cos + row, a->sin + row, half);
        else
            QK_TIER(rotary_half_split)(QK_F32, y, y, QK_F32, a->cos + row, a->sin + row, half);
    }
}

/* New keys and values into the cache, items numbered (batch, rows, kv_heads). */
static void QK_TIER(append)(const qk_attention_args *a, float *scratch, int64_t first, int64_t last)
{
    for (int64_t item = first; item < last; item++) {
        int64_t g = item % a->kv_heads, i = item / a->kv_heads % a->rows, b = item / a->kv_heads / a->rows;
        int64_t position = qk_attention_past(a, b) + i, place = b;
        if (i >= qk_attention_count(a, b))
            continue;
        if (a->slots) {
            int64_t slot = a->slots[a->starts[b] + i];
            if (slot < 0)
                continue;
            place = slot / a->page, position = slot % a->page;
        }
        char *k = (char *)QK_TIER(at)(a->k, a->k_dtype, place * a->k_batch + g * a->k_head + position * a->k_row);
        char *v = (char *)QK_TIER(at)(a->v, a->v_dtype, place * a->v_batch + g * a->v_head + position * a->v_row);
        const void *new_k = QK_TIER(token)(a, a->new_k, a->q_dtype, b, g, i, a->new_k_batch, a->new_k_head, a->new_k_row);
        const void *new_v = QK_TIER(token)(a, a->new_v, a->q_dtype, b, g, i, a->new_v_batch, a->new_v_head, a->new_v_row);
        QK_TIER(prepare)(a, new_k, QK_TIER(scales)(a->k_bias, g * a->d), a->k_norm, a->k_epsilon, b, i, scratch);
        if (a->k_rows)
            a->k_rows[b * a->rows_batch + g * a->rows_head + position] = QK_TIER(narrow_row)(scratch, (int8_t *)k, a->d);
        else
            QK_TIER(narrow)(scratch, a->k_dtype, QK_TIER(scales)(a->k_scale, g * a->d), k, a->d);
        if (!a->new_v)
            continue;
        QK_TIER(widen)(new_v, a->q_dtype, 0, NULL, scratch, 1, a->dv);
        if (a->v_bias)
            QK_TIER(add_bias)(scratch, a->v_bias + g * a->dv, a->q_dtype, a->dv);
        if (a->v_rows)
            a->v_rows[b * a->rows_batch + g * a->rows_head + position] = QK_TIER(narrow_row)(scratch, (int8_t *)v, a->dv);
        else
            QK_TIER(narrow)(scratch, a->v_dtype, QK_TIER(scales)(a->v_scale, g * a->dv), v, a->dv);
    }
}

/* ---- scores ---- */

/* The scaled scores of qr rows of q (stride d, a multiple of 16) against the keys [first, stop), 16 / qr at a time; keys beyond `last` repeat
 * it, so that nothing behind it is read. Row i's go to s + i * QK_PIECE + first. */
QK_TILED void QK_TIER(scores_tile)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, int first, int stop, int last, float scale,
                                   const int dtype, const int qr)
{
    const int kr = 16 / qr, size = (int)qk_cache_bytes(dtype, 1);
    const int tq = V16_ACCUMULATORS == 16 ? qr : V16_ACCUMULATORS == 4 && qr > 1 ? 2 : 1, tk = V16_ACCUMULATORS / tq; /* held at once */
    /* row * kr + key */
    v16 sums[16];
    float out[16];
    for (; first < stop; first += kr) {
        QK_EACH (int q0 = 0; q0 < qr; q0 += tq)
            QK_EACH (int k0 = 0; k0 < kr; k0 += tk) {
                v16 acc[V16_ACCUMULATORS], x[4];
                const char *row[V16_ACCUMULATORS];
                QK_EACH (int j = 0; j < V16_ACCUMULATORS; j++)
                    acc[j] = v16_zero();
                QK_EACH (int j = 0; j < tk; j++)
                    row[j] = k + qk_min(first + k0 + j, last) * bytes;
                for (int64_t c = 0; c < d; c += 16) {
                    QK_EACH (int i = 0; i < tq; i++) {
                        x[i] = v16_load(q + (q0 + i) * d + c);
                        QK_HOLD(x[i]);
                    }
                    QK_EACH (int j = 0; j < tk; j++) {
                        v16 y = QK_TIER(load_element)(dtype, row[j] + c * size);
                        if (tq > 1)
                            QK_HOLD(y);
                        QK_EACH (int i = 0; i < tq; i++)
                            acc[i * tk + j] = v16_fma(x[i], y, acc[i * tk + j]);
                    }
                }
                QK_EACH (int i = 0; i < tq; i++)
                    QK_EACH (int j = 0; j < tk; j++)
                        sums[(q0 + i) * kr + k0 + j] = acc[i * tk + j];
                QK_TO_MEMORY(sums);
            }
        v16_store(out, v16_mul(v16_reduce_add_16(sums), v16_set1(scale)));
        QK_EACH (int i = 0; i < qr; i++)
            memcpy(s + i * QK_PIECE + first, out + i * kr, 4 * (size_t)kr);
    }
}

#if V16_ACCUMULATORS == 16
/* The same for one or two rows and a head of 16 n <= 128: q stays in registers, and the keys are read in the order in which they lie, which
 * hardware fetches ahead better than instructions do. */
QK_TILED void QK_TIER(scores_held)(float *s, const float *q, const char *k, int64_t bytes, int first, int stop, int last, float scale,
                                   const int dtype, const int qr, const int n)
{
    const int kr = 16 / qr, size = (int)qk_cache_bytes(dtype, 1);
    v16 x[16], halves[8];
    float out[16];
    QK_EACH (int i = 0; i < qr * n; i++)
        x[i] = v16_load(q + 16 * i);
    for (; first < stop; first += kr) {
        QK_EACH (int j = 0; j < kr; j += 2) {
            const char *row = k + qk_min(first + j, last) * bytes, *next = k + qk_min(first + j + 1, last) * bytes;
            v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
            QK_EACH (int c = 0; c < n; c++) {
                v16 y = QK_TIER(load_element)(dtype, row + 16 * c * size), z = QK_TIER(load_element)(dtype, next + 16 * c * size);
                QK_EACH (int i = 0; i < qr; i++) {
                    acc[2 * i] = v16_fma(x[i * n + c], y, acc[2 * i]);
                    acc[2 * i + 1] = v16_fma(x[i * n + c], z, acc[2 * i + 1]);
                }
            }
            QK_EACH (int i = 0; i < qr; i++)
                halves[(i * kr + j) / 2] = v16_halves(acc[2 * i], acc[2 * i + 1]);
        }
        v16_store(out, v16_mul(v16_reduce_halves(halves), v16_set1(scale)));
        QK_EACH (int i = 0; i < qr; i++)
            memcpy(s + i * QK_PIECE + first, out + i * kr, 4 * (size_t)kr);
    }
}
#define QK_HELD(dtype, qr, n) \
    if (qr <= 2 && d == 16 * n) { \
        QK_TIER(scores_held)(s, q, k, bytes, first, stop, last, scale, dtype, qr, n); \
        return; \
    }
#else
#define QK_HELD(dtype, qr, n)
#endif

/* The same of codes: q int16 rows (stride 2 d), keys bytes or, if wide, int16; exact sums, then one rounding. Where a head is of `held` times 32,
 * q stays in registers. */
QK_TILED void QK_TIER(scores_codes)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, int first, int stop, int last, float scale,
                                    const int wide, const int qr, const int held)
{
    const int kr = 16 / qr;
    v16i x[16], sums[16];
    float out[16];
    int64_t steps = qk_attention_pad_codes(d) / 32;
    if (held)
        QK_EACH (int i = 0; i < qr * held; i++)
            x[i] = v16i_load((const int16_t *)(q + i / held * d) + 32 * (i % held));
    for (; first < stop; first += kr) {
        QK_EACH (int j = 0; j < kr; j++) {
            const char *row = k + qk_min(first + j, last) * bytes;
            v16i acc[4] = {v16i_set1(0), v16i_set1(0), v16i_set1(0), v16i_set1(0)};
            if (held)
                QK_EACH (int c = 0; c < held; c++) {
                    v16i y = wide ? v16i_load(row + 64 * c) : v16i_load_i8_i16(row + 32 * c);
                    QK_EACH (int i = 0; i < qr; i++)
                        acc[i] = v16i_dot_i16(acc[i], x[i * held + c], y);
                }
            else
                for (int64_t c = 0; c < steps; c++) {
                    v16i y = wide ? v16i_load(row + 64 * c) : v16i_load_i8_i16(row + 32 * c);
                    QK_EACH (int i = 0; i < qr; i++)
                        acc[i] = v16i_dot_i16(acc[i], v16i_load((const int16_t *)(q + i * d) + 32 * c), y);
                }
            QK_EACH (int i = 0; i < qr; i++)
                sums[i * kr + j] = acc[i];
        }
        v16_store(out, v16_mul(v16i_to_f(v16i_reduce_add_16(sums)), v16_set1(scale)));
        QK_EACH (int i = 0; i < qr; i++)
            memcpy(s + i * QK_PIECE + first, out + i * kr, 4 * (size_t)kr);
    }
}

/* each tile a function of its own: the registers are all for its inner loop */
typedef void (*qk_scores_tile)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, int first, int stop, int last, float scale);
#define QK_SCORES(dtype, qr) \
    static __attribute__((noinline)) void QK_TIER(scores_##dtype##_##qr)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, \
                                                                         int first, int stop, int last, float scale) \
    { \
        QK_HELD(dtype, qr, 8) \
        QK_HELD(dtype, qr, 4) \
        QK_TIER(scores_tile)(s, q, k, bytes, d, first, stop, last, scale, dtype, qr); \
    }
#define QK_SCORES_OF_CODES(dtype, qr) \
    static __attribute__((noinline)) void QK_TIER(scores_##dtype##_##qr)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, \
                                                                         int first, int stop, int last, float scale) \
    { \
        if (V16_ACCUMULATORS == 16 && d == 128) \
            QK_TIER(scores_codes)(s, q, k, bytes, d, first, stop, last, scale, dtype == QK_CODES_WIDE, qr, 4); \
        else \
            QK_TIER(scores_codes)(s, q, k, bytes, d, first, stop, last, scale, dtype == QK_CODES_WIDE, qr, 0); \
    }
/* clang-format off */
QK_SCORES(QK_F32, 1) QK_SCORES(QK_F32, 2) QK_SCORES(QK_F32, 4)
QK_SCORES(QK_F16, 1) QK_SCORES(QK_F16, 2) QK_SCORES(QK_F16, 4)
QK_SCORES(QK_BF16, 1) QK_SCORES(QK_BF16, 2) QK_SCORES(QK_BF16, 4)
QK_SCORES_OF_CODES(QK_CACHE_I8, 1) QK_SCORES_OF_CODES(QK_CACHE_I8, 2) QK_SCORES_OF_CODES(QK_CACHE_I8, 4)
QK_SCORES_OF_CODES(QK_CODES_WIDE, 1) QK_SCORES_OF_CODES(QK_CODES_WIDE, 2) QK_SCORES_OF_CODES(QK_CODES_WIDE, 4)
static const qk_scores_tile QK_TIER(scores_tiles)[5][3] = {
    {QK_TIER(scores_QK_F32_1), QK_TIER(scores_QK_F32_2), QK_TIER(scores_QK_F32_4)},
    {QK_TIER(scores_QK_F16_1), QK_TIER(scores_QK_F16_2), QK_TIER(scores_QK_F16_4)},
    {QK_TIER(scores_QK_BF16_1), QK_TIER(scores_QK_BF16_2), QK_TIER(scores_QK_BF16_4)},
    {QK_TIER(scores_QK_CACHE_I8_1), QK_TIER(scores_QK_CACHE_I8_2), QK_TIER(scores_QK_CACHE_I8_4)},
    {QK_TIER(scores_QK_CODES_WIDE_1), QK_TIER(scores_QK_CODES_WIDE_2), QK_TIER(scores_QK_CODES_WIDE_4)},
};
/* clang-format on */

#if V16_ACCUMULATORS > 1
/* The scaled scores of qr rows of q against kv groups of 16 transposed keys (d, 16): vectors of partial sums, added as v16_reduce_add adds lanes. */
QK_TILED void QK_TIER(scores_turned)(float *s, const float *q, const float *k, int64_t d, float scale, const int qr, const int kv)
{
    v16 sums[4][8]; /* of 2, 4, 8 and 16 lanes */
    QK_EACH (int l = 0; l < 16; l++) {
        const int lane = (l & 1) * 8 + (l & 2) * 2 + (l & 4) / 2 + l / 8; /* 0, 8, 4, 12, 2 ... */
        v16 acc[8];
        QK_EACH (int i = 0; i < qr * kv; i++)
            acc[i] = v16_zero();
        for (int64_t c = lane; c < d; c += 16) {
            v16 y[2];
            QK_EACH (int j = 0; j < kv; j++)
                y[j] = v16_load(k + j * 16 * d + 16 * c);
            QK_EACH (int i = 0; i < qr; i++) {
                v16 x = v16_set1(q[i * d + c]);
                QK_EACH (int j = 0; j < kv; j++)
                    acc[i * kv + j] = v16_fma(x, y[j], acc[i * kv + j]);
            }
        }
        /* like a counter: where a bit of l is set, its half of the sum is there */
        QK_EACH (int i = 0; i < qr * kv; i++) {
            v16 x = acc[i];
            if (l & 1) {
                x = v16_add(sums[0][i], x);
                if (l & 2) {
                    x = v16_add(sums[1][i], x);
                    if (l & 4) {
                        x = v16_add(sums[2][i], x);
                        if (l & 8)
                            v16_store(s + i / kv * QK_PIECE + i % kv * 16, v16_mul(v16_add(sums[3][i], x), v16_set1(scale)));
                        else
                            sums[3][i] = x;
                    } else
                        sums[2][i] = x;
                } else
                    sums[1][i] = x;
            } else
                sums[0][i] = x;
        }
    }
}
/* The same of codes, exact: kv groups of pairs of dimensions (d / 2, 16 keys) */
QK_TILED void QK_TIER(scores_turned_codes)(float *s, const float *q, const float *k, int64_t d, float scale, const int qr, const int kv)
{
    int64_t pairs = qk_attention_pad_codes(d) / 2;
    v16i acc[8], y[2];
    QK_EACH (int i = 0; i < qr * kv; i++)
        acc[i] = v16i_set1(0);
    for (int64_t c = 0; c < pairs; c++) {
        QK_EACH (int j = 0; j < kv; j++)
            y[j] = v16i_load(k + 16 * (j * pairs + c));
        QK_EACH (int i = 0; i < qr; i++) {
            int32_t pair;
            memcpy(&pair, q + i * d + c, 4);
            v16i x = v16i_set1(pair);
            QK_EACH (int j = 0; j < kv; j++)
                acc[i * kv + j] = v16i_dot_i16(acc[i * kv + j], x, y[j]);
        }
    }
    QK_EACH (int i = 0; i < qr * kv; i++)
        v16_store(s + i / kv * QK_PIECE + i % kv * 16, v16_mul(v16i_to_f(acc[i]), v16_set1(scale)));
}

typedef void (*qk_turned_tile)(float *s, const float *q, const float *k, int64_t d, float scale);
#define QK_TURNED(kind, qr) \
    static __attribute__((noinline)) void QK_TIER(kind##_##qr)(float *s, const float *q, const float *k, int64_t d, float scale) \
    { \
        QK_TIER(kind)(s, q, k, d, scale, qr, V16_ACCUMULATORS == 16 ? 2 : 1); \
    }
/* clang-format off */
QK_TURNED(scores_turned, 1) QK_TURNED(scores_turned, 2) QK_TURNED(scores_turned, 4)
QK_TURNED(scores_turned_codes, 1) QK_TURNED(scores_turned_codes, 2) QK_TURNED(scores_turned_codes, 4)
static const qk_turned_tile QK_TIER(turned_tiles)[2][3] = {
    {QK_TIER(scores_turned_1), QK_TIER(scores_turned_2), QK_TIER(scores_turned_4)},
    {QK_TIER(scores_turned_codes_1), QK_TIER(scores_turned_codes_2), QK_TIER(scores_turned_codes_4)},
};
/* clang-format on */

static void QK_TIER(scores_of_turned)(const qk_attention_work *w, int rows, const float *k, int coded, int from, int keys, float scale,
                                      int blocks_log2)
{
    const int step = V16_ACCUMULATORS == 16 ? 32 : 16;
    int64_t width = coded ? qk_attention_pad_codes(w->d) / 2 : w->d; /* of a key */
    for (int first = from / step * step; first < keys; first += step)
        for (int r = 0, log2; r < rows; r += 1 << log2) {
            int seen = 0;
            log2 = rows - r >= 4 ? 2 : rows - r >= 2 ? 1 : 0;
            for (int i = r; i < r + (1 << log2); i++)
                seen |= w->lo[i] < first + step && w->hi[i] > first &&
                        (!blocks_log2 || w->blocks[i][first >> blocks_log2] | w->blocks[i][(first + step - 1) >> blocks_log2]);
            if (seen)
                QK_TIER(turned_tiles)[coded][log2](w->s + r * QK_PIECE + first, w->q + r * w->d, k + first * width, w->d, scale);
        }
}
#endif

/* Tiles of up to four of the rows that are left. Where up to four rows read a cache from memory, of two with AVX-512: those read whole rows in
 * the order in which they lie, which counts for more than reading them once. */
static inline int QK_TIER(log2_tile)(int rows, int left)
{
    const int most = V16_ACCUMULATORS == 16 && rows <= 4 ? 1 : 2;
    return left >= 4 ? most : left >= 2 ? 1 : 0;
}

/* the scores of the keys [from, keys) that any row of a tile sees; from is a multiple of 16 */
static void QK_TIER(scores)(const qk_attention_work *w, int rows, const void *k, int dtype, int64_t bytes, int from, int keys, float scale,
                            int blocks_log2, const qk_attention_ahead *ahead)
{
    const qk_scores_tile *tiles = QK_TIER(scores_tiles)[dtype];
    /* several tiles take turns at keys that stay in the first-level cache */
    const int in_order = QK_TIER(in_order)(w, rows), step = in_order && rows <= 2 && !blocks_log2 ? QK_PIECE : 16;
    for (int first = from, stop; first < keys; first = stop) {
        stop = (int)qk_min(first + step, qk_ceil_div(keys, 16) * 16);
        for (int r = 0, log2, n; r < rows; r += n) {
            int seen = 0;
            log2 = QK_TIER(log2_tile)(rows, rows - r);
            n = 1 << log2;
            for (int i = r; i < r + n; i++)
                seen |= w->lo[i] < stop && w->hi[i] > first && (!blocks_log2 || w->blocks[i][first >> blocks_log2]);
            const int each = r || in_order ? step : 16 / n; /* short bursts of fetching ahead */
            for (int j = first; j < stop; j += each) {
                if (!r && !in_order)
                    QK_TIER(fetch)(ahead, j, j + each);
                if (seen)
                    tiles[log2](w->s + r * QK_PIECE, w->q + r * w->d, (const char *)k, bytes, w->d, j, (int)qk_min(j + each, stop), keys - 1, scale);
            }
        }
    }
}

/* ---- softmax of one row in one piece ---- */

/* tanh x; below 0.625 a polynomial of degree 11, else from e^-2|x| */
static v16 QK_TIER(tanh)(v16 x)
{
    v16 z = v16_mul(x, x), p = v16_set1(-5.70498872745e-3f);
    p = v16_fma(p, z, v16_set1(2.06390887954e-2f));
    p = v16_fma(p, z, v16_set1(-5.37397155531e-2f));
    p = v16_fma(p, z, v16_set1(1.33314422036e-1f));
    p = v16_fma(p, z, v16_set1(-3.33332819422e-1f));
    p = v16_fma(v16_mul(p, z), x, x);
    v16 one = v16_set1(1.0f), e = v16_exp(v16_mul(v16_set1(-2.0f), v16_abs(x)));
    v16 t = v16_div(v16_sub(one, e), v16_add(one, e));
    t = v16_select(v16_lt(x, v16_zero()), v16_neg(t), t);
    return v16_select(v16_lt(v16_abs(x), v16_set1(0.625f)), p, t);
}

/* n <= 16 elements of a mask as what they add to the score */
static inline v16 QK_TIER(load_mask)(const void *mask, int dtype, int64_t element, int n)
{
    uint8_t bytes[16] = {0};
    if (dtype != QK_MASK_BOOL)
        return v16_load_as(dtype, QK_TIER(at)(mask, dtype, element), n);
    memcpy(bytes, (const uint8_t *)mask + element, (size_t)n);
    return v16_select(v16i_eq(v16i_load_u8(bytes), v16i_set1(0)), v16_set1(-INFINITY), v16_zero());
}

static inline v16 QK_TIER(capped)(const qk_attention_args *a, v16 x)
{
    return a->softcap > 0 ? v16_mul(v16_set1(a->softcap), QK_TIER(tanh)(v16_div(x, v16_set1(a->softcap)))) : x;
}

/* n <= 16 scores after the soft cap and the mask; bit i of *on says that the mask shows key i */
static inline v16 QK_TIER(capped_and_masked)(const qk_attention_args *a, v16 x, int64_t mask, int n, int *on)
{
    *on = (1 << n) - 1;
    x = QK_TIER(capped)(a, x);
    if (a->mask_dtype != QK_MASK_NONE) {
        v16 hidden = v16_set1(-INFINITY), bias = QK_TIER(load_mask)(a->mask, a->mask_dtype, mask, n);
        m16 off = v16_eq(bias, hidden);
        *on &= ~m16_bits(off);
        x = v16_select(off, hidden, v16_add(x, bias));
    }
    return x;
}

/* s[lo..hi) becomes p, with p = 0 up to whole groups of 16; lo and hi close in on what the mask leaves. `largest` is that of p times v_rows, if there,
 * infinite where one is a NaN. */
static void QK_TIER(softmax)(const qk_attention_args *a, int64_t mask, float q_scale, const float *k_rows, const float *v_rows, const uint8_t *blocks,
                             float *s, int *lo, int *hi, float *m, float *l, float *largest)
{
    v16 hidden = v16_set1(-INFINITY), top = hidden, sum = v16_zero();
    int first = *lo / 16 * 16, last = *hi, seen_lo = *hi, seen_hi = *lo;
    const int plain = !(a->softcap > 0) && a->mask_dtype == QK_MASK_NONE && !blocks;
    for (int j = first; j < last; j += 16) {
        int n = (int)qk_min(16, last - j), before = (int)qk_max(0, *lo - j), on;
        if (plain && n == 16 && !before) { /* as below, where nothing changes the scores */
            v16 x = v16_load(s + j);
            if (k_rows) {
                x = v16_mul(v16_mul(x, v16_set1(q_scale)), v16_load(k_rows + j));
                v16_store(s + j, x);
            }
            top = v16_max(top, v16_select(v16_isnan(x), v16_set1(INFINITY), x));
            continue;
        }
        if (blocks && !blocks[j >> a->block_log2]) {
            v16_store(s + j, hidden);
            continue;
        }
        v16 x = v16_load(s + j);
        if (k_rows)
            x = v16_mul(v16_mul(x, v16_set1(q_scale)), QK_TIER(load)(k_rows + j, n));
        x = QK_TIER(capped_and_masked)(a, x, mask + j, n, &on);
        on &= ~((1 << before) - 1);
        if (on) {
            seen_lo = (int)qk_min(seen_lo, j + __builtin_ctz(on));
            seen_hi = j + 32 - __builtin_clz(on);
        }
        if (n < 16)
            x = v16_select(m16_first(n), x, hidden);
        if (before)
            x = v16_select(m16_first(before), hidden, x);
        v16_store(s + j, x);
        top = v16_max(top, v16_select(v16_isnan(x), v16_set1(INFINITY), x)); /* a NaN must neither get lost nor hide the row */
    }
    *m = v16_reduce_max(top);
    *l = *largest = 0;
    if (a->mask_dtype != QK_MASK_NONE || blocks) {
        *lo = seen_lo;
        *hi = seen_hi;
    }
    if (*m == -INFINITY || *lo >= *hi) {
        *m = -INFINITY;
        *lo = *hi = 0;
        return;
    }
    top = v16_set1(*m);
    v16 most = v16_zero();
    for (int j = first; j < last; j += 16) {
        v16 p = v16_exp(v16_sub(v16_load(s + j), top));
        sum = v16_add(sum, p);
        if (v_rows) {
            int before = (int)qk_min(16, *lo - j), n = (int)qk_max(0, *hi - j);
            if (before > 0 || n < 16) { /* the scale of a hidden key may be anything */
                p = v16_select(m16_first((int)qk_min(16, n)), v16_mul(p, QK_TIER(load)(v_rows + j, n)), v16_zero());
                p = v16_select(m16_first((int)qk_max(0, before)), v16_zero(), p);
            } else
                p = v16_mul(p, v16_load(v_rows + j));
            most = v16_max(most, v16_select(v16_isnan(p), v16_set1(INFINITY), p));
        }
        v16_store(s + j, p);
    }
    *largest = v16_reduce_max(most);
    *l = v16_reduce_add(sum);
}

/* ---- values ---- */

/* o[0 .. pr)[c .. c + 16 pc) += p * v over n keys in order; o has the stride dv, a multiple of 16 */
QK_TILED void QK_TIER(values_columns)(float *o, int64_t dv, const float *p, const char *v, int64_t bytes, int64_t c, int n, const int dtype,
                                      const int pr, const int pc)
{
    const int size = (int)qk_cache_bytes(dtype, 1);
    v16 acc[16], y[8];
    QK_EACH (int i = 0; i < pr; i++)
        QK_EACH (int x = 0; x < pc; x++)
            acc[i * pc + x] = v16_load(o + i * dv + c + 16 * x);
    v += c * size;
    for (int j = 0; j < n; j++, v += bytes) {
        QK_EACH (int x = 0; x < pc; x++)
            y[x] = QK_TIER(load_element)(dtype, v + 16 * x * size);
        QK_EACH (int i = 0; i < pr; i++) {
            v16 weight = v16_set1(p[i * QK_PIECE + j]);
            QK_EACH (int x = 0; x < pc; x++)
                acc[i * pc + x] = v16_fma(weight, y[x], acc[i * pc + x]);
        }
    }
    QK_EACH (int i = 0; i < pr; i++)
        QK_EACH (int x = 0; x < pc; x++)
            v16_store(o + i * dv + c + 16 * x, acc[i * pc + x]);
}

QK_TILED void QK_TIER(values_tile)(float *o, int64_t dv, const float *p, const char *v, int64_t bytes, int n, const int dtype, const int pr)
{
    const int pc = V16_ACCUMULATORS == 16 ? (pr == 4 ? 4 : 8) : V16_ACCUMULATORS > pr ? V16_ACCUMULATORS / pr : 1;
    int64_t c = 0;
    for (; c + 16 * pc <= dv; c += 16 * pc)
        QK_TIER(values_columns)(o, dv, p, v, bytes, c, n, dtype, pr, pc);
    for (; c < dv; c += 16)
        QK_TIER(values_columns)(o, dv, p, v, bytes, c, n, dtype, pr, 1);
}

typedef void (*qk_values_tile)(float *o, int64_t dv, const float *p, const char *v, int64_t bytes, int n);
#define QK_VALUES(dtype, pr) \
    static __attribute__((noinline)) void QK_TIER(values_##dtype##_##pr)(float *o, int64_t dv, const float *p, const char *v, int64_t bytes, int n) \
    { \
        QK_TIER(values_tile)(o, dv, p, v, bytes, n, dtype, pr); \
    }
/* clang-format off */
QK_VALUES(QK_F32, 1) QK_VALUES(QK_F32, 2) QK_VALUES(QK_F32, 4)
QK_VALUES(QK_F16, 1) QK_VALUES(QK_F16, 2) QK_VALUES(QK_F16, 4)
QK_VALUES(QK_BF16, 1) QK_VALUES(QK_BF16, 2) QK_VALUES(QK_BF16, 4)
static const qk_values_tile QK_TIER(values_tiles)[3][3] = {
    {QK_TIER(values_QK_F32_1), QK_TIER(values_QK_F32_2), QK_TIER(values_QK_F32_4)},
    {QK_TIER(values_QK_F16_1), QK_TIER(values_QK_F16_2), QK_TIER(values_QK_F16_4)},
    {QK_TIER(values_QK_BF16_1), QK_TIER(values_QK_BF16_2), QK_TIER(values_QK_BF16_4)},
};
/* clang-format on */

/* o of `rows` rows += p * v over what each sees of the piece, in key order */
static void QK_TIER(values)(const qk_attention_work *w, float *o, int rows, const void *v, int dtype, int64_t bytes, int from, int keys,
                            int blocks_log2, const qk_attention_ahead *ahead)
{
    const qk_values_tile *tiles = QK_TIER(values_tiles)[dtype];
    /* where a value is read more than once, by other tiles or for other columns, as many as stay in the first-level cache */
    const int in_order = QK_TIER(in_order)(w, rows), step = blocks_log2 ? 16 : rows > 4 ? 64 : rows <= 2 && in_order ? QK_PIECE : 16;
    for (int base = from / step * step; base < keys; base += step) {
        if (!in_order)
            QK_TIER(fetch)(ahead, base, base + step);
        for (int r = 0, log2, n; r < rows; r += n) {
            int lo[4], hi[4], begin = base, end = base + step;
            log2 = QK_TIER(log2_tile)(rows, rows - r);
            n = 1 << log2;
            for (int i = 0; i < n; i++) {
                lo[i] = (int)qk_max(base, w->lo[r + i]);
                hi[i] = (int)qk_min(base + step, w->hi[r + i]);
                if (blocks_log2 && !w->blocks[r + i][base >> blocks_log2])
                    hi[i] = lo[i];
                begin = (int)qk_max(begin, lo[i]);
                end = (int)qk_min(end, hi[i]);
            }
            end = (int)qk_max(begin, end);
            /* [begin, end) is common; keys that only some rows of the tile see come one row at a time, before and after it */
            for (int pass = 0; pass < 3; pass++) {
                if (pass == 1) {
                    if (begin < end)
                        tiles[log2](o + r * w->dv, w->dv, w->s + r * QK_PIECE + begin, (const char *)v + begin * bytes, bytes, end - begin);
                    continue;
                }
                for (int i = 0; i < n; i++) {
                    int j = pass ? (int)qk_max(end, lo[i]) : lo[i], stop = pass ? hi[i] : (int)qk_min(begin, hi[i]);
                    if (j < stop)
                        tiles[0](o + (r + i) * w->dv, w->dv, w->s + (r + i) * QK_PIECE + j, (const char *)v + j * bytes, bytes, stop - j);
                }
            }
        }
    }
}

/* The same of codes, exact: o int32; p int16 of which the rows lie 2 * QK_PIECE apart, an even number of them; v n keys of bytes or, if wide,
 * their pairs. */
QK_TILED void QK_TIER(codes_columns)(int32_t *o, int64_t dv, const int16_t *p, const char *v, int64_t bytes, int64_t c, int n, const int wide,
                                     const int pr, const int pc)
{
    v16i acc[16], y[8];
    QK_EACH (int i = 0; i < pr * pc; i++)
        acc[i] = v16i_set1(0);
    for (int j = 0; j < n; j += 2) {
        const char *row = v + (wide ? j / 2 : j) * bytes + (wide ? 4 : 1) * c, *next = row + (j + 1 < n) * bytes;
        if (wide)
            QK_EACH (int x = 0; x < pc; x++)
                y[x] = v16i_load(row + 64 * x);
        else
            QK_EACH (int x = 0; x + 1 < pc; x += 2)
                v16i_zip_i8(row + 16 * x, next + 16 * x, &y[x], &y[x + 1]);
        QK_EACH (int i = 0; i < pr; i++) {
            int32_t pair;
            memcpy(&pair, p + 2 * i * QK_PIECE + j, 4);
            v16i weights = v16i_set1(pair);
            QK_EACH (int x = 0; x < pc; x++)
                acc[i * pc + x] = v16i_dot_i16(acc[i * pc + x], weights, y[x]);
        }
    }
    QK_EACH (int i = 0; i < pr; i++) {
        if (!wide)
            QK_EACH (int x = 0; x + 1 < pc; x += 2)
                v16i_unzip(acc[i * pc + x], acc[i * pc + x + 1], &acc[i * pc + x], &acc[i * pc + x + 1]);
        QK_EACH (int x = 0; x < pc; x++) {
            int32_t *to = o + i * dv + c + 16 * x;
            v16i_store(to, v16i_add(v16i_load(to), acc[i * pc + x]));
        }
    }
}

QK_TILED void QK_TIER(codes_tile)(int32_t *o, int64_t dv, const int16_t *p, const char *v, int64_t bytes, int n, const int wide, const int pr)
{
    const int pc = V16_ACCUMULATORS == 16 ? (pr == 4 ? 4 : 8) : V16_ACCUMULATORS > pr ? V16_ACCUMULATORS / pr : wide ? 1 : 2;
    int64_t c = 0;
    for (; c + 16 * pc <= dv; c += 16 * pc)
        QK_TIER(codes_columns)(o, dv, p, v, bytes, c, n, wide, pr, pc);
    for (; c < dv; c += wide ? 16 : 32)
        QK_TIER(codes_columns)(o, dv, p, v, bytes, c, n, wide, pr, wide ? 1 : 2);
}

typedef void (*qk_codes_tile)(int32_t *o, int64_t dv, const int16_t *p, const char *v, int64_t bytes, int n);
#define QK_CODES(wide, pr) \
    static __attribute__((noinline)) void QK_TIER(codes_##wide##_##pr)(int32_t * o, int64_t dv, const int16_t *p, const char *v, int64_t bytes, \
                                                                       int n) \
    { \
        QK_TIER(codes_tile)(o, dv, p, v, bytes, n, wide, pr); \
    }
/* clang-format off */
QK_CODES(0, 1) QK_CODES(0, 2)
QK_CODES(1, 1) QK_CODES(1, 2) QK_CODES(1, 4)
static const qk_codes_tile QK_TIER(codes_tiles)[2][3] = {
    {QK_TIER(codes_0_1), QK_TIER(codes_0_2), QK_TIER(codes_0_2)}, /* bytes are for few rows, which go two at a time */
    {QK_TIER(codes_1_1), QK_TIER(codes_1_2), QK_TIER(codes_1_4)},
};
/* clang-format on */

/* o of `rows` rows from the probabilities in s, which become codes, and the keys [from, keys) of the piece; from is even */
static void QK_TIER(values_of_codes)(qk_attention_work *w, float *o, int rows, const void *v, int wide, int64_t bytes, int from, int keys,
                                     const qk_attention_ahead *ahead)
{
    int in_order = QK_TIER(in_order)(w, rows), step = rows > 4 ? 64 : rows <= 2 && in_order ? QK_PIECE : 16;
    for (int r = 0; r < rows; r++) {
        float *s = w->s + r * QK_PIECE;
        int16_t *p = (int16_t *)s;
        int lo = w->lo[r] / 16 * 16, hi = (int)qk_ceil_div(w->hi[r], 16) * 16;
        float scale = QK_TIER(scale_to)(w->p_largest[r], QK_CODE_LIMIT);
        for (int j = from; j < keys; j += 16) /* codes never overtake the floats that they are made of */
            v16i_store_u16(p + j, j >= lo && j < hi && scale > 0 ? QK_TIER(codes)(s + j, scale, QK_CODE_LIMIT) : v16i_set1(0));
        w->p_scale[r] = scale;
    }
    memset(o, 0, 4 * (size_t)(rows * w->dv));
    for (int base = from / step * step; base < keys; base += step) {
        int begin = (int)qk_max(base, from), n = (int)qk_min(base + step, keys) - begin;
        if (!in_order)
            QK_TIER(fetch)(ahead, base, base + step);
        for (int r = 0, log2; r < rows; r += 1 << log2) {
            log2 = rows <= 4 ? rows - r >= 2 : QK_TIER(log2_tile)(rows, rows - r);
            int seen = 0;
            for (int i = r; i < r + (1 << log2); i++)
                seen |= w->lo[i] < begin + n && w->hi[i] > begin;
            if (seen)
                QK_TIER(codes_tiles)
            [wide][log2]((int32_t *)o + r * w->dv, w->dv, (int16_t *)(w->s + r * QK_PIECE) + begin,
                         (const char *)v + (wide ? begin / 2 : begin) * bytes, bytes, n);
        }
    }
    for (int r = 0; r < rows; r++)
        for (float *x = o + r * w->dv; x < o + (r + 1) * w->dv; x += 16)
            v16_store(x, v16_mul(v16i_to_f(v16i_load(x)), v16_set1(w->p_scale[r])));
}

/* ---- pieces and rows ---- */

/* the keys that a query sees by length, causality and window: [lo, hi) */
static inline void QK_TIER(visible)(const qk_attention_args *a, int64_t b, int64_t query, int64_t *lo, int64_t *hi)
{
    int64_t position = qk_attention_past(a, b) + query;
    *lo = a->left < 0 ? 0 : qk_max(0, position - a->left);
    *hi = query < qk_attention_count(a, b) ? qk_attention_end(a, b) : 0;
    if (a->causal)
        *hi = qk_min(*hi, position + 1);
    if (a->right >= 0)
        *hi = qk_min(*hi, position + a->right + 1);
}

static inline const char *QK_TIER(row_of_q)(const qk_attention_args *a, int64_t b, int64_t g, int64_t row)
{
    int64_t group = qk_attention_group(a), head = g * group + row % group;
    return (const char *)QK_TIER(token)(a, a->q, a->q_dtype, b, head, row / group, a->q_batch, a->q_head, a->q_row);
}

/* q of the rows [first, first + rows) of kv head g, widened and prepared */
static void QK_TIER(load_rows)(const qk_attention_args *a, qk_attention_work *w, int64_t b, int64_t g, int64_t first, int rows)
{
    for (int r = 0; r < rows; r++) {
        const char *q = QK_TIER(row_of_q)(a, b, g, first + r);
        if ((first + r) / qk_attention_group(a) >= qk_attention_count(a, b)) {
            memset(w->q + r * w->d, 0, 4 * (size_t)w->d);
            w->q_scale[r] = 0;
            continue;
        }
        if (r + 4 < rows) { /* the heads of one kv head lie scattered over the tokens' rows, where no prefetcher follows */
            const char *ahead = QK_TIER(row_of_q)(a, b, g, first + r + 4);
            for (int64_t i = 0; i < a->d * qk_itemsize(a->q_dtype); i += 64)
                __builtin_prefetch(ahead + i);
        }
        int64_t head = g * qk_attention_group(a) + (first + r) % qk_attention_group(a);
        QK_TIER(prepare)
        (a, q, QK_TIER(scales)(a->q_bias, head * a->d), a->q_norm, a->q_epsilon, b, (first + r) / qk_attention_group(a), w->q + r * w->d);
        w->q_scale[r] = qk_attention_is_coded(a) ? QK_TIER(narrow_in_place)(w->q + r * w->d, w->d) : 1.0f;
    }
}

/* Where keys or values of a piece begin. In pages of whole pieces that is in one of them; in others a piece is first gathered. */
static const void *QK_TIER(piece_of)(const qk_attention_args *a, const void *p, int dtype, int64_t b, int64_t g, int64_t start, int64_t batch_stride,
                                     int64_t head_stride, int64_t row_stride)
{
    int64_t place = a->pages ? a->pages[b * a->pages_row + start / a->page] : b, row = a->pages ? start % a->page : start;
    return QK_TIER(at)(p, dtype, place * batch_stride + g * head_stride + row * row_stride);
}

/* rows [from, to) of a piece out of pages of any size; those of no page are zero */
static void QK_TIER(gather)(const qk_attention_args *a, const void *p, int dtype, int64_t b, int64_t start, int64_t batch_stride, int64_t head,
                            int64_t row_stride, const float *scale, float *y, int from, int to, int64_t n)
{
    for (int row = from, rows; row < to; row += rows) {
        int64_t key = start + row, page = a->pages[b * a->pages_row + key / a->page], within = key % a->page, width = qk_attention_pad(n);
        rows = (int)qk_min(to - row, a->page - within);
        const void *x = QK_TIER(at)(p, dtype, page * batch_stride + head + within * row_stride);
        if (page < 0)
            memset(y + row * width, 0, 4 * (size_t)(rows * width));
        else
            QK_TIER(widen)(x, dtype, row_stride, scale, y + row * width, rows, n);
    }
}

#if V16_ACCUMULATORS > 1
/* keys [from, to) of a piece, widened and with their bias, to groups of 16 transposed: (d, 16) each */
static void QK_TIER(turn)(const qk_attention_args *a, const qk_attention_work *w, const void *k, int64_t b, int64_t g, int64_t start, int from,
                          int to)
{
    const float *bias = a->new_k ? NULL : QK_TIER(scales)(a->k_bias, g * a->d), *scale = QK_TIER(scales)(a->k_scale, g * a->d);
    for (int j = from; j < to; j += 16)
        for (int64_t c = 0; c < a->d; c += 16) {
            float tile[256] = {0};
            int64_t n = qk_min(16, a->d - c), stride = 16;
            int end = (int)qk_min(to, j + 16);
            const float *x = tile;
            if (!k)
                QK_TIER(gather)
            (a, a->k, a->k_dtype, b, start, a->k_batch, g * a->k_head + c, a->k_row, scale ? scale + c : NULL, tile - 16 * j, j, end, n);
            else if (a->k_dtype != QK_F32 || scale || bias || n < 16 || end - j < 16)
                QK_TIER(widen)(QK_TIER(at)(k, a->k_dtype, j * a->k_row + c), a->k_dtype, a->k_row, scale ? scale + c : NULL, tile, end - j, n);
            else x = (const float *)k + j * a->k_row + c, stride = a->k_row;
            if (bias)
                for (int i = 0; i < end - j; i++)
                    QK_TIER(add_bias)(tile + 16 * i, bias + c, a->q_dtype, n);
            v16_transpose(x, stride, w->k + j * w->d + 16 * c);
        }
}

/* the same of bytes: pairs of int16, (pairs, 16) each */
static void QK_TIER(turn_codes)(const int8_t *k, int64_t stride, int32_t *y, int from, int to, int64_t d)
{
    int64_t pairs = qk_attention_pad_codes(d) / 2;
    for (int j = from; j < to; j += 16)
        for (int64_t c = 0; c < d; c += 64) { /* four bytes are moved as one number */
            int32_t tile[256], turned[256];
            const int8_t *x = k + (j - from) * stride + c;
            int n = (int)qk_min(64, d - c), end = (int)qk_min(16, to - j), whole = n == 64 && end == 16 && !(stride % 4) && !((uintptr_t)x % 4);
            if (!whole) {
                memset(tile, 0, sizeof tile);
                for (int i = 0; i < end; i++)
                    memcpy(tile + 16 * i, x + i * stride, (size_t)n);
            }
            v16_transpose(whole ? (const float *)(const void *)x : (const float *)(const void *)tile, whole ? stride / 4 : 16,
                          (float *)(void *)turned);
            v16i low = v16i_set1(0xFFFF), high = v16i_set1(~0xFFFF);
            for (int64_t i = 0, at = j * pairs + 8 * c; i < qk_min(16, (pairs - c / 2) / 2); i++, at += 32) {
                v16i four = v16i_load(turned + 16 * i);
                v16i_store(y + at, v16i_or(v16i_and(v16i_sra(v16i_shl(four, 24), 24), low), v16i_and(v16i_sra(v16i_shl(four, 16), 8), high)));
                v16i_store(y + at + 16, v16i_or(v16i_and(v16i_sra(v16i_shl(four, 8), 24), low), v16i_and(v16i_sra(four, 8), high)));
            }
        }
}
#endif

/* m, l and o of the loaded rows in one piece */
static void QK_TIER(attend)(const qk_attention_args *a, qk_attention_work *w, int64_t b, int64_t g, int64_t first, int rows, int64_t piece, float *o,
                            float *m, float *l)
{
    int64_t group = qk_attention_group(a), start = piece * QK_PIECE, k_stride = a->k_row, v_stride = a->v_row, d = a->d, dv = a->dv;
    int k_dtype = a->k_dtype, v_dtype = a->v_dtype, keys = 0, from = QK_PIECE, gathered = a->pages && a->page % QK_PIECE;
    for (int r = 0; r < rows; r++) {
        int64_t lo, hi;
        QK_TIER(visible)(a, b, (first + r) / group, &lo, &hi);
        w->lo[r] = (int)qk_max(0, qk_min(QK_PIECE, lo - start));
        w->hi[r] = (int)qk_max(w->lo[r], qk_min(QK_PIECE, hi - start));
        if (w->lo[r] < w->hi[r]) {
            from = (int)qk_min(from, w->lo[r] / 16 * 16);
            keys = (int)qk_max(keys, w->hi[r]);
        }
        if (a->blocks) {
            int64_t head = g * group + (first + r) % group, row = (qk_attention_past(a, b) + (first + r) / group) >> a->block_log2;
            row = qk_max(0, qk_min(row, a->block_count - 1)); /* of a row that sees nothing */
            w->blocks[r] = a->blocks + (head % a->layouts * a->block_count + row) * a->block_count + (start >> a->block_log2);
        } else
            w->blocks[r] = NULL;
        m[r] = -INFINITY;
        l[r] = 0;
    }
    if (!keys)
        return;
    const void *k = gathered ? NULL : QK_TIER(piece_of)(a, a->k, k_dtype, b, g, start, a->k_batch, a->k_head, k_stride);
    const void *v = gathered ? NULL : QK_TIER(piece_of)(a, a->v, v_dtype, b, g, start, a->v_batch, a->v_head, v_stride);
    const float *k_rows = a->k_rows ? a->k_rows + b * a->rows_batch + g * a->rows_head + start : NULL;
    const float *v_rows = a->v_rows ? a->v_rows + b * a->rows_batch + g * a->rows_head + start : NULL;
    int64_t next = a->pages ? 0 : a->keys - start - QK_PIECE;
    qk_attention_ahead values = {v, qk_cache_bytes(v_dtype, v_stride), qk_cache_bytes(v_dtype, dv), gathered ? 0 : keys};
    qk_attention_ahead next_keys = {QK_TIER(at)(k, k_dtype, QK_PIECE * k_stride), qk_cache_bytes(k_dtype, k_stride), qk_cache_bytes(k_dtype, d),
                                    (int)qk_max(0, qk_min(QK_PIECE, next))};
    /* where several tiles read the same keys, widen and gather them once; and where a head is no whole number of vectors, pad it */
    int coded = qk_attention_is_coded(a), wide = rows > 4;
    const void *first_key = gathered ? NULL : QK_TIER(at)(k, k_dtype, from * k_stride);
    int new_bias = !a->new_k && a->k_bias; /* which the keys and values do not have yet */
#if V16_ACCUMULATORS > 1
    if (rows >= QK_TURN_ROWS) {
        if (coded)
            QK_TIER(turn_codes)(first_key, k_stride, (int32_t *)w->k, from, keys, d);
        else
            QK_TIER(turn)(a, w, k, b, g, start, from, keys);
        QK_TIER(scores_of_turned)(w, rows, w->k, coded, from, keys, a->scale, a->block_log2);
    } else
#endif
    {
        if (gathered) {
            QK_TIER(gather)(a, a->k, k_dtype, b, start, a->k_batch, g * a->k_head, k_stride, QK_TIER(scales)(a->k_scale, g * d), w->k, from, keys, d);
            k = w->k, k_dtype = QK_F32, k_stride = w->d;
        } else if (coded && (wide || d % 32)) {
            QK_TIER(widen_codes)(first_key, k_stride, (int16_t *)w->k + from * qk_attention_pad_codes(d), keys - from, d);
            k = w->k, k_dtype = QK_CODES_WIDE, k_stride = 2 * qk_attention_pad_codes(d);
        } else if (!coded && (new_bias || d != w->d || a->k_scale || k_dtype > QK_BF16 || (wide && (k_dtype != QK_F32 || k_stride != d)))) {
            QK_TIER(widen)(first_key, k_dtype, k_stride, QK_TIER(scales)(a->k_scale, g * d), w->k + from * w->d, keys - from, d);
            k = w->k, k_dtype = QK_F32, k_stride = w->d;
        }
        for (int j = from; new_bias && j < keys; j++)
            QK_TIER(add_bias)(w->k + j * w->d, a->k_bias + g * d, a->q_dtype, d);
        QK_TIER(scores)(w, rows, k, k_dtype, coded ? k_stride : qk_cache_bytes(k_dtype, k_stride), from, keys, a->scale, a->block_log2, &values);
    }
    from = QK_PIECE, keys = 0;
    for (int r = 0; r < rows; r++) {
        int64_t query = (first + r) / group, head = g * group + (first + r) % group;
        int64_t mask = b * a->mask_batch + head * a->mask_head + query * a->mask_row + start;
        float *scores = w->s + r * QK_PIECE;
        QK_TIER(softmax)(a, mask, w->q_scale[r], k_rows, v_rows, w->blocks[r], scores, &w->lo[r], &w->hi[r], &m[r], &l[r], &w->p_largest[r]);
        if (w->lo[r] < w->hi[r]) {
            from = (int)qk_min(from, w->lo[r] / 16 * 16);
            keys = (int)qk_max(keys, w->hi[r]);
        }
    }
    const void *first_value = gathered ? NULL : QK_TIER(at)(v, v_dtype, from * v_stride);
    if (coded) {
        wide |= dv % 32 != 0;
        if (wide) {
            QK_TIER(widen_pairs)(first_value, v_stride, (int32_t *)w->v + from / 2 * w->dv, keys - from, dv);
            v = w->v, v_stride = 4 * w->dv;
        }
        QK_TIER(values_of_codes)(w, o, rows, v, wide, v_stride, from, keys, &next_keys);
        return;
    }
    if (gathered) {
        QK_TIER(gather)(a, a->v, v_dtype, b, start, a->v_batch, g * a->v_head, v_stride, QK_TIER(scales)(a->v_scale, g * dv), w->v, from, keys, dv);
        v = w->v, v_dtype = QK_F32, v_stride = w->dv;
    } else if (new_bias || dv != w->dv || a->v_scale || v_dtype > QK_BF16 || (wide && (v_dtype != QK_F32 || v_stride != dv))) {
        QK_TIER(widen)(first_value, v_dtype, v_stride, QK_TIER(scales)(a->v_scale, g * dv), w->v + from * w->dv, keys - from, dv);
        v = w->v, v_dtype = QK_F32, v_stride = w->dv;
    }
    for (int j = from; new_bias && j < keys; j++)
        QK_TIER(add_bias)(w->v + j * w->dv, a->v_bias + g * dv, a->q_dtype, dv);
    memset(o, 0, 4 * (size_t)(rows * w->dv));
    QK_TIER(values)(w, o, rows, v, v_dtype, qk_cache_bytes(v_dtype, v_stride), from, keys, a->block_log2, &next_keys);
}

/* one piece's m, l, o into the running M, L, O of a row */
static void QK_TIER(merge)(const qk_attention_work *w, float *m_total, float *l_total, float *total, float m, float l, const float *o)
{
    if (m == -INFINITY)
        return;
    if (*m_total == -INFINITY) { /* the first: a is 1 and b is 0 */
        for (int64_t c = 0; c < w->dv; c += 16)
            v16_store(total + c, v16_add(v16_load(o + c), v16_zero()));
        *l_total = l;
        *m_total = m;
        return;
    }
    float top = *m_total > m ? *m_total : m;
    v16 keep = v16_exp(v16_set1(*m_total - top)), add = v16_exp(v16_set1(m - top));
    for (int64_t c = 0; c < w->dv; c += 16)
        v16_store(total + c, v16_fma(v16_load(o + c), add, v16_mul(v16_load(total + c), keep)));
    v16_store_n(l_total, v16_fma(v16_set1(l), add, v16_mul(v16_set1(*l_total), keep)), 1);
    *m_total = top;
}

/* the sink, division, and the row as it leaves */
static void QK_TIER(finish_row)(const qk_attention_args *a, const qk_attention_work *w, int64_t b, int64_t head, int64_t query, float *total, float m,
                                float l)
{
    if (a->starts && query >= qk_attention_count(a, b))
        return; /* the row is another sequence's */
    char *y = (char *)QK_TIER(token)(a, a->y, a->y_dtype, b, head, query, a->y_batch, a->y_head, a->y_row);
    if (a->sink && m != -INFINITY) {
        memset(w->o, 0, 4 * (size_t)w->dv);
        QK_TIER(merge)(w, &m, &l, total, a->sink[head], 1, w->o);
    }
    for (int64_t c = 0; c < a->dv; c += 16) {
        v16 x = m == -INFINITY ? v16_zero() : v16_div(v16_load(total + c), v16_set1(l));
        v16_store_as(a->y_dtype, y + c * qk_itemsize(a->y_dtype), x, (int)qk_min(16, a->dv - c));
    }
    if (a->statistics) {
        float *pair = a->statistics + 2 * ((b * a->heads + head) * a->rows + query);
        pair[0] = m, pair[1] = l;
    }
}

/* ---- tasks ---- */

/* few rows: task = (batch, kv head, piece); its o, m and l go to the buffer */
static void QK_TIER(piece)(const qk_attention_args *a, float *scratch, float *partials, int64_t task)
{
    qk_attention_work w = QK_TIER(attention_work)(a, scratch);
    int64_t pieces = qk_attention_pieces(a), piece = task % pieces, g = task / pieces % a->kv_heads, b = task / pieces / a->kv_heads;
    int64_t rows = qk_attention_rows(a);
    float *o = partials + task * qk_attention_partial(a), *m = o + rows * w.dv;
    QK_TIER(load_rows)(a, &w, b, g, 0, (int)rows);
    QK_TIER(attend)(a, &w, b, g, 0, (int)rows, piece, o, m, m + rows);
}

/* the pieces of the rows [first, last) of (batch, heads, rows) in order */
static void QK_TIER(combine)(const qk_attention_args *a, float *scratch, const float *partials, int64_t first, int64_t last)
{
    qk_attention_work w = QK_TIER(attention_work)(a, scratch);
    int64_t group = qk_attention_group(a), rows = qk_attention_rows(a), pieces = qk_attention_pieces(a), size = qk_attention_partial(a);
    for (int64_t item = first; item < last; item++) {
        int64_t query = item % a->rows, head = item / a->rows % a->heads, b = item / a->rows / a->heads, r = query * group + head % group;
        const float *o = partials + (b * a->kv_heads + head / group) * pieces * size;
        float m = -INFINITY, l = 0;
        memset(w.total, 0, 4 * (size_t)w.dv);
        for (int64_t p = 0; p < pieces; p++, o += size)
            QK_TIER(merge)(&w, &m, &l, w.total, o[rows * w.dv + r], o[rows * w.dv + rows + r], o + r * w.dv);
        QK_TIER(finish_row)(a, &w, b, head, query, w.total, m, l);
    }
}

/* many rows: task = (batch, kv head, block of rows), which walks the pieces; the last blocks, which see the most keys, come first */
static void QK_TIER(block)(const qk_attention_args *a, float *scratch, int64_t task)
{
    qk_attention_work w = QK_TIER(attention_work)(a, scratch);
    int64_t group = qk_attention_group(a), blocks = qk_attention_blocks(a);
    int64_t g = task / blocks % a->kv_heads, b = task / blocks / a->kv_heads, first = (blocks - 1 - task % blocks) * QK_ROWS;
    int rows = (int)qk_min(QK_ROWS, qk_attention_rows(a) - first);
    int64_t begin = a->keys, end = 0;
    QK_TIER(load_rows)(a, &w, b, g, first, rows);
    memset(w.total, 0, 4 * (size_t)(rows * w.dv));
    for (int r = 0; r < rows; r++) {
        int64_t lo, hi;
        QK_TIER(visible)(a, b, (first + r) / group, &lo, &hi);
        begin = qk_min(begin, lo);
        end = qk_max(end, hi);
        w.m_total[r] = -INFINITY;
        w.l_total[r] = 0;
    }
    for (int64_t piece = begin / QK_PIECE; piece * QK_PIECE < end; piece++) {
        QK_TIER(attend)(a, &w, b, g, first, rows, piece, w.o, w.m, w.l);
        for (int r = 0; r < rows; r++)
            QK_TIER(merge)(&w, &w.m_total[r], &w.l_total[r], w.total + r * w.dv, w.m[r], w.l[r], w.o + r * w.dv);
    }
    for (int r = 0; r < rows; r++)
        QK_TIER(finish_row)(a, &w, b, g * group + (first + r) % group, (first + r) / group, w.total + r * w.dv, w.m_total[r], w.l_total[r]);
}

/* task = (batch, kv head, block of rows): all its scores, or probabilities, whatever a row sees */
static void QK_TIER(all_scores)(const qk_attention_args *a, float *scratch, int64_t task)
{
    qk_attention_work w = QK_TIER(attention_work)(a, scratch);
    int64_t group = qk_attention_group(a), blocks = qk_attention_blocks(a);
    int64_t g = task / blocks % a->kv_heads, b = task / blocks / a->kv_heads, first = task % blocks * QK_ROWS;
    int rows = (int)qk_min(QK_ROWS, qk_attention_rows(a) - first), on;
    qk_attention_ahead none = {0};
    QK_TIER(load_rows)(a, &w, b, g, first, rows);
    for (int64_t start = 0; start < a->scores_keys; start += QK_PIECE) {
        const void *k = QK_TIER(at)(a->k, a->k_dtype, b * a->k_batch + g * a->k_head + start * a->k_row);
        int keys = (int)qk_min(QK_PIECE, a->scores_keys - start);
        QK_TIER(widen)(k, a->k_dtype, a->k_row, QK_TIER(scales)(a->k_scale, g * a->d), w.k, keys, a->d);
        for (int j = 0; a->k_bias && !a->new_k && j < keys; j++)
            QK_TIER(add_bias)(w.k + j * w.d, a->k_bias + g * a->d, a->q_dtype, a->d);
        for (int r = 0; r < rows; r++) {
            w.lo[r] = 0;
            w.hi[r] = keys;
        }
        QK_TIER(scores)(&w, rows, w.k, QK_F32, 4 * w.d, 0, keys, a->scale, 0, &none);
        for (int r = 0; r < rows; r++) {
            int64_t query = (first + r) / group, head = g * group + (first + r) % group, lo, hi;
            int64_t row = (b * a->heads + head) * a->rows + query, mask = b * a->mask_batch + head * a->mask_head + query * a->mask_row + start;
            const float *statistics = a->statistics ? a->statistics + 2 * row : NULL;
            QK_TIER(visible)(a, b, query, &lo, &hi);
            for (int j = 0; j < keys; j += 16) {
                int n = (int)qk_min(16, keys - j);
                float *s = w.s + r * QK_PIECE + j;
                v16 x = v16_load(s);
                if (a->scores_mode == QK_SCORES_CAPPED)
                    x = QK_TIER(capped)(a, x);
                if (a->scores_mode >= QK_SCORES_MASKED) {
                    int within = (int)qk_max(0, qk_min(n, a->keys - start - j)); /* a mask may end before the keys do */
                    on = 0;
                    if (within)
                        x = QK_TIER(capped_and_masked)(a, x, mask + j, within, &on);
                    v16_store(s, x);
                    for (int i = 0; i < n; i++)
                        if (start + j + i < lo || start + j + i >= hi)
                            s[i] = a->scores_mode == QK_SCORES_MASKED ? a->scores_hidden : -INFINITY;
                        else if (!(on >> i & 1))
                            s[i] = -INFINITY;
                    x = v16_load(s);
                }
                if (a->scores_mode == QK_PROBABILITIES) {
                    x = v16_div(v16_exp(v16_sub(x, v16_set1(statistics[0]))), v16_set1(statistics[1]));
                    x = statistics[0] == -INFINITY ? v16_zero() : x; /* a row that sees no key */
                }
                v16_store_as(a->y_dtype, (char *)QK_TIER(at)(a->scores, a->y_dtype, row * a->scores_keys + start + j), x, n);
            }
        }
    }
}

const qk_attention_table QK_TIER(attention_kernels) = {QK_TIER(append), QK_TIER(piece), QK_TIER(combine), QK_TIER(block), QK_TIER(all_scores)};
