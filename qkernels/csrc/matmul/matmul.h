/* Products of float matrices: y = a · b (+ bias), accumulated in float32 and rounded once.
 *
 * 16 columns of b are the lanes of a vector. K is cut into blocks of 256: within a block one fma chain over k from zero, and the blocks'
 * sums are added in order. Each element of y is a chain of its own, so neither the number of rows nor threads nor packing change a bit.
 *
 * Packed, b is (groups, K, 16) in its own type, columns padded with zeros: a constant b is packed once; a variable one is packed group by
 * group by the thread that needs it, or read in place where few rows would not repay that. */
#ifndef QK_MATMUL_H
#define QK_MATMUL_H

#include "rows/prologue.h"
#include "simd/tiers.h"

enum { QK_K_BLOCK = 256 };

typedef struct {
    const void *a;        /* batches of (m, k) of a_dtype, rows contiguous, or what the prologue makes that of */
    const char *b;        /* packed, or batches of (k, n) with the strides below, of b_dtype */
    const void *bias;     /* (n) of a_dtype, or null */
    const char *residual; /* as y, or null; may be y */
    char *y;              /* (batches, m, n) of a_dtype */
    float *prepared;      /* scratch for (a_rows, qk_matmul_row(k)) floats; null where the rows of a, single float32 ones, serve as they are */
    float *rows;          /* with a prologue: qk_matmul_row(k) floats for each thread */
    qk_prologue prologue;
    char *panels;                     /* scratch for packing: per thread k x 16 elements of b_dtype; null where b is packed */
    const int64_t *a_batch, *b_batch; /* (batches): offset of each batch in elements of a and of b */
    int a_dtype, b_dtype;
    int64_t batches, m, n, k, a_rows; /* a_rows: rows of a over all its batches */
    int64_t b_k_stride, b_n_stride;   /* in elements */
} qk_matmul_args;

/* Floats of a prepared row: chunks of a tier's rows lie together, 16 k of one row after 16 k of the one before, so that they are one stream. */
static inline int64_t qk_matmul_row(int64_t k) { return (k + 15) / 16 * 16; }

/* A block of rows against up to 4 groups of columns, b as (k_stride, group_stride) from its first element. */
typedef struct {
    const float *a; /* prepared, from a chunk's beginning on */
    const char *b;
    const void *bias;
    const char *residual;
    char *y;
    int b_dtype, y_dtype;
    int64_t rows, columns, k, n, k_stride, group_stride;
} qk_matmul_panel;

typedef struct {
    void (*prepare)(const qk_matmul_args *args, int64_t first, int64_t last, float *row); /* rows of a over all its batches */
    void (*panel)(const qk_matmul_panel *panel);
    void (*pack)(int dtype, const char *b, int64_t k, int64_t columns, int64_t k_stride, int64_t n_stride, char *panel);
} qk_matmul_table;

QK_DECLARE_TABLES(qk_matmul_table, matmul);

void qk_matmul(int isa, int threads, const qk_matmul_args *args);
/* (K, N) with strides, in elements, to the packed form */
void qk_matmul_pack(int isa, int threads, int dtype, const char *b, int64_t k, int64_t n, int64_t k_stride, int64_t n_stride, char *packed);

#endif
