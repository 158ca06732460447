/* Functions of one or two float32 values in double arithmetic, for the template of elementwise: include it within a target region.
 *
 * Every function works on 16 doubles and is rounded once at its end (d16_finish), so float32 results err by hardly more than half a unit
 * in the last place, and float16 and bfloat16 results are correctly rounded, which tests/test_functions.py shows for all 65,536 inputs. They are called, not
 * inlined: a call is little beside them, and each exists once for all dtypes. After sigmoid.h. */
/* The upper tail of the normal distribution for a >= 0: (1 - erf(a / sqrt 2)) / 2 = e^(-a^2/2) G(a), relative error 2^-45 up to a = 16,
 * and nothing cancels. G is a polynomial in (a - 5) / (a + 5), fitted from 0 to 16. a beyond 16 counts as 16. */
QK_FOLDED d16 QK_TIER(normal_tail)(d16 a)
{
    static const double g[] = {0x1.3b0fbcb4c779dp-4,   -0x1.25cd1321c8dc1p-3, 0x1.db6af8722f5d4p-4,  -0x1.4b4ce479e9293p-4,  0x1.8807f29f10cd9p-5,
                               -0x1.7f9d043ff0df6p-6,  0x1.26a1157573266p-7,  -0x1.37ccc10d70ba8p-9, 0x1.cc6e0ea460fa9p-13,  0x1.1997036eae781p-13,
                               -0x1.fae6e1e174de5p-15, 0x1.07184af59b0d5p-20, 0x1.bef2a59b39556p-18, -0x1.5e7d1f389b772p-20, -0x1.8b6d1b2ed6563p-21,
                               0x1.072628fdddf35p-22,  0x1.3cb4b8fd03340p-23, 0x1.3a9638d6b8bc6p-26};
    a = d16_min(d16_set1(16.0), a);
    d16 t = d16_div(d16_sub(a, d16_set1(5.0)), d16_add(a, d16_set1(5.0)));
    return d16_mul(d16_exp(d16_mul(d16_mul(a, a), d16_set1(-0.5))), d16_polynomial(t, g, 17));
}

/* x Phi(x), Phi the normal distribution; 0 for minus infinity, the limit. Phi(x) is never 1/2 but for 0, since half of a tiny x may be a tie, nor
 * 1, since x, a sum, may be one. */
static QK_NOINLINE v16 QK_TIER(gelu)(int dtype, d16 x)
{
    d16 one = d16_set1(1.0), tail = d16_min(d16_set1(0.5 - 0x1p-53), QK_TIER(normal_tail)(d16_abs(x)));
    d16 phi = d16_select_lt(x, d16_zero(), tail, d16_min(d16_set1(1.0 - 0x1p-52), d16_sub(one, tail)));
    return d16_finish(dtype, d16_mul(d16_max(d16_set1(-16.0), x), phi));
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x sigmoid(2 ...); below -16 as for -16, which is 0 in float32. As above the
 * sigmoid is never 1/2, nor 1. */
static QK_NOINLINE v16 QK_TIER(gelu_tanh)(int dtype, d16 x)
{
    d16 one = d16_set1(1.0);
    x = d16_max(d16_set1(-16.0), x);
    d16 u = d16_mul(x, d16_fma(d16_mul(x, x), d16_set1(2.0 * 0x1.9884533d43651p-1 * 0.044715), d16_set1(2.0 * 0x1.9884533d43651p-1)));
    d16 e = d16_exp(d16_neg(u));
    e = d16_select_lt(x, d16_zero(), d16_max(d16_set1(1.0 + 0x1p-51), e), d16_within(0x1p-52, 1.0 - 0x1p-52, e));
    return d16_finish(dtype, d16_div(x, d16_add(one, e)));
}

static QK_NOINLINE v16 QK_TIER(erf)(int dtype, v16 f)
{
    static const double p[] = {0x1.20dd750429b6dp+0,   -0x1.812746b037820p-2, 0x1.ce2f21a028a34p-4,   -0x1.b82ce3093b2fdp-6, 0x1.565bcb5ede4b9p-8,
                               -0x1.c02d5a0211f09p-11, 0x1.f997b227f7e24p-14, -0x1.f3ea321aa6558p-17, 0x1.aeb120d68c0cbp-20, -0x1.10fa781af6375p-23};
    d16 x = d16_of(f), a = d16_abs(x), tail = QK_TIER(normal_tail)(d16_mul(a, d16_set1(0x1.6a09e667f3bcdp+0)));
    d16 near = d16_mul(a, d16_polynomial(d16_mul(a, a), p, 9)), far = d16_fnma(d16_set1(2.0), tail, d16_set1(1.0));
    return d16_finish(dtype, d16_or(d16_select_lt(a, d16_set1(0.75), near, far), d16_sign(x)));
}

static QK_NOINLINE v16 QK_TIER(exp)(int dtype, v16 f) { return d16_finish(dtype, d16_exp(d16_of(f))); }

static QK_NOINLINE v16 QK_TIER(log)(int dtype, v16 f)
{
    v16 y = d16_finish(dtype, d16_log(d16_of(f))), zero = v16_zero(), infinity = v16_set1(INFINITY);
    y = v16_select(v16_lt(f, zero), v16_set1(NAN), v16_select(v16_eq(f, zero), v16_neg(infinity), y));
    return v16_select(v16_eq(f, infinity), infinity, y);
}

/* max(x, 0) + ln(1 + t), t = e^-|x|. 1 + t is never formed: ln(1 + t) by t / (2 + t), or for a large t after halving */
static QK_NOINLINE v16 QK_TIER(softplus)(int dtype, v16 f)
{
    d16 x = d16_of(f), t = d16_exp(d16_neg(d16_abs(x))), one = d16_set1(1.0), split = d16_set1(0x1.a827999fcef32p-2);
    d16 above = d16_select_lt(t, split, t, d16_sub(t, one)), below = d16_add(t, d16_select_lt(t, split, d16_set1(2.0), d16_set1(3.0)));
    d16 y = d16_add(d16_log_ratio(d16_div(above, below)), d16_select_lt(t, split, d16_zero(), d16_set1(0x1.62e42fefa39efp-1)));
    return d16_finish(dtype, d16_add(d16_max(d16_zero(), x), y));
}

/* E / (E + 2), E = e^2x - 1 */
static QK_NOINLINE v16 QK_TIER(tanh)(int dtype, v16 f)
{
    d16 x = d16_of(f), power, q = d16_exp_reduced(d16_within(0.0, 40.0, d16_mul(d16_set1(2.0), d16_abs(x))), &power);
    d16 e = d16_fma(q, power, d16_sub(power, d16_set1(1.0)));
    return d16_finish(dtype, d16_or(d16_div(e, d16_add(e, d16_set1(2.0))), d16_sign(x)));
}

/* A finite |x| of 2^20 or more modulo pi/2. x = m 2^e with m of 24 bits, so x 2/pi modulo 4 needs the bits of 2/pi from weight 2^(1 - e) on,
 * 96 of them. The product, in units of 2^-62 and modulo 2^64: its top 2 bits are the quadrant, the rest the fraction. */
static double QK_TIER(reduce_large)(float x, double *n)
{
    static const uint32_t two_over_pi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
    uint32_t u, m;
    memcpy(&u, &x, 4);
    m = (u & 0x7FFFFF) | 0x800000;
    int e = (int)(u >> 23 & 255) - 150, skip = e > 2 ? e - 2 : 0;
    unsigned __int128 window = 0;
    for (int i = 0; i < 3; i++) {
        const uint32_t *w = two_over_pi + skip / 32 + i;
        window = window << 32 | (uint32_t)((((uint64_t)w[0] << 32 | w[1]) << skip % 32) >> 32);
    }
    uint64_t turns = (uint64_t)(window * m >> (34 - (e - skip))), quadrant = (turns + (1ULL << 61)) >> 62;
    double r = (double)(int64_t)(turns - (quadrant << 62)) * (0x1.921fb54442d18p+0 * 0x1p-62);
    *n = x < 0 ? -(double)quadrant : (double)quadrant;
    return x < 0 ? -r : r;
}

/* sin x, or cos x as the next quadrant's */
static QK_NOINLINE v16 QK_TIER(sine)(int dtype, v16 f, int cosine)
{
    static const double s[] = {-0x1.5555555555555p-3, 0x1.1111111110bb1p-7,   -0x1.a01a019e8357dp-13,
                               0x1.71de37961e4c6p-19, -0x1.ae600a926c89ap-26, 0x1.5e0af186af739p-33};
    static const double c[] = {0x1.5555555555555p-5,   -0x1.6c16c16c16966p-10, 0x1.a01a019f4e867p-16,
                               -0x1.27e4fa17a41b4p-22, 0x1.1eeb68b109173p-29,  -0x1.907d7aebd5e3dp-37};
    d16 x = d16_of(f), n = d16_round(d16_mul(x, d16_set1(0x1.45f306dc9c883p-1))), one = d16_set1(1.0);
    d16 r = d16_fnma(n, d16_set1(0x1.1a62633145c07p-54), d16_fnma(n, d16_set1(0x1.921fb54442d18p+0), x));
    r = d16_select_lt(d16_abs(x), d16_set1(0.5), x, r);    /* -0 stays */
    if (m16_bits(v16_lt(v16_set1(0x1p20f), v16_abs(f)))) { /* where n times pi/2 in two doubles is no longer exact enough */
        float lanes[16];
        double n_lanes[16], r_lanes[16];
        v16_store(lanes, f);
        d16_store(n_lanes, n);
        d16_store(r_lanes, r);
        for (int l = 0; l < 16; l++)
            if (fabsf(lanes[l]) > 0x1p20f && fabsf(lanes[l]) < INFINITY)
                r_lanes[l] = QK_TIER(reduce_large)(lanes[l], &n_lanes[l]);
        n = d16_load(n_lanes);
        r = d16_load(r_lanes);
    }
    if (cosine)
        n = d16_add(n, one);
    /* shifted so that bit 1, then bit 0, of n becomes the sign */
    d16 sign = d16_sign(d16_shl52(d16_fma(n, d16_set1(1024.0), d16_set1(0x1.8p52))));
    d16 odd = d16_or(d16_sign(d16_shl52(d16_fma(n, d16_set1(2048.0), d16_set1(0x1.8p52)))), one);
    d16 square = d16_mul(r, r), sine = d16_mul(r, d16_fma(square, d16_polynomial(square, s, 5), one));
    d16 other = d16_fma(d16_mul(square, square), d16_polynomial(square, c, 5), d16_fma(square, d16_set1(-0.5), one));
    return d16_finish(dtype, d16_xor(d16_select_lt(odd, d16_zero(), other, sine), sign));
}

/* f to the power g with the special values of C's pow */
static QK_NOINLINE v16 QK_TIER(pow)(int dtype, v16 f, v16 g)
{
    v16 zero = v16_zero(), one = v16_set1(1.0f), half = v16_set1(0.5f), infinity = v16_set1(INFINITY), a = v16_abs(f);
    d16 log = d16_log(d16_of(v16_select(v16_eq(a, zero), one, a)));
    d16 y = d16_exp(d16_mul(d16_of(g), log)), rounded = d16_mul(y, d16_set1(0x1p21 + 1.0));
    /* A power may be exact, even a tie between two numbers of the type, only of a base of few bits. Then it is taken to 32 bits where these
     * are nearer than the errors above. */
    rounded = d16_sub(rounded, d16_sub(rounded, y));
    rounded = d16_select_lt(d16_abs(d16_sub(rounded, y)), d16_mul(y, d16_set1(0x1p-42)), rounded, y);
    m16 few_bits = v16i_eq(v16i_and(v16_as_i(f), v16i_set1(127)), v16i_set1(0));
    v16 power = v16_select(few_bits, d16_finish(dtype, rounded), d16_finish(dtype, y));
    v16 end = v16_select(v16_eq(a, zero), v16_neg(g), g); /* of 0 and infinity: infinity where this is positive, else 0 */
    power = v16_select(v16_eq(a, zero), v16_select(v16_lt(zero, end), infinity, zero), power);
    power = v16_select(v16_eq(a, infinity), v16_select(v16_lt(zero, end), infinity, zero), power);
    power = v16_select(v16_isnan(g), g, v16_select(v16_eq(a, one), one, power));
    m16 whole = v16_eq(v16_round(g), g), even = v16_eq(v16_round(v16_mul(g, half)), v16_mul(g, half));
    v16i sign = v16i_and(v16_as_i(f), v16i_set1(INT32_MIN));
    sign = v16i_select(even, v16i_set1(0), v16i_select(whole, sign, v16i_set1(0)));
    power = v16i_as_f(v16i_xor(v16_as_i(power), sign));
    v16 negative = v16_select(whole, power, v16_select(v16_eq(a, infinity), power, v16_set1(NAN))); /* of a negative f */
    power = v16_select(v16_lt(f, zero), negative, power);
    power = v16_select(v16_isnan(f), f, power);
    power = v16_select(v16_eq(f, one), one, v16_select(v16_eq(g, zero), one, power));
    if (dtype == QK_F32) /* the square, which norms use, with its one rounding */
        power = v16_select(v16_eq(g, v16_set1(2.0f)), v16_mul(f, f), power);
    return power;
}

/* factor * sigmoid(z). sigmoid is never 1/2 but for 0: half of a tiny factor may be a tie. */
static QK_NOINLINE v16 QK_TIER(sigmoid_in_double)(int dtype, v16 factor, d16 z)
{
    d16 one = d16_set1(1.0), e = d16_exp(d16_neg(z));
    e = d16_select_lt(z, d16_zero(), d16_max(d16_set1(1.0 + 0x1p-51), e), d16_min(d16_set1(1.0 - 0x1p-52), e));
    return d16_finish(dtype, d16_div(d16_of(factor), d16_add(one, e)));
}

/* x tanh(ln(1 + w)) = x (w^2 + 2 w) / (w^2 + 2 w + 2), w = e^x; 0 for minus infinity, the limit. Beyond 40 the quotient is 1. */
static QK_NOINLINE v16 QK_TIER(mish)(int dtype, v16 f)
{
    d16 x = d16_max(d16_set1(-200.0), d16_of(f)), two = d16_set1(2.0), w = d16_exp(d16_min(d16_set1(40.0), x)), n = d16_mul(w, d16_add(w, two));
    return d16_finish(dtype, d16_mul(x, d16_div(n, d16_add(n, two))));
}

static QK_NOINLINE v16 QK_TIER(softsign)(int dtype, v16 f)
{
    d16 x = d16_within(-0x1p500, 0x1p500, d16_of(f)); /* for infinity the limit */
    return d16_finish(dtype, d16_div(x, d16_add(d16_set1(1.0), d16_abs(x))));
}

/* x < 0 ? below (e^(x / scale) - 1) : above x */
static QK_NOINLINE v16 QK_TIER(elu)(int dtype, v16 f, d16 below, d16 scale, d16 above)
{
    d16 x = d16_of(f), power, q = d16_exp_reduced(d16_within(-700.0, 700.0, d16_div(x, scale)), &power);
    d16 e = d16_fma(q, power, d16_sub(power, d16_set1(1.0)));
    return d16_finish(dtype, d16_select_lt(x, d16_zero(), d16_mul(below, e), d16_mul(above, x)));
}

static QK_NOINLINE v16 QK_TIER(hard_sigmoid)(int dtype, v16 f, float alpha, float beta)
{
    return d16_finish(dtype, d16_within(0.0, 1.0, d16_fma(d16_set1(alpha), d16_of(f), d16_set1(beta))));
}

/* x (x + 3) / 6 with the sum from 0 to 6 */
static QK_NOINLINE v16 QK_TIER(hard_swish)(int dtype, v16 f)
{
    d16 x = d16_max(d16_set1(-4.0), d16_of(f)), sum = d16_within(0.0, 6.0, d16_add(x, d16_set1(3.0)));
    sum = d16_select_lt(x, d16_zero(), d16_min(d16_set1(3.0 - 0x1p-51), sum),
                        d16_max(d16_set1(3.0 + 0x1p-51), sum)); /* half of a tiny x may be a tie */
    d16 y = d16_div(d16_mul(x, sum), d16_set1(6.0));
    return d16_finish(dtype, d16_select_lt(d16_set1(3.0), x, x, y));
}

/* every function in double, for all types */
static QK_NOINLINE v16 QK_TIER(exact_function)(int op, int dtype, v16 a, v16 b, float alpha, float beta)
{
    d16 one = d16_set1(1.0);
    switch (op) {
    case QK_SQRT: return v16_sqrt(a); /* of 11 bits it is never as near to a tie as float32 rounds */
    case QK_HARD_SIGMOID: return QK_TIER(hard_sigmoid)(dtype, a, alpha, beta);
    case QK_HARD_SWISH: return QK_TIER(hard_swish)(dtype, a);
    case QK_SOFTSIGN: return QK_TIER(softsign)(dtype, a);
    case QK_SIGMOID: return QK_TIER(sigmoid_in_double)(dtype, v16_set1(1.0f), d16_of(a));
    case QK_SILU: a = v16_max(v16_set1(-200.0f), a); return QK_TIER(sigmoid_in_double)(dtype, a, d16_of(a));
    case QK_SWISH:
        b = v16_max(v16_set1(-0x1.fffffep127f), v16_min(v16_set1(0x1.fffffep127f), a)); /* infinity would be NaN beside a sigmoid of 0 */
        return QK_TIER(sigmoid_in_double)(dtype, b, d16_mul(d16_set1(alpha), d16_of(a)));
    case QK_BIAS_GELU: return QK_TIER(gelu)(dtype, d16_add(d16_of(a), d16_of(b)));
    case QK_BIAS_GELU_TANH: return QK_TIER(gelu_tanh)(dtype, d16_add(d16_of(a), d16_of(b)));
    case QK_GELU: return QK_TIER(gelu)(dtype, d16_of(a));
    case QK_GELU_TANH: return QK_TIER(gelu_tanh)(dtype, d16_of(a));
    case QK_ERF: return QK_TIER(erf)(dtype, a);
    case QK_EXP: return QK_TIER(exp)(dtype, a);
    case QK_LOG: return QK_TIER(log)(dtype, a);
    case QK_SOFTPLUS: return QK_TIER(softplus)(dtype, a);
    case QK_MISH: return QK_TIER(mish)(dtype, a);
    case QK_TANH: return QK_TIER(tanh)(dtype, a);
    case QK_SIN: return QK_TIER(sine)(dtype, a, 0);
    case QK_COS: return QK_TIER(sine)(dtype, a, 1);
    case QK_ELU: return QK_TIER(elu)(dtype, a, d16_set1(alpha), one, one);
    case QK_CELU: return QK_TIER(elu)(dtype, a, d16_set1(alpha), d16_set1(alpha), one);
    case QK_SELU: return QK_TIER(elu)(dtype, a, d16_mul(d16_set1(beta), d16_set1(alpha)), one, d16_set1(beta));
    default: return QK_TIER(pow)(dtype, a, b);
    }
}
