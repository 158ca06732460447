"""Products with quantized weights at the shapes of Qwen3-0.6B and its 151,936-row head."""
import numpy as np

import qkernels

from .common import QWEN3, Compared, assert_tier, from_memory, giga_macs_per_second, gigabytes_per_second, normal, onnxruntime_node

S = QWEN3["0.6B"]
SHAPES = {"o_proj": (S.hidden, S.heads * S.head_size), "gate_up": (2 * S.intermediate, S.hidden), "head": (S.vocabulary, S.hidden)}  # (N, K)
WHO = ["qkernels f32", "qkernels int16", "qkernels int8", "onnxruntime level 0", "onnxruntime level 4"]


class MatMulNBits:
    """4 bits, blocks of 32. qkernels' weights come from memory; ONNX Runtime's single node may keep small ones in the cache, which flatters it."""

    kernels = ("PackedNBits", "matmul_nbits")
    params = [[1, 8, 128], list(SHAPES), WHO]
    param_names = ["rows", "weights", "who"]
    timeout = 300

    def setup(self, rows, weights, who):
        n, k = SHAPES[weights]
        if rows > 8 and weights == "head":
            raise NotImplementedError("no decoder does this")
        x = normal(rows, k)
        b, scales, _ = qkernels.quantize_nbits(normal(n, k, seed=1))
        scales = np.asarray(scales, np.float32)
        self.macs, self.nbytes = (rows, n, k), b.nbytes + scales.nbytes
        who, kind = who.split(" ", 1)
        if who == "qkernels":
            assert_tier("matmul_nbits")
            following = from_memory(lambda: qkernels.PackedNBits(b, scales, K=k, N=n), self.nbytes)
            out = np.empty((rows, n), np.float32)
            self.call = lambda: following()(x, activations=kind, out=out)
        else:
            node = {"x": x, "b": b, "scales": scales.reshape(n, -1)}
            self.call = onnxruntime_node("com.microsoft", "MatMulNBits", node, constants=["b", "scales"], K=k, N=n, bits=4, block_size=32,
                                         accuracy_level=int(kind[-1]))
        self.call()

    def time_product(self, rows, weights, who):
        self.call()

    def peakmem_product(self, rows, weights, who):
        self.call()

    def track_giga_macs_per_second(self, rows, weights, who):
        return giga_macs_per_second(self.call, *self.macs)
    track_giga_macs_per_second.unit = "GMAC/s"

    def track_gigabytes_per_second(self, rows, weights, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"


def projections(shape):
    """(N, K) of a decoder's products: query, key and value together, the attention's output, gate and up together, down, head."""
    query, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    return {"qkv": (query + 2 * kv, shape.hidden), "o_proj": (shape.hidden, query), "gate_up": (2 * shape.intermediate, shape.hidden),
            "down": (shape.hidden, shape.intermediate), "head": (shape.vocabulary, shape.hidden)}


ALL_SHAPES = {f"{model} {name}": nk for model, shape in QWEN3.items() for name, nk in projections(shape).items()}


class Projections(Compared):
    """Every product of two models, one matrix again and again: what fits the caches stays in them, for the peer as well, which is asked for
    accuracy_level 4."""

    kernels = ("PackedNBits", "matmul_nbits")
    family = "matmul_nbits"
    params = [[1, 2, 4, 8, 16, 32, 128, 512], list(ALL_SHAPES), ["int8", "int16"], Compared.THREADS, ["qkernels", "onnxruntime"]]
    param_names = ["rows", "weights", "activations", "threads", "who"]
    timeout = 300

    def arrays(self, rows, weights):
        n, k = ALL_SHAPES[weights]
        random = np.random.default_rng(1)
        # scales are exact in bfloat16, as those of a model born in it
        return (normal(rows, k), np.frombuffer(random.bytes(n * k // 2), np.uint8).reshape(n, k // 32, 16),
                random.integers(1, 256, (n, k // 32)).astype(np.float32), n, k)

    def nbytes(self, rows, weights, activations):
        n, k = ALL_SHAPES[weights]
        return n * k * 18 // 32 + 4 * rows * (n + k)

    def qkernels(self, rows, weights, activations):
        x, b, scales, n, k = self.arrays(rows, weights)
        w, out = qkernels.PackedNBits(b, scales, K=k, N=n), np.empty((rows, n), np.float32)
        return lambda: w(x, activations=activations, out=out)

    def onnxruntime(self, rows, weights, activations):
        x, b, scales, n, k = self.arrays(rows, weights)
        return onnxruntime_node("com.microsoft", "MatMulNBits", {"x": x, "b": b, "scales": scales}, constants=["b", "scales"], K=k, N=n, bits=4,
                                block_size=32, accuracy_level=4)

    def track_giga_macs_per_second(self, rows, weights, activations, threads, who):
        return giga_macs_per_second(self.call, rows, *ALL_SHAPES[weights])
    track_giga_macs_per_second.unit = "GMAC/s"


class Int8Rows:
    kernels = ("PackedInt8Rows",)
    params = [[1, 128], ["o_proj", "gate_up"], ["f32", "int16", "int8"]]
    param_names = ["rows", "weights", "activations"]

    def setup(self, rows, weights, activations):
        n, k = SHAPES[weights]
        assert_tier("matmul_nbits")
        x, w = normal(rows, k), normal(n, k, seed=1)
        following, out = from_memory(lambda: qkernels.PackedInt8Rows(w), n * k), np.empty((rows, n), np.float32)
        self.call = lambda: following()(x, activations=activations, out=out)
        self.macs = rows, n, k
        self.call()

    def time_product(self, rows, weights, activations):
        self.call()

    def track_giga_macs_per_second(self, rows, weights, activations):
        return giga_macs_per_second(self.call, *self.macs)
    track_giga_macs_per_second.unit = "GMAC/s"


class Quantize:
    kernels = ("quantize_nbits",)
    params = [[4, 8], [32, 128]]
    param_names = ["bits", "block_size"]

    def setup(self, bits, block_size):
        assert_tier("matmul_nbits")
        self.w = normal(*SHAPES["gate_up"], dtype="bf16")

    def time_quantize(self, bits, block_size):
        qkernels.quantize_nbits(self.w, bits=bits, block_size=block_size)
