"""Functions of single elements: correctly rounded 16-bit results, and the same bits wherever an element lies."""
import functools
import importlib.util
import json
import pathlib

import numpy as np
import pytest

import qkernels
from qkernels import contrib
from tests.oracle import assert_equal_bits, bits

ROOT = pathlib.Path(__file__).parent
STORED = json.loads((ROOT / "data/activation_cases.json").read_text(encoding="utf-8"))
CALLS = {name: getattr(qkernels, name) for name in (
    "sigmoid", "silu", "gelu", "tanh", "erf", "exp", "log", "sqrt", "reciprocal", "sin", "cos", "softplus", "mish", "softsign", "elu", "celu", "selu", "hard_sigmoid",
    "hard_swish", "leaky_relu", "thresholded_relu", "relu", "neg", "abs", "sign", "floor", "ceil", "round")}
CALLS |= {"quick_gelu": contrib.quick_gelu, "gelu_tanh": functools.partial(qkernels.gelu, approximate="tanh"),
          "clip": lambda x, **k: qkernels.clip(x, x.dtype.type(-1), x.dtype.type(6), **k)}
TWO = {"bias_gelu": contrib.bias_gelu, "fast_gelu": contrib.fast_gelu, "prelu": qkernels.prelu}


@functools.cache
def cases():
    """The script that made the digests."""
    spec = importlib.util.spec_from_file_location("make_activation_cases", ROOT.parent / "tools/make_activation_cases.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_digest(y, name, dtype, inputs):
    if cases().digest(y) != STORED[dtype][name]:
        expected = cases().results((name, dtype))  # takes some seconds, but says where
        wrong = bits(y) != bits(expected)
        pytest.fail(f"{name} of {dtype}: {wrong.sum()} results are wrong, of {[a[wrong][:5] for a in inputs]}: {y[wrong][:5]}, expected {expected[wrong][:5]}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CALLS)
def test_every_16_bit_result_is_correctly_rounded(name, dtype, tier):
    x = cases().every(dtype)
    y = CALLS[name](x)  # a call this large makes the table, where the function has one
    assert_digest(y, name, dtype, [x])
    assert_equal_bits(np.concatenate([CALLS[name](x[i:i + 9973]) for i in range(0, x.size, 9973)]), y)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", TWO)
def test_a_plane_of_two_16_bit_operands_is_correctly_rounded(name, dtype, tier):
    x, b = cases().plane(dtype)
    x = np.ascontiguousarray(np.broadcast_to(x, (x.size, b.size)))
    assert_digest(TWO[name](x, b), name, dtype, [x, np.broadcast_to(b, x.shape)])


def test_every_case_is_stored():
    assert {*STORED} == {"float16", "bfloat16"}
    for stored in STORED.values():
        assert {*stored} == {*CALLS, *TWO}


def test_a_digest_is_that_of_its_oracle():
    for name, dtype in (("hard_sigmoid", "float16"), ("round", "bfloat16")):  # which take a second or two
        assert cases().digest(cases().results((name, dtype))) == STORED[dtype][name]
    y = cases().results(("round", "float16"))
    y.view(np.uint16)[17] ^= 1
    assert cases().digest(y) != STORED["float16"]["round"]
