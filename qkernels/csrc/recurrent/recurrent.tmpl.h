/* The body of recurrent, once for all tiers.
 *
 * Columns of a head's state know nothing of each other, so sixteen of them are one unit of work from the first token to the last: the state
 * stays in the first cache. Sums over the rows of the state go to four accumulators by row modulo 4, added as (0 + 1) + (2 + 3). */
#include "recurrent/recurrent.h"

#include "rows/sigmoid.h"

/* n numbers of dtype as floats; the buffer is whole vectors */
static inline void QK_TIER(widen)(int dtype, const void *from, int64_t at, int64_t n, float *to)
{
    const char *p = (const char *)from + at * qk_itemsize(dtype);
    for (int64_t i = 0; i < n; i += 16)
        v16_store(to + i, v16_load_as(dtype, p + i * qk_itemsize(dtype), (int)qk_min(16, n - i)));
}

/* the sum over rows of x[row] times the state's row */
static inline v16 QK_TIER(read_state)(const float *state, const float *x, int64_t rows)
{
    v16 sum[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t d = 0;
    for (; d + 4 <= rows; d += 4) {
        QK_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = v16_fma(v16_set1(x[d + i]), v16_load(state + 16 * (d + i)), sum[i]);
    }
    QK_UNROLL
    for (int i = 0; i < 3; i++)
        if (d + i < rows)
            sum[i] = v16_fma(v16_set1(x[d + i]), v16_load(state + 16 * (d + i)), sum[i]);
    return v16_add(v16_add(sum[0], sum[1]), v16_add(sum[2], sum[3]));
}

static void QK_TIER(linear_attention)(const qk_linear_attention_args *args, int64_t first, int64_t last, float *scratch)
{
    int64_t chunks = qk_ceil_div(args->dv, 16), dk = args->dk, dv = args->dv, group = args->heads / args->kv_heads;
    int64_t size = qk_itemsize(args->dtype), state_size = qk_itemsize(args->state_dtype);
    float *state = scratch, *x = scratch + 16 * dk; /* (dk, 16), and a row of k or q */
    for (int64_t unit = first; unit < last; unit++) {
        int64_t column = unit % chunks * 16, head = unit / chunks % args->kv_heads, batch = unit / chunks / args->kv_heads;
        int n = (int)qk_min(16, dv - column);
        int64_t state_at = (batch * args->kv_heads + head) * dk * dv + column;
        for (int64_t d = 0; d < dk; d++)
            v16_store(state + 16 * d,
                      args->past ? v16_load_as(args->state_dtype, (const char *)args->past + (state_at + d * dv) * state_size, n) : v16_zero());
        for (int64_t t = 0; t < args->rows; t++) {
            int64_t row = batch * args->rows + t, at = row * args->kv_heads + head;
            v16 v = v16_load_as(args->dtype, (const char *)args->v + (at * dv + column) * size, n);
            QK_TIER(widen)(args->dtype, args->k, at * dk, dk, x);
            if (args->decay) {
                const float *decay = args->decay + at * args->decay_width;
                for (int64_t d = 0; d < dk; d++)
                    v16_store(state + 16 * d, v16_mul(v16_set1(decay[args->decay_width > 1 ? d : 0]), v16_load(state + 16 * d)));
            }
            if (args->beta) {
                float beta[16];
                QK_TIER(widen)(args->dtype, args->beta, row * args->beta_width + (args->beta_width > 1 ? head : 0), 1, beta);
                v = v16_mul(v16_set1(beta[0]), v16_sub(v, QK_TIER(read_state)(state, x, dk)));
            }
            for (int64_t d = 0; d < dk; d++)
                v16_store(state + 16 * d, v16_fma(v16_set1(x[d]), v, v16_load(state + 16 * d)));
            for (int64_t h = head * group; h < (head + 1) * group; h++) {
                int64_t q_at = row * args->heads + h;
                QK_TIER(widen)(args->dtype, args->q, q_at * dk, dk, x);
                v16 y = v16_mul(v16_set1(args->scale), QK_TIER(read_state)(state, x, dk));
                v16_store_as(args->dtype, (char *)args->y + (q_at * dv + column) * size, y, n);
            }
        }
        for (int64_t d = 0; d < dk; d++)
            v16_store_as(args->state_dtype, (char *)args->present + (state_at + d * dv) * state_size, v16_load(state + 16 * d), n);
    }
}

static void QK_TIER(causal_conv)(const qk_causal_conv_args *args, int64_t first, int64_t last, float *padded)
{
    int64_t size = qk_itemsize(args->dtype), kept = args->taps - 1, length = args->length;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t channel = unit % args->channels, from_past = qk_max(0, kept - length);
        const char *x = (const char *)args->x + unit * length * size, *past = (const char *)args->past + unit * kept * size;
        char *y = (char *)args->y + unit * length * size, *present = (char *)args->present + unit * kept * size;
        float bias[16] = {0}, weight[16];
        for (int64_t i = 0; i < kept; i++)
            padded[i] = 0;
        if (args->past)
            for (int64_t i = 0; i < kept; i++) {
                QK_TIER(widen)(args->dtype, past, i, 1, weight);
                padded[i] = weight[0];
            }
        for (int64_t t = 0; t < length; t += 16) {
            v16 values = v16_load_as(args->dtype, x + t * size, (int)qk_min(16, length - t));
            v16_store(padded + kept + t, values);
        }
        if (args->bias)
            QK_TIER(widen)(args->dtype, args->bias, channel, 1, bias);
        for (int64_t t = 0; t < length; t += 16) {
            v16 sum = v16_zero();
            for (int64_t j = 0; j < args->taps; j++) {
                if (j % 16 == 0)
                    QK_TIER(widen)(args->dtype, args->weight, channel * args->taps + j, qk_min(16, args->taps - j), weight);
                sum = v16_fma(v16_set1(weight[j % 16]), v16_load(padded + t + j), sum);
            }
            sum = v16_add(sum, v16_set1(bias[0]));
            v16_store_as(args->dtype, y + t * size, args->silu ? QK_TIER(silu)(QK_F32, sum) : sum, (int)qk_min(16, length - t));
        }
        /* the last positions of past and x together */
        if (args->past)
            memcpy(present, past + (kept - from_past) * size, (size_t)(from_past * size));
        else
            memset(present, 0, (size_t)(from_past * size));
        memcpy(present + from_past * size, x + (length - (kept - from_past)) * size, (size_t)((kept - from_past) * size));
    }
}

const qk_recurrent_table QK_TIER(recurrent_kernels) = {QK_TIER(linear_attention), QK_TIER(causal_conv)};
