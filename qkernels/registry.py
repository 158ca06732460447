"""Every kernel in one table: what it implements, where it lives, what feeds its tests, benchmarks and documentation.

``python -m qkernels.registry`` prints the operators' page of the documentation (docs/operators.md).
"""
import dataclasses
import importlib

FLOATS = ("float32", "float16", "bfloat16")
WITH_DOUBLE = (*FLOATS, "float64")
NUMBERS = (*WITH_DOUBLE, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


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
    Kernel("add", "elementwise", NUMBERS, "a + b with broadcasting", "", "Add", (14,)),
    Kernel("sub", "elementwise", NUMBERS, "a - b with broadcasting", "", "Sub", (14,)),
    Kernel("mul", "elementwise", NUMBERS, "a · b with broadcasting", "", "Mul", (14,)),
    Kernel("sigmoid", "elementwise", WITH_DOUBLE, "1 / (1 + exp(-x))", "", "Sigmoid", (13,)),
    Kernel("silu", "elementwise", WITH_DOUBLE, "x · sigmoid(α · x)"),
    Kernel("silu_mul", "elementwise", FLOATS, "silu(gate) · up in one pass"),
    # attention
    Kernel("attention", "attention", FLOATS, "softmax(softcap(q · kᵀ · scale) + mask) · v with grouped heads, past and present", "", "Attention", (23,)),
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
    Kernel("gelu", "elementwise", WITH_DOUBLE, "x · Φ(x), or its tanh approximation", "", "Gelu", (20,)),
    Kernel("contrib.gelu", "elementwise", WITH_DOUBLE, "x · Φ(x)", "com.microsoft", "Gelu", (1,)),
    Kernel("quick_gelu", "elementwise", WITH_DOUBLE, "x · sigmoid(1.702 · x)", "com.microsoft", "QuickGelu", (1,)),
    Kernel("bias_gelu", "elementwise", FLOATS, "gelu(x + bias)", "com.microsoft", "BiasGelu", (1,)),
    Kernel("fast_gelu", "elementwise", FLOATS, "gelu(x + bias) by tanh", "com.microsoft", "FastGelu", (1,)),
    # layout
    Kernel("gather", "layout", (*FLOATS, "float64", "int8", "int32", "int64"), "rows of an array, or of packed weights, by index",
           "", "Gather", (13,), layout=True),
    Kernel("cast", "layout", (*FLOATS, "float64", "int8", "int32", "int64"), "conversion between element types", "", "Cast", (13,), layout=True),
    # normalization
    Kernel("rms_normalization", "normalization", FLOATS, "x / sqrt(mean(x²) + ε) · scale", "", "RMSNormalization", (23,)),
    Kernel("simplified_layer_normalization", "normalization", FLOATS, "the same, with the inverse root as second output",
           "", "SimplifiedLayerNormalization", (1,)),
    Kernel("skip_simplified_layer_normalization", "normalization", FLOATS, "residual sum and RMS normalization in one pass",
           "com.microsoft", "SkipSimplifiedLayerNormalization", (1,)),
    Kernel("layer_normalization", "normalization", WITH_DOUBLE, "(x - mean) / sqrt(variance + ε) · scale + bias", "", "LayerNormalization", (17,)),
    # reduction
    Kernel("reduce_sum", "reduction", (*WITH_DOUBLE, "int32", "int64", "uint32", "uint64"), "sum over axes, rounded once", "", "ReduceSum", (13,)),
    Kernel("reduce_mean", "reduction", (*WITH_DOUBLE, "int32", "int64", "uint32", "uint64"), "mean over axes, rounded once", "", "ReduceMean", (13, 18)),
    Kernel("reduce_max", "reduction", (*NUMBERS, "bool"), "maximum over axes, NaN before all", "", "ReduceMax", (13, 18, 20)),
    # matmul
    Kernel("matmul", "matmul", FLOATS, "matrix product with NumPy's batches", "", "MatMul", (13,)),
    Kernel("PackedMatrix", "matmul", FLOATS, "a constant float32, float16 or bfloat16 matrix, prepared for products"),
    # matmul_nbits
    Kernel("matmul_nbits", "matmul_nbits", FLOATS, "product with block-quantized weights", "com.microsoft", "MatMulNBits", (1,)),
    Kernel("PackedNBits", "matmul_nbits", FLOATS, "block-quantized weights of 4 or 8 bits, prepared for products"),
    Kernel("PackedInt8Rows", "matmul_nbits", FLOATS, "int8 weights with a scale per output row, prepared for products"),
    Kernel("quantize_nbits", "matmul_nbits", FLOATS, "weights to 4 or 8 bits in blocks, rounded to nearest"),
    # rotary
    Kernel("rotary_embedding", "rotary", FLOATS, "pairs of each head's elements turned by the position's angles", "", "RotaryEmbedding", (23,)),
    Kernel("contrib.rotary_embedding", "rotary", FLOATS, "the same with a start position or one per token", "com.microsoft", "RotaryEmbedding", (1,)),
    # sampling
    Kernel("argmax", "sampling", FLOATS, "index of the largest element, NaN before all", "", "ArgMax", (13,)),
    Kernel("sample", "sampling", FLOATS, "repetition penalty, temperature, top-k, top-p, min-p and a draw that seed and step determine"),
    # softmax
    Kernel("softmax", "softmax", WITH_DOUBLE, "exponentials that sum to 1 along an axis", "", "Softmax", (13,)),
    Kernel("log_softmax", "softmax", WITH_DOUBLE, "the logarithm of softmax", "", "LogSoftmax", (13,)),
)


def find(op_type, domain="", opset=None):
    """The row of an ONNX operator for the version that is in force at `opset` (None: the newest), or None."""
    rows = [(max(v for v in k.versions if opset is None or v <= opset), k) for k in KERNELS
            if k.op_type == op_type and k.domain == domain and (opset is None or min(k.versions) <= opset)]
    return max(rows, key=lambda row: row[0], default=(0, None))[1]


def markdown():
    """The operators' page."""
    lines = ["# Operators", "", "Made by `python -m qkernels.registry`; do not edit.", "",
             "| function | family | operator | since | dtypes | what it does |", "|---|---|---|---|---|---|"]
    for k in KERNELS:
        operator = f"{k.domain or 'ai.onnx'} {k.op_type}" if k.op_type else "—"
        lines.append(f"| `{k.name}` | {k.family}{' (layout)' if k.layout else ''} | {operator} | {', '.join(map(str, k.versions)) or '—'} "
                     f"| {', '.join(k.dtypes)} | {k.summary} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
