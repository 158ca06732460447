#include "softmax/softmax.h"

#include <stddef.h>

static const qk_softmax_table *const tables[QK_ISA_COUNT] = QK_TABLES(softmax);

void qk_softmax(int isa, int threads, const qk_softmax_args *args)
{
    void (*rows)(const qk_softmax_args *, int64_t, int64_t, float *) = tables[isa]->softmax_rows;
    if (threads == 1) {
        rows(args, 0, args->rows, args->scratch);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        rows(args, args->rows * t / threads, args->rows * (t + 1) / threads,
             args->scratch ? args->scratch + t * qk_softmax_rows(args->n) * args->n : NULL);
}
