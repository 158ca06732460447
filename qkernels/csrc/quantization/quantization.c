#include "quantization/quantization.h"

static const qk_quantization_table *const tables[QK_ISA_COUNT] = QK_TABLES(quantization);

static void over_runs(void (*runs)(const qk_linear_args *, int64_t, int64_t), int threads, const qk_linear_args *args)
{
    int64_t count = args->outer * args->runs;
    if (threads == 1) {
        runs(args, 0, count);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        runs(args, count * t / threads, count * (t + 1) / threads);
}

void qk_dequantize(int isa, int threads, const qk_linear_args *args) { over_runs(tables[isa]->dequantize, threads, args); }

void qk_quantize(int isa, int threads, const qk_linear_args *args) { over_runs(tables[isa]->quantize, threads, args); }
