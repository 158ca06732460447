/* Loops that do nothing else. QK_SUMS independent chains hide the latency of an instruction; they fill the tier's registers. */
#include "_machine/_machine.h"

static void QK_TIER(read)(const qk_machine_args *args, int64_t first, int64_t last, int32_t *sink)
{
    v16i seen[4] = {v16i_set1(0), v16i_set1(0), v16i_set1(0), v16i_set1(0)};
    for (int64_t u = first; u < last; u++) {
        const uint8_t *x = args->x + u * QK_READ_UNIT;
        if (args->ahead) {
            QK_UNROLL
            for (int i = 0; i < QK_READ_UNIT / 64; i++)
                if (args->past_caches)
                    __builtin_prefetch(x + args->ahead + 64 * i, 0, 0);
                else
                    __builtin_prefetch(x + args->ahead + 64 * i, 0, 2);
        }
        QK_UNROLL
        for (int i = 0; i < QK_READ_UNIT / 64; i++)
            seen[i % 4] = v16i_or(seen[i % 4], v16i_load(x + 64 * i));
    }
    v16i_store(sink, v16i_or(v16i_or(seen[0], seen[1]), v16i_or(seen[2], seen[3])));
}

static void QK_TIER(fma)(const qk_machine_args *args, int64_t first, int64_t last, int32_t *sink)
{
    v16 sums[QK_SUMS], a = v16_load((const float *)args->x), b = a;
    QK_UNROLL
    for (int i = 0; i < QK_SUMS; i++)
        sums[i] = v16_set1((float)i);
    for (int64_t u = first; u < last; u++) {
        QK_UNROLL
        for (int i = 0; i < QK_SUMS; i++)
            sums[i] = v16_fma(a, b, sums[i]);
    }
    QK_UNROLL
    for (int i = 1; i < QK_SUMS; i++)
        sums[0] = v16_add(sums[0], sums[i]);
    v16i_store(sink, v16_as_i(sums[0]));
}

#ifndef QK_DOT_MACS /* else the tier has its own */
#define QK_DOT_MACS (64 * QK_SUMS)
static void QK_TIER(dot)(const qk_machine_args *args, int64_t first, int64_t last, int32_t *sink)
{
    v16i sums[QK_SUMS], a = v16i_load(args->x), b = a;
    QK_UNROLL
    for (int i = 0; i < QK_SUMS; i++)
        sums[i] = v16i_set1(i);
    for (int64_t u = first; u < last; u++) {
        QK_UNROLL
        for (int i = 0; i < QK_SUMS; i++)
            sums[i] = QK_TIER(dot_bytes)(&a, b, sums[i]);
    }
    QK_UNROLL
    for (int i = 1; i < QK_SUMS; i++)
        sums[0] = v16i_add(sums[0], sums[i]);
    v16i_store(sink, sums[0]);
}
#endif

const qk_machine_table QK_TIER(machine_kernels) = {{QK_TIER(read), QK_TIER(fma), QK_TIER(dot)}, {0, 16 * QK_SUMS, QK_DOT_MACS}};
