#include "attention/attention.h"

#include <omp.h>
#include <string.h>

static const qk_attention_table *const tables[QK_ISA_COUNT] = QK_TABLES(attention);

/* floats of one thread's working memory: q, scores, o of a piece, o of the row; K and V of a piece widened; m and l of both */
static int64_t thread_scratch(const qk_attention_args *a)
{
    int64_t d = qk_attention_pad(a->d), dv = qk_attention_pad(a->dv);
    return qk_attention_held(a) * (d + QK_ATTENTION_PIECE + 2 * dv + 4) + QK_ATTENTION_PIECE * (d + dv);
}

/* few rows, or too few blocks of them to keep all threads at work */
static int is_split(const qk_attention_args *a, int threads)
{
    return qk_attention_blocks(a) <= 1 && (qk_attention_rows(a) <= 32 || a->batch * a->kv_heads < 2 * threads);
}

int64_t qk_attention_scratch(const qk_attention_args *a, int threads)
{
    int64_t partials = is_split(a, threads) ? a->batch * a->kv_heads * qk_attention_pieces(a) * qk_attention_partial(a) : 0;
    return threads * thread_scratch(a) + partials;
}

void qk_attention(int isa, int threads, const qk_attention_args *a, float *scratch)
{
    const qk_attention_table *table = tables[isa];
    int64_t each = thread_scratch(a), heads = a->batch * a->kv_heads;
    int64_t fresh = a->new_k ? heads * a->rows : 0, rows = a->batch * a->heads * a->rows;
    int64_t pieces = heads * qk_attention_pieces(a), blocks = heads * qk_attention_blocks(a);
    float *partials = scratch + threads * each;
    int split = is_split(a, threads);
    if (threads == 1) {
        table->append(a, scratch, 0, fresh);
        if (split) {
            for (int64_t t = 0; t < pieces; t++)
                table->piece(a, scratch, partials, t);
            table->combine(a, scratch, partials, 0, rows);
        } else
            for (int64_t t = 0; t < blocks; t++)
                table->block(a, scratch, t);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        float *own = scratch + omp_get_thread_num() * each;
        int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        if (fresh) {
            table->append(a, own, fresh * me / all, fresh * (me + 1) / all);
#pragma omp barrier
        }
        if (split) {
            /* runs of one head's pieces, which lie one behind the other */
#pragma omp for schedule(dynamic, 4)
            for (int64_t t = 0; t < pieces; t++)
                table->piece(a, own, partials, t);
            table->combine(a, own, partials, rows * me / all, rows * (me + 1) / all);
        } else {
#pragma omp for schedule(dynamic, 1)
            for (int64_t t = 0; t < blocks; t++)
                table->block(a, own, t);
        }
    }
}

void qk_attention_scores(int isa, int threads, const qk_attention_args *a, float *scratch)
{
    const qk_attention_table *table = tables[isa];
    int64_t each = thread_scratch(a), blocks = a->batch * a->kv_heads * qk_attention_blocks(a);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
    for (int64_t t = 0; t < blocks; t++)
        table->scores(a, scratch + omp_get_thread_num() * each, t);
}

void qk_attention_copy(int threads, char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t blocks, int64_t bytes)
{
    enum { CHUNK = 1 << 18 };
    int64_t chunks = qk_ceil_div(bytes, CHUNK);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < blocks * chunks; i++) {
        int64_t block = i / chunks, start = i % chunks * CHUNK;
        memcpy(to + block * to_stride + start, from + block * from_stride + start, (size_t)qk_min(CHUNK, bytes - start));
    }
}
