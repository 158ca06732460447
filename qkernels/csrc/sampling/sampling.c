#include "sampling/sampling.h"

#include <string.h>

static const qk_sampling_table *const tables[QK_ISA_COUNT] = QK_TABLES(sampling);

void qk_argmax(int isa, int threads, const qk_argmax_args *args)
{
    void (*rows)(const qk_argmax_args *, int64_t, int64_t) = tables[isa]->argmax_rows;
    if (threads == 1) {
        rows(args, 0, args->rows);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        rows(args, args->rows * t / threads, args->rows * (t + 1) / threads);
}

/* Philox4x32 with 10 rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011). */
uint64_t qk_random(uint64_t seed, uint64_t step)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, c[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return (uint64_t)c[1] << 32 | c[0];
}

uint64_t qk_draw_target(uint64_t random, uint64_t total) { return (uint64_t)((unsigned __int128)random * total >> 64); }

/* Unsigned integers in the order of the floats; -0 counts as +0. */
static inline uint32_t ordered(float x)
{
    uint32_t u;
    x += 0.0f;
    memcpy(&u, &x, 4);
    return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u); /* no branch: the signs of logits are a coin's */
}

static inline uint64_t weight(const qk_sample_args *a, int64_t i) { return (uint64_t)(int64_t)(a->e[i] * a->scale); }

/* The largest value v of x for which the elements >= v weigh at least `target`; *above: what those > v weigh, less than `target`.
 * Elements weigh 1 each, or, weights, as a->e says. A histogram per byte of the ordered value, highest first: O(n), nothing is sorted. */
static float select_value(const qk_sample_args *a, const float *x, int64_t n, int weights, uint64_t target, uint64_t *above)
{
    uint32_t prefix = 0;
    float value;
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t bucket[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            uint32_t u = ordered(x[i]);
            if (shift == 24 || u >> (shift + 8) == prefix)
                bucket[u >> shift & 255] += weights ? weight(a, i) : 1;
        }
        int b = 255;
        while (b && *above + bucket[b] < target)
            *above += bucket[b--];
        prefix = prefix << 8 | (uint32_t)b;
    }
    prefix = prefix & 0x80000000u ? prefix & 0x7FFFFFFFu : ~prefix;
    memcpy(&value, &prefix, 4);
    return value;
}

/* A phase over the chunks of n elements, on several threads where each has work. */
static void run(qk_sample_phase *phase, int threads, const qk_sample_args *a, int64_t n)
{
    int64_t chunks = qk_ceil_div(n, QK_CHUNK);
    if (threads == 1 || chunks < threads) {
        phase(a, 0, chunks);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        phase(a, chunks * t / threads, chunks * (t + 1) / threads);
}

/* Maximum of all values, and its first index in a->token. */
static int find_max(qk_sample_args *a)
{
    int64_t best = 0;
    a->max = -INFINITY;
    for (int64_t c = 0; c < qk_ceil_div(a->n, QK_CHUNK); c++) {
        if (isnan(a->chunk_max[c])) {
            for (a->at = c * QK_CHUNK; !isnan(a->values[a->at]); a->at++)
                ;
            return QK_SAMPLE_NAN;
        }
        if (a->chunk_max[c] > a->max) {
            a->max = a->chunk_max[c];
            best = c;
        }
    }
    for (a->token = best * QK_CHUNK; a->values[a->token] != a->max; a->token++)
        ;
    return a->max == -INFINITY ? QK_SAMPLE_NO_FINITE : QK_SAMPLE_OK;
}

/* Candidates: all values >= bound. */
static void collect(const qk_sampling_table *kernels, qk_sample_args *a, float bound)
{
    a->count = kernels->collect(a, bound);
    a->values = a->x;
    a->identity = 0;
}

/* Candidates: all with e^((x - max) / temperature) >= e^ratio, and some with a little less. */
static void narrow(const qk_sampling_table *kernels, qk_sample_args *a, double ratio)
{
    /* 0.001 is far more than what e^x and its argument may be off; the bound itself is rounded down */
    collect(kernels, a, nextafterf((float)(a->max + (ratio - 1e-3) * a->temperature), -INFINITY));
}

/* Candidates: the top_k largest values, and those equal to the last of them. */
static void keep_top_k(const qk_sampling_table *kernels, qk_sample_args *a)
{
    const int64_t chunks = qk_ceil_div(a->n, QK_CHUNK);
    uint64_t above;
    int64_t kept = 0;
    if (a->top_k > chunks) {
        collect(kernels, a, select_value(a, a->values, a->n, 0, (uint64_t)a->top_k, &above));
        return;
    }
    /* k chunks have a maximum of at least the k-th largest maximum: so have k values */
    collect(kernels, a, select_value(a, a->chunk_max, chunks, 0, (uint64_t)a->top_k, &above));
    float least = select_value(a, a->x, a->count, 0, (uint64_t)a->top_k, &above);
    for (int64_t i = 0; i < a->count; i++)
        if (a->x[i] >= least) {
            a->x[kept] = a->x[i];
            a->id[kept++] = a->id[i];
        }
    a->count = kept;
}

/* e, chunk_sum and total of the candidates. */
static void weigh(const qk_sampling_table *kernels, int threads, qk_sample_args *a)
{
    run(kernels->weigh, threads, a, a->count);
    a->total = 0;
    for (int64_t c = 0; c < qk_ceil_div(a->count, QK_CHUNK); c++)
        a->total += a->chunk_sum[c];
}

/* Candidates: of the weighed ones those > least, of those equal to it in order as many as `target` needs beyond `above`, and of all these the
 * ones with e >= min_p. Values are left behind: nothing needs them afterwards. */
static void keep(qk_sample_args *a, float least, uint64_t above, uint64_t target)
{
    const int64_t count = a->count;
    a->count = 0;
    a->total = 0;
    for (int64_t i = 0; i < count; i++) {
        float value = a->values[i];
        if (value < least || (value == least && above >= target))
            continue;
        uint64_t w = weight(a, i);
        if (value == least)
            above += w;
        if ((double)a->e[i] < a->min_p)
            continue;
        if (a->count % QK_CHUNK == 0)
            a->chunk_sum[a->count / QK_CHUNK] = 0;
        a->chunk_sum[a->count / QK_CHUNK] += w;
        a->total += w;
        a->id[a->count] = a->identity ? (int32_t)i : a->id[i];
        a->e[a->count++] = a->e[i];
    }
    a->identity = 0;
}

static int64_t draw(const qk_sample_args *a)
{
    uint64_t left = qk_draw_target(a->random, a->total);
    int64_t c = 0, i;
    for (; left >= a->chunk_sum[c]; c++)
        left -= a->chunk_sum[c];
    for (i = c * QK_CHUNK; left >= weight(a, i); i++)
        left -= weight(a, i);
    return a->identity ? i : a->id[i];
}

int qk_sample(int isa, int threads, qk_sample_args *a)
{
    const qk_sampling_table *kernels = tables[isa];
    const int penalized = a->n_previous && a->penalty != 1.0f;
    for (a->at = 0; a->at < a->n_previous; a->at++)
        if (a->previous[a->at] < 0 || a->previous[a->at] >= a->n)
            return QK_SAMPLE_BAD_ID;
    a->values = (const float *)a->logits;
    if (a->dtype != QK_F32 || penalized) {
        run(kernels->widen, threads, a, a->n);
        a->values = a->x;
    }
    if (penalized)
        kernels->penalize(a);
    run(kernels->scan, threads, a, a->n);
    int status = find_max(a);
    if (status != QK_SAMPLE_OK)
        return status;
    if (a->greedy) {
        a->id[0] = (int32_t)a->token;
        a->e[0] = 1.0f;
        a->count = 1;
        a->identity = 0;
        return QK_SAMPLE_OK;
    }

    a->identity = 1;
    a->count = a->n;
    if (a->top_k < a->n)
        keep_top_k(kernels, a);
    else if (a->top_p == 1.0 && a->min_p > 0.0)
        narrow(kernels, a, log(a->min_p));
    weigh(kernels, threads, a);
    if (a->top_p < 1.0) {
        uint64_t above, target = (uint64_t)ceil((double)a->total * a->top_p);
        target = target < a->total ? target : a->total; /* (double)total may have been rounded up */
        /* what weighs no more than this cannot be kept: all such candidates together fit into what top-p leaves out */
        uint64_t light = (a->total - target) / (uint64_t)a->count;
        if (a->identity && light) {
            narrow(kernels, a, log((double)light / a->scale));
            weigh(kernels, threads, a);
        }
        float least = select_value(a, a->values, a->count, 1, target, &above);
        keep(a, least, above, target);
    } else if (a->min_p > 0.0)
        keep(a, -INFINITY, 0, UINT64_MAX);
    a->token = draw(a);
    return QK_SAMPLE_OK;
}
