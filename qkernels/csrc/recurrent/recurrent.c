#include "recurrent/recurrent.h"

static const qk_recurrent_table *const tables[QK_ISA_COUNT] = QK_TABLES(recurrent);

void qk_linear_attention(int isa, int threads, const qk_linear_attention_args *args)
{
    int64_t units = qk_linear_attention_units(args), floats = qk_linear_attention_floats(args->dk);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++)
        tables[isa]->linear_attention(args, units * t / threads, units * (t + 1) / threads, args->scratch + t * floats);
}

void qk_causal_conv(int isa, int threads, const qk_causal_conv_args *args)
{
    int64_t units = args->batch * args->channels, floats = qk_causal_conv_floats(args->length, args->taps);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++)
        tables[isa]->causal_conv(args, units * t / threads, units * (t + 1) / threads, args->scratch + t * floats);
}
