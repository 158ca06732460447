/* Sigmoid and SiLU from one evaluation, for any family's template: include it within a target region.
 *
 * sigmoid(x) = 1 / (1 + e^-x) with e^-x = 2^-n T (1 - q), so it is 2^n / (2^n + T - T q): a denominator that neither overflows nor loses small
 * results, for either sign of x. float32 carries the denominator as a pair of floats and mends the quotient by its remainder, so that little more than
 * its last rounding errs. The 16-bit types go by way of double. */

/* T = 2^-(j/16) and q from x = (n + j/16) ln 2 + r, |r| <= ln 2 / 32: q = 1 - e^-r, its polynomial off by 2^-29. n_j = n + j/16; power is 2^n, but
 * not below 2^-100. For x in [-200, 30], x_lo may be null. */
QK_FOLDED v16 QK_TIER(exp_parts)(v16 x, const v16 *x_lo, v16 *q, v16 *n_j, v16 *power, v16i *j)
{
    static const float t[16] = {0x1.000000p+0f, 0x1.ea4afap-1f, 0x1.d5818ep-1f, 0x1.c199bep-1f, 0x1.ae89fap-1f, 0x1.9c4918p-1f,
                                0x1.8ace54p-1f, 0x1.7a1148p-1f, 0x1.6a09e6p-1f, 0x1.5ab07ep-1f, 0x1.4bfdaep-1f, 0x1.3dea64p-1f,
                                0x1.306fe0p-1f, 0x1.2387a6p-1f, 0x1.172b84p-1f, 0x1.0b5586p-1f};
    v16 shift = v16_set1(0x1.8p19f + 127.0f), shifted = v16_fma(x, v16_set1(0x1.715476p+0f), shift); /* its last bits count sixteenths */
    *j = v16_as_i(shifted);
    *n_j = v16_sub(shifted, shift);
    *power = v16i_as_f(v16i_shl(v16i_and(v16i_max(*j, v16_as_i(v16_set1(0x1.8p19f + 27.0f))), v16i_set1(~15)), 19));
    v16 r = v16_fnma(*n_j, v16_set1(-0x1.05c610p-29f), v16_fnma(*n_j, v16_set1(0x1.62e430p-1f), x)); /* the inner difference is exact */
    if (x_lo)
        r = v16_add(r, *x_lo);
    *q = v16_fnma(v16_fma(v16_set1(-0x1.555738p-3f), r, v16_set1(0x1.000222p-1f)), v16_mul(r, r), r);
    return v16_lookup16(t, *j);
}

/* the larger and the smaller of positive numbers: integer units have time where the others do not */
QK_FOLDED v16 QK_TIER(larger_positive)(v16 a, v16 b) { return v16i_as_f(v16i_max(v16_as_i(a), v16_as_i(b))); }
QK_FOLDED v16 QK_TIER(smaller_positive)(v16 a, v16 b) { return v16i_as_f(v16i_min(v16_as_i(a), v16_as_i(b))); }

/* what T lacks of 2^-(j/16) */
QK_FOLDED v16 QK_TIER(exp_parts_rest)(v16i j)
{
    static const float t_lo[16] = {0x0.0p+0f,       0x1.52486cp-28f,  -0x1.822dbcp-28f, -0x1.3d56b2p-28f, -0x1.a94b14p-27f, 0x1.51f848p-28f,
                                   0x1.15506ep-28f, -0x1.829fd0p-26f, 0x1.9fcef4p-27f,  -0x1.5bd5ecp-28f, -0x1.593abcp-26f, 0x1.824684p-26f,
                                   0x1.4636e2p-26f, 0x1.ceac48p-26f,  -0x1.c15742p-28f, 0x1.9f3122p-26f};
    return v16_lookup16(t_lo, j);
}

/* sigmoid(x) = (hi + lo) 2^n, n = floor(n_j). Outside [least, 30] x counts as its end, which is returned. x_lo may be null. */
QK_FOLDED v16 QK_TIER(sigmoid_pair)(v16 x, const v16 *x_lo, float least, v16 *hi, v16 *lo, v16 *n_j)
{
    v16 one = v16_set1(1.0f), q, power, inside = v16_min(v16_set1(30.0f), v16_max(v16_set1(least), x)), inside_lo;
    v16i j;
    if (x_lo)
        inside_lo = v16_select(v16_eq(inside, x), *x_lo, v16_zero());
    v16 t = QK_TIER(exp_parts)(inside, x_lo ? &inside_lo : NULL, &q, n_j, &power, &j);
    v16 large = QK_TIER(larger_positive)(power, t), sum = v16_add(power, t), rest = v16_sub(QK_TIER(smaller_positive)(power, t), v16_sub(sum, large));
    v16 part = v16_fnma(t, q, v16_add(rest, QK_TIER(exp_parts_rest)(j))), below = v16_add(sum, part), below_lo = v16_sub(part, v16_sub(below, sum));
    *hi = v16_div(one, below);
    *lo = v16_mul(v16_fnma(below_lo, *hi, v16_fnma(below, *hi, one)), *hi);
    return inside;
}

/* factor * sigmoid(z) by way of double, for 16-bit types. sigmoid is never 1/2 but for 0: half of a tiny factor may be a tie. */
static v16 QK_TIER(sigmoid_in_double)(int dtype, v16 factor, d16 z)
{
    d16 one = d16_set1(1.0), e = d16_exp(d16_neg(z));
    e = d16_select_lt(z, d16_zero(), d16_max(d16_set1(1.0 + 0x1p-51), e), d16_min(d16_set1(1.0 - 0x1p-52), e));
    return d16_finish(dtype, d16_div(d16_of(factor), d16_add(one, e)));
}

QK_FOLDED v16 QK_TIER(sigmoid)(int dtype, v16 x)
{
    v16 one = v16_set1(1.0f), hi, lo, n_j;
    if (dtype != QK_F32)
        return QK_TIER(sigmoid_in_double)(dtype, one, d16_of(x));
    QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n_j);
    return v16_scale2_floor(v16_add(hi, lo), n_j);
}

/* x * sigmoid(x); below -120 it is 0, also the limit for minus infinity */
QK_FOLDED v16 QK_TIER(silu)(int dtype, v16 x)
{
    v16 hi, lo, n_j, f = v16_max(v16_set1(-120.0f), x);
    if (dtype != QK_F32)
        return QK_TIER(sigmoid_in_double)(dtype, f, d16_of(f));
    v16 inside = QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n_j);
    return v16_scale2_floor(v16_fma(f, hi, v16_mul(inside, lo)), n_j); /* beyond 30 lo is nothing, but for infinity it would be NaN */
}

/* x * sigmoid(alpha x) for alpha that is not 0; 0 for the largest x from alpha x = -200 on. 2^n in two steps, of which one comes before the
 * product: for a large x, which would overflow, the large negative one, else the other. It is exact unless the result is 0 anyway. */
QK_FOLDED v16 QK_TIER(swish)(int dtype, v16 x, float alpha)
{
    v16 z = v16_mul(v16_set1(alpha), x), z_lo = v16_fma(v16_set1(alpha), x, v16_neg(z)), hi, lo, n_j, largest = v16_set1(0x1.fffffep127f);
    v16 finite = v16_max(v16_neg(largest), v16_min(largest, x));
    if (dtype != QK_F32)
        return QK_TIER(sigmoid_in_double)(dtype, finite, d16_mul(d16_set1(alpha), d16_of(x)));
    QK_TIER(sigmoid_pair)(z, &z_lo, -200.0f, &hi, &lo, &n_j);
    v16 n = v16_round(v16_sub(n_j, v16_set1(0.46875f))); /* floor */
    v16 large = v16_max(v16_set1(-160.0f), v16_min(v16_zero(), n)), small = v16_sub(n, large);
    m16 is_large = v16_lt(v16_set1(0x1p64f), v16_abs(x));
    v16 f = v16_scale2(finite, v16_select(is_large, large, small));
    v16 y = v16_scale2(v16_fma(f, hi, v16_max(v16_neg(largest), v16_mul(f, lo))), v16_select(is_large, small, large));
    return v16_select(v16_lt(v16_set1(30.0f), z), x, v16_select(v16_eq(f, v16_zero()), f, y));
}
