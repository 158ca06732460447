/* The prologue of a product's row, once for all tiers: include it within a target region. */
#include "rows/prologue.h"
#include "rows/rms_norm.h"
#include "rows/sigmoid.h"

/* Row x of dtype to k floats. */
static void QK_TIER(prologue_row)(const qk_prologue *p, int dtype, const char *x, int64_t k, float *to)
{
    if (p->kind == QK_RMS_NORM) {
        qk_rms_args args = {
            .x = x, .scale = p->scale, .y = to, .x_dtype = dtype, .scale_dtype = p->scale_dtype, .y_dtype = QK_F32, .n = k, .epsilon = p->epsilon};
        if (dtype == QK_F32 && p->scale_dtype == QK_F32)
            QK_TIER(rms_row)(QK_F32, QK_F32, QK_F32, 1, &args, 0);
        else
            QK_TIER(rms_row)(dtype, p->scale_dtype, QK_F32, 1, &args, 0);
        return;
    }
    int64_t size = qk_itemsize(dtype);
    for (int64_t i = 0; i < k; i += 16) {
        int n = (int)qk_min(16, k - i);
        v16 gate = v16_load_as(dtype, x + i * size, n), up = v16_load_as(dtype, x + (k + i) * size, n);
        v16_store_as(QK_F32, to + i, v16_mul(QK_TIER(silu)(QK_F32, gate), up), n);
    }
}
