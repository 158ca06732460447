/* Sigmoid and SiLU from one evaluation, for any family's template: include it within a target region.
 *
 * Near 0 both come from 32 polynomials. Elsewhere sigmoid(x) = 1 / (1 + e^-x) with e^-x = 2^-n T (1 - q), so it is 2^n / (2^n + T - T q): a denominator that neither
 * overflows nor loses small results, for either sign of x. The denominator is carried as a pair of floats and the quotient mended by its remainder, so that
 * little more than its last rounding errs. */
#ifndef QK_NOINLINE
#define QK_NOINLINE __attribute__((noinline))
#endif

/* A smooth function as c + p d, p d several times smaller than c: 32 polynomials in the distance d of x from points b, piece i serves x around first + i / per. Rows of the
 * table are b, the value c there, which is next to a float32 number, and the coefficients of p, constant first. x_lo, added to x, may be null. */
QK_FOLDED v16 QK_TIER(pieces)(const float (*table)[32], int rows, float first, float per, v16 x, const v16 *x_lo, v16 *c, v16 *d)
{
    v16i i = v16_as_i(v16_fma(x, v16_set1(per), v16_set1(0x1.8p23f - first * per))); /* its last bits count pieces */
    v16 p = v16_lookup32(table[rows - 1], i);
    *d = v16_sub(x, v16_lookup32(table[0], i));
    if (x_lo)
        *d = v16_add(*d, *x_lo);
    QK_UNROLL
    for (int k = rows - 2; k >= 2; k--)
        p = v16_fma(p, *d, v16_lookup32(table[k], i));
    *c = v16_lookup32(table[1], i);
    return p;
}

/* x (c + p d), where the sum is positive */
QK_FOLDED v16 QK_TIER(times_pieces)(v16 x, v16 c, v16 p, v16 d)
{
    v16 sum = v16_fma(p, d, c), lo = v16_fma(p, d, v16_sub(c, sum)), y = v16_fma(x, sum, v16_mul(x, lo));
    return v16i_as_f(v16i_or(v16_as_i(y), v16i_and(v16_as_i(x), v16i_set1(INT32_MIN)))); /* -0 */
}

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

static QK_NOINLINE v16 QK_TIER(sigmoid_far)(v16 x)
{
    v16 hi, lo, n_j;
    QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n_j);
    return v16_scale2_floor(v16_add(hi, lo), n_j);
}

/* x * sigmoid(x); below -120 it is 0, also the limit for minus infinity */
static QK_NOINLINE v16 QK_TIER(silu_far)(v16 x)
{
    v16 hi, lo, n_j, f = v16_max(v16_set1(-120.0f), x);
    v16 inside = QK_TIER(sigmoid_pair)(x, NULL, -120.0f, &hi, &lo, &n_j);
    return v16_scale2_floor(v16_fma(f, hi, v16_mul(inside, lo)), n_j); /* beyond 30 lo is nothing, but for infinity it would be NaN */
}

/* x * sigmoid(alpha x) for alpha that is not 0; 0 for the largest x from alpha x = -200 on. 2^n in two steps, of which one comes before the
 * product: for a large x, which would overflow, the large negative one, else the other. It is exact unless the result is 0 anyway. */
static QK_NOINLINE v16 QK_TIER(swish_far)(v16 x, float alpha)
{
    v16 z = v16_mul(v16_set1(alpha), x), z_lo = v16_fma(v16_set1(alpha), x, v16_neg(z)), hi, lo, n_j, largest = v16_set1(0x1.fffffep127f);
    v16 finite = v16_max(v16_neg(largest), v16_min(largest, x));
    QK_TIER(sigmoid_pair)(z, &z_lo, -200.0f, &hi, &lo, &n_j);
    v16 n = v16_round(v16_sub(n_j, v16_set1(0.46875f))); /* floor */
    v16 large = v16_max(v16_set1(-160.0f), v16_min(v16_zero(), n)), small = v16_sub(n, large);
    m16 is_large = v16_lt(v16_set1(0x1p64f), v16_abs(x));
    v16 f = v16_scale2(finite, v16_select(is_large, large, small));
    v16 y = v16_scale2(v16_fma(f, hi, v16_max(v16_neg(largest), v16_mul(f, lo))), v16_select(is_large, small, large));
    return v16_select(v16_lt(v16_set1(30.0f), z), x, v16_select(v16_eq(f, v16_zero()), f, y));
}

/* sigmoid(x) = c + p d for |x| < 7.75 */
QK_FOLDED v16 QK_TIER(sigmoid_near)(v16 x, const v16 *x_lo, v16 *c, v16 *d)
{
    static const float table[8][32] = {
        {-0x1.000022p+3f,  -0x1.e00034p+2f, -0x1.bffeacp+2f, -0x1.a00014p+2f, -0x1.80003ep+2f, -0x1.5fffe8p+2f, -0x1.400054p+2f, -0x1.1fff9cp+2f,
         -0x1.000086p+2f,  -0x1.bffdf8p+1f, -0x1.800002p+1f, -0x1.40008p+1f,  -0x1.ffffap+0f,  -0x1.8000d6p+0f, -0x1.0000acp+0f, -0x1.000014p-1f,
         -0x1.411ffcp-11f, 0x1.00c64p-1f,   0x1.ff9f5p-1f,   0x1.80111p+0f,   0x1.ffae58p+0f,  0x1.3ff438p+1f,  0x1.802358p+1f,  0x1.bfe87p+1f,
         0x1.000cb2p+2f,   0x1.1ffeaep+2f,  0x1.3ffd9p+2f,   0x1.5fffe6p+2f,  0x1.7ff076p+2f,  0x1.a00e1ep+2f,  0x1.bfe2f4p+2f,  0x1.e00ac4p+2f},
        {0x1.5fa268p-12f, 0x1.21cfc6p-11f, 0x1.ddb12p-11f, 0x1.898628p-10f, 0x1.44163ep-9f, 0x1.0abdf8p-8f, 0x1.b69d2cp-8f, 0x1.680754p-7f,
         0x1.26ad44p-6f,  0x1.e047cep-6f,  0x1.84833ep-5f, 0x1.36b5f2p-4f,  0x1.e841f4p-4f, 0x1.759a84p-3f, 0x1.1364dap-2f, 0x1.8299fcp-2f,
         0x1.ffd7dcp-2f,  0x1.3ee192p-1f,  0x1.763a4cp-1f, 0x1.a29e36p-1f,  0x1.c2e6aep-1f, 0x1.d925dp-1f,  0x1.e7be2ep-1f, 0x1.f0fb4ep-1f,
         0x1.f6cc4ep-1f,  0x1.fa5fcep-1f,  0x1.fc92ap-1f,  0x1.fdea84p-1f,  0x1.febb9ap-1f, 0x1.ff3b68p-1f, 0x1.ff886p-1f,  0x1.ffb798p-1f},
        {0x1.5f8438p-12f, 0x1.21a6c4p-11f, 0x1.dd41b4p-11f, 0x1.88eeecp-10f, 0x1.43491ap-9f, 0x1.09a808p-8f,  0x1.b3adaep-8f,  0x1.6412aap-7f,
         0x1.21607ap-6f,  0x1.d23398p-6f,  0x1.72164ep-5f,  0x1.1f242p-4f,   0x1.ae0e3cp-4f, 0x1.31731p-3f,   0x1.92a8cap-3f,  0x1.e1499cp-3f,
         0x1.fffffcp-3f,  0x1.e11becp-3f,  0x1.92cc6ap-3f,  0x1.3166c4p-3f,  0x1.ae7642p-4f, 0x1.1f3b8p-4f,   0x1.71b9dep-5f,  0x1.d27d7p-6f,
         0x1.212b7p-6f,   0x1.6417bap-7f,  0x1.b3c042p-8f,  0x1.09a81p-8f,   0x1.439876p-9f, 0x1.889906p-10f, 0x1.de1034p-11f, 0x1.217708p-11f},
        {0x1.5f47dep-13f, 0x1.2154c8p-12f, 0x1.dc631p-12f,  0x1.87c0eap-11f, 0x1.41afd6p-10f, 0x1.077e6ep-9f,   0x1.add8c2p-9f,   0x1.5c3f98p-8f,
         0x1.16f7b6p-7f,  0x1.b6de7ep-7f,  0x1.4efbd6p-6f,  0x1.e727ccp-6f,  0x1.4786fep-5f,  0x1.84039cp-5f,   0x1.7427ap-5f,    0x1.d78172p-6f,
         0x1.412f52p-15f, -0x1.d8b2bap-6f, -0x1.740beap-5f, -0x1.83ff8ap-5f, -0x1.47b97p-5f,  -0x1.e747d2p-6f,  -0x1.4eb164p-6f,  -0x1.b71f8cp-7f,
         -0x1.16c688p-7f, -0x1.5c44d4p-8f, -0x1.adeb0ap-9f, -0x1.077f1ep-9f, -0x1.41fcap-10f, -0x1.876b0ap-11f, -0x1.dd31ecp-12f, -0x1.211cccp-12f},
        {0x1.d3be8p-15f,  0x1.80eba4p-14f, 0x1.3c6eaep-13f, 0x1.03994ap-12f, 0x1.a8aad4p-12f, 0x1.5997ccp-11f, 0x1.16dde2p-10f, 0x1.bbcf5ap-10f,
         0x1.58f2ep-9f,   0x1.01bd8p-8f,   0x1.67b2dp-8f,   0x1.bba4ap-8f,   0x1.a85c3ep-8f,  0x1.567c46p-9f,  -0x1.81dbc6p-8f, -0x1.071d84p-6f,
         -0x1.555252p-6f, -0x1.06aeaep-6f, -0x1.82dd86p-8f, 0x1.56e4fep-9f,  0x1.a8146ep-8f,  0x1.bbadd4p-8f,  0x1.677a0cp-8f,  0x1.01ddbcp-8f,
         0x1.58bbp-9f,    0x1.bbd53ap-10f, 0x1.16e944p-10f, 0x1.5997e2p-11f, 0x1.a91206p-12f, 0x1.036118p-12f, 0x1.3cf6b4p-13f, 0x1.80ab22p-14f},
        {0x1.d27e88p-17f,  0x1.7f394ep-16f,  0x1.3a1f9ep-15f,  0x1.00792ep-14f,  0x1.a0391ep-14f,  0x1.4e3cacp-13f,  0x1.07b3a4p-12f,
         0x1.93c98ap-12f,  0x1.251f2ep-11f,  0x1.8158f2p-11f,  0x1.990062p-11f,  0x1.9c6d9ap-12f,  -0x1.c6138p-11f,  -0x1.988fecp-9f,
         -0x1.513d1cp-8f,  -0x1.1e0846p-8f,  -0x1.be8034p-18f, 0x1.1e969ap-8f,   0x1.515e5cp-8f,   0x1.986b2ap-9f,   0x1.c7cd9cp-11f,
         -0x1.9af984p-12f, -0x1.991e04p-11f, -0x1.816f72p-11f, -0x1.24f5b8p-11f, -0x1.92c27ap-12f, -0x1.07773ep-12f, -0x1.4c7dc8p-13f,
         -0x1.a54e0ap-14f, -0x1.00e536p-14f, -0x1.393584p-15f, -0x1.950aaep-16f},
        {0x1.741cbp-19f,  0x1.308f76p-18f, 0x1.f057e2p-18f,  0x1.914528p-17f,  0x1.402e0cp-16f, 0x1.f3a8a6p-16f,  0x1.76b96ap-15f,  0x1.053c24p-14f,
         0x1.3830b6p-14f, 0x1.dd74ap-15f,  -0x1.6aadbp-15f,  -0x1.3c80eap-12f, -0x1.7acb7p-11f, -0x1.03e534p-10f, -0x1.b1b19cp-12f, 0x1.26b362p-10f,
         0x1.0e122cp-9f,  0x1.256b1cp-10f, -0x1.b0416ap-12f, -0x1.04006ep-10f, -0x1.7b9b4p-11f, -0x1.3c203ep-12f, -0x1.65e4dap-15f, 0x1.ddfdbp-15f,
         0x1.3867eep-14f, 0x1.053e4ep-14f, 0x1.76ca96p-15f,  0x1.f395f4p-16f,  0x1.3fd37cp-16f, 0x1.90ecd4p-17f,  0x1.f19676p-18f,  0x1.321902p-18f},
        {0x1.e8afbep-22f, 0x1.8c5cap-21f,   0x1.3ffd02p-20f,  0x1.fa843ep-20f,  0x1.861c9ep-19f,  0x1.1d38cap-18f,  0x1.799b62p-18f,
         0x1.7f5bfcp-18f, 0x1.40880cp-20f,  -0x1.03c312p-16f, -0x1.cf191cp-15f, -0x1.ee475ap-14f, -0x1.32af18p-13f, 0x1.15a5ap-17f,
         0x1.987b6ap-12f, 0x1.1849b6p-11f,  0x1.e0e66cp-19f,  -0x1.17f8e4p-11f, -0x1.9d1bb8p-12f, -0x1.5244bap-17f, 0x1.4ba332p-13f,
         0x1.cdd1c4p-14f, 0x1.cf956ap-15f,  0x1.02169ep-16f,  -0x1.862e48p-20f, -0x1.113e2ap-16f, -0x1.1a6bc4p-17f, -0x1.b70438p-17f,
         0x1.2cf0e4p-17f, -0x1.39d014p-22f, -0x1.91df5cp-19f, 0x1.bb30d8p-17f},
    };
    return QK_TIER(pieces)(table, 8, -8.0f, 2.0f, x, x_lo, c, d);
}

QK_FOLDED v16 QK_TIER(sigmoid)(v16 x)
{
    v16 c, d, p = QK_TIER(sigmoid_near)(x, NULL, &c, &d), y = v16_fma(p, d, c);
    m16 near = v16_lt(v16_abs(x), v16_set1(7.75f));
    return m16_bits(near) == 0xFFFF ? y : v16_select(near, y, QK_TIER(sigmoid_far)(x));
}

QK_FOLDED v16 QK_TIER(silu)(v16 x)
{
    v16 c, d, p = QK_TIER(sigmoid_near)(x, NULL, &c, &d), y = QK_TIER(times_pieces)(x, c, p, d);
    m16 near = v16_lt(v16_abs(x), v16_set1(7.75f));
    return m16_bits(near) == 0xFFFF ? y : v16_select(near, y, QK_TIER(silu_far)(x));
}

/* x * sigmoid(alpha x) for alpha that is not 0 */
QK_FOLDED v16 QK_TIER(swish)(v16 x, float alpha)
{
    v16 z = v16_mul(v16_set1(alpha), x), z_lo = v16_fma(v16_set1(alpha), x, v16_neg(z)), c, d;
    v16 p = QK_TIER(sigmoid_near)(z, &z_lo, &c, &d), y = QK_TIER(times_pieces)(x, c, p, d);
    m16 near = v16_lt(v16_abs(z), v16_set1(7.75f));
    return m16_bits(near) == 0xFFFF ? y : v16_select(near, y, QK_TIER(swish_far)(x, alpha));
}
