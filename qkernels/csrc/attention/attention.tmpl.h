/* The body of attention, once for all tiers; attention.h states the numerics. Tiles (how many rows and keys or columns are held in
 * registers at once) depend on the tier and on what is left to do; no result depends on them, since each score and each o[d] is its own
 * chain of additions. */
#include "attention/attention.h"

#include <math.h>

#define QK_TILED static inline __attribute__((always_inline))
#if V16_ACCUMULATORS > 1
#define QK_EACH QK_UNROLL for /* over a tile in registers */
#else
#define QK_EACH for
#endif
#if V16_ACCUMULATORS == 4 /* gcc's allocator must be told: hold an operand in its two registers, keep finished sums out of them */
#define QK_HOLD(a) __asm__("" : "+x"((a).lo), "+x"((a).hi))
#define QK_TO_MEMORY(a) __asm__ volatile("" : : "r"(a) : "memory")
#else
#define QK_HOLD(a) (void)(a)
#define QK_TO_MEMORY(a) (void)(a)
#endif

enum { QK_PIECE = QK_ATTENTION_PIECE, QK_ROWS = QK_ATTENTION_ROWS };

/* One thread's working memory; strides are padded to 16 and the padding of q and k is zero. */
typedef struct {
    float *q;                 /* (QK_ROWS, d) */
    float *s;                 /* (QK_ROWS, QK_PIECE): scores, then probabilities */
    float *o;                 /* (QK_ROWS, dv) of one piece */
    float *total;             /* (QK_ROWS, dv) of the pieces so far */
    float *k, *v;             /* (QK_PIECE, d), (QK_PIECE, dv): widened */
    float *m, *l, *m_total, *l_total; /* (QK_ROWS) */
    int64_t d, dv;            /* padded */
    int lo[QK_ROWS], hi[QK_ROWS]; /* the keys of the piece that a row sees */
} qk_attention_work;

/* What is wanted next, fetched into the second-level cache row by row while the present keys are worked on: the values of this piece
 * during its scores, the keys of the next piece during its values. */
typedef struct {
    const char *p;
    int64_t stride, bytes; /* of a row */
    int rows;
} qk_attention_ahead;

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
    qk_attention_work w = {.d = qk_attention_pad(a->d), .dv = qk_attention_pad(a->dv)};
    w.q = p;
    w.s = w.q + QK_ROWS * w.d;
    w.o = w.s + QK_ROWS * QK_PIECE;
    w.total = w.o + QK_ROWS * w.dv;
    w.k = w.total + QK_ROWS * w.dv;
    w.v = w.k + QK_PIECE * w.d;
    w.m = w.v + QK_PIECE * w.dv;
    w.l = w.m + QK_ROWS;
    w.m_total = w.l + QK_ROWS;
    w.l_total = w.m_total + QK_ROWS;
    return w;
}

static inline const void *QK_TIER(at)(const void *p, int dtype, int64_t element) { return (const char *)p + element * qk_itemsize(dtype); }

/* (rows, n) of any float type to float32 rows of n padded to 16 with zeros */
static void QK_TIER(widen)(const void *x, int dtype, int64_t stride, float *y, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c += 16)
            v16_store(y + r * qk_attention_pad(n) + c, v16_load_as(dtype, QK_TIER(at)(x, dtype, r * stride + c), (int)qk_min(16, n - c)));
}

/* float32 vectors of n lanes; whole ones without a mask, since what a masked store wrote cannot be forwarded to a load */
static inline v16 QK_TIER(load)(const float *p, int64_t n) { return v16_load_as(QK_F32, p, (int)qk_min(16, n)); }
static inline void QK_TIER(store)(float *p, v16 x, int64_t n) { v16_store_as(QK_F32, p, x, (int)qk_min(16, n)); }

/* One head of one token: widened, normalized with `weight` (the bits of RMS normalization: vector i to accumulator i mod 4), rotated to
 * `position` (the bits of rotary embedding: each product rounded). y has d padded to 16, the padding zero. */
static void QK_TIER(prepare)(const qk_attention_args *a, const void *x, int dtype, const float *weight, int64_t position, float *y)
{
    int64_t d = a->d, half = a->half;
    QK_TIER(widen)(x, dtype, 0, y, 1, d);
    if (weight) {
        v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
        int64_t c = 0;
        for (; c + 64 <= d; c += 64)
            QK_EACH (int j = 0; j < 4; j++) acc[j] = v16_fma(v16_load(y + c + 16 * j), v16_load(y + c + 16 * j), acc[j]);
        QK_EACH (int j = 0; j < 4; j++)
            if (c + 16 * j < d)
                acc[j] = v16_fma(v16_load(y + c + 16 * j), v16_load(y + c + 16 * j), acc[j]);
        float squares = v16_reduce_add(v16_add(v16_add(acc[0], acc[1]), v16_add(acc[2], acc[3])));
        v16 inv = v16_div(v16_set1(1.0f), v16_sqrt(v16_set1(squares / (float)d + a->epsilon)));
        for (c = 0; c < d; c += 16)
            QK_TIER(store)(y + c, v16_mul(v16_mul(v16_load(y + c), inv), QK_TIER(load)(weight + c, d - c)), d - c);
    }
    if (a->cos)
        for (int64_t c = 0; c < half; c += 16) {
            v16 x1 = QK_TIER(load)(y + c, half - c), x2 = QK_TIER(load)(y + half + c, half - c);
            v16 cosine = QK_TIER(load)(a->cos + position * half + c, half - c), sine = QK_TIER(load)(a->sin + position * half + c, half - c);
            QK_TIER(store)(y + c, v16_sub(v16_mul(x1, cosine), v16_mul(x2, sine)), half - c);
            QK_TIER(store)(y + half + c, v16_add(v16_mul(x2, cosine), v16_mul(x1, sine)), half - c);
        }
}

/* New keys and values into the cache, items numbered (batch, rows, kv_heads). */
static void QK_TIER(append)(const qk_attention_args *a, float *scratch, int64_t first, int64_t last)
{
    for (int64_t item = first; item < last; item++) {
        int64_t g = item % a->kv_heads, i = item / a->kv_heads % a->rows, b = item / a->kv_heads / a->rows, position = a->past + i;
        int64_t from = b * a->q_batch + g * a->q_head + i * a->q_row;
        char *k = (char *)QK_TIER(at)(a->k, a->k_dtype, b * a->k_batch + g * a->k_head + position * a->k_row);
        char *v = (char *)QK_TIER(at)(a->v, a->v_dtype, b * a->v_batch + g * a->v_head + position * a->v_row);
        QK_TIER(prepare)(a, a->new_k + from, QK_F32, a->k_norm, position, scratch);
        for (int64_t c = 0; c < a->d; c += 16)
            v16_store_as(a->k_dtype, k + c * qk_itemsize(a->k_dtype), v16_load(scratch + c), (int)qk_min(16, a->d - c));
        for (int64_t c = 0; c < a->dv; c += 16) {
            int n = (int)qk_min(16, a->dv - c);
            v16_store_as(a->v_dtype, v + c * qk_itemsize(a->v_dtype), QK_TIER(load)(a->new_v + from + c, n), n);
        }
    }
}

/* ---- scores ---- */

/* The scaled scores of qr rows of q (stride d, a multiple of 16) against the 16 / qr keys from `first` on; keys beyond `last` repeat it, so
 * that nothing behind it is read. Row i's go to s + i * QK_PIECE + first. */
QK_TILED void QK_TIER(scores_tile)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, int first, int last, float scale,
                                   const int dtype, const int qr)
{
    const int kr = 16 / qr, size = dtype == QK_F32 ? 4 : 2;
    const int tq = V16_ACCUMULATORS == 16 ? qr : V16_ACCUMULATORS == 4 && qr > 1 ? 2 : 1, tk = V16_ACCUMULATORS / tq; /* held at once */
    v16 sums[16]; /* row * kr + key */
    float out[16];
    QK_EACH (int q0 = 0; q0 < qr; q0 += tq)
        QK_EACH (int k0 = 0; k0 < kr; k0 += tk) {
            v16 acc[V16_ACCUMULATORS], x[4];
            const char *row[V16_ACCUMULATORS];
            QK_EACH (int j = 0; j < V16_ACCUMULATORS; j++) acc[j] = v16_zero();
            QK_EACH (int j = 0; j < tk; j++) row[j] = k + qk_min(first + k0 + j, last) * bytes;
            for (int64_t c = 0; c < d; c += 16) {
                QK_EACH (int i = 0; i < tq; i++) {
                    x[i] = v16_load(q + (q0 + i) * d + c);
                    QK_HOLD(x[i]);
                }
                QK_EACH (int j = 0; j < tk; j++) {
                    v16 y = v16_load_as(dtype, row[j] + c * size, 16);
                    if (tq > 1)
                        QK_HOLD(y);
                    QK_EACH (int i = 0; i < tq; i++) acc[i * tk + j] = v16_fma(x[i], y, acc[i * tk + j]);
                }
            }
            QK_EACH (int i = 0; i < tq; i++)
                QK_EACH (int j = 0; j < tk; j++) sums[(q0 + i) * kr + k0 + j] = acc[i * tk + j];
            QK_TO_MEMORY(sums);
        }
    v16_store(out, v16_mul(v16_reduce_add_16(sums), v16_set1(scale)));
    QK_EACH (int i = 0; i < qr; i++) memcpy(s + i * QK_PIECE + first, out + i * kr, 4 * (size_t)kr);
}

/* each tile a function of its own: the registers are all for its inner loop */
typedef void (*qk_scores_tile)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, int first, int last, float scale);
#define QK_SCORES(dtype, qr) \
    static __attribute__((noinline)) void QK_TIER(scores_##dtype##_##qr)(float *s, const float *q, const char *k, int64_t bytes, int64_t d, \
                                                                         int first, int last, float scale) \
    { \
        QK_TIER(scores_tile)(s, q, k, bytes, d, first, last, scale, dtype, qr); \
    }
QK_SCORES(QK_F32, 1) QK_SCORES(QK_F32, 2) QK_SCORES(QK_F32, 4)
QK_SCORES(QK_F16, 1) QK_SCORES(QK_F16, 2) QK_SCORES(QK_F16, 4)
QK_SCORES(QK_BF16, 1) QK_SCORES(QK_BF16, 2) QK_SCORES(QK_BF16, 4)
static const qk_scores_tile QK_TIER(scores_tiles)[3][3] = {
    {QK_TIER(scores_QK_F32_1), QK_TIER(scores_QK_F32_2), QK_TIER(scores_QK_F32_4)},
    {QK_TIER(scores_QK_F16_1), QK_TIER(scores_QK_F16_2), QK_TIER(scores_QK_F16_4)},
    {QK_TIER(scores_QK_BF16_1), QK_TIER(scores_QK_BF16_2), QK_TIER(scores_QK_BF16_4)},
};

static inline int QK_TIER(log2_tile)(int rows) { return rows >= 4 ? 2 : rows >= 2 ? 1 : 0; }

static void QK_TIER(scores)(const qk_attention_work *w, int rows, const void *k, int dtype, int64_t stride, int keys, float scale,
                            const qk_attention_ahead *ahead)
{
    for (int first = 0; first < keys; first += 16)
        for (int r = 0, log2, n; r < rows; r += n) {
            int seen = 0;
            log2 = QK_TIER(log2_tile)(rows - r);
            n = 1 << log2;
            for (int i = r; i < r + n; i++)
                seen |= w->lo[i] < first + 16 && w->hi[i] > first;
            for (int j = 0; j < 16; j += 16 / n) {
                if (!r)
                    QK_TIER(fetch)(ahead, first + j, first + j + 16 / n);
                if (seen)
                    QK_TIER(scores_tiles)[dtype][log2](w->s + r * QK_PIECE, w->q + r * w->d, (const char *)k, stride * qk_itemsize(dtype), w->d,
                                                       first + j, keys - 1, scale);
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

/* s[lo..hi) becomes p, with p = 0 up to whole groups of 16; lo and hi close in on what the mask leaves */
static void QK_TIER(softmax)(const qk_attention_args *a, int64_t mask, float *s, int *lo, int *hi, float *m, float *l)
{
    v16 hidden = v16_set1(-INFINITY), top = hidden, sum = v16_zero();
    int first = *lo / 16 * 16, last = *hi, seen_lo = *hi, seen_hi = *lo;
    for (int j = first; j < last; j += 16) {
        int n = (int)qk_min(16, last - j), before = (int)qk_max(0, *lo - j);
        v16 x = v16_load(s + j);
        if (a->softcap > 0)
            x = v16_mul(v16_set1(a->softcap), QK_TIER(tanh)(v16_div(x, v16_set1(a->softcap))));
        if (a->mask_dtype != QK_MASK_NONE) {
            v16 bias = QK_TIER(load_mask)(a->mask, a->mask_dtype, mask + j, n);
            m16 off = v16_eq(bias, hidden);
            int on = ~m16_bits(off) & ((1 << n) - 1) & ~((1 << before) - 1);
            x = v16_select(off, hidden, v16_add(x, bias));
            if (on) {
                seen_lo = (int)qk_min(seen_lo, j + __builtin_ctz(on));
                seen_hi = j + 32 - __builtin_clz(on);
            }
        }
        if (n < 16)
            x = v16_select(m16_first(n), x, hidden);
        if (before)
            x = v16_select(m16_first(before), hidden, x);
        v16_store(s + j, x);
        top = v16_max(top, v16_select(v16_isnan(x), v16_set1(INFINITY), x)); /* a NaN must neither get lost nor hide the row */
    }
    *m = v16_reduce_max(top);
    *l = 0;
    if (a->mask_dtype != QK_MASK_NONE) {
        *lo = seen_lo;
        *hi = seen_hi;
    }
    if (*m == -INFINITY || *lo >= *hi) {
        *m = -INFINITY;
        *lo = *hi = 0;
        return;
    }
    top = v16_set1(*m);
    for (int j = first; j < last; j += 16) {
        v16 p = v16_exp(v16_sub(v16_load(s + j), top));
        v16_store(s + j, p);
        sum = v16_add(sum, p);
    }
    *l = v16_reduce_add(sum);
}

/* ---- values ---- */

/* o[0 .. pr)[c .. c + 16 pc) += p * v over n keys in order; o has the stride dv, a multiple of 16 */
QK_TILED void QK_TIER(values_columns)(float *o, int64_t dv, const float *p, const char *v, int64_t bytes, int64_t c, int n, const int dtype,
                                      const int pr, const int pc)
{
    const int size = dtype == QK_F32 ? 4 : 2;
    v16 acc[16], y[8];
    QK_EACH (int i = 0; i < pr; i++)
        QK_EACH (int x = 0; x < pc; x++) acc[i * pc + x] = v16_load(o + i * dv + c + 16 * x);
    v += c * size;
    for (int j = 0; j < n; j++, v += bytes) {
        QK_EACH (int x = 0; x < pc; x++) y[x] = v16_load_as(dtype, v + 16 * x * size, 16);
        QK_EACH (int i = 0; i < pr; i++) {
            v16 weight = v16_set1(p[i * QK_PIECE + j]);
            QK_EACH (int x = 0; x < pc; x++) acc[i * pc + x] = v16_fma(weight, y[x], acc[i * pc + x]);
        }
    }
    QK_EACH (int i = 0; i < pr; i++)
        QK_EACH (int x = 0; x < pc; x++) v16_store(o + i * dv + c + 16 * x, acc[i * pc + x]);
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
QK_VALUES(QK_F32, 1) QK_VALUES(QK_F32, 2) QK_VALUES(QK_F32, 4)
QK_VALUES(QK_F16, 1) QK_VALUES(QK_F16, 2) QK_VALUES(QK_F16, 4)
QK_VALUES(QK_BF16, 1) QK_VALUES(QK_BF16, 2) QK_VALUES(QK_BF16, 4)
static const qk_values_tile QK_TIER(values_tiles)[3][3] = {
    {QK_TIER(values_QK_F32_1), QK_TIER(values_QK_F32_2), QK_TIER(values_QK_F32_4)},
    {QK_TIER(values_QK_F16_1), QK_TIER(values_QK_F16_2), QK_TIER(values_QK_F16_4)},
    {QK_TIER(values_QK_BF16_1), QK_TIER(values_QK_BF16_2), QK_TIER(values_QK_BF16_4)},
};

/* o of `rows` rows += p * v over what each sees of the piece, in key order */
static void QK_TIER(values)(const qk_attention_work *w, float *o, int rows, const void *v, int dtype, int64_t stride, int keys,
                            const qk_attention_ahead *ahead)
{
    const qk_values_tile *tiles = QK_TIER(values_tiles)[dtype];
    int64_t bytes = stride * qk_itemsize(dtype);
    /* with several tiles, as many keys as stay in the first-level cache for all of them; with one, short bursts of fetching ahead */
    const int step = rows > 4 ? 64 : 16;
    for (int base = 0; base < keys; base += step) {
        QK_TIER(fetch)(ahead, base, base + step);
        for (int r = 0, log2, n; r < rows; r += n) {
            int lo[4], hi[4], from = base, to = base + step;
            log2 = QK_TIER(log2_tile)(rows - r);
            n = 1 << log2;
            for (int i = 0; i < n; i++) {
                lo[i] = (int)qk_max(base, w->lo[r + i]);
                hi[i] = (int)qk_min(base + step, w->hi[r + i]);
                from = (int)qk_max(from, lo[i]);
                to = (int)qk_min(to, hi[i]);
            }
            to = (int)qk_max(from, to);
            /* [from, to) is common; keys that only some rows of the tile see come one row at a time, before and after it */
            for (int pass = 0; pass < 3; pass++) {
                if (pass == 1) {
                    if (from < to)
                        tiles[log2](o + r * w->dv, w->dv, w->s + r * QK_PIECE + from, (const char *)v + from * bytes, bytes, to - from);
                    continue;
                }
                for (int i = 0; i < n; i++) {
                    int j = pass ? (int)qk_max(to, lo[i]) : lo[i], end = pass ? hi[i] : (int)qk_min(from, hi[i]);
                    if (j < end)
                        tiles[0](o + (r + i) * w->dv, w->dv, w->s + (r + i) * QK_PIECE + j, (const char *)v + j * bytes, bytes, end - j);
                }
            }
        }
    }
}

/* ---- pieces and rows ---- */

/* the keys that a query sees by length and causality: [0, end) */
static inline int64_t QK_TIER(visible)(const qk_attention_args *a, int64_t query)
{
    return a->causal ? qk_min(a->keys, a->past + query + 1) : a->keys;
}

static inline const char *QK_TIER(row_of_q)(const qk_attention_args *a, int64_t b, int64_t g, int64_t row)
{
    int64_t group = qk_attention_group(a), head = g * group + row % group;
    return (const char *)QK_TIER(at)(a->q, a->q_dtype, b * a->q_batch + head * a->q_head + row / group * a->q_row);
}

/* q of the rows [first, first + rows) of kv head g, widened and prepared */
static void QK_TIER(load_rows)(const qk_attention_args *a, const qk_attention_work *w, int64_t b, int64_t g, int64_t first, int rows)
{
    for (int r = 0; r < rows; r++) {
        const char *q = QK_TIER(row_of_q)(a, b, g, first + r);
        if (r + 4 < rows) { /* the heads of one kv head lie scattered over the tokens' rows, where no prefetcher follows */
            const char *ahead = QK_TIER(row_of_q)(a, b, g, first + r + 4);
            for (int64_t i = 0; i < a->d * qk_itemsize(a->q_dtype); i += 64)
                __builtin_prefetch(ahead + i);
        }
        QK_TIER(prepare)(a, q, a->q_dtype, a->q_norm, a->past + (first + r) / qk_attention_group(a), w->q + r * w->d);
    }
}

/* m, l and o of the loaded rows in one piece */
static void QK_TIER(attend)(const qk_attention_args *a, qk_attention_work *w, int64_t b, int64_t g, int64_t first, int rows, int64_t piece,
                            float *o, float *m, float *l)
{
    int64_t group = qk_attention_group(a), start = piece * QK_PIECE, k_stride = a->k_row, v_stride = a->v_row, d = a->d, dv = a->dv;
    const void *k = QK_TIER(at)(a->k, a->k_dtype, b * a->k_batch + g * a->k_head + start * a->k_row);
    const void *v = QK_TIER(at)(a->v, a->v_dtype, b * a->v_batch + g * a->v_head + start * a->v_row);
    int k_dtype = a->k_dtype, v_dtype = a->v_dtype, keys = 0;
    for (int r = 0; r < rows; r++) {
        w->lo[r] = 0;
        w->hi[r] = (int)qk_max(0, qk_min(QK_PIECE, QK_TIER(visible)(a, (first + r) / group) - start));
        keys = (int)qk_max(keys, w->hi[r]);
    }
    int64_t next = a->keys - start - QK_PIECE;
    qk_attention_ahead values = {v, v_stride * qk_itemsize(v_dtype), dv * qk_itemsize(v_dtype), keys};
    qk_attention_ahead next_keys = {QK_TIER(at)(k, k_dtype, QK_PIECE * k_stride), k_stride * qk_itemsize(k_dtype), d * qk_itemsize(k_dtype),
                                    (int)qk_max(0, qk_min(QK_PIECE, next))};
    /* where several tiles read the same keys, widen and gather them once; and where a head is no whole number of vectors, pad it */
    if (d != w->d || (rows > 4 && (k_dtype != QK_F32 || k_stride != d))) {
        QK_TIER(widen)(k, k_dtype, k_stride, w->k, keys, d);
        k = w->k, k_dtype = QK_F32, k_stride = w->d;
    }
    QK_TIER(scores)(w, rows, k, k_dtype, k_stride, keys, a->scale, &values);
    keys = 0;
    for (int r = 0; r < rows; r++) {
        int64_t query = (first + r) / group, head = g * group + (first + r) % group;
        int64_t mask = b * a->mask_batch + head * a->mask_head + query * a->mask_row + start;
        QK_TIER(softmax)(a, mask, w->s + r * QK_PIECE, &w->lo[r], &w->hi[r], &m[r], &l[r]);
        keys = (int)qk_max(keys, w->hi[r]);
    }
    if (dv != w->dv || (rows > 4 && (v_dtype != QK_F32 || v_stride != dv))) {
        QK_TIER(widen)(v, v_dtype, v_stride, w->v, keys, dv);
        v = w->v, v_dtype = QK_F32, v_stride = w->dv;
    }
    memset(o, 0, 4 * (size_t)(rows * w->dv));
    QK_TIER(values)(w, o, rows, v, v_dtype, v_stride, keys, &next_keys);
}

/* one piece's m, l, o into the running M, L, O of a row */
static void QK_TIER(merge)(const qk_attention_work *w, float *m_total, float *l_total, float *total, float m, float l, const float *o)
{
    if (m == -INFINITY)
        return;
    float top = *m_total > m ? *m_total : m;
    v16 keep = v16_exp(v16_set1(*m_total - top)), add = v16_exp(v16_set1(m - top));
    for (int64_t c = 0; c < w->dv; c += 16)
        v16_store(total + c, v16_fma(v16_load(o + c), add, v16_mul(v16_load(total + c), keep)));
    v16_store_n(l_total, v16_fma(v16_set1(l), add, v16_mul(v16_set1(*l_total), keep)), 1);
    *m_total = top;
}

static void QK_TIER(store_row)(const qk_attention_args *a, int64_t b, int64_t head, int64_t query, const float *total, float m_total, float l_total)
{
    char *y = (char *)QK_TIER(at)(a->y, a->y_dtype, b * a->y_batch + head * a->y_head + query * a->y_row);
    for (int64_t c = 0; c < a->dv; c += 16) {
        v16 x = m_total == -INFINITY ? v16_zero() : v16_div(v16_load(total + c), v16_set1(l_total));
        v16_store_as(a->y_dtype, y + c * qk_itemsize(a->y_dtype), x, (int)qk_min(16, a->dv - c));
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
        QK_TIER(store_row)(a, b, head, query, w.total, m, l);
    }
}

/* many rows: task = (batch, kv head, block of rows), which walks the pieces; the last blocks, which see the most keys, come first */
static void QK_TIER(block)(const qk_attention_args *a, float *scratch, int64_t task)
{
    qk_attention_work w = QK_TIER(attention_work)(a, scratch);
    int64_t group = qk_attention_group(a), blocks = qk_attention_blocks(a);
    int64_t g = task / blocks % a->kv_heads, b = task / blocks / a->kv_heads, first = (blocks - 1 - task % blocks) * QK_ROWS;
    int rows = (int)qk_min(QK_ROWS, qk_attention_rows(a) - first);
    int64_t keys = QK_TIER(visible)(a, (first + rows - 1) / group);
    QK_TIER(load_rows)(a, &w, b, g, first, rows);
    memset(w.total, 0, 4 * (size_t)(rows * w.dv));
    for (int r = 0; r < rows; r++) {
        w.m_total[r] = -INFINITY;
        w.l_total[r] = 0;
    }
    for (int64_t piece = 0; piece * QK_PIECE < keys; piece++) {
        QK_TIER(attend)(a, &w, b, g, first, rows, piece, w.o, w.m, w.l);
        for (int r = 0; r < rows; r++)
            QK_TIER(merge)(&w, &w.m_total[r], &w.l_total[r], w.total + r * w.dv, w.m[r], w.l[r], w.o + r * w.dv);
    }
    for (int r = 0; r < rows; r++)
        QK_TIER(store_row)(a, b, g * group + (first + r) % group, (first + r) / group, w.total + r * w.dv, w.m_total[r], w.l_total[r]);
}

const qk_attention_table QK_TIER(attention_kernels) = {QK_TIER(append), QK_TIER(piece), QK_TIER(combine), QK_TIER(block)};
