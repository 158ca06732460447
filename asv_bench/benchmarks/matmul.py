"""Products with float weights at the shapes of Qwen3-0.6B: o_proj, and gate and up together."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, from_memory, giga_macs_per_second, normal, onnxruntime_node, peer

S = QWEN3["0.6B"]
SHAPES = {"o_proj": (S.heads * S.head_size, S.hidden), "gate_up": (S.hidden, 2 * S.intermediate)}


class PackedMatrix:
    """Weights come from memory, as in a model of many layers."""

    kernels = ("PackedMatrix",)
    params = [[1, 8, 128], list(SHAPES), list(DTYPES), ["qkernels", "numpy", "torch"]]
    param_names = ["rows", "weights", "dtype", "who"]

    def setup(self, rows, weights, dtype, who):
        k, n = SHAPES[weights]
        x, w = normal(rows, k), normal(k, n, dtype=dtype, seed=1)
        self.macs = rows, n, k
        if who == "qkernels":
            assert_tier("matmul")
            following, out = from_memory(lambda: qkernels.PackedMatrix(w), w.nbytes), np.empty((rows, n), np.float32)
            self.call = lambda: following()(x, out=out)
        elif who == "numpy":
            if dtype != "f32":
                raise NotImplementedError("float32 only")
            following = from_memory(w.copy, w.nbytes)
            self.call = lambda: x @ following()
        else:
            torch = peer("torch")
            of = lambda a: torch.from_numpy(a.astype(np.float32)).to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype])
            following, t = from_memory(lambda: of(w).T.contiguous(), w.nbytes), of(x)
            self.call = lambda: torch.nn.functional.linear(t, following())
        self.call()

    def time_product(self, rows, weights, dtype, who):
        self.call()

    def track_giga_macs_per_second(self, rows, weights, dtype, who):
        return giga_macs_per_second(self.call, *self.macs)
    track_giga_macs_per_second.unit = "GMAC/s"


class MatMul:
    kernels = ("matmul",)
    params = [[(128, 1024, 1024), (512, 128, 512)], ["f32", "bf16"], ["qkernels", "numpy", "torch"]]
    param_names = ["m, k, n", "dtype", "who"]

    def setup(self, shape, dtype, who):
        m, k, n = shape
        a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
        self.macs = m, n, k
        if who == "qkernels":
            assert_tier("matmul")
            self.call = lambda: qkernels.matmul(a, b)
        elif who == "numpy":
            if dtype != "f32":
                raise NotImplementedError("float32 only")
            self.call = lambda: a @ b
        else:
            torch = peer("torch")
            ta, tb = (torch.from_numpy(x.astype(np.float32)).to(torch.float32 if dtype == "f32" else torch.bfloat16) for x in (a, b))
            self.call = lambda: ta @ tb
        self.call()

    def time_product(self, shape, dtype, who):
        self.call()

    def track_giga_macs_per_second(self, shape, dtype, who):
        return giga_macs_per_second(self.call, *self.macs)
    track_giga_macs_per_second.unit = "GMAC/s"


class Gemm:
    """alpha, beta and a bias on a product of variable matrices."""

    kernels = ("gemm",)
    params = [["f32", "bf16"], [1.0, 0.5], ["qkernels", "onnxruntime"]]
    param_names = ["dtype", "alpha", "who"]

    def setup(self, dtype, alpha, who):
        a, b, c = normal(128, S.hidden, dtype=dtype), normal(S.hidden, S.hidden, dtype=dtype, seed=1), normal(S.hidden, dtype=dtype, seed=2)
        self.macs = 128, S.hidden, S.hidden
        if who == "qkernels":
            assert_tier("matmul")
            self.call = lambda: qkernels.gemm(a, b, c, alpha=alpha, transB=1)
        else:
            if dtype != "f32":
                raise NotImplementedError("float32 only")
            self.call = onnxruntime_node("", "Gemm", {"a": a, "b": b, "c": c}, alpha=alpha, transB=1)
        self.call()

    def time_product(self, dtype, alpha, who):
        self.call()

    def track_giga_macs_per_second(self, dtype, alpha, who):
        return giga_macs_per_second(self.call, *self.macs)
    track_giga_macs_per_second.unit = "GMAC/s"
