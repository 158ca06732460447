/* Sigmoid and SiLU from one evaluation, for any family's template: include it within a target region.
 *
 * A value is carried as an unevaluated pair hi + lo of floats with about 30 good bits. float32 takes hi + lo, rounded. The 16-bit types
 * take hi with its last bit made odd where lo is not zero ("round to odd"), which a later rounding to nearest cannot mistake for a tie: so their
 * results are correctly rounded. That holds for every one of the 65,536 inputs as tests/test_elementwise.py shows. */

/* e^(a + a_lo) for a in [-200, 0] as m * 2^n, m = hi + lo. a + a_lo = n ln 2 + r + r_lo; m = 1 + r + r^2/2 + r^3 g(r), g of degree 4
 * fitted to |r| <= 0.347 with an error below 2^-33 of m. */
static inline void QK_TIER(exp_pair)(v16 a, const v16 *a_lo, v16 *hi, v16 *lo, v16 *n)
{
    v16 one = v16_set1(1.0f), half = v16_set1(0.5f);
    *n = v16_round(v16_mul(a, v16_set1(0x1.715476p+0f)));
    v16 above = v16_fnma(*n, v16_set1(0x1.62e4p-1f), a); /* exact: ln 2 to 15 bits */
    v16 r = v16_fnma(*n, v16_set1(0x1.7f7d1cp-20f), above);
    v16 r_lo = v16_fnma(*n, v16_set1(0x1.7f7d1cp-20f), v16_sub(above, r));
    v16 g = v16_set1(0x1.a24346p-13f);
    g = v16_fma(g, r, v16_set1(0x1.6d4ceep-10f));
    g = v16_fma(g, r, v16_set1(0x1.111004p-7f));
    g = v16_fma(g, r, v16_set1(0x1.5554e8p-5f));
    g = v16_fma(g, r, v16_set1(0x1.555556p-3f));
    v16 square = v16_mul(r, r), square_lo = v16_fma(r, r, v16_neg(square));
    v16 s = v16_fma(square, half, r), s_lo = v16_fma(square, half, v16_sub(r, s)); /* |r| > r^2/2, so s + s_lo is exact */
    v16 m = v16_add(one, s), rest = v16_add(v16_add(v16_sub(one, m), s), s_lo);
    rest = v16_fma(square_lo, half, rest);
    rest = v16_fma(v16_mul(square, r), g, rest);
    rest = v16_fma(r_lo, m, rest);
    if (a_lo)
        rest = v16_fma(*a_lo, v16_add(m, rest), rest);
    *hi = v16_add(m, rest);
    *lo = v16_add(v16_sub(m, *hi), rest);
}

/* sigmoid(x + x_lo) = (hi + lo) * 2^n: 1 / (1 + t) or, for x < 0, t / (1 + t) with t = e^-|x|, whose power of two stays apart, so
 * that products with hi lose nothing to subnormal numbers. Below `least` x counts as `least`. x_lo may be null. */
static inline void QK_TIER(sigmoid_pair)(v16 x, const v16 *x_lo, float least, v16 *hi, v16 *lo, v16 *n)
{
    v16 one = v16_set1(1.0f), zero = v16_zero(), a = v16_max(v16_set1(least), v16_neg(v16_abs(x))), a_lo, t, t_lo, e;
    m16 negative = v16_lt(x, zero);
    if (x_lo)
        a_lo = v16_select(v16_lt(v16_set1(least), a), v16_select(negative, *x_lo, v16_neg(*x_lo)), zero);
    QK_TIER(exp_pair)(a, x_lo ? &a_lo : NULL, &t, &t_lo, &e);
    v16 power = v16i_as_f(v16i_shl(v16i_add(v16_to_i(v16_max(v16_set1(-126.0f), e)), v16i_set1(127)), 23)); /* 1 + t is 1 long before */
    v16 u = v16_mul(t, power), below = v16_add(one, u), below_lo = v16_fma(t_lo, power, v16_add(v16_sub(one, below), u));
    v16 above = v16_select(negative, t, one), above_lo = v16_select(negative, t_lo, zero);
    v16 inverse = v16_div(one, below), q = v16_mul(above, inverse);
    v16 rest = v16_add(v16_fnma(q, below_lo, v16_fnma(q, below, above)), above_lo);
    rest = v16_mul(rest, inverse);
    *hi = v16_add(q, rest);
    *lo = v16_add(v16_sub(q, *hi), rest);
    *n = v16_select(negative, e, zero);
}

/* (hi + lo) * 2^n for a result of `dtype`: rounded to float32, or to odd for a later rounding to 16 bits. `sign` says which way hi + lo
 * is off where lo has underflowed to 0. */
static inline v16 QK_TIER(finish_pair)(int dtype, v16 hi, v16 lo, v16 n, v16i sign)
{
    v16 y = v16_scale2(hi, n);
    if (dtype == QK_F32)
        return y;
    if (dtype == QK_BF16) /* whose subnormal numbers are float32's: there the scaling has rounded */
        lo = v16_add(lo, v16_sub(hi, v16_scale2(y, v16_neg(n))));
    v16i bits = v16_as_i(y), way = v16i_select(v16_eq(lo, v16_zero()), sign, v16_as_i(lo));
    v16i toward_zero = v16i_shr(v16i_xor(bits, way), 31); /* 1 where lo makes the magnitude smaller */
    v16i odd = v16i_or(v16i_sub(bits, toward_zero), v16i_set1(1));
    odd = v16i_select(v16i_eq(v16i_and(way, v16i_set1(INT32_MAX)), v16i_set1(0)), bits, odd);
    return v16_select(v16_eq(y, v16_zero()), y, v16i_as_f(odd)); /* 0 has no float32 beside it that matters */
}

static inline v16 QK_TIER(sigmoid)(int dtype, v16 x)
{
    v16 hi, lo, n;
    QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n);
    return QK_TIER(finish_pair)(dtype, hi, lo, n, v16i_set1(0));
}

/* f * (hi + lo) * 2^n */
static inline v16 QK_TIER(product_pair)(int dtype, v16 f, v16 hi, v16 lo, v16 n)
{
    v16 p = v16_mul(f, hi), off = v16_fnma(f, lo, v16_fnma(f, hi, p)); /* f (hi + lo) = p - off; a difference keeps -0 */
    v16 y = v16_sub(p, off), y_lo = v16_sub(v16_sub(p, y), off);
    v16i sign = v16i_or(v16i_xor(v16_as_i(f), v16_as_i(lo)), v16i_set1(1));
    sign = v16i_select(v16_eq(f, v16_zero()), v16i_set1(0), v16i_select(v16_eq(lo, v16_zero()), v16i_set1(0), sign));
    return QK_TIER(finish_pair)(dtype, y, y_lo, n, sign);
}

/* x * sigmoid(x). From 30 on it is x, also infinity; below -120 it is 0, also the limit for minus infinity. */
static inline v16 QK_TIER(silu)(int dtype, v16 x)
{
    v16 hi, lo, n;
    QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n);
    return v16_select(v16_lt(v16_set1(30.0f), x), x, QK_TIER(product_pair)(dtype, v16_max(v16_set1(-120.0f), x), hi, lo, n));
}

/* x * sigmoid(alpha x), 0 for the largest x from alpha x = -200 on. 2^n in two steps: the first is exact unless the result is 0 anyway. */
static inline v16 QK_TIER(swish)(int dtype, v16 x, float alpha)
{
    v16 z = v16_mul(v16_set1(alpha), x), z_lo = v16_fma(v16_set1(alpha), x, v16_neg(z)), hi, lo, n;
    QK_TIER(sigmoid_pair)(z, &z_lo, -200.0f, &hi, &lo, &n);
    v16 largest = v16_set1(0x1.fffffep127f), some = v16_max(v16_set1(-160.0f), n), others = v16_sub(n, some);
    v16 f = v16_scale2(v16_max(v16_neg(largest), v16_min(largest, x)), others);
    return v16_select(v16_lt(v16_set1(30.0f), z), x, QK_TIER(product_pair)(dtype, f, hi, lo, some));
}
