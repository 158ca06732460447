/* Functions of float32 values in float32 arithmetic, for the template of elementwise: include it within a target region, after functions.h.
 *
 * What makes one rounding dominate: a result is the sum of a table's entry that is exact, or nearly so, and of something several times smaller. The entries are
 * those of 16 or 32 intervals, chosen so that they are next to float32 numbers; polynomials are minimax fits. The largest errors are in docs/accuracy.md. */

/* e^x = (T + rest) 2^floor(n_j), T = 2^(j/16), from x = (n + j/16) ln 2 + r, |r| <= ln 2 / 32. For |x| <= 200. small: also where the result less 1 counts. */
QK_FOLDED v16 QK_TIER(exp_pair)(v16 x, int small, v16 *rest, v16 *n_j)
{
    static const float t_hi[16] = {0x1.0p+0f,      0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f, 0x1.306fep+0f,  0x1.3dea64p+0f,
                                   0x1.4bfdaep+0f, 0x1.5ab07ep+0f, 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                   0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
    static const float t_lo[16] = {0x0.0p+0f,        0x1.9f3122p-25f,  -0x1.c15742p-27f, 0x1.ceac48p-25f, 0x1.4636e2p-25f, 0x1.824684p-25f,
                                   -0x1.593abcp-25f, -0x1.5bd5ecp-27f, 0x1.9fcef4p-26f,  -0x1.829fdp-25f, 0x1.15506ep-27f, 0x1.51f848p-27f,
                                   -0x1.a94b14p-26f, -0x1.3d56b2p-27f, -0x1.822dbcp-27f, 0x1.52486cp-27f};
    v16 shift = v16_set1(0x1.8p19f), shifted = v16_fma(x, v16_set1(0x1.715476p+0f), shift); /* its last bits count sixteenths */
    v16i j = v16_as_i(shifted);
    *n_j = v16_sub(shifted, shift);
    v16 r = v16_fnma(*n_j, v16_set1(-0x1.05c610p-29f), v16_fnma(*n_j, v16_set1(0x1.62e430p-1f), x)); /* the inner difference is exact */
    v16 p = small ? v16_fma(v16_fma(v16_set1(0x1.555744p-5f), r, v16_set1(0x1.555708p-3f)), r, v16_set1(0x1.0p-1f))
                  : v16_fma(v16_set1(0x1.555736p-3f), r, v16_set1(0x1.00022p-1f));
    v16 q = v16_fma(p, v16_mul(r, r), r), t = v16_lookup16(t_hi, j);
    *rest = v16_fma(t, q, v16_lookup16(t_lo, j));
    return t;
}

QK_FOLDED v16 QK_TIER(exp_f32)(v16 x)
{
    v16 rest, n_j, t = QK_TIER(exp_pair)(v16_min(v16_set1(90.0f), v16_max(v16_set1(-105.0f), x)), 0, &rest, &n_j);
    return v16_scale2_floor(v16_add(t, rest), n_j);
}

/* ln x = n ln 2 - ln c + ln(1 + f), f = m c - 1 for x = m 2^n, m from 0.703 to 1.406, and c of m's sixteenth, 1 around 1. n ln 2, but for a rest, and ln c are
 * multiples of 2^-16. Lanes that are not positive normal numbers come from double. */
QK_FOLDED v16 QK_TIER(log_f32)(v16 x)
{
    static const float c[16] = {0x1.639138p+0f, 0x1.55774cp+0f, 0x1.47d6c4p+0f, 0x1.3c3818p+0f, 0x1.32037p+0f, 0x1.25c2c6p+0f,
                                0x1.174568p+0f, 0x1.1352cep+0f, 0x1.0p+0f,      0x1.0p+0f,      0x1.0p+0f,     0x1.c6022cp-1f,
                                0x1.aefef6p-1f, 0x1.99bcb4p-1f, 0x1.84ac04p-1f, 0x1.73fbf4p-1f};
    static const float l[16] = {-0x1.506cp-2f, -0x1.26fcp-2f, -0x1.fa9p-3f, -0x1.b0a8p-3f, -0x1.6d78p-3f, -0x1.19c8p-3f, -0x1.646p-4f, -0x1.2a1p-4f,
                                0x0.0p+0f,     0x0.0p+0f,     0x0.0p+0f,    0x1.ec6p-4f,   0x1.60b8p-3f,  0x1.c85p-3f,   0x1.1a34p-2f, 0x1.4724p-2f};
    v16i u = v16_as_i(x), i = v16i_sub(u, v16i_set1(0x3f340000)), n = v16i_sra(i, 23), j = v16i_shr(i, 19);
    v16 m = v16i_as_f(v16i_sub(u, v16i_shl(n, 23))), e = v16i_to_f(n), f = v16_fma(m, v16_lookup16(c, j), v16_set1(-1.0f)), square = v16_mul(f, f);
    v16 q = v16_fma(v16_fma(v16_set1(0x1.00675ep-3f), f, v16_set1(-0x1.54dc58p-3f)), f, v16_set1(0x1.99b83ap-3f));
    q = v16_fma(v16_fma(v16_fma(q, f, v16_set1(-0x1.00006p-2f)), f, v16_set1(0x1.555552p-2f)), f, v16_set1(-0x1.0p-1f));
    v16 low = v16_fma(square, q, v16_fma(e, v16_set1(0x1.7f7d1cp-20f), f)), y = v16_add(v16_fma(e, v16_set1(0x1.62e4p-1f), v16_lookup16(l, j)), low);
    m16 normal = v16i_gt(v16i_set1(-0x01000000), v16i_sub(u, v16i_set1(INT32_MIN + 0x00800000)));
    return m16_bits(normal) == 0xFFFF ? y : v16_select(normal, y, QK_TIER(log)(QK_F32, x));
}

/* sin x, or cos x as the next quadrant's. r + lo = x - n pi/2, where both inner differences are exact: n has 11 bits and the second part of pi/2 has 13. */
QK_FOLDED v16 QK_TIER(sine_f32)(v16 x, int cosine)
{
    v16 one = v16_set1(1.0f), shift = v16_set1(0x1.8p23f), shifted = v16_fma(x, v16_set1(0x1.45f306p-1f), shift), n = v16_sub(shifted, shift);
    v16i quadrant = v16i_add(v16_as_i(shifted), v16i_set1(cosine));
    v16 part = v16_set1(-0x1.778p-25f), above = v16_fnma(n, v16_set1(0x1.921fb6p+0f), x), r = v16_fnma(n, part, above);
    v16 lo = v16_fnma(n, v16_set1(0x1.68c234p-39f), v16_fnma(n, part, v16_sub(above, r))), square = v16_mul(r, r);
    v16 p = v16_fma(v16_fma(v16_set1(-0x1.994af4p-13f), square, v16_set1(0x1.110756p-7f)), square, v16_set1(-0x1.555546p-3f));
    v16 q = v16_fma(v16_fma(v16_set1(0x1.99ff34p-16f), square, v16_set1(-0x1.6c0c82p-10f)), square, v16_set1(0x1.55554ap-5f));
    v16 sine = v16_add(r, v16_fma(v16_mul(p, square), r, lo));
    v16 half = v16_mul(square, v16_set1(0.5f)), near = v16_sub(one, half), rest = v16_sub(v16_sub(one, near), half);
    v16 other = v16_add(near, v16_fma(v16_mul(square, square), q, v16_fnma(r, lo, rest)));
    v16 y = v16_select(v16i_gt(v16i_set1(0), v16i_shl(quadrant, 31)), other, sine);
    y = v16i_as_f(v16i_xor(v16_as_i(y), v16i_and(v16i_shl(quadrant, 30), v16i_set1(INT32_MIN))));
    y = v16_select(v16_eq(x, v16_zero()), cosine ? one : x, y); /* -0 */
    m16 usual = v16_lt(v16_abs(x), v16_set1(3072.0f));
    return m16_bits(usual) == 0xFFFF ? y : v16_select(usual, y, QK_TIER(sine)(QK_F32, x, cosine));
}

/* An odd function, from 32 polynomials in the distance of |x| from points b: rows of the table are b, the value there, and the coefficients, constant first. Each of the
 * entries 1 to 31 serves a quarter of a binade, from 2^-4 on; entry 0 serves what is below, as x + x p(x). |x| beyond `most` counts as that. */
QK_FOLDED v16 QK_TIER(odd_function)(const float (*table)[32], int degree, float most, v16 x)
{
    v16 a = v16_min(v16_set1(most), v16_abs(x));
    v16i i = v16i_max(v16i_set1(0), v16i_sub(v16i_shr(v16_as_i(a), 21), v16i_set1((127 - 4) * 4 - 1)));
    v16 d = v16_sub(a, v16_lookup32(table[0], i)), p = v16_lookup32(table[degree + 2], i);
    QK_UNROLL
    for (int k = degree + 1; k >= 2; k--)
        p = v16_fma(p, d, v16_lookup32(table[k], i));
    v16 c = v16_select(v16_lt(a, v16_set1(0x1p-4f)), a, v16_lookup32(table[1], i)), y = v16_fma(d, p, c);
    return v16i_as_f(v16i_or(v16_as_i(y), v16i_and(v16_as_i(x), v16i_set1(INT32_MIN))));
}

QK_FOLDED v16 QK_TIER(tanh_f32)(v16 x)
{
    static const float table[7][32] = {
        {0x0.0p+0f,      0x1.1ffc58p-4f, 0x1.5ff334p-4f, 0x1.a00f7p-4f,  0x1.e0068p-4f,  0x1.1ff6dcp-3f, 0x1.5ff404p-3f, 0x1.a00d9cp-3f,
         0x1.dff46cp-3f, 0x1.201eep-2f,  0x1.600068p-2f, 0x1.9fe258p-2f, 0x1.e00444p-2f, 0x1.1ff4ap-1f,  0x1.60215p-1f,  0x1.a00b6p-1f,
         0x1.dff438p-1f, 0x1.1fecb4p+0f, 0x1.5fe8d8p+0f, 0x1.a00ed4p+0f, 0x1.dffb54p+0f, 0x1.1ff7acp+1f, 0x1.5ff778p+1f, 0x1.9ff508p+1f,
         0x1.dffbbcp+1f, 0x1.2012bp+2f,  0x1.6031f8p+2f, 0x1.9fef58p+2f, 0x1.e0d444p+2f, 0x1.121108p+3f, 0x1.121108p+3f, 0x1.121108p+3f},
        {0x0.0p+0f,      0x1.1f831ap-4f, 0x1.5f161ep-4f, 0x1.9ea29ep-4f, 0x1.ddd6fcp-4f, 0x1.1e14dap-3f, 0x1.5c8764p-3f, 0x1.9a6c2cp-3f,
         0x1.d75b66p-3f, 0x1.18c028p-2f, 0x1.52c322p-2f, 0x1.8a6eap-2f,  0x1.bfb1dep-2f, 0x1.050004p-1f, 0x1.316d56p-1f, 0x1.578f4p-1f,
         0x1.77d2cap-1f, 0x1.9e4f64p-1f, 0x1.c26e2ep-1f, 0x1.d9cb3ep-1f, 0x1.e877c8p-1f, 0x1.f4be64p-1f, 0x1.fbd47cp-1f, 0x1.fe7636p-1f,
         0x1.ff6f0ep-1f, 0x1.ffdfbap-1f, 0x1.fffba6p-1f, 0x1.ffff68p-1f, 0x1.ffffecp-1f, 0x1.fffffep-1f, 0x1.fffffep-1f, 0x1.fffffep-1f},
        {-0x1.b8e56ap-34f, 0x1.fd7a32p-1f,  0x1.fc3d04p-1f,  0x1.fac0dcp-1f, 0x1.f9082ap-1f, 0x1.f6026cp-1f,  0x1.f12bfep-1f,  0x1.eb700ap-1f,
         0x1.e4e0f4p-1f,   0x1.d98364p-1f,  0x1.c7f704p-1f,  0x1.b408eap-1f, 0x1.9e222cp-1f, 0x1.7af37cp-1f,  0x1.49cd26p-1f,  0x1.19776ap-1f,
         0x1.d844c6p-2f,   0x1.617b2p-2f,   0x1.cef0eep-3f,  0x1.263ea6p-3f, 0x1.6fdc76p-4f, 0x1.643ddcp-5f,  0x1.09caccp-6f,  0x1.89329ap-8f,
         0x1.21bbp-9f,     0x1.0229fcp-11f, 0x1.16815ap-14f, 0x1.30007p-17f, 0x1.400efp-20f, 0x1.3bca1ep-23f, 0x1.3bca1ep-23f, 0x1.3bca1ep-23f},
        {0x0.0p+0f,        -0x1.1e192ep-4f,  -0x1.5c81bp-4f,   -0x1.9a645ep-4f, -0x1.d75736p-4f,  -0x1.187fb6p-3f, -0x1.526f7p-3f,
         -0x1.89f06cp-3f,  -0x1.be63eep-3f,  -0x1.03a5ap-2f,   -0x1.2dafd6p-2f, -0x1.4fe928p-2f,  -0x1.6a1eb4p-2f, -0x1.825a3cp-2f,
         -0x1.897a3ep-2f,  -0x1.79bc82p-2f,  -0x1.5aa8d4p-2f,  -0x1.1e09ep-2f,  -0x1.9745f8p-3f,  -0x1.1049ecp-3f, -0x1.5ef448p-4f,
         -0x1.5c6656p-5f,  -0x1.079cc8p-6f,  -0x1.87fd5ep-8f,  -0x1.216396p-9f, -0x1.01c742p-11f, -0x1.16237p-14f, -0x1.2f8e9cp-17f,
         -0x1.407304p-20f, -0x1.c488f6p-22f, -0x1.c488f6p-22f, -0x1.c488f6p-22f},
        {-0x1.555536p-2f, -0x1.4ea41ap-2f, -0x1.4b5b4p-2f,  -0x1.4776eep-2f, -0x1.42f342p-2f, -0x1.3b14a2p-2f,  -0x1.2ea6b4p-2f,  -0x1.20269ap-2f,
         -0x1.0fe2f6p-2f, -0x1.e8fa62p-3f, -0x1.985806p-3f, -0x1.429aacp-3f, -0x1.d71402p-4f, -0x1.bd7c38p-5f,  0x1.db62f6p-7f,   0x1.0749f2p-4f,
         0x1.84245ep-4f,  0x1.c68a64p-4f,  0x1.97f806p-4f,  0x1.33c78ep-4f,  0x1.a86892p-5f,  0x1.bc0332p-6f,   0x1.59c092p-7f,   0x1.03c1dap-8f,
         0x1.80ff9cp-10f, 0x1.5778e4p-12f, 0x1.72b0cp-15f,  0x1.94cdap-18f,  0x1.a9fb7ep-21f, -0x1.f1d42ap-26f, -0x1.f1d42ap-26f, -0x1.f1d42ap-26f},
        {0x0.0p+0f,        0x1.d7079cp-5f,   0x1.bea234p-5f,   0x1.6b3458p-4f,   0x1.765e1ep-4f,   0x1.683826p-4f,  0x1.b1c7ecp-4f,  0x1.e9796cp-4f,
         0x1.18cb1ap-3f,   0x1.338334p-3f,   0x1.4fffe8p-3f,   0x1.5cc9e2p-3f,   0x1.58464ep-3f,   0x1.39fe9ap-3f,  0x1.e8ea8ep-4f,  0x1.47285ap-4f,
         0x1.63527ap-5f,   0x1.e7182cp-9f,   -0x1.59abfep-6f,  -0x1.9ba5fap-6f,  -0x1.559e22p-6f,  -0x1.96035cp-7f, -0x1.51807p-8f,  -0x1.036734p-9f,
         -0x1.83a9cep-11f, -0x1.67c59ep-13f, -0x1.84df92p-16f, -0x1.a94c44p-19f, -0x1.b2fa74p-22f, 0x1.011ff4p-20f, 0x1.011ff4p-20f, 0x1.011ff4p-20f},
        {0x1.106b94p-3f,  0x1.23ff46p-2f,  0x1.bae1f2p-4f,  0x1.78ade6p-2f,  0x1.0c8f66p-2f,  0x1.b7f8eep-4f,  0x1.ae3f8ep-4f,  0x1.5f8ebap-4f,
         0x1.765ad8p-4f,  0x1.ec65cp-5f,   0x1.069074p-5f,  0x1.b1c7a2p-8f,  -0x1.18098ep-6f, -0x1.63163ep-5f, -0x1.f7f8p-5f,   -0x1.00c04ap-4f,
         -0x1.b2d558p-5f, -0x1.070fep-5f,  -0x1.38f508p-7f, 0x1.69fc82p-10f, 0x1.2d7414p-8f,  0x1.049e68p-8f,  0x1.f6575cp-10f, 0x1.9457bcp-11f,
         0x1.332c8p-12f,  0x1.1faf28p-14f, 0x1.38b7cp-17f,  0x1.52f396p-20f, 0x1.6e2aacp-23f, 0x1.ab3cfcp-21f, 0x1.ab3cfcp-21f, 0x1.ab3cfcp-21f},
    };
    return QK_TIER(odd_function)(table, 4, 9.03f, x);
}

QK_FOLDED v16 QK_TIER(erf_f32)(v16 x)
{
    static const float table[8][32] = {
        {0x0.0p+0f,      0x1.2013b4p-4f, 0x1.602fbcp-4f, 0x1.9ff53cp-4f, 0x1.dfec8p-4f,  0x1.1fc06cp-3f, 0x1.601eep-3f,  0x1.a028d4p-3f,
         0x1.e00958p-3f, 0x1.200138p-2f, 0x1.5ff6a8p-2f, 0x1.a00dp-2f,   0x1.e006e8p-2f, 0x1.200a9p-1f,  0x1.5ffb2p-1f,  0x1.a00a5cp-1f,
         0x1.dfdcdcp-1f, 0x1.1f9834p+0f, 0x1.5feb7cp+0f, 0x1.9ff87cp+0f, 0x1.dffec8p+0f, 0x1.1ffe2cp+1f, 0x1.5ff334p+1f, 0x1.a00c98p+1f,
         0x1.df3cccp+1f, 0x1.df3cccp+1f, 0x1.df3cccp+1f, 0x1.df3cccp+1f, 0x1.df3cccp+1f, 0x1.df3cccp+1f, 0x1.df3cccp+1f, 0x1.df3cccp+1f},
        {0x0.0p+0f,      0x1.44865ep-4f, 0x1.8c6c36p-4f, 0x1.d3bff2p-4f, 0x1.0d88b6p-3f, 0x1.4291a6p-3f, 0x1.8971e4p-3f, 0x1.cf33a2p-3f,
         0x1.09f3d4p-2f, 0x1.3c9beep-2f, 0x1.7e0c36p-2f, 0x1.bcdc5cp-2f, 0x1.f875ecp-2f, 0x1.25c158p-1f, 0x1.568ed6p-1f, 0x1.7fbfcap-1f,
         0x1.a144a2p-1f, 0x1.c698a2p-1f, 0x1.e56f8ep-1f, 0x1.f4f55ep-1f, 0x1.fbe60ap-1f, 0x1.ff403ap-1f, 0x1.fff2c8p-1f, 0x1.ffff7p-1f,
         0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f},
        {0x1.06eba8p-3f,  0x1.1f7092p+0f,  0x1.1ebcc2p+0f,  0x1.1de6bep+0f,  0x1.1ced2cp+0f,  0x1.1b37eap+0f,  0x1.18736ap+0f,  0x1.152e2ap+0f,
         0x1.116c44p+0f,  0x1.0ae522p+0f,  0x1.00ad6cp+0f,  0x1.e9d09cp-1f,  0x1.cfc13p-1f,   0x1.a4fd88p-1f,  0x1.6824aap-1f,  0x1.2a83fep-1f,
         0x1.e007e8p-2f,  0x1.47134p-2f,   0x1.5d328p-3f,   0x1.49bcbcp-4f,  0x1.12d39cp-5f,  0x1.d43204p-8f,  0x1.340c32p-11f, 0x1.e88fdep-16f,
         0x1.eed1bap-21f, 0x1.eed1bap-21f, 0x1.eed1bap-21f, 0x1.eed1bap-21f, 0x1.eed1bap-21f, 0x1.eed1bap-21f, 0x1.eed1bap-21f, 0x1.eed1bap-21f},
        {0x0.0p+0f,        -0x1.437588p-4f,  -0x1.8a7692p-4f,  -0x1.d08c1p-4f,   -0x1.0b1792p-3f,  -0x1.3e5998p-3f,  -0x1.81c0f2p-3f,
         -0x1.c2967ep-3f,  -0x1.005b32p-2f,  -0x1.2c4322p-2f,  -0x1.60e4e2p-2f,  -0x1.8e05b4p-2f,  -0x1.b2cb48p-2f,  -0x1.d9ae92p-2f,
         -0x1.ef2bacp-2f,  -0x1.e52292p-2f,  -0x1.c1e666p-2f,  -0x1.6f710cp-2f,  -0x1.e0096cp-3f,  -0x1.0be484p-3f,  -0x1.01a5b6p-4f,
         -0x1.075a48p-6f,  -0x1.a77f02p-10f, -0x1.8cfc5cp-14f, -0x1.cb4e04p-19f, -0x1.cb4e04p-19f, -0x1.cb4e04p-19f, -0x1.cb4e04p-19f,
         -0x1.cb4e04p-19f, -0x1.cb4e04p-19f, -0x1.cb4e04p-19f, -0x1.cb4e04p-19f},
        {-0x1.812738p-2f, -0x1.7b7694p-2f, -0x1.78aad2p-2f, -0x1.75589ep-2f, -0x1.718092p-2f, -0x1.6ab95ap-2f, -0x1.5fd386p-2f, -0x1.530de8p-2f,
         -0x1.44820ep-2f, -0x1.2b8f9p-2f,  -0x1.055f32p-2f, -0x1.b576c4p-3f, -0x1.5a93d2p-3f, -0x1.9c0422p-4f, -0x1.a4f5fp-7f,  0x1.fe5f58p-5f,
         0x1.e46348p-4f,  0x1.4c550ap-3f,  0x1.4388e6p-3f,  0x1.d67cp-4f,    0x1.14414p-4f,   0x1.640b1ap-6f,  0x1.6a31f6p-9f,  0x1.988256p-13f,
         0x1.1636bap-17f, 0x1.1636bap-17f, 0x1.1636bap-17f, 0x1.1636bap-17f, 0x1.1636bap-17f, 0x1.1636bap-17f, 0x1.1636bap-17f, 0x1.1636bap-17f},
        {0x0.0p+0f,        0x1.1e82bp-4f,    -0x1.889b96p-5f,  0x1.a09518p-4f,   0x1.969172p-2f,   0x1.8f3feep-4f,   0x1.9d0b38p-4f,
         0x1.7acbfp-4f,    0x1.31c01ep-3f,   0x1.1e40a2p-3f,   0x1.40ffcep-3f,   0x1.5d7b88p-3f,   0x1.7157a2p-3f,   0x1.759c86p-3f,
         0x1.53ce36p-3f,   0x1.0f9dbap-3f,   0x1.742d0cp-4f,   0x1.d24d42p-6f,   -0x1.f31154p-6f,  -0x1.974456p-5f,  -0x1.5a37b2p-5f,
         -0x1.38cf4p-6f,   -0x1.abafbep-9f,  -0x1.2b3d14p-12f, -0x1.0460ccp-16f, -0x1.0460ccp-16f, -0x1.0460ccp-16f, -0x1.0460ccp-16f,
         -0x1.0460ccp-16f, -0x1.0460ccp-16f, -0x1.0460ccp-16f, -0x1.0460ccp-16f},
        {0x1.cd8a36p-4f,  0x1.14338p-3f,   0x1.9bef56p-3f,  0x1.0096a8p-2f,  0x1.691774p-1f,  0x1.3020d8p-3f,  0x1.849b88p-4f,  0x1.8c1ecp-4f,
         0x1.7e4494p-4f,  0x1.2b72dp-4f,   0x1.b20ad4p-5f,  0x1.258a8ap-5f,  0x1.108234p-6f,  -0x1.63c03cp-7f, -0x1.5475dp-5f,  -0x1.f97ap-5f,
         -0x1.1ce29ap-4f, -0x1.f56d58p-5f, -0x1.f68d8ap-6f, -0x1.2cd7p-9f,   0x1.738c9p-7f,   0x1.5ac85p-7f,   0x1.72db28p-9f,  0x1.5bf65ep-12f,
         0x1.534394p-16f, 0x1.534394p-16f, 0x1.534394p-16f, 0x1.534394p-16f, 0x1.534394p-16f, 0x1.534394p-16f, 0x1.534394p-16f, 0x1.534394p-16f},
        {0x0.0p+0f,        -0x1.452764p+8f,  0x1.fb3726p+9f,   -0x1.e34dc6p+8f,  -0x1.c00198p+11f, -0x1.bbd536p+5f,  -0x1.6b014ap+4f,
         0x1.348c6ap+5f,   -0x1.3503f8p+6f,  -0x1.420f4ap-1f,  0x1.47b2d8p+0f,   0x1.80c2dep+0f,   0x1.0d4572p-1f,   -0x1.2c60aap-5f,
         -0x1.693f98p-4f,  -0x1.59bd7ep-6f,  0x1.adc142p-6f,   0x1.f4f8b6p-7f,   0x1.6ec71ap-6f,   0x1.d59c8p-7f,    0x1.131134p-8f,
         -0x1.6a91e8p-9f,  -0x1.b5ceb8p-10f, -0x1.20abbap-12f, -0x1.3b315ap-17f, -0x1.3b315ap-17f, -0x1.3b315ap-17f, -0x1.3b315ap-17f,
         -0x1.3b315ap-17f, -0x1.3b315ap-17f, -0x1.3b315ap-17f, -0x1.3b315ap-17f},
    };
    return QK_TIER(odd_function)(table, 5, 0x1.fffffep1f, x);
}

/* x - x t for x >= 0 and x t below, t(|x|) = c + p d being the tail of a distribution, which beyond the table is nothing to x. Lanes that far below 0 come from double. x_lo,
 * added to x, may be null. */
QK_FOLDED v16 QK_TIER(gelu_f32)(int op, const float (*table)[32], int rows, float per, v16 x, const v16 *x_lo)
{
    v16 most = v16_set1(31.49f / per), a_lo, c, d, p;
    if (x_lo)
        a_lo = v16i_as_f(v16i_xor(v16_as_i(*x_lo), v16i_and(v16_as_i(x), v16i_set1(INT32_MIN))));
    p = QK_TIER(pieces)(table, rows, 0.0f, per, v16_min(most, v16_abs(x)), x_lo ? &a_lo : NULL, &c, &d);
    v16 below = QK_TIER(times_pieces)(x, c, p, d), above = v16_fnma(x, v16_fma(p, d, c), x);
    v16 y = v16_select(v16_lt(v16_zero(), x), v16_select(v16_lt(most, x), x, above), below);
    m16 usual = v16_lt(v16_neg(most), x);
    return m16_bits(usual) == 0xFFFF ? y : v16_select(usual, y, QK_TIER(exact_function)(op, QK_F32, x, x, 0.0f, 0.0f));
}

QK_FOLDED v16 QK_TIER(gelu_erf_f32)(v16 x, const v16 *x_lo)
{
    static const float table[8][32] = {
        {0x0.0p+0f,      0x1.677eeap-3f, 0x1.67cf38p-2f, 0x1.0e2f42p-1f, 0x1.682ac2p-1f, 0x1.c1e6b2p-1f, 0x1.0dfb82p+0f, 0x1.3b17c6p+0f,
         0x1.68297ep+0f, 0x1.95141ep+0f, 0x1.c21682p+0f, 0x1.eefb3ap+0f, 0x1.0e2b52p+1f, 0x1.24af78p+1f, 0x1.3b152cp+1f, 0x1.5197eap+1f,
         0x1.6808dep+1f, 0x1.7e90acp+1f, 0x1.9516eep+1f, 0x1.abc178p+1f, 0x1.c2136ap+1f, 0x1.d8901cp+1f, 0x1.ef1c1p+1f,  0x1.02d076p+2f,
         0x1.0e15bap+2f, 0x1.1964aep+2f, 0x1.2491e2p+2f, 0x1.2fd496p+2f, 0x1.3b0deap+2f, 0x1.4654eep+2f, 0x1.519192p+2f, 0x1.5cd91ep+2f},
        {0x1.0p-1f,       0x1.b8a854p-2f,  0x1.735b4ep-2f,  0x1.320656p-2f,  0x1.ed5652p-3f,  0x1.84aa8ap-3f,  0x1.2a9918p-3f,  0x1.bf411ap-4f,
         0x1.46940ap-4f,  0x1.d13146p-5f,  0x1.4270eep-5f,  0x1.b395e4p-6f,  0x1.1d1174p-6f,  0x1.6c08cep-7f,  0x1.c5438cp-8f,  0x1.11b7f8p-8f,
         0x1.41e41cp-9f,  0x1.6f1cc6p-10f, 0x1.96df7ap-11f, 0x1.b4560cp-12f, 0x1.cb018cp-13f, 0x1.d2cc68p-14f, 0x1.cc2a46p-15f, 0x1.b8d87p-16f,
         0x1.99bba4p-17f, 0x1.70acc2p-18f, 0x1.451ed8p-19f, 0x1.149f0cp-20f, 0x1.ca34f4p-22f, 0x1.6ec2a4p-23f, 0x1.1ddabap-24f, 0x1.aed926p-26f},
        {-0x1.988454p-2f, -0x1.92457ap-2f,  -0x1.800f8ap-2f, -0x1.636b44p-2f,  -0x1.3ef98p-2f,   -0x1.15adc2p-2f,  -0x1.d4840ep-3f,  -0x1.7f10e6p-3f,
         -0x1.2fb1a6p-3f, -0x1.d347e8p-4f,  -0x1.5c5f4ap-4f, -0x1.f812f8p-5f,  -0x1.604a2ap-5f,  -0x1.de96a4p-6f,  -0x1.3be658p-6f,  -0x1.93829cp-7f,
         -0x1.f47c18p-8f, -0x1.2c5c4ap-8f,  -0x1.5d91e4p-9f, -0x1.88fac8p-10f, -0x1.b03bb2p-11f, -0x1.caf43ep-12f, -0x1.d7aa6ap-13f, -0x1.d654fep-14f,
         -0x1.c6605p-15f, -0x1.a873e4p-16f, -0x1.83f2fp-17f, -0x1.55cc66p-18f, -0x1.24c832p-19f, -0x1.e45496p-21f, -0x1.85a678p-22f, -0x1.2edcap-23f},
        {0x1.185732p-30f, 0x1.1a738ep-5f,  0x1.0de63cp-4f,  0x1.771cbp-4f,   0x1.c0c42cp-4f,  0x1.e7ffeep-4f,  0x1.ee1b08p-4f,  0x1.d77d5ap-4f,
         0x1.ab4304p-4f,  0x1.71b2bap-4f,  0x1.323f1p-4f,   0x1.e751a2p-5f,  0x1.73c9d2p-5f,  0x1.1195eep-5f,  0x1.84ce9p-6f,   0x1.0a0f32p-6f,
         0x1.5fefeep-7f,  0x1.c0db74p-8f,  0x1.14938ep-8f,  0x1.4851a4p-9f,  0x1.7bf4dcp-10f, 0x1.a79a56p-11f, 0x1.c81b1cp-12f, 0x1.db80a4p-13f,
         0x1.df6022p-14f, 0x1.d28e22p-15f, 0x1.bb5e28p-16f, 0x1.95a8bcp-17f, 0x1.68523ap-18f, 0x1.34b22cp-19f, 0x1.00e6d2p-20f, 0x1.9cb4b8p-22f},
        {0x1.105824p-4f,   0x1.03eaep-4f,    0x1.c0db44p-5f,   0x1.55ed3cp-5f,   0x1.adaf58p-6f,   0x1.517488p-7f,   -0x1.18693cp-8f,
         -0x1.0702cp-6f,   -0x1.8c8d08p-6f,  -0x1.d4766ep-6f,  -0x1.e5a82ap-6f,  -0x1.cc22dcp-6f,  -0x1.95b9a4p-6f,  -0x1.514a4ap-6f,
         -0x1.0a6084p-6f,  -0x1.908f74p-7f,  -0x1.204414p-7f,  -0x1.8d1ebep-8f,  -0x1.06a2aap-8f,  -0x1.4cfb4ep-9f,  -0x1.99512p-10f,
         -0x1.e30d76p-11f, -0x1.1262d8p-11f, -0x1.2ce364p-12f, -0x1.3e3b92p-13f, -0x1.443384p-14f, -0x1.41a26cp-15f, -0x1.32b8dep-16f,
         -0x1.1b6c6p-17f,  -0x1.f87bb6p-19f, -0x1.b36e6ep-20f, -0x1.6a4c06p-21f},
        {0x1.51e0a4p-19f, -0x1.182e98p-7f, -0x1.024efp-6f,  -0x1.540a7p-6f,  -0x1.76f74ep-6f, -0x1.6a1a22p-6f, -0x1.36ce3ep-6f, -0x1.d29f9ep-7f,
         -0x1.227668p-7f, -0x1.e8d6d4p-9f, 0x1.29d794p-11f, 0x1.dfe58ep-9f,  0x1.68bcfap-8f,  0x1.967e06p-8f,  0x1.8c7b5ap-8f,  0x1.5ed636p-8f,
         0x1.2016a8p-8f,  0x1.bbd628p-9f,  0x1.43637ap-9f,  0x1.bef1a6p-10f, 0x1.287c8p-10f,  0x1.773fa4p-11f, 0x1.c6a868p-12f, 0x1.08935p-12f,
         0x1.27ccf6p-13f, 0x1.3d7cbp-14f,  0x1.4aa5cep-15f, 0x1.4a3df8p-16f, 0x1.3eccc6p-17f, 0x1.27d6fap-18f, 0x1.09b438p-19f, 0x1.cb5abep-21f},
        {-0x1.483884p-7f,  -0x1.2db82ep-7f,  -0x1.d15d74p-8f,  -0x1.0ae806p-8f,  -0x1.754c7cp-11f, 0x1.323adep-9f,   0x1.2fcc2cp-8f,
         0x1.82ff28p-8f,   0x1.90ed7cp-8f,   0x1.662758p-8f,   0x1.163294p-8f,   0x1.6eaad6p-9f,   0x1.6cec28p-10f,  0x1.0a3bb2p-12f,
         -0x1.199698p-11f, -0x1.0304b6p-10f, -0x1.2df34ap-10f, -0x1.24152cp-10f, -0x1.f76e24p-11f, -0x1.8daae8p-11f, -0x1.2658f2p-11f,
         -0x1.99a5e8p-12f, -0x1.0dd004p-12f, -0x1.525bf6p-13f, -0x1.94d7p-14f,   -0x1.ce7b98p-15f, -0x1.fddfe4p-16f, -0x1.0c9cd2p-16f,
         -0x1.1092aap-17f, -0x1.093174p-18f, -0x1.f2097cp-20f, -0x1.c131e8p-21f},
        {0x1.7a53b6p-12f,  0x1.905ap-9f,    0x1.cef154p-15f, 0x1.e431d8p-10f,  0x1.16ba7cp-8f,   0x1.1c31p-10f,   0x1.23355ap-10f,  0x1.02bd92p-12f,
         -0x1.f25e3cp-11f, -0x1.339dcp-10f, -0x1.62341p-10f, -0x1.7360fep-10f, -0x1.5da61ap-10f, -0x1.f16e6p-11f, -0x1.24f012p-11f, -0x1.0d2e58p-12f,
         -0x1.0a4a3ep-15f, 0x1.b11d52p-14f, 0x1.7f1eaep-13f, 0x1.9a3b6p-13f,   0x1.74adep-13f,   0x1.2e4ff6p-13f, 0x1.c27746p-14f,  0x1.38f0f6p-14f,
         0x1.98d0fep-15f,  0x1.f9ac1ep-16f, 0x1.2957dap-16f, 0x1.4d7eaep-17f,  0x1.659e58p-18f,  0x1.6f3132p-19f, 0x1.69abc8p-20f,  0x1.560c68p-21f},
    };
    return QK_TIER(gelu_f32)(QK_GELU, table, 8, 5.6875f, x, x_lo);
}

QK_FOLDED v16 QK_TIER(gelu_tanh_f32)(v16 x, const v16 *x_lo)
{
    static const float table[8][32] = {
        {0x0.0p+0f,      0x1.47573p-3f,  0x1.4720cp-2f,  0x1.eb9c26p-2f, 0x1.477f6ap-1f, 0x1.99705ap-1f, 0x1.ebfe8cp-1f, 0x1.1ebcb2p+0f,
         0x1.47b6d4p+0f, 0x1.70d698p+0f, 0x1.99a01ap+0f, 0x1.c2905cp+0f, 0x1.eb88dep+0f, 0x1.0a4a8p+1f,  0x1.1ead42p+1f, 0x1.333b44p+1f,
         0x1.479ac4p+1f, 0x1.5c1c16p+1f, 0x1.70a5c8p+1f, 0x1.852f68p+1f, 0x1.9991bap+1f, 0x1.ae156ap+1f, 0x1.c2813cp+1f, 0x1.d7096ep+1f,
         0x1.eb85fep+1f, 0x1.00004p+2f,  0x1.0a3f38p+2f, 0x1.14819ap+2f, 0x1.1eb752p+2f, 0x1.28f59ap+2f, 0x1.3334a4p+2f, 0x1.3d73ccp+2f},
        {0x1.0p-1f,       0x1.befbbap-2f,  0x1.7fb0f8p-2f,  0x1.433028p-2f,  0x1.0b895ap-2f,  0x1.b2480cp-3f,  0x1.58f6a2p-3f,  0x1.0d5772p-3f,
         0x1.9b599ep-4f,  0x1.33214ep-4f,  0x1.c1c4b2p-5f,  0x1.419634p-5f,  0x1.c115e6p-6f,  0x1.31ca5p-6f,   0x1.971d96p-7f,  0x1.0702fp-7f,
         0x1.4bde8cp-8f,  0x1.958c7ap-9f,  0x1.e03d74p-10f, 0x1.135416p-10f, 0x1.32969ap-11f, 0x1.485504p-12f, 0x1.53df34p-13f, 0x1.513daap-14f,
         0x1.41ddbap-15f, 0x1.269c3cp-16f, 0x1.01f38ep-17f, 0x1.af0c08p-19f, 0x1.58ff6p-20f,  0x1.061eb8p-21f, 0x1.7a6d78p-23f, 0x1.03246ap-24f},
        {-0x1.988454p-2f,  -0x1.934e8cp-2f,  -0x1.841a4cp-2f,  -0x1.6bdfc8p-2f,  -0x1.4cb1e4p-2f, -0x1.28737ep-2f,  -0x1.013aeep-2f,
         -0x1.b419eap-3f,  -0x1.682722p-3f,  -0x1.21cd1ap-3f,  -0x1.c7a578p-4f,  -0x1.5cf3d6p-4f, -0x1.046becp-4f,  -0x1.7a714ep-5f,
         -0x1.0c53ap-5f,   -0x1.710c48p-6f,  -0x1.eef4a2p-7f,  -0x1.415138p-7f,  -0x1.9406b6p-8f, -0x1.eb9878p-9f,  -0x1.2220c2p-9f,
         -0x1.494188p-10f, -0x1.68d702p-11f, -0x1.7aeaacp-12f, -0x1.7e635ep-13f, -0x1.71ca5p-14f, -0x1.55d04cp-15f, -0x1.2d45eap-16f,
         -0x1.fc2e86p-18f, -0x1.96943p-19f,  -0x1.34cbf2p-20f, -0x1.bc9762p-22f},
        {0x1.6e165ep-31f, 0x1.03151ep-5f,  0x1.f20ed2p-5f,  0x1.5e947ap-4f,  0x1.aa8ec6p-4f,  0x1.da769ep-4f, 0x1.edd0cap-4f,  0x1.e702acp-4f,
         0x1.cad904p-4f,  0x1.9ef22p-4f,   0x1.69fc78p-4f,  0x1.30f94p-4f,   0x1.f1480ep-5f,  0x1.88a116p-5f, 0x1.2d107ap-5f,  0x1.be9e46p-6f,
         0x1.41fcf8p-6f,  0x1.c0bd1p-7f,   0x1.2e5782p-7f,  0x1.89a776p-8f,  0x1.f04ff4p-9f,  0x1.2c9196p-9f, 0x1.5f095ap-10f, 0x1.8880ep-11f,
         0x1.a533b6p-12f, 0x1.b09d52p-13f, 0x1.a8390ap-14f, 0x1.8c38f8p-15f, 0x1.6198ecp-16f, 0x1.2b0dbp-17f, 0x1.dfa70ap-19f, 0x1.6c2dcp-20f},
        {0x1.11b13ep-4f,   0x1.072216p-4f,   0x1.d1b924p-5f,   0x1.74bbd4p-5f,   0x1.03d69p-5f,    0x1.163ceap-6f,   0x1.6c4676p-9f,
         -0x1.32172p-7f,   -0x1.33eb26p-6f,  -0x1.9c3cfp-6f,   -0x1.d26436p-6f,  -0x1.dde776p-6f,  -0x1.c80b32p-6f,  -0x1.9b408p-6f,
         -0x1.61ed3p-6f,   -0x1.237d94p-6f,  -0x1.ce638ep-7f,  -0x1.6083ccp-7f,  -0x1.02acd4p-7f,  -0x1.6d7632p-8f,  -0x1.f22e96p-9f,
         -0x1.458524p-9f,  -0x1.991b9p-10f,  -0x1.eb632cp-11f, -0x1.1a9cbcp-11f, -0x1.36877ep-12f, -0x1.452b38p-13f, -0x1.43c2dp-14f,
         -0x1.3362b4p-15f, -0x1.142be6p-16f, -0x1.d5cffcp-18f, -0x1.79c21p-19f},
        {0x1.0a97cap-19f, -0x1.05603cp-7f, -0x1.e932f4p-7f, -0x1.4920cp-6f,  -0x1.73b252p-6f, -0x1.776238p-6f, -0x1.54ff12p-6f, -0x1.1798cp-6f,
         -0x1.95ddd6p-7f, -0x1.ea11p-8f,   -0x1.89eb3ep-9f, 0x1.558eaap-11f, 0x1.b5bfep-9f,   0x1.49531p-8f,   0x1.7df3c8p-8f,  0x1.8517d8p-8f,
         0x1.6c436cp-8f,  0x1.3f445p-8f,   0x1.08c0ecp-8f,  0x1.a1bd28p-9f,  0x1.3b09ap-9f,   0x1.c4d956p-10f, 0x1.374422p-10f, 0x1.9757f6p-11f,
         0x1.fc71d4p-12f, 0x1.2e1186p-12f, 0x1.54ff1ep-13f, 0x1.6cfedcp-14f, 0x1.736b5ep-15f, 0x1.64dbdap-16f, 0x1.43dae6p-17f, 0x1.153b0cp-18f},
        {-0x1.4f8146p-7f,  -0x1.386538p-7f,  -0x1.f7702ep-8f,  -0x1.41f0c6p-8f,  -0x1.d25d54p-10f, 0x1.4f1b96p-10f,  0x1.f29bd8p-9f,
         0x1.63f47ap-8f,   0x1.91b0dap-8f,   0x1.8667eap-8f,   0x1.5152bap-8f,   0x1.05a21ap-8f,   0x1.63b0d2p-9f,   0x1.8edde2p-10f,
         0x1.17e2b6p-11f,  -0x1.ba2bcp-13f,  -0x1.702ec4p-11f, -0x1.ff2592p-11f, -0x1.189392p-10f, -0x1.0fa97ap-10f, -0x1.e2c5ecp-11f,
         -0x1.8f61f4p-11f, -0x1.36c95ep-11f, -0x1.c77b1ap-12f, -0x1.3b6c1p-12f,  -0x1.9ce452p-13f, -0x1.fe6bc2p-14f, -0x1.29a4c4p-14f,
         -0x1.48683ep-15f, -0x1.54dfeap-16f, -0x1.4d07d8p-17f, -0x1.31f29p-18f},
        {0x1.6888f4p-12f,  0x1.5fab74p-10f, 0x1.79079ap-9f,   0x1.0b7e14p-7f,   -0x1.8e05eep-11f, 0x1.fd46a6p-9f,   0x1.b7a9fep-9f,
         0x1.79cde8p-10f,  0x1.964d02p-10f, 0x1.62c2c8p-12f,  -0x1.b14f9ap-10f, -0x1.4aab74p-11f, -0x1.5d1e98p-10f, -0x1.1778ep-10f,
         -0x1.fba7e8p-11f, -0x1.117acp-11f, -0x1.c85474p-12f, -0x1.8df3d6p-13f, -0x1.1cfb7ep-16f, 0x1.6915c4p-14f,  0x1.2fb62ap-13f,
         0x1.78094ep-13f,  0x1.6cefeap-13f, 0x1.40cb42p-13f,  0x1.03377ep-13f,  0x1.8340d4p-14f,  0x1.0d598ap-14f,  0x1.5dc2ap-15f,
         0x1.a8846p-16f,   0x1.e201dep-17f, 0x1.000656p-17f,  0x1.fcd41cp-19f},
    };
    return QK_TIER(gelu_f32)(QK_GELU_TANH, table, 8, 6.25f, x, x_lo);
}

QK_FOLDED v16 QK_TIER(softplus_f32)(v16 x)
{
    static const float table[8][32] = {
        {-0x1.000128p+3f, -0x1.dffffap+2f, -0x1.bfffe8p+2f, -0x1.a001cap+2f, -0x1.800016p+2f, -0x1.60007ap+2f, -0x1.400102p+2f, -0x1.1fff3cp+2f,
         -0x1.ffff28p+1f, -0x1.c000c8p+1f, -0x1.8000dcp+1f, -0x1.3fffbp+1f,  -0x1.000008p+1f, -0x1.7ffe68p+0f, -0x1.fffad8p-1f, -0x1.000296p-1f,
         0x1.b089acp-11f, 0x1.00222p-1f,   0x1.ff8cap-1f,   0x1.7fdc4p+0f,   0x1.001a34p+1f,  0x1.400374p+1f,  0x1.7fec18p+1f,  0x1.bfd864p+1f,
         0x1.000548p+2f,  0x1.20215p+2f,   0x1.3fe9f6p+2f,  0x1.60041p+2f,   0x1.800c4ap+2f,  0x1.9fde96p+2f,  0x1.c0042ap+2f,  0x1.dffa1cp+2f},
        {0x1.5fa642p-12f, 0x1.21e55p-11f, 0x1.dddfa8p-11f, 0x1.89c754p-10f, 0x1.447dc6p-9f, 0x1.0b46fp-8f,  0x1.b811f2p-8f, 0x1.6a0782p-7f,
         0x1.296042p-6f,  0x1.e76b5ep-6f, 0x1.8e0474p-5f,  0x1.4322a4p-4f,  0x1.03f2c6p-3f, 0x1.9c80e4p-3f, 0x1.40ca72p-2f, 0x1.e5727cp-2f,
         0x1.631a44p-1f,  0x1.f2cf76p-1f, 0x1.5007cp+0f,   0x1.b37298p+0f,  0x1.105642p+1f, 0x1.4a1c4p+1f,  0x1.862526p+1f, 0x1.c3a86ap+1f,
         0x1.012e8ep+2f,  0x1.20d5f4p+2f, 0x1.405822p+2f,  0x1.6046dep+2f,  0x1.8034d2p+2f, 0x1.9ff74p+2f,  0x1.c01318p+2f, 0x1.e0032cp+2f},
        {0x1.5f972ap-12f, 0x1.21d0ccp-11f, 0x1.dda7ecp-11f, 0x1.897ba8p-10f, 0x1.441708p-9f, 0x1.0abb9ap-8f, 0x1.b6988cp-8f, 0x1.68096ap-7f,
         0x1.26b18ap-6f,  0x1.e03d9p-6f,   0x1.8480c8p-5f,  0x1.36b7c4p-4f,  0x1.e84138p-4f, 0x1.759d6ap-3f, 0x1.136768p-2f, 0x1.8298cep-2f,
         0x1.001b08p-1f,  0x1.3ebb02p-1f,  0x1.7636ap-1f,   0x1.a28e74p-1f,  0x1.c302d6p-1f, 0x1.d92a16p-1f, 0x1.e7b432p-1f, 0x1.f0f97ap-1f,
         0x1.f6cb42p-1f,  0x1.fa62dp-1f,   0x1.fc9194p-1f,  0x1.fdeaa6p-1f,  0x1.febc26p-1f, 0x1.ff3ad6p-1f, 0x1.ff889ep-1f, 0x1.ffb786p-1f},
        {0x1.5f78fcp-13f, 0x1.21a7c8p-12f, 0x1.dd3884p-12f, 0x1.88e474p-11f, 0x1.4349e2p-10f, 0x1.09a5bp-9f,   0x1.b3a91cp-9f,  0x1.6414b4p-8f,
         0x1.216498p-7f,  0x1.d229f4p-7f,  0x1.721414p-6f,  0x1.1f25acp-5f,  0x1.ae0daep-5f,  0x1.3174e8p-4f,  0x1.92ab26p-4f,  0x1.e14906p-4f,
         0x1.fffffap-4f,  0x1.e141c6p-4f,  0x1.92d336p-4f,  0x1.318ecep-4f,  0x1.adca86p-5f,  0x1.1f1e8ep-5f,  0x1.724a32p-6f,  0x1.d2b3b8p-7f,
         0x1.214caep-7f,  0x1.635966p-8f,  0x1.b44286p-9f,  0x1.0993acp-9f,  0x1.430d12p-10f, 0x1.89b98ap-11f, 0x1.dcd8f8p-12f, 0x1.2182e4p-12f},
        {0x1.d4506ap-15f,  0x1.81c75cp-14f,  0x1.3d9102p-13f,  0x1.05241ep-12f, 0x1.aceb26p-12f,  0x1.5f4fe4p-11f,  0x1.1e8d5ep-10f,
         0x1.d0574ap-10f,  0x1.73fa04p-9f,   0x1.248ebep-8f,   0x1.bea31ep-8f,  0x1.44c7p-7f,     0x1.b4b40ep-7f,   0x1.02ad7ep-6f,
         0x1.f030ccp-7f,   0x1.3a56f4p-7f,   -0x1.205ab2p-16f, -0x1.3a771ap-7f, -0x1.f00786p-7f,  -0x1.02b32cp-6f,  -0x1.b48896p-7f,
         -0x1.44c03p-7f,   -0x1.bedd68p-8f,  -0x1.24e03ep-8f,  -0x1.73db32p-9f, -0x1.cf6a6ep-10f, -0x1.1ef234p-10f, -0x1.5f3cf8p-11f,
         -0x1.ac9a5ep-12f, -0x1.05b3cep-12f, -0x1.3d7c1ap-13f, -0x1.81f3p-14f},
        {0x1.d3b188p-17f, 0x1.80ee64p-16f, 0x1.3c6932p-15f,  0x1.0392f8p-14f, 0x1.a8adb2p-14f, 0x1.5995e8p-13f, 0x1.16dbcap-12f,  0x1.bbd3dcp-12f,
         0x1.58fb48p-11f, 0x1.01b942p-10f, 0x1.67af38p-10f,  0x1.bba406p-10f, 0x1.a854f2p-10f, 0x1.565748p-11f, -0x1.81e3f6p-10f, -0x1.07178ep-8f,
         -0x1.5552fp-8f,  -0x1.070d18p-8f, -0x1.831b1ap-10f, 0x1.5551f4p-11f, 0x1.a9947ep-10f, 0x1.bb6aa2p-10f, 0x1.687258p-10f,  0x1.02fep-10f,
         0x1.566d3cp-11f, 0x1.c0332ep-12f, 0x1.192e7p-12f,   0x1.61ff7ap-13f, 0x1.a7095ep-14f, 0x1.07909cp-14f, 0x1.8ff46ep-15f,  0x1.142a06p-15f},
        {0x1.761532p-19f,  0x1.335a3cp-18f,  0x1.f7bf7p-18f,   0x1.9b43a4p-17f,  0x1.4db5c6p-16f,  0x1.0bedcp-15f,   0x1.a6a1cp-15f,
         0x1.435956p-14f,  0x1.d51a84p-14f,  0x1.33d47ep-13f,  0x1.457976p-13f,  0x1.42b6bap-14f,  -0x1.6f8a2ep-13f, -0x1.46dca2p-11f,
         -0x1.0c3446p-10f, -0x1.c5793cp-11f, 0x1.c99268p-20f,  0x1.c56d92p-11f,  0x1.0c68bep-10f,  0x1.47149ap-11f,  0x1.6df32p-13f,
         -0x1.452baap-14f, -0x1.45812ep-13f, -0x1.33a06ap-13f, -0x1.d52192p-14f, -0x1.43db78p-14f, -0x1.a64eeep-15f, -0x1.0b7cfcp-15f,
         -0x1.4d49aep-16f, -0x1.9a3396p-17f, -0x1.f89c5cp-18f, -0x1.294f8p-18f},
        {0x1.ed9932p-22f,  0x1.9438bap-21f,  0x1.49d3aap-20f,  0x1.0a9cep-19f,   0x1.a89736p-19f,  0x1.4bafbap-18f,  0x1.f1cb2cp-18f,
         0x1.59cd06p-17f,  0x1.95e026p-17f,  0x1.3f61a6p-17f,  -0x1.cd36e2p-18f, -0x1.a34a2ep-15f, -0x1.f4756cp-14f, -0x1.57631ap-13f,
         -0x1.272f6ap-14f, 0x1.835fd4p-13f,  0x1.6889fep-12f,  0x1.8c31f2p-13f,  -0x1.197b26p-14f, -0x1.4fca8cp-13f, -0x1.54662ep-13f,
         -0x1.655fp-15f,   -0x1.105e8p-15f,  -0x1.0e161cp-15f, 0x1.00c728p-14f,  -0x1.5a4e32p-15f, -0x1.9c611ap-17f, -0x1.3c0146p-15f,
         0x1.b5ef84p-18f,  -0x1.c2634ap-18f, -0x1.b444fap-14f, -0x1.b7ec8cp-14f},
    };
    v16 c, d, p = QK_TIER(pieces)(table, 8, -8.0f, 2.0f, x, NULL, &c, &d), y = v16_fma(p, d, c);
    m16 near = v16_lt(v16_abs(x), v16_set1(7.75f));
    return m16_bits(near) == 0xFFFF ? y : v16_select(near, y, QK_TIER(exact_function)(QK_SOFTPLUS, QK_F32, x, x, 0.0f, 0.0f));
}

QK_FOLDED v16 QK_TIER(mish_f32)(v16 x)
{
    static const float table[8][32] = {
        {-0x1.9fffa6p+2f, -0x1.7fffep+2f,  -0x1.600008p+2f, -0x1.3fff66p+2f, -0x1.20002ap+2f, -0x1.fffe9p+1f,  -0x1.bfff54p+1f, -0x1.7fff82p+1f,
         -0x1.3ffdaep+1f, -0x1.ffffa4p+0f, -0x1.800076p+0f, -0x1.0004ccp+0f, -0x1.fffe54p-2f, 0x1.14e3bcp-10f, 0x1.fea44p-2f,   0x1.002908p+0f,
         0x1.7fff3p+0f,   0x1.fffb88p+0f,  0x1.3ff64p+1f,   0x1.8007b8p+1f,  0x1.bff778p+1f,  0x1.000e38p+2f,  0x1.1ffbd6p+2f,  0x1.400adep+2f,
         0x1.5ffddep+2f,  0x1.8005cap+2f,  0x1.9fd6aap+2f,  0x1.bfd4a2p+2f,  0x1.e0cb3ap+2f,  0x1.fe8918p+2f,  0x1.10bb74p+3f,  0x1.20bb74p+3f},
        {0x1.89d46ap-10f, 0x1.447eacp-9f, 0x1.0b486ap-8f, 0x1.b81b48p-8f, 0x1.69fe82p-7f, 0x1.295944p-6f, 0x1.e74c04p-6f, 0x1.8db872p-5f,
         0x1.427c4cp-4f,  0x1.029016p-3f, 0x1.9700c4p-3f, 0x1.36aa3p-2f,  0x1.c415d2p-2f, 0x1.335f8p-1f,  0x1.8010fep-1f, 0x1.bafd44p-1f,
         0x1.df04e6p-1f,  0x1.f1a6dcp-1f, 0x1.fa235p-1f,  0x1.fdb3f8p-1f, 0x1.ff1ed8p-1f, 0x1.ffab5ep-1f, 0x1.ffe058p-1f, 0x1.fff446p-1f,
         0x1.fffba8p-1f,  0x1.fffe66p-1f, 0x1.ffff68p-1f, 0x1.ffffc8p-1f, 0x1.ffffecp-1f, 0x1.fffff8p-1f, 0x1.fffffep-1f, 0x1.0p+0f},
        {0x1.898892p-10f, 0x1.441796p-9f,  0x1.0abc5p-8f,   0x1.b69e7p-8f,   0x1.67f8fep-7f,  0x1.269a08p-6f,  0x1.dfd618p-6f,  0x1.839a4p-5f,
         0x1.34cf2cp-4f,  0x1.e07998p-4f,  0x1.66d99ap-3f,  0x1.f411ccp-3f,  0x1.373fccp-2f,  0x1.47a52cp-2f,  0x1.169922p-2f,  0x1.787848p-3f,
         0x1.a1885ep-4f,  0x1.8ebdd8p-5f,  0x1.58b82ap-6f,  0x1.17725p-7f,   0x1.b4bbecp-9f,  0x1.4c5718p-10f, 0x1.f4df9p-12f,  0x1.74b92ep-13f,
         0x1.14dcecp-14f, 0x1.98fcaap-16f, 0x1.2f88ccp-17f, 0x1.bf8f9ap-19f, 0x1.3fe31cp-20f, 0x1.f9711p-22f,  0x1.536ce4p-23f, 0x1.f337e2p-25f},
        {0x1.88f0ep-11f,   0x1.43496cp-10f,  0x1.09a41ep-9f,   0x1.b3a4ccp-9f,   0x1.63ee26p-8f,   0x1.211c42p-7f,   0x1.d0ef2ep-7f,
         0x1.6f6f58p-6f,   0x1.19b17p-5f,    0x1.98bd2p-5f,    0x1.0b5e28p-4f,   0x1.1bfce4p-4f,   0x1.67ec6p-5f,    -0x1.08866ap-6f,
         -0x1.358a08p-4f,  -0x1.7721p-4f,    -0x1.194a1ap-4f,  -0x1.3d9934p-5f,  -0x1.2dd624p-6f,  -0x1.026092p-7f,  -0x1.a0cc1cp-9f,
         -0x1.432b74p-10f, -0x1.ec8116p-12f, -0x1.70ee58p-13f, -0x1.130c92p-14f, -0x1.97dfccp-16f, -0x1.2df1bep-17f, -0x1.bb6d0cp-19f,
         -0x1.477f34p-20f, 0x1.e6068p-23f,   -0x1.3cf53p-18f,  -0x1.cde3fp-18f},
        {0x1.052b7p-12f,  0x1.ace67cp-12f, 0x1.5f44c8p-11f, 0x1.1e7656p-10f, 0x1.cfcc3ap-10f, 0x1.72d9e4p-9f,  0x1.22237p-8f,   0x1.b47de6p-8f,
         0x1.307e4ap-7f,  0x1.697628p-7f,  0x1.0e96dap-7f,  -0x1.4cbee4p-8f, -0x1.e86cecp-6f, -0x1.77b7c8p-5f, -0x1.cadef8p-6f, 0x1.7807p-8f,
         0x1.53bc7ap-6f,  0x1.1cd22cp-6f,  0x1.43f078p-7f,  0x1.306f2ep-8f,  0x1.028092p-9f,  0x1.9cdc86p-11f, 0x1.400936p-12f, 0x1.e46b6ep-14f,
         0x1.6b7c6cp-15f, 0x1.0e1fe6p-16f, 0x1.92a9e8p-18f, 0x1.29dc2cp-19f, 0x1.a9b4bp-21f,  0x1.4f056p-22f,  0x1.9ce55cp-24f, 0x1.ae2836p-26f},
        {0x1.03977ap-14f,  0x1.a89bap-14f,  0x1.596f3ep-13f,  0x1.168882p-12f,  0x1.ba4664p-12f, 0x1.55a236p-11f,  0x1.f56508p-11f,  0x1.4b026cp-10f,
         0x1.4db37ep-10f,  0x1.6b04eap-13f, -0x1.cb15c6p-9f,  -0x1.4a7fd8p-7f,  -0x1.a6dbe8p-7f, -0x1.5ca72ap-12f, 0x1.0ce7c2p-6f,   0x1.c1482ap-7f,
         0x1.b76b96p-10f,  -0x1.df852p-9f,  -0x1.b826cep-9f,  -0x1.f0cb86p-10f, -0x1.cd5e4p-11f, -0x1.829488p-12f, -0x1.3337acp-13f, -0x1.dc730cp-15f,
         -0x1.79be84p-16f, -0x1.d292dp-18f, -0x1.135faap-18f, -0x1.265e48p-19f, 0x1.8888f8p-21f, -0x1.a1f5cep-16f, 0x1.5401bcp-13f,  0x1.fc6ce6p-13f},
        {0x1.9b3cacp-17f,  0x1.4d871ap-16f,  0x1.0b8866p-15f, 0x1.a4f1cep-15f, 0x1.3fa244p-14f, 0x1.c557b8p-14f, 0x1.13001p-13f,  0x1.8919fp-14f,
         -0x1.2e654ap-13f, -0x1.bf4bc2p-11f, -0x1.1ac6ap-9f,  -0x1.59be72p-9f, 0x1.8b7642p-10f, 0x1.f7d67ap-8f,  0x1.c4c1e6p-9f,  -0x1.242a24p-8f,
         -0x1.f6d722p-9f,  -0x1.5b5338p-11f, 0x1.1b52p-11f,   0x1.12ceaap-11f, 0x1.324e88p-12f, 0x1.17cfa8p-13f, 0x1.d1fe4ap-15f, 0x1.702c9cp-16f,
         0x1.1adf3ap-17f,  0x1.a92d4ep-19f,  0x1.2acad4p-20f, 0x1.8319ecp-22f, 0x1.53449ap-23f, 0x1.1bfb9ap-22f, 0x1.6827b4p-20f, 0x1.0a0248p-19f},
        {0x1.0a77ecp-19f,  0x1.a90cc2p-19f,  0x1.4aa84p-18f,   0x1.ebf3bap-18f,  0x1.4a37b8p-17f,  0x1.6df1d2p-17f,  0x1.3b8e8cp-19f,
         -0x1.1d3be4p-15f, -0x1.22ae88p-13f, -0x1.6a6e2p-12f,  -0x1.e20acap-12f, 0x1.9386ccp-12f,  0x1.2ea01p-9f,    0x1.b60fap-11f,
         -0x1.9b0646p-9f,  -0x1.475634p-10f, 0x1.25af26p-10f,  0x1.8daa72p-11f,  0x1.f6070cp-14f,  -0x1.311d74p-14f, -0x1.1527cap-14f,
         -0x1.30316ep-15f, -0x1.44cf42p-16f, -0x1.93229p-19f,  0x1.3e7e7ap-17f,  -0x1.919aecp-17f, 0x1.7e3ac6p-17f,  0x1.7ade62p-17f,
         -0x1.6e0ea2p-17f, 0x1.cd2f4p-13f,   -0x1.79b368p-10f, -0x1.1a5344p-9f},
    };
    v16 most = v16_set1(9.24f), c, d, p = QK_TIER(pieces)(table, 8, -6.5f, 2.0f, v16_min(most, x), NULL, &c, &d);
    v16 y = v16_select(v16_lt(most, x), x, QK_TIER(times_pieces)(x, c, p, d)); /* beyond it tanh is 1 */
    m16 usual = v16_lt(v16_set1(-6.74f), x);
    return m16_bits(usual) == 0xFFFF ? y : v16_select(usual, y, QK_TIER(exact_function)(QK_MISH, QK_F32, x, x, 0.0f, 0.0f));
}

/* e^x - 1 for x <= 0: T + rest - 1, the smaller two first */
QK_FOLDED v16 QK_TIER(expm1_f32)(v16 x)
{
    v16 one = v16_set1(1.0f), rest, n_j, t = QK_TIER(exp_pair)(v16_max(v16_set1(-30.0f), x), 1, &rest, &n_j);
    t = v16_scale2_floor(t, n_j);
    rest = v16_scale2_floor(rest, n_j);
    return v16_select(v16_lt(t, v16_set1(0.5f)), v16_sub(v16_add(t, rest), one), v16_add(v16_sub(t, one), rest));
}

/* x / (1 + |x|) by the inverse and what it lacks; for infinities the limits */
QK_FOLDED v16 QK_TIER(softsign_f32)(v16 x)
{
    v16 one = v16_set1(1.0f), z = v16_max(v16_set1(-0x1p60f), v16_min(v16_set1(0x1p60f), x)), a = v16_abs(z), sum = v16_add(one, a);
    v16 sum_lo = v16_sub(v16_min(one, a), v16_sub(sum, v16_max(one, a))), h = v16_div(one, sum);
    v16 lacks = v16_mul(h, v16_fnma(sum_lo, h, v16_fnma(sum, h, one)));
    return v16_fma(z, h, v16_mul(z, lacks));
}

QK_FOLDED v16 QK_TIER(hard_swish_f32)(v16 x)
{
    v16 z = v16_max(v16_set1(-4.0f), x), sum = v16_max(v16_zero(), v16_add(z, v16_set1(3.0f)));
    return v16_select(v16_lt(x, v16_set1(3.0f)), v16_div(v16_mul(z, sum), v16_set1(6.0f)), x);
}

/* of float32 */
QK_FOLDED v16 QK_TIER(function)(int op, v16 a, v16 b, float alpha, float beta)
{
    switch (op) {
    case QK_SQRT: return v16_sqrt(a);
    case QK_HARD_SIGMOID: return v16_min(v16_set1(1.0f), v16_max(v16_zero(), v16_fma(v16_set1(alpha), a, v16_set1(beta))));
    case QK_SIGMOID: return QK_TIER(sigmoid)(a);
    case QK_SILU: return QK_TIER(silu)(a);
    case QK_SWISH: return QK_TIER(swish)(a, alpha);
    case QK_ERF: return QK_TIER(erf_f32)(a);
    case QK_EXP: return QK_TIER(exp_f32)(a);
    case QK_LOG: return QK_TIER(log_f32)(a);
    case QK_TANH: return QK_TIER(tanh_f32)(a);
    case QK_SIN: return QK_TIER(sine_f32)(a, 0);
    case QK_COS: return QK_TIER(sine_f32)(a, 1);
    case QK_GELU: return QK_TIER(gelu_erf_f32)(a, NULL);
    case QK_GELU_TANH: return QK_TIER(gelu_tanh_f32)(a, NULL);
    case QK_BIAS_GELU: return QK_TIER(gelu_erf_f32)(v16_add(a, b), NULL);
    case QK_BIAS_GELU_TANH: return QK_TIER(gelu_tanh_f32)(v16_add(a, b), NULL);
    case QK_SOFTPLUS: return QK_TIER(softplus_f32)(a);
    case QK_MISH: return QK_TIER(mish_f32)(a);
    case QK_SOFTSIGN: return QK_TIER(softsign_f32)(a);
    case QK_HARD_SWISH: return QK_TIER(hard_swish_f32)(a);
    case QK_ELU: return v16_select(v16_lt(a, v16_zero()), v16_mul(v16_set1(alpha), QK_TIER(expm1_f32)(a)), a);
    case QK_CELU: {
        v16 scale = v16_set1(alpha), z = v16_div(a, scale);
        if (alpha > 0)
            return v16_select(v16_lt(a, v16_zero()), v16_mul(scale, QK_TIER(expm1_f32)(z)), a);
        break; /* e^z grows */
    }
    case QK_SELU: {
        v16 below = v16_mul(v16_mul(v16_set1(beta), v16_set1(alpha)), QK_TIER(expm1_f32)(a));
        return v16_select(v16_lt(a, v16_zero()), below, v16_mul(v16_set1(beta), a));
    }
    default: break;
    }
    return QK_TIER(exact_function)(op, QK_F32, a, b, alpha, beta);
}

/* QK_BIAS_GELU or QK_BIAS_GELU_TANH of a 16-bit type: the float32 form of the exact sum, and where that might be rounded wrongly the exact form */
QK_FOLDED v16 QK_TIER(bias_gelu)(int op, int dtype, v16 a, v16 b)
{
    v16 sum = v16_add(a, b), part = v16_sub(sum, a), lo = v16_add(v16_sub(a, v16_sub(sum, part)), v16_sub(b, part));
    v16 y = op == QK_BIAS_GELU ? QK_TIER(gelu_erf_f32)(sum, &lo) : QK_TIER(gelu_tanh_f32)(sum, &lo);
    return v16_is_near_tie(dtype, y) ? QK_TIER(exact_function)(op, dtype, a, b, 0.0f, 0.0f) : y;
}
