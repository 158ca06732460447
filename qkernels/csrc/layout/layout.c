#include "layout/layout.h"

#include <string.h>

static const qk_layout_table *const tables[QK_ISA_COUNT] = QK_TABLES(layout);

static void gather_rows(const qk_gather_args *a, int64_t first, int64_t last)
{
    for (int64_t r = first; r < last; r++) {
        int64_t i = a->index[r % a->count];
        i += i < 0 ? a->size : 0;
        memcpy(a->out + r * a->block, a->data + r / a->count * a->outer_stride + i * a->row_stride, (size_t)a->block);
    }
}

int64_t qk_gather(int threads, const qk_gather_args *a)
{
    int64_t rows = a->outer * a->count, bad = qk_first_outside(a->index, a->count, -a->size, a->size);
    if (bad >= 0)
        return bad;
    if (threads == 1) {
        gather_rows(a, 0, rows);
        return -1;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        gather_rows(a, rows * t / threads, rows * (t + 1) / threads);
    return -1;
}

void qk_cast(int isa, int threads, const qk_cast_args *a)
{
    void (*cast)(const qk_cast_args *, int64_t, int64_t) = tables[isa]->cast;
    if (threads == 1) {
        cast(a, 0, a->n);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        cast(a, a->n * t / threads, a->n * (t + 1) / threads);
}
