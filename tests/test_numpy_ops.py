"""Layout and bookkeeping operators: against onnx.reference for drawn shapes and attributes, views where promised, errors by name."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import qkernels
from qkernels import registry
from tests.oracle import assert_equal_bits, layouts

DTYPES = [np.dtype(getattr(ml_dtypes, name, name)) for name in registry.EVERY]
i64 = lambda *x: np.array(x, np.int64)


def numbers(shape, dtype, seed=0):
    return (np.random.default_rng(seed).integers(0, 100, shape)).astype(dtype)


def reference(op_type, inputs, outputs=1, opset=24, **attributes):
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    value = lambda name, x: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    attributes = {n: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for n, v in attributes.items() if v is not None}
    node = helper.make_node(op_type, names, [f"o{i}" for i in range(outputs)], **attributes)
    graph = helper.make_graph([node], "g", [value(n, x) for n, x in zip(names, inputs, strict=True) if n],
                              [helper.make_tensor_value_info(f"o{i}", TensorProto.FLOAT, None) for i in range(outputs)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    results = ReferenceEvaluator(model).run(None, {n: x for n, x in zip(names, inputs, strict=True) if n})
    return results if outputs > 1 else results[0]


@st.composite
def calls(draw):
    """(function's name, operator, inputs, attributes, number of outputs)."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    axis, rank = draw(st.integers(-len(shape), len(shape) - 1)), len(shape)
    x = numbers(shape, dtype, draw(st.integers(0, 1000)))
    n = shape[axis]
    kind = draw(st.sampled_from(sorted(STRATEGIES)))
    return (kind, *STRATEGIES[kind](draw, x, axis, n, rank))


def _reshape(draw, x, axis, n, rank):
    target = draw(st.sampled_from([[-1], list(x.shape), [*x.shape, 1], [1, *x.shape]]))
    if x.size and draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return "Reshape", [x, i64(*target)], dict(allowzero=int(-1 not in target)), 1


def _slice(draw, x, axis, n, rank):
    number = st.integers(-6, 6)
    step = draw(st.integers(-3, 3).filter(bool))
    return "Slice", [x, i64(draw(number)), i64(draw(number)), i64(axis), i64(step)], {}, 1


def _split(draw, x, axis, n, rank):
    if draw(st.booleans()):
        first = draw(st.integers(0, n))
        return "Split", [x, i64(first, n - first)], dict(axis=axis), 2
    count = draw(st.sampled_from([c for c in (1, 2, 3) if n == 0 or (c - 1) * -(-n // c) <= n]))
    return "Split", [x, None], dict(axis=axis, num_outputs=count), count


def _gathered(data, indices, axis):
    """GatherElements by its definition; the reference's goes through numpy.choose, which refuses rows of one element."""
    out = np.empty(indices.shape, data.dtype)
    for place in np.ndindex(*indices.shape):
        out[place] = data[(*place[:axis % data.ndim], indices[place], *place[axis % data.ndim + 1:])]
    return out


def _gather_elements(draw, x, axis, n, rank):
    shape = [draw(st.integers(0, size)) for size in x.shape]
    shape[axis] = draw(st.integers(0, 5)) if n else 0
    index = np.random.default_rng(0).integers(-n, n, shape) if n else np.zeros(shape, np.int64)
    return "GatherElements", [x, index], dict(axis=axis), 1


def _gather_nd(draw, x, axis, n, rank):
    tuples = draw(st.integers(1, rank))
    count = draw(st.integers(0, 3)) if all(x.shape[:tuples]) else 0
    index = np.stack([np.random.default_rng(i).integers(-max(s, 1), max(s, 1), count) for i, s in enumerate(x.shape[:tuples])], -1)
    return "GatherND", [x, index.astype(np.int64)], {}, 1


def _scatter_nd(draw, x, axis, n, rank):
    _, (_, index), _, _ = _gather_nd(draw, x, axis, n, rank)
    index = np.unique(np.where(index < 0, index + np.array(x.shape[:index.shape[-1]]), index), axis=0)
    return "ScatterND", [x, index, numbers((len(index), *x.shape[index.shape[-1]:]), x.dtype, 7)], {}, 1


def _scatter_elements(draw, x, axis, n, rank):
    count = draw(st.integers(0, n))
    shape = list(x.shape)
    shape[axis] = count
    index = np.broadcast_to(np.random.default_rng(1).permutation(n)[:count].reshape([count if i == axis % rank else 1 for i in range(rank)]), shape)
    return "ScatterElements", [x, np.ascontiguousarray(index), numbers(shape, x.dtype, 9)], dict(axis=axis), 1


def _tensor_scatter(draw, x, axis, n, rank):
    x = numbers((2, 3, 4), x.dtype)
    new = draw(st.integers(0, 3))
    mode = draw(st.sampled_from(["linear", "circular"]))
    start = draw(st.integers(0, 3 - new if mode == "linear" else 2))
    return "TensorScatter", [x, numbers((2, new, 4), x.dtype, 3), i64(start, 0)], dict(axis=draw(st.sampled_from([1, -2])), mode=mode), 1


STRATEGIES = {
    "cast_like": lambda draw, x, axis, n, rank: ("CastLike", [x, np.zeros(1, draw(st.sampled_from([np.float32, np.int32, np.int64])))], {}, 1),
    "concat": lambda draw, x, axis, n, rank: ("Concat", [x, x[..., :0] if axis % rank == rank - 1 else x, x], dict(axis=axis), 1),
    "constant": lambda draw, x, axis, n, rank: ("Constant", [], draw(st.sampled_from([dict(value=x), dict(value_ints=[1, 2]), dict(value_float=.5)])), 1),
    "constant_of_shape": lambda draw, x, axis, n, rank: ("ConstantOfShape", [i64(*x.shape)], dict(value=numbers(1, x.dtype)), 1),
    "expand": lambda draw, x, axis, n, rank: ("Expand", [x[..., None, :], i64(2, *(1,) * (rank - 1), 3, 1)], {}, 1),
    "flatten": lambda draw, x, axis, n, rank: ("Flatten", [x], dict(axis=draw(st.integers(-rank, rank))), 1),
    "gather_elements": _gather_elements, "gather_nd": _gather_nd,
    "identity": lambda draw, x, axis, n, rank: ("Identity", [x], {}, 1),
    "pad": lambda draw, x, axis, n, rank: ("Pad", [x, i64(draw(st.integers(0, 3)), draw(st.integers(0, 3))), numbers((), x.dtype, 5), i64(axis)], {}, 1),
    "range": lambda draw, x, axis, n, rank: ("Range", [np.array(v, draw(st.sampled_from([np.int64, np.float32]))) if i == 0 else v for i, v in enumerate(
        [draw(st.integers(-9, 9)), draw(st.integers(-9, 9)), draw(st.integers(-3, 3).filter(bool))])], {}, 1),
    "reshape": _reshape, "scatter_elements": _scatter_elements, "scatter_nd": _scatter_nd,
    "shape": lambda draw, x, axis, n, rank: ("Shape", [x], dict(start=draw(st.integers(-rank, 5)), end=draw(st.integers(-rank, 5))), 1),
    "size": lambda draw, x, axis, n, rank: ("Size", [x], {}, 1),
    "slice": _slice, "split": _split,
    "squeeze": lambda draw, x, axis, n, rank: ("Squeeze", [x[None, ..., None], draw(st.sampled_from([i64(0), i64(-1, 0), i64(0, -1)]))], {}, 1),
    "tensor_scatter": _tensor_scatter,
    "tile": lambda draw, x, axis, n, rank: ("Tile", [x, i64(*(draw(st.integers(0, 2)) for _ in x.shape))], {}, 1),
    "transpose": lambda draw, x, axis, n, rank: ("Transpose", [x], dict(perm=draw(st.permutations(range(rank)))), 1),
    "trilu": lambda draw, x, axis, n, rank: ("Trilu", [numbers((2, *x.shape), x.dtype), i64(draw(st.integers(-4, 4)))[0]],
                                             dict(upper=draw(st.integers(0, 1))), 1),
    "unsqueeze": lambda draw, x, axis, n, rank: ("Unsqueeze", [x, draw(st.sampled_from([i64(0), i64(-1), i64(0, -1), i64(1)]))], {}, 1),
}


@pytest.mark.differential("cast_like", "concat", "constant", "constant_of_shape", "expand", "flatten", "gather_elements", "gather_nd", "identity", "pad",
                          "range", "reshape", "scatter_elements", "scatter_nd", "shape", "size", "slice", "split", "squeeze", "tensor_scatter", "tile",
                          "transpose", "trilu", "unsqueeze")
@given(call=calls())
def test_against_onnx_reference(call):
    name, op_type, inputs, attributes, outputs = call
    if op_type == "Range":
        inputs = [np.asarray(v, inputs[0].dtype) for v in inputs]
    try:
        expected = _gathered(*inputs, **attributes) if op_type == "GatherElements" else reference(op_type, inputs, outputs, **attributes)
    except ValueError:
        assert any(x is not None and x.size == 0 for x in inputs)  # the reference does not take every empty array
        reject()
    actual = getattr(qkernels, name)(*inputs, **attributes)
    for a, e in zip(actual if outputs > 1 else [actual[0] if name == "split" else actual], expected if outputs > 1 else [expected], strict=True):
        assert_equal_bits(a, e, name)


def test_views_are_views_and_strides_are_kept():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for y in (qkernels.reshape(x, [-1]), qkernels.transpose(x), qkernels.slice(x, [1], [3], [2], [2]), *qkernels.split(x, [1, 3], axis=2),
              qkernels.squeeze(x[:1]), qkernels.unsqueeze(x, [1]), qkernels.expand(x, [5, 1, 1, 1]), qkernels.identity(x), qkernels.flatten(x)):
        assert np.shares_memory(x, y)
    for name, a in layouts(x):
        assert_equal_bits(np.ascontiguousarray(qkernels.slice(a, [-1], [-9], [2], [-1])).astype(np.float32), x[..., ::-1].copy(), name)
        assert_equal_bits(qkernels.concat(a, a, axis=1), np.concatenate([x, x], 1), name)
        assert_equal_bits(qkernels.gather_elements(a, np.zeros((1, 1, 1), np.int64)), x[:1, :1, :1], name)
        assert_equal_bits(qkernels.pad(a, [0] * 6), x, name)


def test_float16_range_counts_in_float32():
    y = qkernels.range(np.float16(2000), np.float16(2100), np.float16(1))
    assert y.dtype == np.float16 and len(y) == 100 and y[60] == 2060  # 2048 + 1 is 2048 in float16
    for stash_type in (1, 11):
        y = qkernels.range(*np.array([0, 300, 1], ml_dtypes.bfloat16), stash_type=stash_type)
        assert_equal_bits(y, np.arange(300).astype(np.float32).astype(ml_dtypes.bfloat16))
    assert qkernels.range(np.int64(0), np.int64(3), np.int64(1), stash_type=10).tolist() == [0, 1, 2]  # of types that do not ask


def test_negative_pads_and_modes():
    x = np.arange(5)
    assert qkernels.pad(x, [-1, 2]).tolist() == [1, 2, 3, 4, 0, 0]
    assert qkernels.pad(x, [2, -3], mode="edge").tolist() == [0, 0, 0, 1]
    assert qkernels.pad(x, [2, 2], mode="reflect").tolist() == [2, 1, 0, 1, 2, 3, 4, 3, 2]
    assert qkernels.pad(x, [1, 1], mode="wrap").tolist() == [4, 0, 1, 2, 3, 4, 0]


def test_reductions_of_scatter():
    x = np.float32([1, 2, 3])
    assert qkernels.scatter_elements(x, i64(1, 1), np.float32([5, 6]), reduction="add").tolist() == [1, 13, 3]
    assert qkernels.scatter_nd(x, i64(1, 1).reshape(2, 1), np.float32([5, 6]), reduction="max").tolist() == [1, 6, 3]


X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize("call, error, message", [
    (lambda: qkernels.reshape(X, [4, -1]), ValueError, r"reshape: shape: \(4, -1\) does not hold the 6 elements of shape \(2, 3\)"),
    (lambda: qkernels.reshape(X, [-1, -1]), ValueError, "reshape: shape: expected sizes >= 0 and at most one -1"),
    (lambda: qkernels.reshape(X, [2, 3, 0]), ValueError, "reshape: shape: 0 at an axis that data of shape"),
    (lambda: qkernels.reshape(X, [0, -1], allowzero=1), ValueError, "reshape: shape: expected no -1 beside 0"),
    (lambda: qkernels.reshape(X, np.float32([6])), TypeError, "reshape: shape: expected integers, got float32"),
    (lambda: qkernels.reshape(None, [1]), TypeError, "reshape: data: expected an array, got None"),
    (lambda: qkernels.transpose(X, perm=[0, 0]), ValueError, "transpose: perm: expected the axes 0 to 1 in some order"),
    (lambda: qkernels.concat(X, X.astype(np.int64), axis=0), TypeError, r"concat: inputs\[1\]: expected dtype float32, got int64"),
    (lambda: qkernels.concat(X, X.T, axis=0), ValueError, r"concat: inputs\[1\]: expected a shape like \(2, 3\) but for axis 0"),
    (lambda: qkernels.concat(X, axis=2), ValueError, "concat: axis: expected -2 to 1 for rank 2, got 2"),
    (lambda: qkernels.concat(axis=0), ValueError, "concat: inputs: expected at least one array"),
    (lambda: qkernels.split(X, [1, 1], axis=1), ValueError, "split: split: expected sizes that add up to 3, got"),
    (lambda: qkernels.split(X), ValueError, "split: split: expected either split or num_outputs, got neither"),
    (lambda: qkernels.split(X, num_outputs=5, axis=1), ValueError, "split: num_outputs: cannot make 5 parts of axis 1 of size 3"),
    (lambda: qkernels.slice(X, [0], [1], [0], [0]), ValueError, "slice: steps: expected numbers other than 0"),
    (lambda: qkernels.slice(X, [0], [1], [0, 1]), ValueError, "slice: starts, ends, axes, steps: expected equally many"),
    (lambda: qkernels.squeeze(X, [0]), ValueError, "squeeze: axes: expected axes of size 1"),
    (lambda: qkernels.unsqueeze(X, [0, 0]), ValueError, "unsqueeze: axes: expected distinct axes"),
    (lambda: qkernels.expand(X, [4]), ValueError, "expand: shape: expected one that broadcasts with"),
    (lambda: qkernels.gather_elements(X, i64(2).reshape(1, 1)), IndexError, "gather_elements: indices: expected -2 to 1, got 2"),
    (lambda: qkernels.gather_elements(X, i64(0)), ValueError, "gather_elements: indices: expected the rank of data"),
    (lambda: qkernels.gather_nd(X, i64(0, 3).reshape(1, 2)), IndexError, "gather_nd: indices: expected -3 to 2, got 3"),
    (lambda: qkernels.gather_nd(X, i64(0), batch_dims=1), ValueError, "gather_nd: batch_dims: expected leading axes"),
    (lambda: qkernels.scatter_nd(X, i64(0).reshape(1, 1), X), ValueError, r"scatter_nd: updates: expected shape \(1, 3\), got \(2, 3\)"),
    (lambda: qkernels.scatter_elements(X, np.zeros((2, 3), np.int64), X, reduction="sum"), ValueError, "reduction: expected none, add"),
    (lambda: qkernels.tensor_scatter(X, X[:, :2], i64(2, 0), axis=1), IndexError, "tensor_scatter: write_indices: expected 0 to 1 for 2 new"),
    (lambda: qkernels.tensor_scatter(X, X, axis=0), ValueError, "tensor_scatter: axis: expected a sequence axis behind the batch"),
    (lambda: qkernels.tile(X, [1]), ValueError, "tile: repeats: expected 2 numbers >= 0"),
    (lambda: qkernels.range(i64(0), i64(1), i64(0)), ValueError, "range: delta: expected a number other than 0"),
    (lambda: qkernels.range(i64(0), i64(1), np.float32(1)), TypeError, "range: delta: expected numbers of one dtype"),
    (lambda: qkernels.range(*np.float16([0, 1, 1]), stash_type=16), ValueError, r"range: stash_type: expected 1 \(float32\) or 11 \(float64\), got 16"),
    (lambda: qkernels.range(*np.array([0, 1, 1], ml_dtypes.int4)), TypeError, "range: start: expected numbers of one dtype, got int4"),
    (lambda: qkernels.constant(value_int=1, value_float=1.0), ValueError, "constant: expected exactly one"),
    (lambda: qkernels.constant_of_shape([-1]), ValueError, "constant_of_shape: shape: expected sizes >= 0"),
    (lambda: qkernels.pad(X, [1, 1]), ValueError, "pad: pads: expected 4 numbers for 2 axes, got 2"),
    (lambda: qkernels.pad(X, [-2, 0, -1, 0]), ValueError, "pad: pads: cannot cut"),
    (lambda: qkernels.pad(X, [0] * 4, mode="mirror"), ValueError, "pad: mode: expected constant"),
    (lambda: qkernels.trilu(X[0]), ValueError, "trilu: x: expected at least 2 dimensions"),
    (lambda: qkernels.flatten(X, axis=3), ValueError, "flatten: axis: expected -2 to 2"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
