/* The body of layout, once for all tiers. */
#include "layout/layout.h"

/* x and y as constants, so that each pair of types gets its own loop */
QK_FOLDED void QK_TIER(cast_as)(const qk_cast_args *a, int64_t first, int64_t last, int x, int y)
{
    const char *p = (const char *)a->x;
    char *q = (char *)a->y;
    int64_t i = first, in = qk_itemsize(x), out = qk_itemsize(y);
    for (; i + 16 <= last; i += 16)
        v16_store_as(y, q + i * out, v16_load_as(x, p + i * in, 16), 16);
    if (i < last)
        v16_store_as(y, q + i * out, v16_load_as(x, p + i * in, (int)(last - i)), (int)(last - i));
}

static void QK_TIER(cast)(const qk_cast_args *a, int64_t first, int64_t last)
{
    switch (a->x_dtype * 3 + a->y_dtype) {
    case QK_F32 * 3 + QK_F16: QK_TIER(cast_as)(a, first, last, QK_F32, QK_F16); return;
    case QK_F32 * 3 + QK_BF16: QK_TIER(cast_as)(a, first, last, QK_F32, QK_BF16); return;
    case QK_F16 * 3 + QK_F32: QK_TIER(cast_as)(a, first, last, QK_F16, QK_F32); return;
    case QK_F16 * 3 + QK_BF16: QK_TIER(cast_as)(a, first, last, QK_F16, QK_BF16); return;
    case QK_BF16 * 3 + QK_F32: QK_TIER(cast_as)(a, first, last, QK_BF16, QK_F32); return;
    case QK_BF16 * 3 + QK_F16: QK_TIER(cast_as)(a, first, last, QK_BF16, QK_F16); return;
    default:
        memcpy((char *)a->y + first * qk_itemsize(a->y_dtype), (const char *)a->x + first * qk_itemsize(a->x_dtype),
               (size_t)((last - first) * qk_itemsize(a->x_dtype)));
    }
}

const qk_layout_table QK_TIER(layout_kernels) = {QK_TIER(cast)};
