/* The body of rotary, once for all tiers. */
#include "rotary/rotary.h"
#include "rotary/rotary_row.h"

/* dtypes as constants, so that each pair gets its own loop */
QK_FOLDED void QK_TIER(rotary_head)(const qk_rotary_args *a, void *y, const void *x, const void *cos, const void *sin, int dtype, int cache_dtype)
{
    if (a->interleaved)
        QK_TIER(rotary_interleaved)(dtype, y, x, cache_dtype, cos, sin, a->half);
    else
        QK_TIER(rotary_half_split)(dtype, y, x, cache_dtype, cos, sin, a->half);
}

static void QK_TIER(rotary_tokens)(const qk_rotary_args *a, int64_t first, int64_t last)
{
    int64_t row_size = a->half * qk_itemsize(a->cache_dtype), turned = 2 * a->half * qk_itemsize(a->dtype);
    size_t rest = (size_t)(a->head_size * qk_itemsize(a->dtype) - turned);
    for (int64_t t = first; t < last; t++) {
        int64_t b = t / a->sequence, s = t % a->sequence;
        int64_t row = a->positions ? a->positions[t] : a->first_row + b * a->batch_rows + s;
        const char *cos = (const char *)a->cos + row * row_size, *sin = (const char *)a->sin + row * row_size;
        const char *x = (const char *)a->x + b * a->x_batch + s * a->x_sequence;
        char *y = (char *)a->y + b * a->y_batch + s * a->y_sequence;
        for (int64_t h = 0; h < a->heads; h++, x += a->x_head, y += a->y_head) {
            switch (a->dtype * 3 + a->cache_dtype) {
            case QK_F32 * 3 + QK_F32: QK_TIER(rotary_head)(a, y, x, cos, sin, QK_F32, QK_F32); break;
            case QK_F16 * 3 + QK_F16: QK_TIER(rotary_head)(a, y, x, cos, sin, QK_F16, QK_F16); break;
            case QK_BF16 * 3 + QK_BF16: QK_TIER(rotary_head)(a, y, x, cos, sin, QK_BF16, QK_BF16); break;
            default: QK_TIER(rotary_head)(a, y, x, cos, sin, a->dtype, a->cache_dtype);
            }
            if (rest && x != y)
                memcpy(y + turned, x + turned, rest);
        }
    }
}

const qk_rotary_table QK_TIER(rotary_kernels) = {QK_TIER(rotary_tokens)};
