/* Arg max of rows, and the choice of one token from a row of logits.
 *
 * Sampling is exact where it can be: a probability is a whole number of units, weight = trunc(e^((x - max) / temperature) * scale) with
 * scale a power of two, so that sums, thresholds and the draw are integer arithmetic without order or rounding. Thread count, tier and the
 * order of passes cannot change a result; only e^x itself is float, and v16_exp is the same bits everywhere. */
#ifndef QK_SAMPLING_H
#define QK_SAMPLING_H

#include <math.h>

#include "simd/tiers.h"

enum { QK_CHUNK = 256 }; /* elements that share one maximum and one sum */

typedef struct {
    const void *x; /* (rows, n) of dtype */
    int64_t *y;    /* (rows) */
    int dtype, select_last;
    int64_t rows, n;
} qk_argmax_args;

enum qk_sample_status { QK_SAMPLE_OK = 0, QK_SAMPLE_NAN = 1, QK_SAMPLE_NO_FINITE = 2, QK_SAMPLE_BAD_ID = 3 };

typedef struct {
    const void *logits;      /* (n) of dtype; only read */
    const int64_t *previous; /* (n_previous) ids in [0, n), repeats allowed */
    int dtype, greedy;
    int64_t n, n_previous, top_k; /* top_k in 1..n; n is off */
    float penalty, temperature;
    double top_p, min_p;
    uint64_t random; /* uniform over all 2^64 values */
    /* scratch */
    float *x, *e;        /* (n) */
    int32_t *id;         /* (n) */
    float *chunk_max;    /* (chunks of n) */
    uint64_t *chunk_sum; /* (chunks of n) */
    const float *values; /* logits as float32 and penalized, then those of the candidates: logits or x */
    float max;
    /* results */
    int64_t at; /* what a status other than OK is about: index of a logit or of an id */
    int64_t token;
    int64_t count; /* candidates: e[0..count), with ids id[0..count), or their own positions if identity; ascending ids */
    int identity;
    float scale;    /* weight of candidate i: (uint64_t)(e[i] * scale) */
    uint64_t total; /* sum of their weights */
} qk_sample_args;

/* Works on the chunks first..last. */
typedef void qk_sample_phase(const qk_sample_args *args, int64_t first, int64_t last);

typedef struct {
    void (*argmax_rows)(const qk_argmax_args *args, int64_t first, int64_t last);
    qk_sample_phase *widen;                       /* x = float32(logits) */
    void (*penalize)(const qk_sample_args *args); /* x[id] = the penalized logit, for every previous id */
    qk_sample_phase *scan;                        /* chunk_max of the values; NaN where a chunk has one */
    /* x and id of all values >= bound, in order; returns how many. x may be the values themselves */
    int64_t (*collect)(const qk_sample_args *args, float bound);
    qk_sample_phase *weigh; /* e and chunk_sum of the candidates */
} qk_sampling_table;

QK_DECLARE_TABLES(qk_sampling_table, sampling);

void qk_argmax(int isa, int threads, const qk_argmax_args *args);
int qk_sample(int isa, int threads, qk_sample_args *args); /* returns enum qk_sample_status */
uint64_t qk_random(uint64_t seed, uint64_t step);          /* Philox4x32-10: key seed, counter step; its first 64 bits */
uint64_t qk_draw_target(uint64_t random, uint64_t total);  /* floor(random / 2^64 * total): in [0, total) */

#endif
