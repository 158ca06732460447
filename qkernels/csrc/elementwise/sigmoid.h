/* Sigmoid and SiLU from one evaluation, for any family's template: include it within a target region.
 *
 * A value is carried as an unevaluated pair hi + lo of floats. float32 takes hi + lo, rounded. The 16-bit types take hi with its last bit made
 * odd on lo's side ("round to odd"): a later rounding to nearest cannot mistake that for a tie, so their results are correctly rounded.
 * (No result is itself a tie.) A test of all 65,536 inputs shows that the pair is good enough. */

/* e^(a + a_lo) for a in [-200, 0] as m * 2^n, m = hi + lo; power is 2^n, but not below 2^-100; a_lo may be null.
 * a = n ln 2 + r + r_lo; m = 1 + r + r^2/2 + r^3 g(r), g of degree 4 fitted to |r| <= 0.347 with an error below 2^-33 of m. */
QK_FOLDED void QK_TIER(exp_pair)(v16 a, const v16 *a_lo, v16 *hi, v16 *lo, v16 *n, v16 *power)
{
    v16 one = v16_set1(1.0f), shift = v16_set1(0x1.8p23f + 127.0f); /* beside which whole numbers are the last bits */
    v16 shifted = v16_fma(a, v16_set1(0x1.715476p+0f), shift);
    *n = v16_sub(shifted, shift);
    *power = v16i_as_f(v16i_shl(v16i_max(v16_as_i(shifted), v16_as_i(v16_set1(0x1.8p23f + 27.0f))), 23));
    v16 above = v16_fnma(*n, v16_set1(0x1.62e4p-1f), a); /* exact: ln 2 to 15 bits */
    v16 r = v16_fnma(*n, v16_set1(0x1.7f7d1cp-20f), above);
    v16 r_lo = v16_fnma(*n, v16_set1(0x1.7f7d1cp-20f), v16_sub(above, r));
    v16 square = v16_mul(r, r); /* the terms of p = 1/2 + r g(r) in pairs, which shortens the chain */
    v16 p = v16_fma(v16_fma(v16_set1(0x1.a24346p-13f), r, v16_set1(0x1.6d4ceep-10f)), square,
                    v16_fma(v16_set1(0x1.111004p-7f), r, v16_set1(0x1.5554e8p-5f)));
    p = v16_fma(p, square, v16_fma(v16_set1(0x1.555556p-3f), r, v16_set1(0.5f)));
    v16 w = v16_mul(p, square), q = v16_add(r, w), q_lo = v16_add(v16_sub(r, q), w);
    *hi = v16_add(one, q);
    *lo = v16_fma(a_lo ? v16_add(r_lo, *a_lo) : r_lo, *hi, v16_add(v16_add(v16_sub(one, *hi), q), q_lo));
}

/* sigmoid(x + x_lo) = (hi + lo) * 2^n: 1 / (1 + t) or, for x < 0, t / (1 + t) with t = e^-|x|, whose power of two stays apart, so
 * that products with hi lose nothing to subnormal numbers. Below `least` x counts as `least`. x_lo may be null. */
QK_FOLDED void QK_TIER(sigmoid_pair)(v16 x, const v16 *x_lo, float least, v16 *hi, v16 *lo, v16 *n)
{
    v16 one = v16_set1(1.0f), zero = v16_zero(), a_lo, t, t_lo, e, power;
    v16 a = v16_max(v16_set1(least), v16i_as_f(v16i_or(v16_as_i(x), v16i_set1(INT32_MIN))));
    m16 negative = v16_lt(x, zero);
    if (x_lo)
        a_lo = v16_select(v16_lt(v16_set1(least), a), v16_select(negative, *x_lo, v16_neg(*x_lo)), zero);
    QK_TIER(exp_pair)(a, x_lo ? &a_lo : NULL, &t, &t_lo, &e, &power);
    v16 u = v16_mul(t, power), below = v16_add(one, u), below_lo = v16_fma(t_lo, power, v16_add(v16_sub(one, below), u));
    v16 above = v16_select(negative, t, one), above_lo = v16_select(negative, t_lo, zero);
    v16 inverse = v16_div(one, below), q = v16_mul(above, inverse);
    v16 rest = v16_add(v16_fnma(q, below, above), v16_fnma(q, below_lo, above_lo));
    *hi = q;
    *lo = v16_mul(rest, inverse);
    *n = v16_select(negative, e, zero);
}

/* hi - off, rounded, for float32; rounded to odd for the others. `sign` has the sign of -off for the case that off underflowed to 0. */
QK_FOLDED v16 QK_TIER(round_pair)(int dtype, v16 hi, v16 off, v16i sign)
{
    v16 y = v16_sub(hi, off);
    if (dtype == QK_F32)
        return y;
    v16 lo = v16_sub(v16_sub(hi, y), off);
    v16i bits = v16_as_i(y), way = v16i_select(v16_eq(lo, v16_zero()), sign, v16_as_i(lo));
    return v16i_as_f(v16i_or(v16i_sub(bits, v16i_shr(v16i_xor(bits, way), 31)), v16i_set1(1))); /* less by a bit where lo leads toward 0 */
}

QK_FOLDED v16 QK_TIER(sigmoid)(int dtype, v16 x)
{
    v16 hi, lo, n;
    QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n);
    return v16_scale2(QK_TIER(round_pair)(dtype, hi, v16_neg(lo), v16i_set1(0)), n);
}

/* f * (hi + lo); infinity for infinity */
QK_FOLDED v16 QK_TIER(product_pair)(int dtype, v16 f, v16 hi, v16 lo)
{
    v16 p = v16_mul(f, hi), off = v16_fnma(f, lo, v16_fnma(f, hi, p)); /* f (hi + lo) = p - off; a difference keeps -0 */
    off = v16_max(off, v16_set1(-0x1.fffffep127f));                    /* infinity - infinity */
    return QK_TIER(round_pair)(dtype, p, off, v16i_xor(v16_as_i(f), v16_as_i(lo)));
}

/* x * sigmoid(x); below -120 it is 0, also the limit for minus infinity */
QK_FOLDED v16 QK_TIER(silu)(int dtype, v16 x)
{
    v16 hi, lo, n;
    QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n);
    return v16_scale2(QK_TIER(product_pair)(dtype, v16_max(v16_set1(-120.0f), x), hi, lo), n);
}

/* x * sigmoid(alpha x) for alpha that is not 0; 0 for the largest x from alpha x = -200 on. 2^n in two steps, of which one comes before the
 * product: the large one for a large x, which would overflow, else the small one. It is exact unless the result is 0 anyway. */
QK_FOLDED v16 QK_TIER(swish)(int dtype, v16 x, float alpha)
{
    v16 z = v16_mul(v16_set1(alpha), x), z_lo = v16_fma(v16_set1(alpha), x, v16_neg(z)), hi, lo, n;
    QK_TIER(sigmoid_pair)(z, &z_lo, -200.0f, &hi, &lo, &n);
    v16 largest = v16_set1(0x1.fffffep127f), large = v16_max(v16_set1(-160.0f), n), small = v16_sub(n, large);
    m16 is_large = v16_lt(v16_set1(0x1p64f), v16_abs(x));
    v16 f = v16_scale2(v16_max(v16_neg(largest), v16_min(largest, x)), v16_select(is_large, large, small));
    v16 y = v16_scale2(QK_TIER(product_pair)(dtype, f, hi, lo), v16_select(is_large, small, large));
    return v16_select(v16_lt(v16_set1(30.0f), z), x, v16_select(v16_eq(f, v16_zero()), f, y));
}
