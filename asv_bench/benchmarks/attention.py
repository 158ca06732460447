"""Attention at the shapes of Qwen3-0.6B: 16 query heads, 8 kv heads of 128."""
import importlib.util

import ml_dtypes
import numpy as np

import qkernels

HEADS, KV_HEADS, D = 16, 8, 128
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def arrays(rows, keys, dtype=np.float32):
    rng = np.random.default_rng(0)
    shapes = (1, HEADS, rows, D), (1, KV_HEADS, keys, D), (1, KV_HEADS, keys, D)
    return [rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]


def numpy_attention(q, k, v):
    rows, keys = q.shape[2], k.shape[2]
    q = q.reshape(1, KV_HEADS, -1, D)  # the group's rows, one product per kv head
    mask = np.tile(np.where(np.arange(keys) <= np.arange(rows)[:, None] + keys - rows, np.float32(0), np.float32(-np.inf)), (HEADS // KV_HEADS, 1))

    def run():
        s = q @ k.swapaxes(2, 3) * np.float32(D**-0.5) + mask
        p = np.exp(s - s.max(-1, keepdims=True))
        return (p / p.sum(-1, keepdims=True)) @ v
    return run


def torch_attention(q, k, v):
    if importlib.util.find_spec("torch") is None:
        raise NotImplementedError("torch is not installed")
    import torch
    threads = qkernels.get_num_threads()
    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(x) for x in (q, k, v))
    rows, keys = q.shape[2], k.shape[2]
    mask = torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows) if 1 < rows < keys else None
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=rows == keys and rows > 1, enable_gqa=True)


def onnxruntime_attention(q, k, v):
    if importlib.util.find_spec("onnxruntime") is None:
        raise NotImplementedError("onnxruntime is not installed")
    import onnxruntime
    from onnx import TensorProto, helper
    # GroupQueryAttention over a past of all keys but the rows', as its decoders run it
    rows, keys = q.shape[2], k.shape[2]
    flat = lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(1, x.shape[2], -1)
    feeds = dict(q=flat(q), k=flat(k[:, :, keys - rows:]), v=flat(v[:, :, keys - rows:]), past_key=k[:, :, :keys - rows],
                 past_value=v[:, :, :keys - rows], seqlens_k=np.int32([keys - 1]), total=np.array(keys, np.int32))
    node = helper.make_node("GroupQueryAttention", list(feeds), ["y", "present_key", "present_value"], domain="com.microsoft",
                            num_heads=HEADS, kv_num_heads=KV_HEADS)
    info = lambda name, x: helper.make_tensor_value_info(name, TensorProto.INT32 if x.dtype == np.int32 else TensorProto.FLOAT, x.shape)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    model = helper.make_model(helper.make_graph([node], "attention", [info(*item) for item in feeds.items()], outputs),
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = qkernels.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


class Attention:
    """Rows × keys, causal, float32 arrays, beside the peers."""

    kernels = ("attention",)
    params = [[(512, 512), (1, 1024), (1, 4096)], ["qkernels", "numpy", "onnxruntime", "torch"]]
    param_names = ["rows, keys", "library"]

    def setup(self, shape, library):
        rows, keys = shape
        q, k, v = arrays(rows, keys)
        assert qkernels.get_isa() == qkernels.available_isa()[-1]
        if library == "qkernels":
            out = np.empty_like(q)
            self.run = lambda: qkernels.attention(q, k, v, is_causal=int(rows > 1), out=out)
        else:
            self.run = {"numpy": numpy_attention, "onnxruntime": onnxruntime_attention, "torch": torch_attention}[library](q, k, v)
        self.run()

    def time_attention(self, shape, library):
        self.run()


class _Layers:
    """Steps over enough layers that keys and values come from memory, as in a model."""

    def fill(self, context, dtype, layers):
        self.cache = qkernels.KVCache(layers, KV_HEADS, D, capacity=context + 1, dtype=DTYPES[dtype])
        kv = np.random.default_rng(0).standard_normal((context, KV_HEADS, D), np.float32)
        for layer in range(layers):
            self.cache.append(layer, kv, kv)
        self.cache.advance(context)
        angles = np.arange(context + 513)[:, None] * 1e6 ** (-np.arange(D // 2) / (D // 2))
        self.options = dict(cos=np.cos(angles).astype(np.float32), sin=np.sin(angles).astype(np.float32), q_norm=np.ones(D, np.float32),
                            k_norm=np.ones(D, np.float32), num_heads=HEADS)
        assert qkernels.get_isa() == qkernels.available_isa()[-1]

    def step(self):
        for layer in range(self.cache.layers):
            qkernels.cached_attention(self.cache, layer, self.qkv, out=self.out, **self.options)


class CachedDecode(_Layers):
    """One token in 28 layers: norm, rotation, append, attention."""

    kernels = ("cached_attention",)
    params = [[16, 1024, 4096], ["f32", "f16", "bf16"]]
    param_names = ["context", "dtype"]
    LAYERS = 28

    def setup(self, context, dtype):
        self.fill(context, dtype, self.LAYERS)
        self.qkv = np.random.default_rng(1).standard_normal((1, (HEADS + 2 * KV_HEADS) * D), np.float32)
        self.out = np.empty((1, HEADS * D), np.float32)
        self.step()

    def time_step(self, context, dtype):
        self.step()

    def track_bandwidth(self, context, dtype):
        import timeit
        seconds = min(timeit.repeat(self.step, number=1, repeat=9))
        return 2 * self.LAYERS * (context + 1) * KV_HEADS * D * np.dtype(DTYPES[dtype]).itemsize / seconds / 1e9

    track_bandwidth.unit = "GB/s"


class CachedPrefill(_Layers):
    """512 tokens in one layer: norm, rotation, append, attention."""

    kernels = ("cached_attention",)
    params = [[0, 4096], ["f32", "f16", "bf16"]]
    param_names = ["context", "dtype"]

    def setup(self, context, dtype):
        self.fill(context, dtype, 1)
        self.qkv = np.random.default_rng(1).standard_normal((512, (HEADS + 2 * KV_HEADS) * D), np.float32)
        self.out = np.empty((512, HEADS * D), np.float32)
        self.step()

    def time_step(self, context, dtype):
        self.step()

    def track_rate(self, context, dtype):
        import timeit
        seconds = min(timeit.repeat(self.step, number=1, repeat=9))
        return 2 * HEADS * D * 512 * (context + 513 / 2) / seconds / 1e9

    track_rate.unit = "GFMA/s"
