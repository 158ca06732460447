/* Rotation of one head, for any family's template: include it within a target region.
 *
 * Two products and their sum are rounded each on its own, in float32, as NumPy would: no fused multiply-add. y may be x. */

/* planes (i, half + i): y[i] = x[i] cos[i] - x[half + i] sin[i], y[half + i] = x[half + i] cos[i] + x[i] sin[i] */
QK_FOLDED void QK_TIER(rotary_half_split)(int dtype, void *y, const void *x, int cache_dtype, const void *cos, const void *sin, int64_t half)
{
    int64_t size = qk_itemsize(dtype), cache_size = qk_itemsize(cache_dtype);
    for (int64_t i = 0; i < half; i += 16) {
        int n = (int)qk_min(16, half - i);
        v16 c = v16_load_as(cache_dtype, (const char *)cos + i * cache_size, n), s = v16_load_as(cache_dtype, (const char *)sin + i * cache_size, n);
        v16 a = v16_load_as(dtype, (const char *)x + i * size, n), b = v16_load_as(dtype, (const char *)x + (half + i) * size, n);
        v16_store_as(dtype, (char *)y + i * size, v16_sub(v16_mul(a, c), v16_mul(b, s)), n);
        v16_store_as(dtype, (char *)y + (half + i) * size, v16_add(v16_mul(b, c), v16_mul(a, s)), n);
    }
}

/* planes (2i, 2i + 1) */
QK_FOLDED void QK_TIER(rotary_interleaved)(int dtype, void *y, const void *x, int cache_dtype, const void *cos, const void *sin, int64_t half)
{
    int64_t size = qk_itemsize(dtype), cache_size = qk_itemsize(cache_dtype);
    for (int64_t i = 0; i < half; i += 16) {
        int n = (int)qk_min(16, half - i), low = (int)qk_min(16, 2 * n), high = 2 * n - low;
        v16 c = v16_load_as(cache_dtype, (const char *)cos + i * cache_size, n), s = v16_load_as(cache_dtype, (const char *)sin + i * cache_size, n);
        v16 p = v16_load_as(dtype, (const char *)x + 2 * i * size, low), q = v16_zero(), a, b;
        if (high)
            q = v16_load_as(dtype, (const char *)x + (2 * i + 16) * size, high);
        v16_unzip(p, q, &a, &b);
        v16_zip(v16_sub(v16_mul(a, c), v16_mul(b, s)), v16_add(v16_mul(b, c), v16_mul(a, s)), &p, &q);
        v16_store_as(dtype, (char *)y + 2 * i * size, p, low);
        if (high)
            v16_store_as(dtype, (char *)y + (2 * i + 16) * size, q, high);
    }
}
