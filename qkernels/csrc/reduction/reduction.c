#include "reduction/reduction.h"

static const qk_reduction_table *const tables[QK_ISA_COUNT] = QK_TABLES(reduction);

int64_t qk_reduction_units(const qk_reduction_args *a) { return a->inner == 1 ? a->outer : a->outer * qk_ceil_div(a->inner, QK_STRIP); }

void qk_reduction(int isa, int threads, const qk_reduction_args *args)
{
    void (*reduce)(const qk_reduction_args *, int64_t, int64_t) = tables[isa]->reduce;
    int64_t units = qk_reduction_units(args);
    if (threads == 1) {
        reduce(args, 0, units);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        reduce(args, units * t / threads, units * (t + 1) / threads);
}
