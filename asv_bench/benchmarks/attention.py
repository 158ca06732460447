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
    family = "contrib_attention"
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


class ContribAttention(Compared):
    """A layer with constant weights, projection and all: a sequence of BERT's base size, one token after 127, and longer sequences of larger heads."""

    kernels = ("contrib.attention",)
    family = "contrib_attention"
    params = [["128 after 0", "1 after 127", "512 after 0"], ["12x64", "16x64", "16x128"], Compared.THREADS, ["qkernels", "onnxruntime"]]
    param_names = ["tokens", "heads", "threads", "who"]

    def inputs(self, tokens, heads):
        (rows, past), (heads, size) = map(int, tokens.split(" after ")), map(int, heads.split("x"))
        hidden = heads * size
        inputs = dict(input=normal(1, rows, hidden), weights=normal(hidden, 3 * hidden, seed=1, scale=hidden**-0.5), bias=normal(3 * hidden, seed=2),
                      mask_index=np.ones((1, rows + past), np.int32))
        return inputs | (dict(past=normal(2, 1, heads, past, size, seed=3)) if past else {}), dict(num_heads=heads, unidirectional=int(past > 0))

    def nbytes(self, tokens, heads):
        return sum(x.nbytes for x in self.inputs(tokens, heads)[0].values())

    def qkernels(self, tokens, heads):
        i, attributes = self.inputs(tokens, heads)
        i["weights"], outputs, out = qkernels.PackedMatrix(i["weights"]), (0, 1) if "past" in i else (0,), np.empty_like(i["input"])
        return lambda: qkernels.contrib.attention(*i.values(), **attributes, outputs=outputs, out=(out, None)[:len(outputs)])

    def onnxruntime(self, tokens, heads):
        i, attributes = self.inputs(tokens, heads)
        return onnxruntime_node("com.microsoft", "Attention", i, outputs=2 if "past" in i else 1, bound="past" not in i, constants=["weights", "bias"],
                                **attributes)


class MultiHeadAttention(Compared):
    """The same shapes behind their projections; with a past the caches grow, or are buffers in place."""

    kernels = ("multi_head_attention",)
    family = "contrib_attention"
    params = [["128 after 0", "1 after 127", "1 after 127 in place", "512 after 0", "512 after 0 with a mask"], ["12x64", "16x64", "16x128"], Compared.THREADS,
              ["qkernels", "onnxruntime"]]
    param_names = ["tokens", "heads", "threads", "who"]

    def inputs(self, tokens, heads):
        (rows, _, past, *more), (heads, size) = tokens.split(" "), map(int, heads.split("x"))
        rows, past, hidden = int(rows), int(past), heads * size
        inputs = dict(zip(("query", "key", "value"), normal(3, 1, rows, hidden), strict=True)) | dict(bias=normal(3 * hidden, seed=2))
        mask = dict(key_padding_mask=np.ones((1, rows), np.int32)) if "mask" in more else {}
        if mask:
            mask["key_padding_mask"][:, -5:] = 0
        if past:
            room = past + rows if more else past
            inputs |= dict(past_key=normal(1, heads, room, size, seed=3), past_value=normal(1, heads, room, size, seed=4))
            if more:
                inputs["past_sequence_length"] = np.int32([past])
        return inputs | mask, dict(num_heads=heads, unidirectional=int(past > 0)), bool(past and more)

    def nbytes(self, tokens, heads):
        return sum(x.nbytes for x in self.inputs(tokens, heads)[0].values())

    def qkernels(self, tokens, heads):
        i, attributes, in_place = self.inputs(tokens, heads)
        outputs = (0, 1, 2) if "past_key" in i else (0,)
        out = (np.empty_like(i["query"]), *((i["past_key"], i["past_value"]) if in_place else [None] * 2))[:len(outputs)]
        return lambda: qkernels.multi_head_attention(**i, **attributes, outputs=outputs, out=out)

    def onnxruntime(self, tokens, heads):
        i, attributes, in_place = self.inputs(tokens, heads)
        order = ("query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key", "past_value", "past_sequence_length")
        return onnxruntime_node("com.microsoft", "MultiHeadAttention", i, outputs=3 if "past_key" in i else 1, bound=in_place or "past_key" not in i,
                                order=order, shared=[("past_key", "y1"), ("past_value", "y2")] if in_place else [], **attributes)


class SparseAttention(Compared):
    """A node of a decoder whose heads see the last 1,024 tokens and, of those before, every eighth block."""

    kernels = ("sparse_attention",)
    family = "contrib_attention"
    params = [["512/512", "1/128", "2048/2048", "1/4096"], ["16/4x64", "16/4x128"], Compared.THREADS, ["qkernels", "onnxruntime"]]
    param_names = ["rows/tokens", "heads", "threads", "who"]
    BLOCK = 64

    def node(self, shape, heads):
        (rows, tokens), (groups, size) = map(int, shape.split("/")), heads.split("x")
        heads, kv_heads, size = *map(int, groups.split("/")), int(size)
        n = tokens // self.BLOCK
        i, j = np.arange(n)[:, None], np.arange(n)
        seen = [(j <= i) & ((i - j < 1024 // self.BLOCK) | ((j + h + 1) % 8 == 0)) for h in range(4)]
        flat = lambda lists: np.int32([x + [-1] * (max(map(len, lists)) - len(x)) for x in lists])
        inputs = dict(query=normal(1, rows, heads * size), key=normal(1, rows, kv_heads * size, seed=1), value=normal(1, rows, kv_heads * size, seed=2),
                      past_key=normal(1, kv_heads, tokens, size, seed=3), past_value=normal(1, kv_heads, tokens, size, seed=4),
                      block_row_indices=np.int32([[0, *s.sum(1).cumsum()] for s in seen]), block_col_indices=flat([np.nonzero(s)[1].tolist() for s in seen]),
                      total=np.int32([tokens]), lengths=np.int32([tokens]))
        return inputs, dict(num_heads=heads, kv_num_heads=kv_heads, sparse_block_size=self.BLOCK)

    def nbytes(self, shape, heads):
        inputs, _ = self.node(shape, heads)
        return 2 * inputs["query"].nbytes + sum(inputs[name].nbytes for name in ("key", "value", "past_key", "past_value"))

    def qkernels(self, shape, heads):
        inputs, attributes = self.node(shape, heads)
        out = np.empty_like(inputs["query"]), inputs["past_key"], inputs["past_value"]
        return lambda: qkernels.sparse_attention(*inputs.values(), **attributes, outputs=(0, 1, 2), out=out)

    def onnxruntime(self, shape, heads):
        inputs, attributes = self.node(shape, heads)
        return onnxruntime_node("com.microsoft", "SparseAttention", inputs, outputs=3, bound=True, shared=[("past_key", "y1"), ("past_value", "y2")],
                                **attributes)


class PagedAttention(Compared):
    """Sequences of a server that decode together, one of which has just come, in pages of a size. The peer is GroupQueryAttention on buffers as long as the
    longest sequence, with as many rows as the longest portion: no runtime has the operator on a CPU."""

    kernels = ("paged_attention",)
    family = "contrib_attention"
    params = [["8 of 1", "7 of 1 and 1 of 128"], [16, 256], ["16/8x128"], Compared.THREADS, ["qkernels", "padded"]]
    param_names = ["new tokens", "page", "heads", "threads", "who"]
    PAST = [1000, 900, 300, 2000, 50, 700, 1500, 0]

    def sequences(self, new, heads):
        groups, size = heads.split("x")
        counts = [1] * 8 if new == "8 of 1" else [1] * 7 + [128]
        return counts, *map(int, groups.split("/")), int(size)

    def nbytes(self, new, page, heads):
        counts, heads, kv_heads, size = self.sequences(new, heads)
        return 4 * size * (2 * kv_heads * (sum(self.PAST) + sum(counts)) + 2 * heads * sum(counts))

    def qkernels(self, new, page, heads):
        counts, heads, kv_heads, size = self.sequences(new, heads)
        width = -(-max(p + c for p, c in zip(self.PAST, counts, strict=True)) // page)
        caches = [normal(8 * width, page, kv_heads, size, seed=i) for i in (1, 2)]
        table = np.random.default_rng(0).permutation(8 * width).reshape(8, width)
        qkv, starts, pasts = normal(sum(counts), (heads + 2 * kv_heads) * size), np.cumsum([0, *counts]), np.int64(self.PAST)
        return lambda: qkernels.paged_attention(qkv, None, None, *caches, starts, pasts, table, num_heads=heads, kv_num_heads=kv_heads)

    def padded(self, new, page, heads):
        counts, heads, kv_heads, size = self.sequences(new, heads)
        ends = np.int64(self.PAST) + counts
        room = max(p + max(counts) for p in self.PAST)
        caches = [normal(8, kv_heads, room, size, seed=i) for i in (1, 2)]
        qkv, out = normal(8, max(counts), (heads + 2 * kv_heads) * size), np.empty((8, max(counts), heads * size), np.float32)
        return lambda: qkernels.group_query_attention(qkv, None, None, *caches, ends - 1, room, query_seqlens=np.int64(counts), num_heads=heads,
                                                      kv_num_heads=kv_heads, outputs=(0, 1, 2), out=(out, *caches))


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
