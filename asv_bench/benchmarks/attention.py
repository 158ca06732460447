"""Attention at the shapes of Qwen3-0.6B and 4B: prompts and single tokens, on arrays beside the peers and in the model's fused call."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, Compared, assert_tier, giga_macs_per_second, normal, onnxruntime_node, peer, seconds


class Attention:
    """Rows × keys, causal, float32 arrays. ONNX Runtime runs its decoders' operator over a past of the other keys."""

    kernels = ("attention",)
    params = [[(512, 512), (1, 1024), (1, 4096)], list(QWEN3), ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["rows, keys", "model", "who"]

    def setup(self, shape, model, who):
        (rows, keys), m = shape, QWEN3[model]
        q = normal(1, m.heads, rows, m.head_size)
        k, v = normal(1, m.kv_heads, keys, m.head_size, seed=1), normal(1, m.kv_heads, keys, m.head_size, seed=2)
        past = keys - rows
        if who == "qkernels":
            assert_tier("attention")
            out = np.empty_like(q)
            self.call = lambda: qkernels.attention(q, k, v, is_causal=int(rows == keys), out=out)
        elif who == "numpy":
            group = m.heads // m.kv_heads
            q = q.reshape(1, m.kv_heads, group * rows, m.head_size)  # one product per kv head
            hidden = np.tile(np.where(np.arange(keys) <= np.arange(rows)[:, None] + past, np.float32(0), np.float32(-np.inf)), (group, 1))

            def call():
                s = q @ k.swapaxes(2, 3) * np.float32(m.head_size**-0.5) + hidden
                p = np.exp(s - s.max(-1, keepdims=True))
                return (p / p.sum(-1, keepdims=True)) @ v
            self.call = call
        elif who == "torch":
            torch = peer("torch")
            a, b, c = (torch.from_numpy(x) for x in (q, k, v))
            self.call = lambda: torch.nn.functional.scaled_dot_product_attention(a, b, c, is_causal=rows == keys, enable_gqa=True)
        else:
            flat = lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(1, x.shape[2], -1)
            node = dict(q=flat(q), k=flat(k[:, :, past:]), v=flat(v[:, :, past:]), past_key=np.ascontiguousarray(k[:, :, :past]),
                        past_value=np.ascontiguousarray(v[:, :, :past]), seqlens_k=np.int32([keys - 1]), total=np.array(keys, np.int32))
            self.call = onnxruntime_node("com.microsoft", "GroupQueryAttention", node, outputs=3, num_heads=m.heads, kv_num_heads=m.kv_heads)
        self.call()

        self.macs = 2 * m.heads * m.head_size, rows, keys - (rows - 1) / 2

    def time_attention(self, shape, model, who):
        self.call()

    def peakmem_attention(self, shape, model, who):
        self.call()

    def track_giga_macs_per_second(self, shape, model, who):
        return giga_macs_per_second(self.call, *self.macs)
    track_giga_macs_per_second.unit = "GMAC/s"


class GroupQueryAttention(Compared):
    """A node of a decoder graph: rotation, append and attention, with the cache in a buffer that is written in place, or as tensors that are copied."""

    kernels = ("group_query_attention",)
    family = "attention"
    params = [["512/512", "1/1024", "1/4096"], list(QWEN3), ["in place", "tensors"], Compared.THREADS, ["qkernels", "onnxruntime"]]
    param_names = ["rows/tokens", "model", "cache", "threads", "who"]

    def node(self, shape, model, cache):
        """The inputs of the node, its attributes, and whether the buffers of past and present are one."""
        (rows, tokens), m = map(int, shape.split("/")), QWEN3[model]
        room = tokens if cache == "in place" else tokens - rows
        inputs = dict(query=normal(1, rows, m.heads * m.head_size), key=normal(1, rows, m.kv_heads * m.head_size, seed=1),
                      value=normal(1, rows, m.kv_heads * m.head_size, seed=2), past_key=normal(1, m.kv_heads, room, m.head_size, seed=3),
                      past_value=normal(1, m.kv_heads, room, m.head_size, seed=4), seqlens_k=np.int32([tokens - 1]), total=np.array(tokens, np.int32))
        angles = np.arange(tokens)[:, None] * 1e6 ** (-np.arange(m.head_size // 2) / (m.head_size // 2))
        inputs |= dict(cos_cache=np.cos(angles).astype(np.float32), sin_cache=np.sin(angles).astype(np.float32))
        attributes = dict(num_heads=m.heads, kv_num_heads=m.kv_heads, do_rotary=1)
        return inputs, attributes, cache == "in place"

    def nbytes(self, shape, model, cache):
        inputs, _, _ = self.node(shape, model, cache)
        return 2 * inputs["query"].nbytes + sum(x.nbytes for name, x in inputs.items() if name in ("key", "value", "past_key", "past_value"))

    def qkernels(self, shape, model, cache):
        inputs, attributes, in_place = self.node(shape, model, cache)
        out = (np.empty_like(inputs["query"]), inputs["past_key"], inputs["past_value"]) if in_place else None
        return lambda: qkernels.group_query_attention(*inputs.values(), **attributes, outputs=(0, 1, 2), out=out)

    def onnxruntime(self, shape, model, cache):
        inputs, attributes, in_place = self.node(shape, model, cache)
        shared = [("past_key", "y1"), ("past_value", "y2")] if in_place else []
        return onnxruntime_node("com.microsoft", "GroupQueryAttention", inputs, outputs=3, bound=in_place, shared=shared, **attributes)


class QAttention(Compared):
    """A layer of BERT's base size with constant weights: a sequence of 128, and one token after 127."""

    kernels = ("qattention", "PackedQAttention")
    family = "attention"
    params = [["128 after 0", "1 after 127"], ["uint8", "int8"], Compared.THREADS, ["qkernels", "onnxruntime"]]
    param_names = ["tokens", "weight", "threads", "who"]
    HIDDEN, HEADS = 768, 12

    def inputs(self, tokens, weight):
        rows, past = map(int, tokens.split(" after "))
        random, kind = np.random.default_rng(0), np.iinfo(weight)
        inputs = dict(input=random.integers(0, 256, (1, rows, self.HIDDEN)).astype(np.uint8),
                      weight=random.integers(kind.min, kind.max, (self.HIDDEN, 3 * self.HIDDEN)).astype(weight), bias=normal(3 * self.HIDDEN),
                      input_scale=np.float32([0.01]), weight_scale=np.full(3 * self.HIDDEN, 0.001, np.float32), mask_index=np.ones((1, rows + past), np.int32),
                      input_zero_point=np.uint8([120]), weight_zero_point=np.full(3 * self.HIDDEN, 1, weight))
        return inputs | (dict(past=normal(2, 1, self.HEADS, past, self.HIDDEN // self.HEADS)) if past else {}), dict(unidirectional=int(past > 0))

    def nbytes(self, tokens, weight):
        return sum(x.nbytes for x in self.inputs(tokens, weight)[0].values())

    def qkernels(self, tokens, weight):
        i, attributes = self.inputs(tokens, weight)
        layer = qkernels.PackedQAttention(i["weight"], i["bias"], i["weight_scale"], i["weight_zero_point"], num_heads=self.HEADS)
        return lambda: layer(i["input"], i["input_scale"], i["mask_index"], i["input_zero_point"], i.get("past"), outputs=(0, 1), **attributes)

    def onnxruntime(self, tokens, weight):
        i, attributes = self.inputs(tokens, weight)
        return onnxruntime_node("com.microsoft", "QAttention", i, outputs=2, result=np.float32, num_heads=self.HEADS,
                                constants=["weight", "bias", "input_scale", "weight_scale", "input_zero_point", "weight_zero_point"], **attributes)


class _Layers:
    """A step through a cache's layers."""

    def fill(self, model, context, dtype, layers, rows):
        m = QWEN3[model]
        assert_tier("attention")
        cache = qkernels.KVCache(layers, m.kv_heads, m.head_size, capacity=context + rows, dtype=DTYPES.get(dtype, dtype))
        new = normal(context, m.kv_heads, m.head_size)
        for layer in range(layers):
            cache.append(layer, new, new)
        cache.advance(context)
        angles = np.arange(context + rows)[:, None] * 1e6 ** (-np.arange(m.head_size // 2) / (m.head_size // 2))
        options = dict(cos=np.cos(angles).astype(np.float32), sin=np.sin(angles).astype(np.float32), q_norm=normal(m.head_size),
                       k_norm=normal(m.head_size), num_heads=m.heads, out=np.empty((rows, m.heads * m.head_size), np.float32))
        qkv = normal(rows, (m.heads + 2 * m.kv_heads) * m.head_size)

        def step():
            for layer in range(layers):
                qkernels.cached_attention(cache, layer, qkv, **options)
        per_head = m.head_size * cache.dtype.itemsize + (4 if dtype == "int8" else 0)  # a scale
        self.step, self.nbytes = step, 2 * layers * (context + rows) * m.kv_heads * per_head
        self.products = 2 * layers * m.heads * m.head_size * rows * (context + (rows + 1) / 2)
        step()


class CachedDecode(_Layers):
    """One token through all layers, so that keys and values come from memory: norm, rotation, append, attention."""

    kernels = ("cached_attention",)
    params = [[16, 1024, 4096], list(QWEN3), [*DTYPES, "int8"]]
    param_names = ["context", "model", "dtype"]

    def setup(self, context, model, dtype):
        self.fill(model, context, dtype, QWEN3[model].layers, 1)

    def time_step(self, context, model, dtype):
        self.step()

    def peakmem_step(self, context, model, dtype):
        self.step()

    def track_gigabytes_per_second(self, context, model, dtype):
        return self.nbytes / seconds(self.step) / 1e9
    track_gigabytes_per_second.unit = "GB/s"


class CachedPrefill(_Layers):
    """512 tokens in one layer, behind nothing and behind 3,584 others."""

    kernels = ("cached_attention",)
    params = [[0, 3584], list(QWEN3), list(DTYPES)]
    param_names = ["context", "model", "dtype"]

    def setup(self, context, model, dtype):
        self.fill(model, context, dtype, 1, 512)

    def time_step(self, context, model, dtype):
        self.step()

    def peakmem_step(self, context, model, dtype):
        self.step()

    def track_giga_macs_per_second(self, context, model, dtype):
        return self.products / seconds(self.step) / 1e9
    track_giga_macs_per_second.unit = "GMAC/s"
