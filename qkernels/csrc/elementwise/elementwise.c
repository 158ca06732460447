#include "elementwise/elementwise.h"

/* a result that no cache holds until it is read */
#define STREAM_BYTES (64 << 20)

static const qk_elementwise_table *const tables[QK_ISA_COUNT] = QK_TABLES(elementwise);

void qk_elementwise(int isa, int threads, qk_elementwise_args *a)
{
    qk_elementwise_run *run = tables[isa]->elementwise;
    int64_t n = 1, piece;
    for (int i = 0; i < a->axes; i++)
        n *= a->shape[i];
    a->table = qk_elementwise_codes(isa, run, a, n);
    a->stream = n * qk_itemsize(a->dtype) >= STREAM_BYTES && a->axes == 1 && a->a_step[0] == qk_itemsize(a->dtype);
    if (threads == 1) {
        run(a, 0, n);
        return;
    }
    piece = qk_ceil_div(qk_ceil_div(n, threads), 64) * 64; /* whole cache lines, so that no two threads write into one */
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        run(a, qk_min(n, t * piece), qk_min(n, (t + 1) * piece));
}
