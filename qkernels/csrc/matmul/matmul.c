#include "matmul/matmul.h"

#include <omp.h>

static const qk_matmul_table *const tables[QK_ISA_COUNT] = QK_TABLES(matmul);

/* Groups of columns and rows per task, the rows a multiple of all tiers' chunks; and the rows from which packing b group by group pays. */
enum { GROUPS = 4, ROWS = 240, CHUNK = 12, PACK_FROM = 4, LANES = 16 };

static void share(const qk_matmul_table *table, const qk_matmul_args *args, int thread, int threads)
{
    int64_t size_a = qk_itemsize(args->a_dtype), size_b = qk_itemsize(args->b_dtype), groups = qk_ceil_div(args->n, LANES);
    int64_t steps = qk_ceil_div(groups, GROUPS), rows = ROWS, panel_bytes = args->k * LANES * size_b, loaded = -1;
    if (args->batches * steps < 2 * threads)
        rows = qk_min(ROWS, qk_ceil_div(args->m, 2 * threads * CHUNK) * CHUNK);
    int64_t row_blocks = qk_ceil_div(args->m, rows), tasks = args->batches * steps * row_blocks;
    int packed = !args->panels;
    char *scratch = packed ? 0 : args->panels + thread * GROUPS * panel_bytes;
    for (int64_t task = tasks * thread / threads; task < tasks * (thread + 1) / threads; task++) {
        int64_t batch = task / (steps * row_blocks), first = task / row_blocks % steps * GROUPS, row = task % row_blocks * rows;
        int64_t count = qk_min(GROUPS, groups - first), column = first * LANES;
        int64_t at = ((batch * args->m + row) * args->n + column) * size_a;
        const char *b = args->b + args->b_batch[batch] * size_b;
        /* a batch's offset counts rows of k */
        const float *a = args->prepared ? args->prepared + (args->k ? args->a_batch[batch] / args->k + row : 0) * qk_matmul_row(args->k)
                                        : (const float *)args->a + args->a_batch[batch];
        qk_matmul_panel p = {.a = a,
                             .b_dtype = args->b_dtype,
                             .y_dtype = args->a_dtype,
                             .k = args->k,
                             .n = args->n,
                             .rows = qk_min(rows, args->m - row),
                             .columns = qk_min(count * LANES, args->n - column),
                             .bias = args->bias ? (const char *)args->bias + column * size_a : 0,
                             .residual = args->residual ? args->residual + at : 0,
                             .y = args->y + at};
        if (packed)
            p.b = b + first * panel_bytes, p.k_stride = LANES, p.group_stride = args->k * LANES;
        else if (args->m < PACK_FROM && args->b_n_stride == 1 && p.columns == count * LANES)
            p.b = b + column * size_b, p.k_stride = args->b_k_stride, p.group_stride = LANES;
        else {
            if (loaded != batch * steps + first / GROUPS)
                for (int64_t g = 0; g < count; g++)
                    table->pack(args->b_dtype, b + (column + g * LANES) * args->b_n_stride * size_b, args->k, qk_min(LANES, p.columns - g * LANES),
                                args->b_k_stride, args->b_n_stride, scratch + g * panel_bytes);
            loaded = batch * steps + first / GROUPS;
            p.b = scratch, p.k_stride = LANES, p.group_stride = args->k * LANES;
        }
        table->panel(&p);
    }
}

void qk_matmul(int isa, int threads, const qk_matmul_args *args)
{
    const qk_matmul_table *table = tables[isa];
    int64_t rows = args->prepared ? args->a_rows : 0;
    if (threads == 1) {
        table->prepare(args, 0, rows, args->rows);
        share(table, args, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        if (rows) {
            table->prepare(args, rows * t / n, rows * (t + 1) / n, args->rows + t * qk_matmul_row(args->k));
#pragma omp barrier
        }
        share(table, args, t, n);
    }
}

void qk_matmul_pack(int isa, int threads, int dtype, const char *b, int64_t k, int64_t n, int64_t k_stride, int64_t n_stride, char *packed)
{
    int64_t size = qk_itemsize(dtype);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t g = 0; g < qk_ceil_div(n, LANES); g++)
        tables[isa]->pack(dtype, b + g * LANES * n_stride * size, k, qk_min(LANES, n - g * LANES), k_stride, n_stride, packed + g * k * LANES * size);
}
