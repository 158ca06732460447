"""Every kernel in one table: what it implements, where it lives, what feeds its tests, benchmarks and documentation.

``python -m qkernels.registry`` prints the operators' page of the documentation (docs/operators.md).
"""
import dataclasses
import importlib

FLOATS = ("float32", "float16", "bfloat16")
WITH_DOUBLE = (*FLOATS, "float64")
NUMBERS = (*WITH_DOUBLE, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_INTEGERS = NUMBERS[4:]
_BOOL = ("bool",)
CODES = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4", "int2", "uint2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
         "float8_e5m2fnuz", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")
_PRODUCTS = (*WITH_DOUBLE, "int32", "int64", "uint32", "uint64")
EVERY = (*NUMBERS, "bool", *CODES[5:], "float8_e8m0fnu")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One registered function.

    Attributes
    ----------
    name : str
        Where it is found below ``qkernels``: "rms_normalization", "contrib.rotary_embedding".
    family : str
        Its extension module and its folder in csrc.
    dtypes : tuple of str
        Element types of its main input that the tests cover.
    summary : str
        One line for the documentation.
    domain, op_type, versions
        The ONNX operator and the since-versions of it that the function implements; domain None where ONNX has no such operator.
    layout : bool
        Pure data movement: needs no benchmark.
    """

    name: str
    family: str
    dtypes: tuple
    summary: str
    domain: str | None = None
    op_type: str | None = None
    versions: tuple = ()
    layout: bool = False

    @property
    def function(self):
        """The callable itself."""
        *path, last = self.name.split(".")
        return getattr(importlib.import_module(".".join(["qkernels", *path])), last)


KERNELS = (
    # elementwise
    Kernel("add", "elementwise", NUMBERS, "a + b with broadcasting", "", "Add", (13, 14)),
    Kernel("sub", "elementwise", NUMBERS, "a - b with broadcasting", "", "Sub", (13, 14)),
    Kernel("mul", "elementwise", NUMBERS, "a · b with broadcasting", "", "Mul", (13, 14)),
    Kernel("sigmoid", "elementwise", WITH_DOUBLE, "1 / (1 + exp(-x))", "", "Sigmoid", (13,)),
    Kernel("silu", "elementwise", WITH_DOUBLE, "x · sigmoid(α · x)"),
    Kernel("silu_mul", "elementwise", FLOATS, "silu(gate) · up in one pass"),
    # attention
    Kernel("attention", "attention", FLOATS, "softmax(softcap(q · kᵀ · scale) + mask) · v with grouped heads, past and present",
           "", "Attention", (23, 24, 25)),
    Kernel("group_query_attention", "attention", FLOATS, "norms, rotation, append to a cache of floats or codes, causal attention",
           "com.microsoft", "GroupQueryAttention", (1,)),
    Kernel("contrib.attention", "contrib_attention", FLOATS, "projection to q, k and v, masks of every shape, past and present, attention",
           "com.microsoft", "Attention", (1,)),
    Kernel("multi_head_attention", "contrib_attention", FLOATS, "q, k and v separate or side by side, bias, masks, past and present, attention",
           "com.microsoft", "MultiHeadAttention", (1,)),
    Kernel("sparse_attention", "contrib_attention", FLOATS, "rotation, append to a cache, causal attention of blocks to the blocks that a layout shows",
           "com.microsoft", "SparseAttention", (1,)),
    Kernel("paged_attention", "contrib_attention", FLOATS, "norms, rotation, append to a cache in pages, attention of packed sequences",
           "com.microsoft", "PagedAttention", (1,)),
    Kernel("qattention", "contrib_attention", ("uint8",), "exact int32 projection of bytes to q, k and v, masked attention in float32",
           "com.microsoft", "QAttention", (1,)),
    Kernel("PackedQAttention", "contrib_attention", ("uint8",), "a constant weight of qattention, prepared once"),
    Kernel("cached_attention", "attention", ("float32",), "a decoder layer's norm and rotation of q and k, append to the cache, causal attention"),
    Kernel("swish", "elementwise", WITH_DOUBLE, "silu under its ONNX name", "", "Swish", (24,)),
    Kernel("swiglu", "elementwise", WITH_DOUBLE, "swish(a) · b in one pass", "", "SwiGLU", (28,)),
    Kernel("div", "elementwise", NUMBERS, "a / b with broadcasting, integers toward zero", "", "Div", (13, 14)),
    Kernel("pow", "elementwise", (*WITH_DOUBLE, "int32", "int64"), "a to the power b, whatever type b has", "", "Pow", (13, 15)),
    Kernel("neg", "elementwise", (*WITH_DOUBLE, "int8", "int16", "int32", "int64"), "-x", "", "Neg", (13,)),
    Kernel("sqrt", "elementwise", WITH_DOUBLE, "square root", "", "Sqrt", (13,)),
    Kernel("exp", "elementwise", WITH_DOUBLE, "e to the power x", "", "Exp", (13,)),
    Kernel("log", "elementwise", WITH_DOUBLE, "natural logarithm", "", "Log", (13,)),
    Kernel("sin", "elementwise", WITH_DOUBLE, "sine", "", "Sin", (7, 22)),
    Kernel("cos", "elementwise", WITH_DOUBLE, "cosine", "", "Cos", (7, 22)),
    Kernel("tanh", "elementwise", WITH_DOUBLE, "hyperbolic tangent", "", "Tanh", (13,)),
    Kernel("erf", "elementwise", WITH_DOUBLE, "error function", "", "Erf", (13,)),
    Kernel("reciprocal", "elementwise", WITH_DOUBLE, "1 / x", "", "Reciprocal", (13,)),
    Kernel("softplus", "elementwise", WITH_DOUBLE, "log(1 + exp(x))", "", "Softplus", (1, 22)),
    Kernel("abs", "elementwise", NUMBERS, "absolute value", "", "Abs", (13,)),
    Kernel("ceil", "elementwise", WITH_DOUBLE, "rounded up", "", "Ceil", (13,)),
    Kernel("clip", "elementwise", NUMBERS, "limited to an interval", "", "Clip", (13,)),
    Kernel("floor", "elementwise", WITH_DOUBLE, "rounded down", "", "Floor", (13,)),
    Kernel("relu", "elementwise", (*WITH_DOUBLE, "int8", "int16", "int32", "int64"), "the larger of x and 0", "", "Relu", (13, 14)),
    Kernel("round", "elementwise", WITH_DOUBLE, "rounded to nearest, halves to even", "", "Round", (11, 22)),
    Kernel("sign", "elementwise", NUMBERS, "-1, 0 or 1", "", "Sign", (13,)),
    Kernel("leaky_relu", "elementwise", WITH_DOUBLE, "x, or α · x where negative", "", "LeakyRelu", (6, 16)),
    Kernel("thresholded_relu", "elementwise", WITH_DOUBLE, "x where above α, else 0", "", "ThresholdedRelu", (10, 22)),
    Kernel("prelu", "elementwise", (*WITH_DOUBLE, "int32", "int64", "uint32", "uint64"), "x, or slope · x where negative", "", "PRelu", (9, 16)),
    Kernel("elu", "elementwise", WITH_DOUBLE, "x, or α · (exp(x) - 1) where negative", "", "Elu", (6, 22)),
    Kernel("celu", "elementwise", WITH_DOUBLE, "x, or α · (exp(x / α) - 1) where negative", "", "Celu", (12, 28)),
    Kernel("selu", "elementwise", WITH_DOUBLE, "γ · x, or γ · α · (exp(x) - 1) where negative", "", "Selu", (6, 22)),
    Kernel("softsign", "elementwise", WITH_DOUBLE, "x / (1 + |x|)", "", "Softsign", (1, 22)),
    Kernel("mish", "elementwise", WITH_DOUBLE, "x · tanh(log(1 + exp(x)))", "", "Mish", (18, 22)),
    Kernel("hard_sigmoid", "elementwise", WITH_DOUBLE, "α · x + β, limited to 0 to 1", "", "HardSigmoid", (6, 22)),
    Kernel("hard_swish", "elementwise", WITH_DOUBLE, "x · min(max(x + 3, 0), 6) / 6", "", "HardSwish", (14, 22)),
    Kernel("gelu", "elementwise", WITH_DOUBLE, "x · Φ(x), or its tanh approximation", "", "Gelu", (20,)),
    Kernel("contrib.gelu", "elementwise", WITH_DOUBLE, "x · Φ(x)", "com.microsoft", "Gelu", (1,)),
    Kernel("quick_gelu", "elementwise", WITH_DOUBLE, "x · sigmoid(1.702 · x)", "com.microsoft", "QuickGelu", (1,)),
    Kernel("bias_gelu", "elementwise", WITH_DOUBLE, "gelu(x + bias)", "com.microsoft", "BiasGelu", (1,)),
    Kernel("fast_gelu", "elementwise", WITH_DOUBLE, "gelu(x + bias) by tanh", "com.microsoft", "FastGelu", (1,)),
    # layout
    Kernel("gather", "layout", EVERY, "rows of an array, or of packed weights, by index",
           "", "Gather", (13,), layout=True),
    Kernel("cast", "layout", EVERY, "conversion between element types",
           "", "Cast", (13, 19, 21, 23, 24, 25, 28), layout=True),
    # normalization
    Kernel("rms_normalization", "normalization", WITH_DOUBLE, "x / sqrt(mean(x²) + ε) · scale", "", "RMSNormalization", (23,)),
    Kernel("simplified_layer_normalization", "normalization", WITH_DOUBLE, "the same, with the inverse root as second output",
           "", "SimplifiedLayerNormalization", (1,)),
    Kernel("skip_simplified_layer_normalization", "normalization", FLOATS, "residual sum and RMS normalization in one pass",
           "com.microsoft", "SkipSimplifiedLayerNormalization", (1,)),
    Kernel("layer_normalization", "normalization", WITH_DOUBLE, "(x - mean) / sqrt(variance + ε) · scale + bias", "", "LayerNormalization", (17,)),
    # reduction
    Kernel("reduce_sum", "reduction", (*WITH_DOUBLE, "int32", "int64", "uint32", "uint64"), "sum over axes, rounded once", "", "ReduceSum", (13,)),
    Kernel("reduce_mean", "reduction", (*WITH_DOUBLE, "int32", "int64", "uint32", "uint64"), "mean over axes, rounded once", "", "ReduceMean", (13, 18)),
    Kernel("reduce_max", "reduction", (*NUMBERS, "bool"), "maximum over axes, NaN before all", "", "ReduceMax", (13, 18, 20)),
    # matmul
    Kernel("matmul", "matmul", _PRODUCTS, "matrix product with NumPy's batches; float64 and integers by NumPy", "", "MatMul", (13,)),
    Kernel("gemm", "matmul", _PRODUCTS, "α · A' · B' + β · C; float64 and integers by NumPy", "", "Gemm", (13,)),
    Kernel("PackedMatrix", "matmul", FLOATS, "a constant float32, float16 or bfloat16 matrix, prepared for products"),
    # matmul_nbits
    Kernel("matmul_nbits", "matmul_nbits", FLOATS, "product with block-quantized weights", "com.microsoft", "MatMulNBits", (1,)),
    Kernel("PackedNBits", "matmul_nbits", FLOATS, "block-quantized weights of 2, 4 or 8 bits, prepared for products"),
    Kernel("PackedInt8Rows", "matmul_nbits", FLOATS, "int8 weights with a scale per output row, prepared for products"),
    Kernel("quantize_nbits", "matmul_nbits", FLOATS, "weights to 2, 4 or 8 bits in blocks, rounded to nearest"),
    # quantization
    Kernel("quantize_linear", "quantization", (*FLOATS, "int32"), "codes of values by a scale and a zero point; float results through ml_dtypes",
           "", "QuantizeLinear", (13, 19, 21, 23, 24, 25, 28)),
    Kernel("dequantize_linear", "quantization", CODES, "values of codes; float codes through a table", "", "DequantizeLinear",
           (13, 19, 21, 23, 24, 25, 28)),
    Kernel("dynamic_quantize_linear", "quantization", ("float32",), "uint8 codes of the values' own range", "", "DynamicQuantizeLinear", (11,)),
    Kernel("matmul_integer", "quantization", ("uint8", "int8"), "8-bit product, exact in int32", "", "MatMulInteger", (10,)),
    Kernel("qlinear_matmul", "quantization", ("uint8", "int8", *CODES[9:13]), "8-bit product with a quantized result; float8 through float32",
           "", "QLinearMatMul", (10, 21)),
    Kernel("PackedInt8Matrix", "quantization", ("uint8", "int8"), "a constant 8-bit matrix, prepared for integer products"),
    Kernel("gather_block_quantized", "quantization", (*CODES[:2], "int4", "uint4", *CODES[9:14]), "entries of block-quantized data, dequantized",
           "com.microsoft", "GatherBlockQuantized", (1,)),
    Kernel("pack_int4", "quantization", ("int4", "uint4"), "4-bit elements as bytes, low nibble first", layout=True),
    Kernel("unpack_int4", "quantization", ("int4", "uint4"), "the elements of such bytes", layout=True),
    # rotary
    Kernel("rotary_embedding", "rotary", FLOATS, "pairs of each head's elements turned by the position's angles", "", "RotaryEmbedding", (23,)),
    Kernel("contrib.rotary_embedding", "rotary", FLOATS, "the same with a start position or one per token", "com.microsoft", "RotaryEmbedding", (1,)),
    # recurrent
    Kernel("linear_attention", "recurrent", FLOATS, "attention by a state that each token decays, corrects and extends", "", "LinearAttention", (27,)),
    Kernel("causal_conv_with_state", "recurrent", FLOATS, "each channel's own few taps over past and present positions", "", "CausalConvWithState", (27,)),
    # sampling
    Kernel("argmax", "sampling", NUMBERS, "index of the largest element, NaN before all", "", "ArgMax", (13,)),
    Kernel("sample", "sampling", FLOATS, "repetition penalty, temperature, top-k, top-p, min-p and a draw that seed and step determine"),
    # softmax
    Kernel("softmax", "softmax", WITH_DOUBLE, "exponentials that sum to 1 along an axis", "", "Softmax", (13,)),
    Kernel("log_softmax", "softmax", WITH_DOUBLE, "the logarithm of softmax", "", "LogSoftmax", (13,)),
    # numpy: views and bookkeeping, NumPy itself
    Kernel("cast_like", "numpy", EVERY, "conversion to the element type of another array", "", "CastLike", (15, 19, 21, 23, 24, 25), layout=True),
    Kernel("concat", "numpy", EVERY, "arrays joined along an axis", "", "Concat", (13,), layout=True),
    Kernel("constant", "numpy", EVERY, "a constant", "", "Constant", (13, 19, 21, 23, 24, 25), layout=True),
    Kernel("constant_of_shape", "numpy", EVERY, "an array of one value", "", "ConstantOfShape", (9, 20, 21, 23, 24, 25), layout=True),
    Kernel("expand", "numpy", EVERY, "broadcasting, as a view", "", "Expand", (13,), layout=True),
    Kernel("flatten", "numpy", EVERY, "a matrix of the leading and the other axes", "", "Flatten", (13, 21, 23, 24, 25), layout=True),
    Kernel("gather_elements", "numpy", EVERY, "elements by index along an axis", "", "GatherElements", (13,), layout=True),
    Kernel("gather_nd", "numpy", EVERY, "slices by index tuples", "", "GatherND", (13,), layout=True),
    Kernel("identity", "numpy", EVERY, "the array itself", "", "Identity", (13, 14, 16, 19, 21, 23, 24, 25), layout=True),
    Kernel("pad", "numpy", EVERY, "growth at the ends, or cuts", "", "Pad", (13, 18, 19, 21, 23, 24, 25), layout=True),
    Kernel("range", "numpy", (*FLOATS, "float64", "int16", "int32", "int64"), "start, start + delta, …", "", "Range", (11, 27), layout=True),
    Kernel("reshape", "numpy", EVERY, "another shape, as a view where strides allow", "", "Reshape", (13, 14, 19, 21, 23, 24, 25), layout=True),
    Kernel("scatter_elements", "numpy", EVERY, "elements written by index along an axis", "", "ScatterElements", (13, 16, 18), layout=True),
    Kernel("scatter_nd", "numpy", EVERY, "slices written by index tuples", "", "ScatterND", (13, 16, 18), layout=True),
    Kernel("shape", "numpy", EVERY, "the sizes of the axes", "", "Shape", (13, 15, 19, 21, 23, 24, 25), layout=True),
    Kernel("size", "numpy", EVERY, "the number of elements", "", "Size", (13, 19, 21, 23, 24, 25), layout=True),
    Kernel("slice", "numpy", EVERY, "every n-th element of a range, as a view", "", "Slice", (13,), layout=True),
    Kernel("split", "numpy", EVERY, "parts along an axis, as views", "", "Split", (13, 18), layout=True),
    Kernel("squeeze", "numpy", EVERY, "axes of size 1 dropped, as a view", "", "Squeeze", (13, 21, 23, 24, 25), layout=True),
    Kernel("tensor_scatter", "numpy", EVERY, "an update written into a copy of a cache", "", "TensorScatter", (24,), layout=True),
    Kernel("tile", "numpy", EVERY, "repetition along each axis", "", "Tile", (13,), layout=True),
    Kernel("transpose", "numpy", EVERY, "axes in another order, as a view", "", "Transpose", (13, 21, 23, 24, 25), layout=True),
    Kernel("trilu", "numpy", EVERY, "a triangle of the last two axes", "", "Trilu", (14,), layout=True),
    Kernel("unsqueeze", "numpy", EVERY, "new axes of size 1, as a view", "", "Unsqueeze", (13, 21, 23, 24, 25), layout=True),
    # numpy: logic and comparisons, NumPy itself
    Kernel("and_", "numpy", _BOOL, "logical and", "", "And", (7,), layout=True),
    Kernel("bitwise_and", "numpy", _INTEGERS, "bitwise and", "", "BitwiseAnd", (18,), layout=True),
    Kernel("bitwise_not", "numpy", _INTEGERS, "bits inverted", "", "BitwiseNot", (18,), layout=True),
    Kernel("bitwise_or", "numpy", _INTEGERS, "bitwise or", "", "BitwiseOr", (18,), layout=True),
    Kernel("bitwise_xor", "numpy", _INTEGERS, "bitwise exclusive or", "", "BitwiseXor", (18,), layout=True),
    Kernel("cumsum", "numpy", (*WITH_DOUBLE, "int32", "int64", "uint32", "uint64"), "running sums along an axis", "", "CumSum", (11, 14), layout=True),
    Kernel("equal", "numpy", (*NUMBERS, "bool"), "a = b", "", "Equal", (13, 19), layout=True),
    Kernel("greater", "numpy", NUMBERS, "a > b", "", "Greater", (13,), layout=True),
    Kernel("greater_or_equal", "numpy", NUMBERS, "a ≥ b", "", "GreaterOrEqual", (12, 16), layout=True),
    Kernel("is_inf", "numpy", (*WITH_DOUBLE, *CODES[9:13]), "whether infinite", "", "IsInf", (10, 20), layout=True),
    Kernel("is_nan", "numpy", (*WITH_DOUBLE, *CODES[9:13]), "whether NaN", "", "IsNaN", (13, 20), layout=True),
    Kernel("less", "numpy", NUMBERS, "a < b", "", "Less", (13,), layout=True),
    Kernel("less_or_equal", "numpy", NUMBERS, "a ≤ b", "", "LessOrEqual", (12, 16), layout=True),
    Kernel("max", "numpy", NUMBERS, "the largest of several", "", "Max", (13,), layout=True),
    Kernel("min", "numpy", NUMBERS, "the smallest of several", "", "Min", (13,), layout=True),
    Kernel("mod", "numpy", NUMBERS, "rest of a division", "", "Mod", (13, 28), layout=True),
    Kernel("not_", "numpy", _BOOL, "logical not", "", "Not", (1,), layout=True),
    Kernel("or_", "numpy", _BOOL, "logical or", "", "Or", (7,), layout=True),
    Kernel("topk", "numpy", NUMBERS, "the k largest or smallest and their indices", "", "TopK", (11, 24), layout=True),
    Kernel("where", "numpy", (*NUMBERS, "bool"), "x or y by a condition", "", "Where", (9, 16), layout=True),
    Kernel("xor", "numpy", _BOOL, "logical exclusive or", "", "Xor", (7,), layout=True),
)


def find(op_type, domain="", opset=None):
    """The row of an ONNX operator for the version that is in force at `opset` (None: the newest), or None."""
    rows = [(max(v for v in k.versions if opset is None or v <= opset), k) for k in KERNELS
            if k.op_type == op_type and k.domain == domain and (opset is None or min(k.versions) <= opset)]
    return max(rows, key=lambda row: row[0], default=(0, None))[1]


# families in the order of the page: heading and a sentence
FAMILIES = {
    "matmul": ("Matrix products", "Floats; everything is summed in float32."),
    "matmul_nbits": ("Block-quantized products", "Weights in 2, 4 or 8 bits, read as they are."),
    "quantization": ("Linear quantization", "Codes from values, values from codes, exact integer products."),
    "attention": ("Attention", "Scores, masks, softmax and values in one pass over the keys."),
    "contrib_attention": ("Attention of com.microsoft", "The other operators on the engine of `attention`."),
    "recurrent": ("Recurrence", "A state carried from token to token, and from call to call."),
    "rotary": ("Rotary position embedding", "Pairs turned by their position's angles."),
    "normalization": ("Normalization", "Rows by their root mean square, or by mean and variance."),
    "softmax": ("Softmax", "Exponentials over their sum."),
    "reduction": ("Reductions", "Along any axes, in one order on every machine."),
    "elementwise": ("Elementwise", "Arithmetic with broadcasting, and functions of single elements."),
    "sampling": ("Sampling", "From logits to a token."),
    "layout": ("Data movement", "Rows picked by index, conversions between types."),
    "numpy": ("Views, bookkeeping, comparisons and logic", "NumPy itself, with ONNX's meaning, checks and errors: no kernels of ours."),
}
_GROUPS = ((EVERY, "every type"), (NUMBERS, "all numbers"), (WITH_DOUBLE, "all floats"), (FLOATS, "floats"), (_INTEGERS, "all integers"))


def _dtypes(dtypes):
    """Types with the largest group among them by its name."""
    for group, name in _GROUPS:
        if {*group} <= {*dtypes}:
            return ", ".join([name, *(d for d in dtypes if d not in group)])
    return ", ".join(dtypes)


def markdown():
    """The operators' page."""
    lines = ["# Operators", "", "Made by `python -m qkernels.registry`; do not edit.", "",
             f"*Floats* are {', '.join(FLOATS)}; *all floats* float64 besides; *all integers* int8 to int64 and uint8 to uint64; *all numbers* both; "
             "*every type* bool and the types of 8 bits and less besides, from float8_e4m3fn to int2. *Since* are the operator's versions that the "
             "function implements. A family is an extension module of its own; what a function of *Data movement* or of the last table does is no timed "
             "kernel.", ""]
    for family, (heading, sentence) in FAMILIES.items():
        lines += [f"## {heading}", "", f"`{family}`. {sentence}", "", "| function | operator | since | dtypes | what it does |", "|---|---|---|---|---|"]
        for k in KERNELS:
            if k.family == family:
                operator = f"{k.domain or 'ai.onnx'} {k.op_type}" if k.op_type else "—"
                lines.append(f"| `{k.name}` | {operator} | {', '.join(map(str, k.versions)) or '—'} | {_dtypes(k.dtypes)} | {k.summary} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    from qkernels._console import run

    run(lambda: print(markdown(), end=""))
