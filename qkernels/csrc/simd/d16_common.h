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

/* x = n ln 2 + r, n whole, |r| <= ln 2 / 2: returns e^r - 1, relative error 2^-49. For |x| <= 700. */
QK_FOLDED d16 d16_exp_reduced(d16 x, d16 *n)
{
    static const double g[] = {0x1.0000000000000p-1,  0x1.5555555553b78p-3,  0x1.5555555554cb7p-5,  0x1.1111111c478ebp-7, 0x1.6c16c1738ff55p-10,
                               0x1.a019ada3609f3p-13, 0x1.a019c9a5652d3p-16, 0x1.72c72ca338df0p-19, 0x1.2880411bad1aap-22};
    *n = d16_round(d16_mul(x, d16_set1(0x1.71547652b82fep+0)));
    d16 r = d16_fnma(*n, d16_set1(0x1.abc9e3b39803fp-56), d16_fnma(*n, d16_set1(0x1.62e42fefa39efp-1), x));
    return d16_fma(d16_mul(r, r), d16_polynomial(r, g, 8), r);
}

static inline d16 d16_within(double least, double most, d16 x) { return d16_min(d16_set1(most), d16_max(d16_set1(least), x)); } /* NaN stays */

/* e^x; beyond 700 as for 700, where float32 has long ended */
QK_FOLDED d16 d16_exp(d16 x)
{
    d16 n, q = d16_exp_reduced(d16_within(-700.0, 700.0, x), &n), power = d16_power_of_2(n);
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
