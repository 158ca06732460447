/* d16, what follows from the tier's own operations: written once. Functions of float32 values (float16 and bfloat16 are among them) in
 * double arithmetic: their relative errors of 2^-42 and less vanish in the one rounding to the type. */

static inline d16 d16_zero(void) { return d16_set1(0.0); }
static inline d16 d16_sign(d16 a) { return d16_and(a, d16_set1(-0.0)); } /* its sign bit */
static inline d16 d16_abs(d16 a) { return d16_xor(a, d16_sign(a)); }
static inline d16 d16_neg(d16 a) { return d16_xor(a, d16_set1(-0.0)); }

/* 2^n for whole n in [-1022, 1023]: beside 1.5 * 2^52 the last bits of a double are a whole number */
static inline d16 d16_power_of_2(d16 n) { return d16_shl52(d16_add(n, d16_set1(0x1.8p52 + 1023.0))); }

/* c[0] + c[1] x + ... + c[degree] x^degree, the even and the odd terms side by side, which halves the chain */
QK_FOLDED d16 d16_polynomial(d16 x, const double *c, int degree)
{
    d16 square = d16_mul(x, x), p = d16_set1(c[degree]), q = d16_set1(c[degree - 1]);
    QK_UNROLL
    for (int i = degree - 2; i >= 0; i -= 2) {
        p = d16_fma(p, square, d16_set1(c[i]));
        if (i)
            q = d16_fma(q, square, d16_set1(c[i - 1]));
    }
    return degree % 2 ? d16_fma(p, x, q) : d16_fma(q, x, p);
}

static inline d16 d16_within(double least, double most, d16 x) { return d16_min(d16_set1(most), d16_max(d16_set1(least), x)); } /* NaN stays */

/* x = (n + j/16) ln 2 + r, n whole, |r| <= ln 2 / 32: returns q = e^r - 1, its error 2^-47, and power = 2^(n + j/16), so e^x = power + power q.
 * For |x| <= 700. */
QK_FOLDED d16 d16_exp_reduced(d16 x, d16 *power)
{
    static const double t[16] = {0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
                                 0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0,
                                 0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
                                 0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};
    static const double g[] = {0x1.fffffffdba6e6p-2, 0x1.555555546a851p-3, 0x1.55573d6845501p-5, 0x1.111250c550837p-7};
    d16 shift = d16_set1(0x1.8p48 + 1023.0), shifted = d16_fma(x, d16_set1(0x1.71547652b82fep+0), shift); /* its last bits count sixteenths */
    d16 r = d16_fnma(d16_sub(shifted, shift), d16_set1(0x1.62e42fefa39efp-1), x);
    *power = d16_mul(d16_sixteenths_lookup(t, shifted), d16_sixteenths_power(shifted));
    return d16_fma(d16_mul(r, r), d16_polynomial(r, g, 3), r);
}

/* e^x; beyond 700 as for 700, where float32 has long ended */
QK_FOLDED d16 d16_exp(d16 x)
{
    d16 power, q = d16_exp_reduced(d16_within(-700.0, 700.0, x), &power);
    return d16_fma(q, power, power);
}

/* ln((1 + f) / (1 - f)) for |f| <= 0.1716, relative error 2^-52 */
QK_FOLDED d16 d16_log_ratio(d16 f)
{
    static const double h[] = {0x1.5555555555558p-1, 0x1.99999999952d9p-2, 0x1.2492492df24c9p-2, 0x1.c71c62e434baap-3,
                               0x1.7462b50978d9ap-3, 0x1.39fe54273fda1p-3, 0x1.2b58e1fea16c6p-3};
    d16 s = d16_mul(f, f);
    return d16_fma(d16_mul(f, s), d16_polynomial(s, h, 6), d16_add(f, f));
}

/* ln x for a finite x that is positive and not subnormal as a double */
QK_FOLDED d16 d16_log(d16 x)
{
    d16 one = d16_set1(1.0), e = d16_sub(d16_or(d16_shr52(x), d16_set1(0x1p52)), d16_set1(0x1p52 + 1023.0)); /* exponent */
    d16 m = d16_mul(x, d16_power_of_2(d16_neg(e)));
    d16 big = d16_set1(0x1.6a09e667f3bcdp+0);
    e = d16_select_lt(m, big, e, d16_add(e, one));
    m = d16_select_lt(m, big, m, d16_mul(m, d16_set1(0.5)));
    d16 y = d16_log_ratio(d16_div(d16_sub(m, one), d16_add(m, one)));
    return d16_fma(e, d16_set1(0x1.62e42fefa39efp-1), d16_fma(e, d16_set1(0x1.abc9e3b39803fp-56), y));
}

/* The one rounding: to float32, or to the 11 or 8 bits of a 16-bit type (its subnormal numbers included) in a float32 that then converts
 * without loss. x + c - c rounds to a multiple of c's last place, which is that of the type at x's magnitude. */
QK_FOLDED v16 d16_finish(int dtype, d16 x)
{
    if (dtype == QK_F32)
        return d16_to_f(x);
    d16 binade = d16_and(x, d16_set1(INFINITY)); /* the power of two below |x| */
    binade = d16_within(dtype == QK_F16 ? 0x1p-14 : 0x1p-126, 0x1p200, binade);
    d16 c = d16_mul(binade, d16_set1(dtype == QK_F16 ? 0x1.8p42 : 0x1.8p45));
    return d16_to_f(d16_or(d16_sub(d16_add(x, c), c), d16_sign(x)));
}
