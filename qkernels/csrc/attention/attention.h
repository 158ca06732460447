/* Scaled dot-product attention: grouped heads, causal, masks; plain arrays or a cache; prefill and decode. One engine, one result.
 *
 * Numerics, the same for every query however it arrives, on every tier, with any number of threads:
 *   - q, scores, softmax and sums are float32; K and V (float32, float16, bfloat16) are widened where they are read.
 *   - score = 16 partial sums, lane l adds d = l, l+16, l+32 ... by fma in that order, then v16_reduce_add's tree; times scale; times the
 *     token's own scale in a cache of bytes; then the soft cap c * tanh(s / c); then the additive mask. A mask element of -inf hides its key whatever the score is.
 *   - keys are cut into pieces of 256 at absolute positions 0, 256, 512 ... Within one: m = max of the visible scores, p = exp(s - m), l = 16
 *     lane sums of p over groups of 16 keys in order, then the tree; o[d] = fma(p_j, v_j[d], o[d]) in key order from zero, p_j
 *     times the token's scale in a cache of bytes.
 *   - in a cache of bytes with a scale per token and d <= 512, q and p are codes as well, of 16 bits: code = round(x / scale), scale = the
 *     largest / 32767 of the row of q, or of the row's p (times the token's scale) in one piece; products are exact integers, the
 *     score = (float)sum * scale * q's scale * the token's, o[d] = (float)sum * p's scale.
 *   - pieces are combined in order: M' = max(M, m), a = exp(m - M'), b = exp(M - M'), O = fma(o, a, O * b), L = fma(l, a, L * b);
 *     a sink comes last, as a piece with m = sink, l = 1 and o = 0; y = O / L, rounded once. A piece without a visible key is skipped; a
 *     row without one is zero.
 *   - keys outside a row's range (causality, window, length, hidden ends of a piece, hidden blocks) are never multiplied, so what lies there
 *     cannot leak.
 *
 * With many rows keys are transposed first, a tile has 16 of them as lanes, and the partial sums are vectors: the same additions, none within a vector.
 *
 * Rows: the queries of all heads that share a kv head are the rows of one problem, row = query * group + head, so K and V are read once
 * for all of them. The work is cut into blocks of up to 128 rows. With few rows every (batch, kv head, piece) is a task that leaves its
 * m, l and o in a buffer, and a second phase combines them; with many, every (batch, kv head, block) is a task that walks the pieces. */
#ifndef QK_ATTENTION_H
#define QK_ATTENTION_H

#include "simd/tiers.h"

enum { QK_ATTENTION_PIECE = 256, QK_ATTENTION_ROWS = 128, QK_MASK_NONE = -1, QK_MASK_BOOL = 3 };

/* Element types that only a cache has, besides qk_dtype: signed bytes, and two elements of 4 bits in a byte, the first one low, stored + 8. A
 * value is its code times a scale, of its channel (k_scale), for which a piece is widened before it is used, or of its token (k_rows, bytes only),
 * which scores and probabilities are multiplied by. */
enum { QK_CACHE_I8 = 3, QK_CACHE_U4 = 4, QK_CODES_WIDE = 4 /* a tile's: bytes that have been widened to int16 */ };
enum { QK_CODE_LIMIT = 32767 }; /* of the codes of q and of probabilities */

/* bytes of n elements; n is even for 4 bits */
static inline int64_t qk_cache_bytes(int dtype, int64_t n)
{
    return dtype == QK_CACHE_I8 ? n : dtype == QK_CACHE_U4 ? n / 2 : n * qk_itemsize(dtype);
}

/* what the fourth output of ONNX's Attention holds: the scores, capped, masked, or the probabilities */
enum { QK_SCORES_RAW = 0, QK_SCORES_CAPPED = 1, QK_SCORES_MASKED = 2, QK_PROBABILITIES = 3 };

/* Strides count elements. Null pointers are absent inputs. */
typedef struct {
    const void *q, *k, *v; /* (batch, heads, rows, d), (batch, kv_heads, keys, d), (batch, kv_heads, keys, dv); the last stride is 1 */
    void *y;               /* (batch, heads, rows, dv) */
    const void *mask;      /* (batch, heads, rows, keys), the last stride 1; mask_dtype is a qk_dtype, QK_MASK_NONE or QK_MASK_BOOL */
    int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, y_batch, y_head, y_row, mask_batch, mask_head, mask_row;
    int q_dtype, k_dtype, v_dtype, y_dtype, mask_dtype;
    int64_t batch, heads, kv_heads, rows, keys, d, dv;
    int64_t past; /* position of the first query: the keys in front of it, below zero where there are fewer keys than queries */
    const int64_t *pasts, *ends, *counts; /* (batch), where sequences differ: their past, their keys, their queries; other rows are zero */
    int causal;                           /* query i sees the keys up to past + i */
    int64_t left, right;                  /* window: keys from past + i - left to past + i + right; -1: no bound */
    float scale, softcap;                 /* softcap 0: none */
    const float *sink;                    /* (heads) */
    const uint8_t *blocks;                /* (layouts, block_count, block_count): 0 where a block of positions does not see one of keys */
    int64_t layouts, block_count;         /* head h has the layout h mod layouts */
    int block_log2;                       /* of a block's keys, at least 4, so that it is whole groups of 16 */
    const float *k_scale, *v_scale;       /* (kv_heads, d), (kv_heads, dv) of a cache of codes */
    float *k_rows, *v_rows;               /* or (batch, kv_heads, keys) */
    int64_t rows_batch, rows_head;        /* their strides */

    /* Tokens of all sequences one behind the other, and a cache in pages: batch strides of q, y, new_k and new_v are not used, those of k and v
     * are of a page. */
    const int64_t *starts; /* (batch): each sequence's first row */
    const int64_t *pages;  /* (batch, pages_row): the page that has a sequence's keys [i page, (i + 1) page), below zero where none of them is seen */
    const int64_t *slots;  /* (all rows): page * number + place that a new token is written to, below zero for none */
    int64_t page, pages_row;

    /* The fused form: q is normalized per head and rotated as it is read; new keys likewise, and appended with new values at `past`. */
    const float *q_bias, *k_bias,
        *v_bias;                  /* (heads, d), (kv_heads, d), (kv_heads, dv): added first, rounded to q_dtype; to all keys where none are new */
    const float *q_norm, *k_norm; /* (d) */
    const float *cos, *sin;       /* (positions, half); query i takes row past + i, or positions[batch][i] */
    const int64_t *positions;     /* (batch, rows) */
    int64_t half, turned;         /* from `turned` on, dimensions i and half + i are a pair, or 2 i and 2 i + 1; the others stay */
    int interleaved;
    float q_epsilon, k_epsilon;
    const void *new_k, *new_v; /* (batch, kv_heads, rows, d) of q_dtype; null without an append, new_v also where values are a part of the keys */
    int64_t new_k_batch, new_k_head, new_k_row, new_v_batch, new_v_head, new_v_row;

    /* The scores as a result of their own. */
    float *statistics; /* (batch, heads, rows, 2): each row's M and L; null where they are not wanted */
    void *scores;      /* (batch, heads, rows, scores_keys) of y_dtype, contiguous */
    int64_t scores_keys;
    int scores_mode;
    float scores_hidden; /* what QK_SCORES_MASKED has for keys that causality, window and length hide */
} qk_attention_args;

typedef struct {
    void (*append)(const qk_attention_args *args, float *scratch, int64_t first, int64_t last);
    void (*piece)(const qk_attention_args *args, float *scratch, float *partials, int64_t task);
    void (*combine)(const qk_attention_args *args, float *scratch, const float *partials, int64_t first, int64_t last);
    void (*block)(const qk_attention_args *args, float *scratch, int64_t task);
    void (*scores)(const qk_attention_args *args, float *scratch, int64_t task);
} qk_attention_table;

QK_DECLARE_TABLES(qk_attention_table, attention);

/* floats of scratch that qk_attention wants, aligned to 64 bytes */
int64_t qk_attention_scratch(const qk_attention_args *args, int threads);
void qk_attention(int isa, int threads, const qk_attention_args *args, float *scratch);
/* fills args->scores, for QK_PROBABILITIES after qk_attention has filled args->statistics */
void qk_attention_scores(int isa, int threads, const qk_attention_args *args, float *scratch);

/* blocks of bytes, for a past into its present: most of the time of a step is this, and the new memory's pages */
void qk_attention_copy(int threads, char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t blocks, int64_t bytes);

/* geometry, shared by the driver and the bodies */
static inline int64_t qk_attention_group(const qk_attention_args *a) { return a->heads / a->kv_heads; }
static inline int64_t qk_attention_rows(const qk_attention_args *a) { return a->rows * qk_attention_group(a); } /* of one kv head */
static inline int64_t qk_attention_pieces(const qk_attention_args *a) { return qk_ceil_div(a->keys, QK_ATTENTION_PIECE); }
static inline int64_t qk_attention_blocks(const qk_attention_args *a) { return qk_ceil_div(qk_attention_rows(a), QK_ATTENTION_ROWS); }
static inline int64_t qk_attention_pad(int64_t n) { return qk_ceil_div(n, 16) * 16; }
/* rows that working memory is for: a step's stays small, or its allocation would cost as much as the step */
static inline int64_t qk_attention_held(const qk_attention_args *a) { return qk_min(QK_ATTENTION_ROWS, qk_attention_pad(qk_attention_rows(a))); }
static inline int64_t qk_attention_pad_codes(int64_t n) { return qk_ceil_div(n, 32) * 32; }
/* whether bytes are multiplied as integers: 512 * 127 * 32767 is less than 2^31 */
static inline int qk_attention_is_coded(const qk_attention_args *a) { return a->k_rows && a->d <= 512; }
static inline int64_t qk_attention_past(const qk_attention_args *a, int64_t b) { return a->pasts ? a->pasts[b] : a->past; }
static inline int64_t qk_attention_end(const qk_attention_args *a, int64_t b) { return a->ends ? a->ends[b] : a->keys; }
static inline int64_t qk_attention_count(const qk_attention_args *a, int64_t b) { return a->counts ? a->counts[b] : a->rows; }
/* floats of one piece's result in the split form: o (rows, dv padded), m (rows), l (rows) */
static inline int64_t qk_attention_partial(const qk_attention_args *a)
{
    return qk_attention_pad(qk_attention_rows(a) * (qk_attention_pad(a->dv) + 2));
}

#endif
