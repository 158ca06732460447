#include "normalization/normalization.h"

static const qk_normalization_table *const tables[QK_ISA_COUNT] = QK_TABLES(normalization);

void qk_rms(int isa, int threads, const qk_rms_args *args)
{
    void (*rows)(const qk_rms_args *, int64_t, int64_t) = tables[isa]->rms_rows;
    if (threads == 1) {
        rows(args, 0, args->rows);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        rows(args, args->rows * t / threads, args->rows * (t + 1) / threads);
}

void qk_layer_norm(int isa, int threads, const qk_layer_norm_args *args)
{
    void (*rows)(const qk_layer_norm_args *, int64_t, int64_t) = tables[isa]->layer_norm_rows;
    if (threads == 1) {
        rows(args, 0, args->rows);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        rows(args, args->rows * t / threads, args->rows * (t + 1) / threads);
}
