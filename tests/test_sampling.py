"""ArgMax, and the choice of a token."""
import json
import pathlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import qkernels
from qkernels import sampling
from qkernels.reference import evaluate
from qkernels.reference import sampling as specification
from tests.oracle import BF16, FLOAT_DTYPES, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, lengths, normal, seeds

VOCABULARY = 151_936
HF = json.loads((pathlib.Path(__file__).parent / "data/sampling_cases.json").read_text())


# --- argmax


def argmax_oracle(x, axis, keepdims, last):
    x = np.float64(x)
    y = x.shape[axis] - 1 - np.flip(x, axis).argmax(axis) if last else x.argmax(axis)
    return np.expand_dims(y, axis) if keepdims else y


@pytest.mark.differential("argmax")
@given(seed=seeds, dtype=float_dtypes, lead=st.lists(st.integers(1, 5), max_size=2), n=lengths, few=st.booleans(), nans=st.integers(0, 3),
       last=st.integers(0, 1), keepdims=st.integers(0, 1), data=st.data())
def test_argmax_against_numpy_and_tiers(seed, dtype, lead, n, few, nans, last, keepdims, data):
    shape = data.draw(st.permutations([*lead, n]))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = normal(seed, shape, dtype)
    if few:  # many ties
        x = np.round(x)
    x.reshape(-1)[np.random.default_rng(seed).integers(0, x.size, nans)] = np.nan
    y = one_result(lambda t: qkernels.argmax(x, axis=axis, keepdims=keepdims, select_last_index=last, threads=t))
    assert_equal_bits(y, argmax_oracle(x, axis, keepdims, last))


@pytest.mark.differential("argmax")
@given(seed=seeds, shape=st.lists(st.integers(1, 6), min_size=1, max_size=3), last=st.integers(0, 1), keepdims=st.integers(0, 1), data=st.data())
def test_argmax_against_onnx_reference(seed, shape, last, keepdims, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.round(normal(seed, shape))
    expected, = evaluate("", "ArgMax", [x], axis=axis, keepdims=keepdims, select_last_index=last)
    assert_equal_bits(qkernels.argmax(x, axis=axis, keepdims=keepdims, select_last_index=last), expected)
    if axis in (0, -len(shape)):  # ONNX's defaults
        assert_equal_bits(qkernels.argmax(x), evaluate("", "ArgMax", [x])[0])


@pytest.mark.parametrize("dtype", ["float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_argmax_of_other_numbers(dtype):
    x = np.random.default_rng(0).integers(0, 5, (3, 4, 6)).astype(dtype)
    for axis in range(3):
        for last in (0, 1):
            for keepdims in (0, 1):
                y = qkernels.argmax(x, axis=axis, keepdims=keepdims, select_last_index=last)
                assert_equal_bits(y, argmax_oracle(x, axis, keepdims, last))
                assert_equal_bits(y, evaluate("", "ArgMax", [x], axis=axis, keepdims=keepdims, select_last_index=last)[0])
    assert qkernels.argmax(np.float64([1, np.nan, 3])).tolist() == [1] and qkernels.argmax(np.int32([2, 7]), keepdims=0) == 1


def test_B54_argmax(tier):
    at = lambda values, **kw: qkernels.argmax(np.float32(values), **kw).tolist()
    assert at([2, np.nan, 7]) == [1]
    assert at([np.nan] * 3) == [0]
    assert at([np.nan] * 3, select_last_index=1) == [2]
    assert at([5, 5]) == [0]
    assert at([5, 5], select_last_index=1) == [1]
    assert at([-0.0, 0.0]) == [0] and at([0.0, -0.0], select_last_index=1) == [1]
    assert at([-np.inf] * 2) == [0] and at([-np.inf] * 2, select_last_index=1) == [1]
    assert at([-1, -np.nan, np.inf, np.nan]) == [1]


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_argmax_of_a_vocabulary(dtype, tier):
    x = np.full(VOCABULARY, -3, dtype)
    for at in (0, 255, 256, 70_000, VOCABULARY - 17, VOCABULARY - 1):
        row = x.copy()
        row[at] = 1
        assert qkernels.argmax(row, axis=-1, keepdims=0) == at
        row[-1] = np.nan
        assert qkernels.argmax(row, axis=-1, keepdims=0) == VOCABULARY - 1


def test_argmax_layouts_and_empty_shapes(tier):
    for dtype in FLOAT_DTYPES:
        x = normal(0, (6, 40), dtype)
        for name, a in layouts(x):
            for axis in (0, 1):
                assert_equal_bits(qkernels.argmax(a, axis=axis), argmax_oracle(x, axis, 1, 0), name)
    assert qkernels.argmax(np.zeros((0, 3), np.float32), axis=1).shape == (0, 1)
    assert qkernels.argmax(np.zeros((0, 3), np.float32), axis=1, keepdims=0).shape == (0,)


@pytest.mark.parametrize("call, error, message", [
    (lambda: qkernels.argmax(np.zeros(3, bool)), TypeError, "argmax: x: expected dtype float32 or float16 or bfloat16, got bool"),
    (lambda: qkernels.argmax(np.float32(3)), ValueError, "argmax: x: expected at least 1 dimension, got a 0-d array"),
    (lambda: qkernels.argmax(np.zeros((2, 0), np.float32), axis=1), ValueError, r"x: expected at least 1 element along axis 1, got shape \(2, 0\)"),
    (lambda: qkernels.argmax(np.zeros((2, 2), np.float32), axis=2), ValueError, "argmax: axis: expected -2 to 1 for rank 2, got 2"),
])
def test_argmax_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- what remains


def assert_same_candidates(ids, probabilities, expected_ids, expected_probabilities, tolerance):
    """Equal but for tokens of no weight, and tokens that a rounding may put on either side of the edge."""
    actual, expected = dict(zip(ids.tolist(), probabilities, strict=True)), dict(zip(expected_ids, expected_probabilities, strict=True))
    assert ids.tolist() == sorted(actual)
    for token in actual.keys() ^ expected.keys():
        assert expected.get(token, 1) < 2.0**-40, (token, actual.get(token), expected.get(token))
    for token in actual:
        assert abs(actual[token] - expected[token]) <= tolerance * expected[token] + 2.0**-44 * len(expected), (token, actual[token], expected[token])


def far_from_edges(logits, temperature, k, p, least, penalty, previous):
    """No token so close to top-p's or min-p's edge that float32 and float64 may differ about it."""
    x = np.float64(logits)
    if penalty != 1:
        x = specification.repetition_penalty(x, previous, penalty)
    if k:
        x = specification.top_k(x, k)
    x = x / temperature
    probabilities = np.sort(specification.softmax(x))[::-1]
    before = np.cumsum(probabilities) - probabilities
    return np.abs(before - p).min() > 1e-5 and np.abs(probabilities / probabilities[0] / max(least, 1e-9) - 1).min() > 1e-4


@pytest.mark.differential("sample")
@given(seed=seeds, dtype=float_dtypes, n=st.one_of(lengths, st.sampled_from([700, 3000])), scale=st.sampled_from([0.01, 1.0, 4.0, 20.0]),
       temperature=st.sampled_from([0.3, 0.6, 1.0, 1.7]), k=st.sampled_from([0, 2, 3, 20, 300]), p=st.sampled_from([1.0, 0.95, 0.5, 0.05]),
       least=st.sampled_from([0.0, 0.05, 0.6]), penalty=st.sampled_from([1.0, 1.3, 0.7]), with_inf=st.booleans())
def test_candidates_against_specification_and_tiers(seed, dtype, n, scale, temperature, k, p, least, penalty, with_inf):
    rng = np.random.default_rng(seed)
    logits = normal(seed, n, dtype, scale)
    if with_inf:
        logits[rng.random(n) < 0.3] = -np.inf
        logits[rng.integers(n)] = 1
    previous = rng.integers(0, n, 9)
    settings = dict(temperature=temperature, repetition_penalty=penalty, previous=previous, top_k=k, top_p=p, min_p=least)
    before = logits.copy()
    ids, probabilities = one_result(lambda t: sampling.candidates(logits, threads=t, **settings))
    assert_equal_bits(logits, before)
    # the penalized logits in float32, as both Hugging Face and the kernel have them: their ties are ties
    x = logits.astype(np.float32)
    if penalty != 1:
        x[previous] = np.where(x[previous] < 0, x[previous] * np.float32(penalty), x[previous] / np.float32(penalty))
    assume(far_from_edges(x, np.float32(temperature), k, p, least, 1, ()))
    expected = specification.candidates(x, temperature=np.float32(temperature), k=k, p=p, least=least)
    # the argument of e^x is rounded twice at up to 2^-24 of its size, of which what has any weight is below 32
    assert_same_candidates(ids, probabilities, *expected, tolerance=2 * 2 * 32 * 2.0**-24)


@pytest.mark.differential("sample")
@pytest.mark.parametrize("case", HF["cases"], ids=lambda c: f"{c['row']} {c['settings']}")
def test_candidates_against_hugging_face(case, tier):
    logits = np.float32([-np.inf if v is None else v for v in HF["rows"][case["row"]]])
    ids, probabilities = sampling.candidates(logits, **case["settings"])
    if case["settings"].get("top_k") == 1 and case["row"] == "ties":  # there we take one, Hugging Face any of them
        assert ids.tolist() == [logits.argmax()]
    elif case["row"] == "ties" and "top_p" in case["settings"]:  # Hugging Face's sort leaves open which of the equal ones stay
        settings = case["settings"]
        penalized = specification.repetition_penalty(np.float64(logits), settings.get("previous", ()), settings.get("repetition_penalty", 1))
        assert sorted(penalized[ids]) == sorted(penalized[case["ids"]])
        np.testing.assert_allclose(sorted(probabilities), sorted(case["probabilities"]), rtol=2e-6)
    else:
        assert_same_candidates(ids, probabilities, case["ids"], case["probabilities"], tolerance=1e-5)


def test_candidates_of_a_vocabulary_on_every_path():
    """Bounds by chunks, wide top-k, top-p's cut in advance, min-p's, and none: against sorting."""
    rng = np.random.default_rng(0)
    for scale in (0.01, 2.5):
        logits = (rng.standard_normal(VOCABULARY) * scale).astype(np.float32)
        order = np.argsort(-logits, kind="stable")
        for k in (2, 20, 593, 594, 595, 5000, VOCABULARY - 1):
            ids, w = one_result(lambda t, k=k, x=logits: sampling._weights(x, top_k=k, threads=t), threads=(1, 2))
            kth = logits[order[k - 1]]
            assert np.array_equal(ids, np.flatnonzero(logits >= kth))
        ids, w = sampling._weights(logits)
        assert ids.size == VOCABULARY
        descending = w[order]
        for p in (0.001, 0.3, 0.95, 0.9999):
            target = np.ceil(float(w.sum()) * p)
            kept = order[np.cumsum(descending) - descending < target]
            ids_p, w_p = one_result(lambda t, p=p, x=logits: sampling._weights(x, top_p=p, threads=t), threads=(1, 2))
            assert np.array_equal(ids_p, np.sort(kept)) and np.array_equal(w_p, w[ids_p])
            both, _ = sampling._weights(logits, top_p=p, min_p=0.5)
            assert np.array_equal(both, ids_p[w_p >= w.max() / 2])
        ids_m, w_m = one_result(lambda t, x=logits: sampling._weights(x, min_p=0.25, threads=t), threads=(1, 2))
        assert np.array_equal(ids_m, np.flatnonzero(w >= w.max() / 4)) and np.array_equal(w_m, w[ids_m])


@given(seed=seeds, n=st.integers(1, 900), k=st.integers(2, 900), p=st.floats(1e-6, 1, exclude_max=True), levels=st.integers(1, 8))
def test_ties_are_kept_by_top_k_and_cut_by_index_in_top_p(seed, n, k, p, levels):
    logits = np.random.default_rng(seed).integers(0, levels, n).astype(np.float32)
    order = np.argsort(-logits, kind="stable")
    ids, w = sampling._weights(logits, top_k=k)
    assert np.array_equal(ids, np.flatnonzero(logits >= logits[order[min(k, n) - 1]]))
    ids, w = sampling._weights(logits)
    before = np.cumsum(w[order]) - w[order]
    assert np.array_equal(sampling._weights(logits, top_p=p)[0], np.sort(order[before < np.ceil(float(w.sum()) * p)]))


def test_one_result_on_tiers_and_threads():
    n = 2 * 131_072 + 5  # enough for a second thread
    for dtype in FLOAT_DTYPES:
        logits = normal(5, n, dtype, 3)
        for settings in (dict(), dict(top_p=0.9, temperature=0.7), dict(repetition_penalty=1.2, previous=[1, 5], min_p=0.01)):
            one_result(lambda t, x=logits, s=settings: sampling._weights(x, threads=t, **s), threads=(1, 2))
    logits = normal(6, (3, n))
    one_result(lambda t: qkernels.argmax(logits, axis=1, threads=t))


# --- the draw


def test_philox_known_answers():
    # Random123's kat_vectors for philox4x32 10: counter and key 0; all ones do not fit, our upper counter words are 0
    assert sampling._random(0, 0) == 0xE169C58D_6627E8D5
    rng = np.random.default_rng(0)
    for seed, step in [(0, 1), (1, 0), (2**64 - 1, 2**64 - 1), *rng.integers(0, 2**63, (50, 2)).tolist()]:
        assert sampling._random(seed, step) == specification.philox(seed, step)


@given(random=st.integers(0, 2**64 - 1), total=st.integers(1, 2**63))
def test_draw_target_stays_below_the_total(random, total):
    assert sampling._draw_target(random, total) == random * total >> 64 < total


@given(seed=seeds, n=st.integers(1, 1500), data=st.data(),
       settings=st.sampled_from([dict(), dict(top_k=30), dict(top_p=0.9), dict(min_p=0.1, temperature=0.5)]))
def test_inverse_of_the_cumulative_weights(seed, n, data, settings):
    logits = normal(seed, n, scale=2)
    ids, w = sampling._weights(logits, **settings)
    total, edges = int(w.sum()), np.cumsum(w)
    randoms = [0, 2**64 - 1, data.draw(st.integers(0, 2**64 - 1))]
    for _ in range(5):  # the smallest random number that reaches an edge, and the one before
        edge = int(edges[data.draw(st.integers(0, ids.size - 1))])
        first = -(-edge * 2**64 // total)
        randoms += [r for r in (first - 1, first) if 0 <= r < 2**64]
    for random in randoms:
        assert sampling._sample_at(logits, random, **settings) == specification.draw(ids, w, random)


def test_sample_depends_on_seed_and_step_only(tier):
    logits = normal(1, 1000)
    first = [qkernels.sample(logits, seed=11, step=i) for i in range(50)]
    qkernels.sample(logits, seed=5)
    assert first == [qkernels.sample(logits, seed=11, step=i) for i in range(50)]
    assert first == [specification.draw(*sampling._weights(logits), specification.philox(11, i)) for i in range(50)]
    assert first != [qkernels.sample(logits, seed=12, step=i) for i in range(50)]
    assert len(set(first)) > 20


def test_any_layout(tier):
    for dtype in FLOAT_DTYPES:
        x = normal(0, (300,), dtype, 3)
        expected = [qkernels.sample(x, seed=i, top_p=0.9) for i in range(20)]
        for name, a in layouts(x):
            assert [qkernels.sample(a, seed=i, top_p=0.9) for i in range(20)] == expected, name


def test_half_logits_are_scaled_in_float32(tier):
    for dtype in (np.float16, BF16):
        x = normal(3, 500, dtype, 4)
        for settings in (dict(temperature=0.3, repetition_penalty=1.7, previous=[1, 2, 3]), dict(temperature=3.0, top_p=0.8)):
            for a, b in zip(sampling._weights(x, **settings), sampling._weights(x.astype(np.float32), **settings), strict=True):
                assert_equal_bits(a, b)


# --- the edges


def test_B82_temperature(tier):
    for dtype in FLOAT_DTYPES:
        logits = normal(2, 1000, dtype, 5)
        best = int(np.float32(logits).argmax())
        for temperature in (0, 0.0, 1e-4, 1e-40, 1e-300):
            for seed in range(5):
                assert qkernels.sample(logits, temperature=temperature, seed=seed) == best
    assert sampling.candidates(np.float32([5, 5, 3]), temperature=0)[0].tolist() == [0]
    assert sampling.candidates(np.float32([5, 5, 3]), temperature=1e-30)[1].tolist() == [0.5, 0.5]
    ids, probabilities = sampling.candidates(np.float32([60000, 59999, -60000]), temperature=3e38)  # hot: all alike
    assert np.allclose(probabilities, 1 / 3)
    for bad in (-1, -1e-30, np.nan, np.inf):
        with pytest.raises(ValueError, match="sample: temperature: expected 0 to 3.40282e\\+38, got"):
            qkernels.sample(np.zeros(4, np.float32), temperature=bad)


def test_B83_top_k(tier):
    logits = normal(4, 400)
    everything = sampling.candidates(logits)
    for off in (0, None, 400, 10**9, 10**30):
        assert_equal_bits(sampling.candidates(logits, top_k=off)[1], everything[1])
    assert everything[0].size == 400
    for seed in range(30):
        assert qkernels.sample(logits, top_k=1, temperature=5, seed=seed) == logits.argmax()
        assert qkernels.sample(np.float32([5, 5, 3]), top_k=1, seed=seed) == 0
    assert len({qkernels.sample(logits, top_k=2, temperature=5, seed=seed) for seed in range(30)}) == 2


def test_B84_repetition_penalty(tier):
    logits, e = np.float32([2, -2, 1]), np.exp
    ids, probabilities = sampling.candidates(logits, repetition_penalty=2, previous=[0, 0, 1])
    np.testing.assert_allclose(probabilities, np.array([e(1), e(-4), e(1)]) / (2 * e(1) + e(-4)), rtol=1e-6)
    assert_equal_bits(sampling.candidates(logits, repetition_penalty=1, previous=[0, 1])[1], sampling.candidates(logits)[1])
    assert sampling.candidates(logits, repetition_penalty=0.5, previous=[2], temperature=0)[0].tolist() == [0]
    assert sampling.candidates(logits, repetition_penalty=0.4, previous=[2], temperature=0)[0].tolist() == [2]
    for bad in (0, -1.0, np.nan, np.inf, 1e-50):
        with pytest.raises(ValueError, match="sample: repetition_penalty: expected"):
            qkernels.sample(logits, repetition_penalty=bad, previous=[0])
    for bad, at in (([0, 3], 1), ([-1], 0)):
        for penalty in (1.0, 1.2):
            with pytest.raises(IndexError, match=f"sample: previous: expected ids of 0 to 2, got {bad[at]} at {at}"):
                qkernels.sample(logits, repetition_penalty=penalty, previous=bad)
    for empty in ([], (), None, np.zeros(0, np.int64)):
        assert_equal_bits(sampling.candidates(logits, repetition_penalty=2, previous=empty)[1], sampling.candidates(logits)[1])
    for ids in ([0, 1], np.uint8([0, 1]), np.int32([0, 9, 1])[::2]):
        assert sampling.candidates(logits, repetition_penalty=3, previous=ids)[1].argmax() == 2


def test_B86_edges(tier):
    logits = normal(6, 1000)
    best = int(logits.argmax())
    for settings in (dict(top_p=0), dict(top_p=1e-9), dict(top_p=5e-324), dict(min_p=1), dict(min_p=1.0, top_k=7)):
        for random in (0, 2**63, 2**64 - 1):
            assert sampling._sample_at(logits, random, **settings) == best
    flat = np.zeros(1000, np.float32)
    for settings in (dict(top_p=0), dict(top_p=1e-9), dict(min_p=1), dict(temperature=0)):
        assert sampling.candidates(flat, **settings)[0].tolist() == [0]
    for n in (1, 2, 16, 17, 255, 256, 257, 1000):
        assert sampling._sample_at(flat[:n], 2**64 - 1) == n - 1 and sampling._sample_at(flat[:n], 0) == 0
    last_impossible = np.append(flat[:300], np.float32([-np.inf, -200]))
    assert sampling._sample_at(last_impossible, 2**64 - 1) == 299
    for at in (0, 17, 999):
        broken = logits.copy()
        broken[at] = np.nan
        broken[-1] = np.nan
        for settings in (dict(), dict(temperature=0), dict(top_k=5, top_p=0.5)):
            with pytest.raises(ValueError, match=f"sample: logits: NaN at index {at}$"):
                qkernels.sample(broken, **settings)
    for settings in (dict(), dict(temperature=0), dict(top_k=1)):
        with pytest.raises(ValueError, match="sample: logits: all 5 are -inf, no token is possible"):
            qkernels.sample(np.full(5, -np.inf, np.float32), **settings)


def test_infinite_and_huge_logits(tier):
    ids, probabilities = sampling.candidates(np.float32([1, np.inf, -np.inf, np.inf]))
    assert ids.tolist() == [1, 3] and probabilities.tolist() == [0.5, 0.5]
    assert sampling.candidates(np.float32([1, np.inf, 5]), top_p=0.9, top_k=2)[0].tolist() == [1]
    assert sampling.candidates(np.float32([3e38, -3e38, 2.9e38]))[0].tolist() == [0]
    assert sampling.candidates(np.float32([3e38, -3e38]), repetition_penalty=0.5, previous=[0])[0].tolist() == [0]
    assert sampling.candidates(np.float32([-0.0, 0.0]), top_k=2)[0].tolist() == [0, 1]
    for settings in (dict(), dict(top_p=0.5), dict(min_p=0.3), dict(top_k=9)):
        assert sampling._sample_at(np.float32([7]), 2**64 - 1, **settings) == 0


@pytest.mark.parametrize("settings, error, message", [
    (dict(top_k=-1), ValueError, "sample: top_k: expected 0 or more, got -1"),
    (dict(top_k=2.0), TypeError, "sample: top_k: expected an int or None, got float"),
    (dict(top_p=-0.1), ValueError, "sample: top_p: expected 0 to 1, got -0.1"),
    (dict(top_p=1.1), ValueError, "sample: top_p: expected 0 to 1, got 1.1"),
    (dict(top_p=np.nan), ValueError, "sample: top_p: expected 0 to 1, got nan"),
    (dict(min_p=2), ValueError, "sample: min_p: expected 0 to 1, got 2"),
    (dict(min_p="0.5"), TypeError, "sample: min_p: expected a number, got str"),
    (dict(temperature=None), TypeError, "sample: temperature: expected a number, got NoneType"),
    (dict(seed=-1), ValueError, r"sample: seed: expected 0 to 2\*\*64 - 1, got -1"),
    (dict(step=2**64), ValueError, r"sample: step: expected 0 to 2\*\*64 - 1, got 18446744073709551616"),
    (dict(seed=1.5), TypeError, "sample: seed: expected an int, got float"),
    (dict(previous=[0.5]), TypeError, "sample: previous: expected an integer dtype, got float64"),
    (dict(previous=[[0]]), ValueError, r"sample: previous: expected 1 dimension, got shape \(1, 1\)"),
    (dict(threads=0), ValueError, "sample: threads: expected 1 to 1024, got 0"),
])
def test_errors(settings, error, message):
    with pytest.raises(error, match=message):
        qkernels.sample(np.zeros(4, np.float32), **settings)


def test_shape_and_dtype_errors():
    for shape in ((), (0,), (1, 4)):
        with pytest.raises(ValueError, match=r"sample: logits: expected shape \(vocabulary,\), got"):
            qkernels.sample(np.zeros(shape, np.float32))
    with pytest.raises(TypeError, match="sample: logits: expected dtype float32 or float16 or bfloat16, got float64"):
        qkernels.sample(np.zeros(4))
    assert type(qkernels.sample(np.zeros(4, ml_dtypes.bfloat16))) is int
