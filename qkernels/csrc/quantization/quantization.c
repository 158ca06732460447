#include "quantization/quantization.h"

#include <omp.h>

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

void qk_range(int isa, int threads, const float *x, int64_t n, float *low, float *high)
{
    float smallest = 0, largest = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : smallest) reduction(max : largest) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        float a, b;
        int64_t first = n * t / threads;
        tables[isa]->range(x + first, n * (t + 1) / threads - first, &a, &b);
        smallest = a < smallest ? a : smallest;
        largest = b > largest ? b : largest;
    }
    *low = smallest;
    *high = largest;
}

/* Rows per task; columns of a panel, and panels that a thread packs at once, so that it reads whole cache lines of b. */
enum { ROWS = 512, LANES = 16, PANELS = 4 };

static void share(const qk_quantization_table *table, const qk_integer_args *args, int thread, int threads)
{
    int64_t groups = qk_ceil_div(args->n, LANES), blocks = qk_ceil_div(args->m, ROWS), packed = -1;
    int64_t step = qk_min(PANELS, qk_ceil_div(groups * args->batches, threads)), strips = qk_ceil_div(groups, step);
    int64_t tasks = args->batches * strips * blocks, panel_bytes = 64 + 64 * qk_ceil_div(args->k, 4);
    uint8_t *scratch = args->panels + thread * PANELS * panel_bytes;
    for (int64_t task = tasks * thread / threads; task < tasks * (thread + 1) / threads; task++) {
        int64_t batch = task / (strips * blocks), group = task / blocks % strips * step, row = task % blocks * ROWS;
        int count = (int)qk_min(step, groups - group);
        if (!args->packed && packed != task / blocks)
            table->pack_columns(args, batch, group * LANES, count, scratch);
        packed = task / blocks;
        table->multiply_rows(args, batch, group * LANES, count, args->packed ? args->packed + group * panel_bytes : scratch, row,
                             qk_min(row + ROWS, args->m));
    }
}

void qk_integer_matmul(int isa, int threads, const qk_integer_args *args)
{
    const qk_quantization_table *table = tables[isa];
    if (threads == 1) {
        table->prepare_rows(args, 0, args->a_rows);
        share(table, args, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        table->prepare_rows(args, args->a_rows * t / n, args->a_rows * (t + 1) / n);
#pragma omp barrier
        share(table, args, t, n);
    }
}

void qk_integer_pack(int isa, int threads, const qk_integer_args *args, uint8_t *panels)
{
    int64_t groups = qk_ceil_div(args->n, LANES), strips = qk_ceil_div(groups, PANELS), panel_bytes = 64 + 64 * qk_ceil_div(args->k, 4);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t strip = 0; strip < strips; strip++) {
        int64_t group = strip * PANELS;
        tables[isa]->pack_columns(args, 0, group * LANES, (int)qk_min(PANELS, groups - group), panels + group * panel_bytes);
    }
}
