"""One runtime in a process of its own, for `qwen3 benchmark`: reads a request per line, answers with a line; both are JSON.

    python benchmark_worker.py qkernels | onnxruntime | llama.cpp | llama.cpp-flash | openvino | machine

======== =================================== ================================================================
request  fields                              answer
======== =================================== ================================================================
versions                                     versions: of the runtime, NumPy and Python
open     model, threads, max_context,        versions, seconds (of loading), memory, facts
         options
sample   depth_ids, ids, new                 seconds: of each new token, the first with its prompt; where new
                                             is 0, of the prompt alone; tokens
watch    depth_ids, ids, new                 allocated, copied: bytes per token, of an untimed run
memory                                       memory
limit    kind: read, fma or dot              rate: bytes or multiply-accumulates per second; of `machine` only
======== =================================== ================================================================

An answer with `error` says what went wrong. What a library prints goes to standard error. Between two requests the process may be stopped
(SIGSTOP), so that threads that spin for work take no processor from whoever is measured.

A peer needs NumPy and its own library alone: this file runs in an environment without qkernels.
"""
import ctypes
import importlib
import json
import os
import pathlib
import signal
import statistics
import sys
import time
import tracemalloc
import warnings

import numpy as np

FILL_CHUNK = 512  # tokens


class MissingError(Exception):
    """The runtime's library cannot be imported."""


def require(module, package):
    """The module of a runtime, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module
        reason = "is not installed" if absent else f"cannot be imported ({error})"
        raise MissingError(f"{package} {reason}: pip install {package}, for {sys.executable}") from error


def memory():
    """Resident bytes now, at most so far, and now without files; empty where the system has no /proc."""
    names = {"VmRSS": "resident", "VmHWM": "peak", "RssAnon": "anonymous"}
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: 1024 * int(fields[key].split()[0]) for key, name in names.items() if key in fields}


class Runtime:
    """What a runtime has to do; the protocol and the clock are the worker's."""

    traced = False  # tracemalloc sees what it allocates for a token

    def __init__(self, clock=time.perf_counter):
        self.clock = clock
        self.filled = []

    def library(self):
        """Import the library; returns versions by name. Not part of the loading time."""
        raise NotImplementedError

    def prepare(self, model):
        """Import what this model needs: not part of the loading time either."""

    def load(self, model, threads, max_context, options):
        """Load the model; returns facts about it."""
        raise NotImplementedError

    def rewind(self, n):
        """Forget all but the first n tokens of the context."""
        raise NotImplementedError

    def feed(self, ids):
        """Append tokens to the context."""
        raise NotImplementedError

    def generate(self, ids, new, stamp):
        """Run the prompt after the context, then choose `new` tokens greedily: `stamp(token)` after each, or `stamp()` after it if new is 0."""
        raise NotImplementedError

    def buffers(self):
        """Address and bytes of each piece of keys and values; None where they cannot be seen."""

    def versions(self):
        return {"versions": self.library() | {"numpy": np.__version__, "python": sys.version.split()[0]}}

    def open(self, model, threads, max_context, options):
        versions = self.versions()
        self.prepare(model)
        begin = self.clock()
        facts = self.load(model, threads, max_context, options)
        return versions | {"seconds": self.clock() - begin, "facts": facts, "memory": memory()}

    def fill(self, ids):
        """Make the context hold these tokens; what it holds already stays."""
        kept = len(self.filled) if self.filled == ids[:len(self.filled)] else 0
        self.rewind(kept)
        for start in range(kept, len(ids), FILL_CHUNK):
            self.feed(ids[start:start + FILL_CHUNK])
        self.filled = ids

    def sample(self, depth_ids, ids, new):
        self.fill(depth_ids)
        clock, tokens = self.clock, []
        times = [clock()]

        def stamp(token=None):
            times.append(clock())
            tokens.append(token)

        self.generate(ids, new, stamp)
        return {"seconds": [after - before for before, after in zip(times, times[1:], strict=False)], "tokens": tokens if new else []}

    def watch(self, depth_ids, ids, new):
        """Of the tokens after the first: bytes that a step holds at most beyond what it found (median), and of keys and values that moved (mean)."""
        self.fill(depth_ids)
        allocated, copied, held, places = [], [], None, None

        def look(token=None):
            nonlocal held, places
            if held is not None:
                allocated.append(tracemalloc.get_traced_memory()[1] - held)
            before, places = places, self.buffers()
            if before is not None:
                copied.append(sum(nbytes for (address, nbytes), (now, _) in zip(before, places, strict=True) if now != address))
            before = None  # as the last look left it: only one list of places at a time
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            self.generate(ids, new, look)
        finally:
            tracemalloc.stop()
        return {"allocated": statistics.median(allocated) if self.traced and allocated else None, "copied": statistics.fmean(copied) if copied else None}


class QKernels(Runtime):
    """Ours: a checkpoint or an ONNX graph."""

    traced = True

    def library(self):
        import ml_dtypes

        import qkernels

        return {"qkernels": qkernels.__version__, "ml_dtypes": ml_dtypes.__version__}

    def prepare(self, model):
        from qwen3.checkpoint import is_onnx

        importlib.import_module("qwen3.onnx_decoder" if is_onnx(model) else "qwen3.model")

    def load(self, model, threads, max_context, options):
        import qkernels
        import qwen3
        from qwen3.generate import PREFILL_CHUNK

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model = qwen3.load(model, threads=threads, max_context=max_context, **options)
        self.greedy, self.chunk, self.cache = qwen3.Sampler(temperature=0), PREFILL_CHUNK, self.model.new_cache()
        config, probe = self.model.config, self.model.new_cache()
        self.model.forward([0], probe)
        return {"weight_bytes": self.model.nbytes, "kv_bytes": probe.nbytes / max(1, getattr(probe, "capacity", 1)), "weights": self.model.weights,
                "activations": self.model.activations, "kv": self.model.kv, "cache": getattr(self.model, "cache_kind", "persistent"),
                "isa": qkernels.get_isa(),
                "shape": {"layers": config.num_hidden_layers, "kv_heads": config.num_key_value_heads, "head_dim": config.head_dim}}

    def rewind(self, n):
        self.cache.truncate(n)

    def feed(self, ids):
        self.model.forward(ids, self.cache)

    def generate(self, ids, new, stamp):
        if not new:
            for start in range(0, len(ids), self.chunk):
                self.feed(ids[start:start + self.chunk])
            stamp()
            return
        for step in self.model.generate(self.filled + ids, max_new_tokens=new, sampler=self.greedy, cache=self.cache, ignore_eos=True):
            stamp(step.token)

    def watch(self, depth_ids, ids, new):
        if not depth_ids:  # what growing costs is seen from the beginning
            self.cache, self.filled = self.model.new_cache(), []
        return super().watch(depth_ids, ids, new)

    def buffers(self):
        cache = self.cache
        if hasattr(cache, "arrays"):
            arrays = list(cache.arrays.values())
        else:
            arrays = [array for layer in range(cache.layers) for array in (cache.keys(layer), cache.values(layer))]
        return [(a.ctypes.data, a.nbytes) for a in arrays]


FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxRuntime(Runtime):
    """A raw session. Past and present are tensors of its own (`copy`), or one buffer bound to both (`shared`)."""

    POSITIONS = ("position_ids", "cache_position")

    def library(self):
        self.ort = require("onnxruntime", "onnxruntime")
        return {"onnxruntime": self.ort.__version__}

    def load(self, model, threads, max_context, options):
        self.shared = options.get("io") == "shared"
        settings = self.ort.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads, settings.log_severity_level = threads, 1, 3
        self.session = self.ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        outputs = [o.name for o in self.session.get_outputs()]
        self.logits = "logits" if "logits" in outputs else outputs[0]
        past = [name for name in self.inputs if "past" in name]
        present = [name.replace("past_key_values", "present").replace("past", "present") for name in past]
        if not set(present) <= set(outputs):
            present = [name for name in outputs if name != self.logits]
        self.pairs = dict(zip(past, present, strict=True))
        known = {"input_ids", "attention_mask", *self.POSITIONS, *past}
        if not past or set(self.inputs) - known:
            raise ValueError(f"{model}: expected the inputs of a decoder with past keys and values, got {', '.join(sorted(set(self.inputs) - set(past)))}")
        shape, kind = self.inputs[past[0]].shape, self.inputs[past[0]].type
        if kind not in FLOATS or len(shape) != 4:
            raise ValueError(f"{model}: {past[0]}: expected float32 or float16 of 4 dimensions, got {kind} {shape}")
        # a size that is a symbol in the graph is the checkpoint's
        self.heads, self.head_dim = (shape[i] if isinstance(shape[i], int) else options[name] for i, name in ((1, "kv_heads"), (3, "head_dim")))
        self.kind = FLOATS[kind]
        empty = lambda n: {name: self.ort.OrtValue.ortvalue_from_numpy(np.zeros((1, self.heads, n, self.head_dim), self.kind)) for name in past}
        self.context, self.length = {}, 0  # tensors of the filled context
        self.past = self.empty = empty(max_context if self.shared else 0)
        if self.shared:
            self.binding = self.session.io_binding()
            self.binding.bind_output(self.logits, "cpu")
            for name, present in self.pairs.items():
                self.binding.bind_ortvalue_input(name, self.past[name])
                self.binding.bind_ortvalue_output(present, self.past[name])
        return {"io": options.get("io", "copy"), "kv_bytes": len(past) * self.heads * self.head_dim * np.dtype(self.kind).itemsize,
                "shape": {"layers": len(past) // 2, "kv_heads": self.heads, "head_dim": self.head_dim}}

    def rewind(self, n):
        if not self.shared:
            self.past = self.context[n] if n else self.empty
        self.length = n

    def feed(self, ids):
        self._run(ids)

    def fill(self, ids):
        super().fill(ids)
        self.context = {self.length: self.past}

    def _run(self, ids):
        """Logits as a value of the session's, not copied."""
        n, total = len(ids), self.length + len(ids)
        small = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, total)), "position_ids": np.arange(self.length, total)[None],
                 "cache_position": np.arange(self.length, total)}
        types = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}
        small = {name: self.ort.OrtValue.ortvalue_from_numpy(a.astype(types[self.inputs[name].type])) for name, a in small.items() if name in self.inputs}
        if self.shared:
            for name, value in small.items():
                self.binding.bind_ortvalue_input(name, value)
            self.binding.bind_output(self.logits, "cpu")  # anew: a bound output keeps its shape
            self.session.run_with_iobinding(self.binding)
            logits = self.binding.get_outputs_as_ortvaluevector()[0]
        else:
            logits, *present = self.session.run_with_ort_values([self.logits, *self.pairs.values()], small | self.past)
            self.past = dict(zip(self.pairs, present, strict=True))
        self.length += n
        return logits

    def generate(self, ids, new, stamp):
        logits = self._run(ids)
        if not new:
            stamp()
        for count in range(1, new + 1):
            token = largest(logits)
            stamp(token)
            if count < new:
                logits = self._run([token])

    def buffers(self):
        itemsize = np.dtype(self.kind).itemsize
        return [(value.data_ptr(), self.heads * self.length * self.head_dim * itemsize) for value in self.past.values()]


def largest(value):
    """The index of the largest logit of the last token, of a tensor of ONNX Runtime's that is not copied."""
    kind, shape = FLOATS[value.data_type()], value.shape()
    count = shape[-1] * int(np.prod(shape[:-1]))
    logits = np.frombuffer((ctypes.c_char * (count * np.dtype(kind).itemsize)).from_address(value.data_ptr()), kind)
    return int(logits[-shape[-1]:].argmax())


class LlamaCpp(Runtime):
    """A GGUF file through llama-cpp-python's thin layer, keys and values in float16."""

    flash = False

    def library(self):
        self.package = require("llama_cpp", "llama-cpp-python")
        return {"llama-cpp-python": self.package.__version__}

    def load(self, model, threads, max_context, options):
        self.llama = self.package.Llama(model, n_ctx=max_context, n_batch=FILL_CHUNK, n_threads=threads, n_threads_batch=threads, flash_attn=self.flash,
                                        verbose=False)
        data = self.llama.metadata
        number = lambda key: int(data[f"{data['general.architecture']}.{key}"])
        heads, dim = number("attention.head_count_kv"), number("attention.key_length")
        return {"system": self.package.llama_print_system_info().decode(), "kv_bytes": 4 * number("block_count") * heads * dim,
                "shape": {"layers": number("block_count"), "kv_heads": heads, "head_dim": dim}}

    def rewind(self, n):
        self.llama.n_tokens = n  # what lies behind is dropped by the next `eval`

    def feed(self, ids):
        self.llama.eval(ids)

    def generate(self, ids, new, stamp):
        logits = lambda: np.ctypeslib.as_array(self.llama._ctx.get_logits_ith(-1), shape=(self.llama.n_vocab(),))
        self.llama.eval(ids)
        if not new:
            logits()
            stamp()
        for count in range(1, new + 1):
            token = int(logits().argmax())
            stamp(token)
            if count < new:
                self.llama.eval([token])


class LlamaCppFlash(LlamaCpp):
    """The same with flash attention, which is faster for a short context and may be slower for a long one."""

    flash = True


class OpenVino(Runtime):
    """A GGUF file or a directory in OpenVINO's format, through GenAI's pipeline. Its prefix cache holds the context before the measured part."""

    def library(self):
        self.openvino, self.genai = require("openvino", "openvino"), require("openvino_genai", "openvino-genai")
        return {"openvino": self.openvino.__version__, "openvino-genai": self.genai.__version__}

    def load(self, model, threads, max_context, options):
        properties = {"INFERENCE_NUM_THREADS": threads}
        if os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper() not in ("DEFAULT", "ALL"):
            # below what the CPU has, OpenVINO 2026.4 finds no kernel for activations quantized as it goes and aborts
            properties |= {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
        self.pipeline = self.genai.LLMPipeline(model, "CPU", **properties)
        return {}

    def rewind(self, n):
        self.filled = self.filled[:n]

    def feed(self, ids):
        self.filled = self.filled + ids
        self._run(self.filled, 1, None)

    def _run(self, ids, new, stamp):
        settings = self.genai.GenerationConfig(max_new_tokens=new, min_new_tokens=new, ignore_eos=True, do_sample=False)
        tokens = np.array([ids], np.int64)
        inputs = self.genai.TokenizedInputs(self.openvino.Tensor(tokens), self.openvino.Tensor(np.ones_like(tokens)))
        if stamp is None:
            self.pipeline.generate(inputs, settings)
            return
        running = self.genai.StreamingStatus.RUNNING

        class Streamer(self.genai.StreamerBase):
            def write(self, tokens):
                for token in tokens if isinstance(tokens, list) else [tokens]:
                    stamp(token)
                return running

            def end(self):
                pass

        self.pipeline.generate(inputs, settings, Streamer())

    def generate(self, ids, new, stamp):
        self._run(self.filled + ids, max(1, new), stamp)


class Machine(Runtime):
    """No runtime: how fast this machine reads memory and multiplies."""

    def library(self):
        import qkernels

        return {"qkernels": qkernels.__version__}

    def load(self, model, threads, max_context, options):
        self.threads, self.buffer = threads, np.ones(options["buffer"], np.uint8)
        return {"buffer": self.buffer.nbytes}

    def limit(self, kind):
        from qkernels import _machine

        if kind == "read":
            return {"rate": _machine.read_bandwidth(self.buffer, threads=self.threads)}
        return {"rate": _machine.peak_macs(kind, threads=self.threads)}


RUNTIMES = {"qkernels": QKernels, "onnxruntime": OnnxRuntime, "llama.cpp": LlamaCpp, "llama.cpp-flash": LlamaCppFlash, "openvino": OpenVino, "machine": Machine}


def answer(runtime, request):
    """The answer to one request."""
    operation = request.pop("op")
    try:
        if operation == "memory":
            return {"memory": memory()}
        return getattr(runtime, operation)(**request)
    except MissingError as error:
        return {"error": str(error)}
    except Exception as error:  # whatever a runtime throws is its answer; the parent names it and goes on
        return {"error": f"{type(error).__name__}: {error}".strip()}


def _die_with_parent():
    """A stopped process would outlive a parent that was killed: on Linux the system ends it, elsewhere nothing does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main():
    _die_with_parent()
    runtime = RUNTIMES[sys.argv[1]]()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(answer(runtime, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
