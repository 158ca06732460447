#include "rotary/rotary.h"

static const qk_rotary_table *const tables[QK_ISA_COUNT] = QK_TABLES(rotary);

int64_t qk_rotary(int isa, int threads, const qk_rotary_args *a)
{
    void (*run)(const qk_rotary_args *, int64_t, int64_t) = tables[isa]->tokens;
    int64_t tokens = a->batch * a->sequence, bad = a->positions ? qk_first_outside(a->positions, tokens, 0, a->rows) : -1;
    if (bad >= 0)
        return bad;
    if (threads == 1) {
        run(a, 0, tokens);
        return -1;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        run(a, tokens * t / threads, tokens * (t + 1) / threads);
    return -1;
}
