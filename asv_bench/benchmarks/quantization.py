"""Linear quantization and integer products at the shapes of Qwen3-0.6B."""
import ml_dtypes
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, giga_macs_per_second, gigabytes_per_second, normal, onnxruntime_node

S = QWEN3["0.6B"]
CODES = {"int8": np.int8, "uint8": np.uint8, "int4": ml_dtypes.int4}
SCALES = {"tensor": ((), 0), "axis": ((S.hidden,), 0), "blocks": ((S.intermediate, S.hidden // 32), 32)}


class Linear:
    """Both directions over a matrix of (intermediate, hidden), with one scale, one for each column, one for each 32 of a row."""

    kernels = ("quantize_linear", "dequantize_linear")
    params = [["quantize_linear", "dequantize_linear"], list(SCALES), list(DTYPES), list(CODES), ["qkernels", "onnxruntime"]]
    param_names = ["function", "scales", "dtype", "codes", "who"]

    def setup(self, function, scales, dtype, codes, who):
        shape, block = SCALES[scales]
        x, scale = normal(S.intermediate, S.hidden, dtype=dtype), np.abs(normal(*shape, dtype=dtype, seed=1)) * DTYPES[dtype](0.02) + DTYPES[dtype](0.01)
        zero = np.zeros(shape, CODES[codes])
        if function == "dequantize_linear":
            values, x = x, qkernels.quantize_linear(x, scale, zero, block_size=block)
        else:
            values = x
        self.nbytes = values.nbytes + values.size
        if who == "qkernels":
            assert_tier("quantization")
            out = np.empty_like(values) if function == "dequantize_linear" else np.empty(x.shape, CODES[codes])
            self.call = lambda: getattr(qkernels, function)(x, scale, zero, block_size=block, out=out)
        else:
            if codes == "int4" or dtype == "bf16":
                raise NotImplementedError("not among ONNX Runtime's Python types")
            operator = {"quantize_linear": "QuantizeLinear", "dequantize_linear": "DequantizeLinear"}[function]
            attributes = {"block_size": block} if block else {}
            self.call = onnxruntime_node("", operator, {"x": x, "scale": scale, "zero": zero}, opset=21, constants=["scale", "zero"], **attributes)
        self.call()

    def time_call(self, function, scales, dtype, codes, who):
        self.call()

    def track_gigabytes_per_second(self, function, scales, dtype, codes, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"


class Dynamic:
    kernels = ("dynamic_quantize_linear",)
    params = [[1, 128], ["qkernels", "onnxruntime"]]
    param_names = ["rows", "who"]

    def setup(self, rows, who):
        x = normal(rows, S.hidden)
        if who == "qkernels":
            assert_tier("quantization")
            self.call = lambda: qkernels.dynamic_quantize_linear(x)
        else:
            import onnx
            onnx_node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
            types = (onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8)
            infos = [onnx.helper.make_tensor_value_info(name, t, None) for name, t in zip(onnx_node.output, types, strict=True)]
            graph = onnx.helper.make_graph([onnx_node], "g", [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)], infos)
            model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)])
            import onnxruntime
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = qkernels.get_num_threads()
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            self.call = lambda: session.run(None, {"x": x})
        self.call()

    def time_call(self, rows, who):
        self.call()


class IntegerProducts:
    kernels = ("matmul_integer", "qlinear_matmul", "PackedInt8Matrix")
    params = [[1, 128, 512], ["matmul_integer", "qlinear_matmul"], ["qkernels", "onnxruntime"]]
    param_names = ["rows", "function", "who"]

    def setup(self, rows, function, who):
        k, n = S.hidden, S.intermediate
        rng = np.random.default_rng(0)
        a, b = rng.integers(0, 256, (rows, k), np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
        self.macs = rows, n, k
        scale, za, zb = np.float32(0.02), np.array(128, np.uint8), np.array(3, np.int8)
        if function == "matmul_integer":
            inputs = {"a": a, "b": b, "za": za, "zb": zb}
        else:
            inputs = {"a": a, "sa": np.array(scale), "za": za, "b": b, "sb": np.array(scale), "zb": zb, "sy": np.array(scale), "zy": za}
        if who == "qkernels":
            assert_tier("quantization")
            out = np.empty((rows, n), np.int32 if function == "matmul_integer" else np.uint8)
            inputs["b"] = qkernels.PackedInt8Matrix(b)  # a constant, as in the session of the other
            self.call = lambda: getattr(qkernels, function)(*inputs.values(), out=out)
        else:
            if function == "matmul_integer":
                raise NotImplementedError("its result has another type than its operands")
            self.call = onnxruntime_node("", "QLinearMatMul", inputs, opset=21, constants=[name for name in inputs if name not in ("a", "b")])
        self.call()

    def time_product(self, rows, function, who):
        self.call()

    def track_giga_macs_per_second(self, rows, function, who):
        return giga_macs_per_second(self.call, *self.macs)
    track_giga_macs_per_second.unit = "GMAC/s"


class GatherBlockQuantized:
    """An embedding of 4-bit codes: rows of tokens."""

    kernels = ("gather_block_quantized",)
    params = [[1, 512]]
    param_names = ["tokens"]

    def setup(self, tokens):
        assert_tier("quantization")
        rng = np.random.default_rng(0)
        data, scales = rng.integers(0, 256, (S.vocabulary, S.hidden // 2), np.uint8), normal(S.vocabulary, S.hidden // 32)
        indices = rng.integers(0, S.vocabulary, tokens)
        self.call = lambda: qkernels.gather_block_quantized(data, indices, scales, block_size=32)
        self.call()

    def time_call(self, tokens):
        self.call()
