"""`qwen3 benchmark`: how fast prompts are taken in and tokens come out, beside other runtimes and the limits of the machine.

Every runtime is a process of its own (`benchmark_worker`). They are measured in turns, one sample each, and whoever is not measured is stopped, so
that neither the heat of the machine nor a thread that spins for work favours one of them. The machine's limits are measured in between, its
read bandwidth before and after each sample, since they change from second to second where a machine is shared.

Figures are functions of the seconds that each new token took: `metrics` defines them.
"""
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from qwen3.checkpoint import is_onnx, resolve
from qwen3.config import Qwen3Config, is_integer
from qwen3.machine import fingerprint, last_cache

__all__ = ["BenchmarkError", "UsageError", "Work", "Worker", "benchmark", "metrics"]

PROMPTS, NEW, REPEAT = (16, 128, 512, 1024), 128, 3
OURS, PEERS = "qkernels", ("onnxruntime", "llama.cpp", "llama.cpp-flash", "openvino")
RAW = ("seconds", "tokens", "read")  # of a sample, beside its figures
WORKER = pathlib.Path(__file__).with_name("benchmark_worker.py")


class BenchmarkError(ValueError):
    """The measurement failed."""


class UsageError(BenchmarkError):
    """What was asked for cannot be measured."""


# --- definitions -----------------------------------------------------------------------------------------------------------------------

def metrics(seconds, prompt, new):
    """The figures of one sample.

    Parameters
    ----------
    seconds : sequence of float
        What each new token took: the first with the whole prompt before it. With `new` 0 one number, for the prompt alone.
    prompt, new : int
        Tokens.

    Returns
    -------
    dict of str to float or None
        ``ttft``: seconds to the first token, the prompt's pass and the choice; ``prefill``: prompt tokens per second of it (of the prompt's pass
        where no token is chosen); ``tpot``, ``tpot_median``, ``tpot_p95``: seconds for a token after the first (mean, median, 95th percentile,
        between neighbours in proportion); ``decode``: tokens per second after the first; ``peak``: of the fastest of them; ``output``: new tokens
        per second of the whole, the prompt included. None where there is nothing to divide: no first token, no second one, no time.

    Examples
    --------
    >>> from qwen3.benchmark import metrics
    >>> metrics([0.5, 0.25, 0.25], prompt=100, new=3)["decode"]
    4.0
    """
    if len(seconds) != max(1, new):
        raise BenchmarkError(f"metrics: seconds: expected {max(1, new)} numbers for {new} new tokens, got {len(seconds)}")
    rate = lambda count, time: count / time if time > 0 else None
    steps = sorted(seconds[1:])
    place = 0.95 * (len(steps) - 1)
    return {
        "ttft": seconds[0] if new else None, "prefill": rate(prompt, seconds[0]),
        "tpot": statistics.fmean(steps) if steps else None, "tpot_median": statistics.median(steps) if steps else None,
        "tpot_p95": steps[int(place)] + (place - int(place)) * (steps[min(int(place) + 1, len(steps) - 1)] - steps[int(place)]) if steps else None,
        "decode": rate(len(steps), sum(steps)) if steps else None, "peak": rate(1, steps[0]) if steps else None, "output": rate(new, sum(seconds)),
    }


@dataclass(frozen=True)
class Work:
    """What a model has to do, whoever runs it.

    Attributes
    ----------
    token : int
        Multiply-accumulates of the projections for one token; 0 where the dimensions are not known.
    head : int
        Of the head, which only the last token of a prompt needs.
    pair : int
        Of attention, for one query and one key.
    """

    token: int
    head: int
    pair: int

    @classmethod
    def of(cls, config):
        """Of a `Qwen3Config`."""
        query, key = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        layer = config.hidden_size * (2 * query + 2 * key + 3 * config.intermediate_size)
        known = config.hidden_size and config.intermediate_size and query and key
        return cls(config.num_hidden_layers * layer if known else 0, config.vocab_size * config.hidden_size, 2 * config.num_hidden_layers * query)

    def prefill(self, prompt, depth):
        """Multiply-accumulates of a prompt of so many tokens after a context of `depth`."""
        return prompt * self.token + self.head + self.pair * (prompt * depth + prompt * (prompt + 1) // 2)

    @staticmethod
    def decode_bytes(weight_bytes, kv_bytes, prompt, depth, new):
        """Bytes that the tokens after the first must read: all weights for each, and keys and values of its context, itself included."""
        context = sum(depth + prompt + i for i in range(1, new))
        return weight_bytes * (new - 1) + kv_bytes * context


def summary(samples):
    """Median, least and greatest of each figure over the samples that have it."""
    found = {}
    for name in samples[0]:
        values = [s[name] for s in samples if s[name] is not None]
        found[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)} if values else None
    return found


# --- processes -------------------------------------------------------------------------------------------------------------------------

class Worker:
    """A runtime's process, stopped except while it answers.

    It is in a process group of its own: an interrupt from the keyboard reaches this process alone, which ends it.

    Parameters
    ----------
    name : str
    command : list of str
    environment : dict of str to str
    """

    def __init__(self, name, command, environment):
        self.name = name
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment, process_group=0,
                                            encoding="utf-8")
        except OSError as error:
            self.errors.close()
            raise BenchmarkError(f"{name}: {command[0]}: {error.strerror}") from error
        self.running = True

    def ask(self, op, **fields):
        """The answer to a request; BenchmarkError if it is an error or none comes."""
        try:
            self._signal(signal.SIGCONT)
            self.process.stdin.write(json.dumps({"op": op} | fields) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BenchmarkError(f"{self.name}: {self._end()}")
        self._stop()
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise BenchmarkError(f"{self.name}: expected an answer in JSON, got {line[:100]!r}") from error
        if "error" in answer:
            raise BenchmarkError(f"{self.name}: {answer['error']}")
        return answer

    def _signal(self, number):
        if self.running:
            os.kill(self.process.pid, number)

    def _stop(self):
        """Stop it, and wait until it is: what runs next runs alone."""
        self._signal(signal.SIGSTOP)
        if self.running:
            _, status = os.waitpid(self.process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                self.running, self.process.returncode = False, os.waitstatus_to_exitcode(status)

    def _end(self):
        """How it ended, in words."""
        self.running = False
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        reason = f"ended by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -signal.SIGKILL else "") if code < 0 else f"ended with code {code}"
        return ": ".join([f"its process {reason}", *last])

    def close(self, at_once=False):
        """End it, by its own way out or at once."""
        self._signal(signal.SIGKILL if at_once else signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.running = False
        self.process.stdout.close()
        self.errors.close()


# --- the measurement -------------------------------------------------------------------------------------------------------------------

def benchmark(model=None, *, prompts=None, new=NEW, depths=(0,), threads=None, repeat=REPEAT, weights=None, activations="int16", kv="f16", peers=(),
              gguf=None, ort_model=None, ort_io="copy", peer_python=None, commands=None, progress=None):
    """Measure a model, and peers with the same shapes in turns.

    Parameters
    ----------
    model : str, os.PathLike or None
        As for `qwen3.load`: a checkpoint or an ONNX directory.
    prompts : sequence of int, optional
        Lengths of prompts; by default 16, 128, 512 and 1024, without those that the model's context has no room for.
    new : int
        Tokens to generate; 0 measures prompts alone.
    depths : sequence of int
        Tokens that are in the context before the prompt.
    threads : sequence of int, optional
        By default what `qkernels.get_num_threads` says.
    repeat : int
        Samples of each case; one more comes before them and is not counted.
    weights, activations, kv
        As for `qwen3.load`.
    peers : sequence of {"onnxruntime", "llama.cpp", "llama.cpp-flash", "openvino"}
    gguf : str or os.PathLike, optional
        The same model for llama.cpp and OpenVINO.
    ort_model : str or os.PathLike, optional
        The same model for ONNX Runtime; by default `model` if it is a graph, else an export of it (ort-int4) in a temporary directory.
    ort_io : {"copy", "shared"}
        How ONNX Runtime gets past keys and values: as tensors that it copies, or in one buffer bound to past and present.
    peer_python : str, optional
        The interpreter that has the peers; by default this one.
    commands : dict of str to list of str, optional
        Command of the worker of a runtime in place of its own.
    progress : callable, optional
        ``progress(text)`` before each measurement.

    Returns
    -------
    dict
        Everything measured, fit for JSON; `qwen3.benchmark_report.render` shows it.

    Raises
    ------
    UsageError
        For an argument, before anything is measured.
    BenchmarkError
        Where our own runtime fails. A peer that fails is named in the result's ``notes``.
    """
    run = Benchmark(model, prompts=prompts, new=new, depths=depths, threads=threads, repeat=repeat, options={"weights": weights, "activations": activations,
                    "kv": kv}, peers=peers, gguf=gguf, ort_model=ort_model, ort_io=ort_io, peer_python=peer_python, commands=commands, progress=progress)
    return run()


class Benchmark:
    """A checked plan; calling it measures. Parameters as for `benchmark`."""

    def __init__(self, model, *, prompts, new, depths, threads, repeat, options, peers, gguf, ort_model, ort_io, peer_python, commands, progress):
        import qkernels
        from qwen3.model import check_precision

        self.new, self.repeat = _number("new", new, 0), _number("repeat", repeat, 1)
        self.depths = _numbers("depths", depths, 0)
        self.threads = _numbers("threads", (qkernels.get_num_threads(),) if threads is None else threads, 1, 1024)
        self.prompts = _numbers("prompts", PROMPTS if prompts is None else prompts, 1)
        self.peers = tuple(dict.fromkeys(peers))
        for peer in self.peers:
            if peer not in PEERS:
                raise UsageError(f"benchmark: peers: expected {', '.join(PEERS)}, got {peer!r}")
            if peer != "onnxruntime" and gguf is None:
                raise UsageError(f"benchmark: peers: {peer} needs the model as a GGUF file (gguf, --gguf), which was not given")
        if ort_io not in ("copy", "shared"):
            raise UsageError(f"benchmark: ort_io: expected copy or shared, got {ort_io!r}")
        for name, given, readers in (("gguf", gguf is not None, PEERS[1:]), ("ort_model", ort_model is not None, PEERS[:1]),
                                     ("ort_io", ort_io != "copy", PEERS[:1]), ("peer_python", peer_python is not None, PEERS)):
            if given and not {*readers} & {*self.peers}:
                raise UsageError(f"benchmark: {name}: of no use without the peer {' or '.join(readers)}")
        self.gguf, self.ort_model, self.ort_io, self.peer_python = gguf, ort_model, ort_io, peer_python or sys.executable
        self.commands, self.progress, self.notes = commands or {}, progress or (lambda text: None), []
        self.graph, self.name = is_onnx(model), str(model) if model is not None else "the demo model"
        if self.graph and options["weights"] is not None:
            raise UsageError(f"benchmark: weights: an ONNX graph has its own, got {options['weights']!r}")
        try:
            check_precision("benchmark", options["weights"] or "int4", options["activations"], options["kv"])
        except ValueError as error:
            raise UsageError(str(error)) from error
        self.options = {name: value for name, value in options.items() if value is not None}
        self.path = os.path.abspath(os.path.expanduser(model)) if self.graph else str(resolve(model))
        self.config, positions = self._model()
        self._fit(positions, prompts is None)
        self.max_context = max(self.prompts) + max(self.depths) + self.new
        self.work = Work.of(self.config)

    def _model(self):
        """The configuration, and how many positions there are: at least as many as asked for, if so many are."""
        if not self.graph:
            config = Qwen3Config.from_directory(self.path)
            return config, config.max_position_embeddings
        from qwen3.onnx_decoder import OnnxDecoder

        decoder = OnnxDecoder(self.path, prepare=False, max_context=max(self.prompts) + max(self.depths) + self.new)
        return decoder.config, decoder.max_context

    def _fit(self, positions, may_drop):
        fits = lambda prompt: prompt + max(self.depths) + self.new <= positions
        if may_drop:
            dropped = [p for p in self.prompts if not fits(p)]
            if dropped and len(dropped) < len(self.prompts):
                self.prompts = tuple(p for p in self.prompts if fits(p))
                self.notes.append(f"prompts of {', '.join(map(str, dropped))} tokens: left out, the model has {positions} positions")
        for prompt in self.prompts:
            if not fits(prompt):
                raise UsageError(f"benchmark: prompts: {prompt} tokens after {max(self.depths)} and before {self.new} new ones are more than "
                                 f"the {positions} positions of {self.name}")

    def __call__(self):
        report = {
            "format": 1, "model": self.name, "graph": self.graph, "dimensions": {name: getattr(self.config, name) for name in (
                "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")},
            "settings": {"prompts": self.prompts, "depths": self.depths, "threads": self.threads, "new": self.new, "repeat": self.repeat, "warm_up": 1,
                         "peers": self.peers, "ort_io": self.ort_io if "onnxruntime" in self.peers else None,
                         "gguf": pathlib.Path(self.gguf).name if self.gguf else None} | self.options,
            "machine": fingerprint(), "runtimes": [], "cases": [], "notes": self.notes, "complete": False,
        }
        self.report = report
        try:
            with contextlib.ExitStack() as stack:
                models = self._models(stack)
                for threads in self.threads:
                    self._measure(threads, models)
            report["complete"] = True
        except KeyboardInterrupt:
            self.notes.append("broken off: not everything was measured")
        report["machine"]["load_average_after"] = [round(x, 2) for x in os.getloadavg()]
        return report

    def _models(self, stack):
        """What each runtime loads; a peer that is not installed, or for which there is no model, is named in the notes."""
        models = {OURS: self.path}
        for peer in self.peers:
            try:
                worker = self._start(peer)
                try:
                    worker.ask("versions")
                finally:
                    worker.close()
                models[peer] = self._graph(stack) if peer == "onnxruntime" else os.path.abspath(self.gguf)
            except (ImportError, ValueError, OSError) as error:
                self._fail(peer, error)
        return models

    def _graph(self, stack):
        """The .onnx file for ONNX Runtime."""
        from qwen3.onnx_graph import find_model

        if self.ort_model is not None or self.graph:
            return str(find_model(os.path.abspath(os.path.expanduser(self.ort_model or self.path))))
        from qwen3.onnx_export import export

        if self.options.get("weights", "int4") != "int4":
            self.notes.append(f"onnxruntime runs an export in int4, qkernels {self.options['weights']}")
        self.progress("exporting for onnxruntime")
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qwen3-benchmark-")))
        export(self.path, directory, contract="ort-int4")
        return str(directory / "model.onnx")

    def _measure(self, threads, models):
        """All cases with one number of threads."""
        workers = {}
        try:
            machine = self._start("machine")
            workers["machine"] = machine
            machine.ask("open", model=None, threads=threads, max_context=0, options={"buffer": _buffer_size()})
            opened = {}
            for name, path in models.items():
                self.progress(f"{threads} threads: loading {name}")
                try:
                    workers[name] = self._start(name)
                    opened[name] = self._open(workers[name], name, path, threads)
                except BenchmarkError as error:
                    self._fail(name, error)
            for depth in sorted(self.depths):
                for prompt in self.prompts:
                    self._case(threads, prompt, depth, workers, opened)
            for name, entry in opened.items():
                with contextlib.suppress(BenchmarkError):  # it failed, and has been named
                    entry["memory"]["after"] = workers[name].ask("memory")["memory"]
        except BaseException:
            for worker in workers.values():
                worker.close(at_once=True)
            raise
        for worker in workers.values():
            worker.close()

    def _start(self, name):
        ours = name in (OURS, "machine")
        environment = dict(os.environ)
        if ours:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WORKER.parent.parent), environment.get("PYTHONPATH")]))
        command = self.commands.get(name) or [sys.executable if ours else self.peer_python, "-P", str(WORKER), name]
        return Worker(name, command, environment)

    def _open(self, worker, name, path, threads):
        options = self.options
        if name != OURS:
            options = {"io": self.ort_io, "kv_heads": self.config.num_key_value_heads, "head_dim": self.config.head_dim}
        answer = worker.ask("open", model=path, threads=threads, max_context=self.max_context, options=options)
        facts = answer["facts"]
        if name == "onnxruntime":
            facts.setdefault("weight_bytes", _stored_bytes(path))
        ours = {"layers": self.config.num_hidden_layers, "kv_heads": self.config.num_key_value_heads, "head_dim": self.config.head_dim}
        if (shape := facts.get("shape", ours)) != ours:
            self.notes.append(f"{name}: another model? It has {_words(shape)}, {self.name} {_words(ours)}")
        entry = {"runtime": name, "threads": threads, "versions": answer["versions"], "load_seconds": answer["seconds"], "facts": facts,
                 "memory": {"loaded": answer["memory"]}}
        self.report["runtimes"].append(entry)
        return entry

    def _fail(self, name, error):
        if name == OURS:
            raise error
        note = f"{name}: not measured: {str(error).removeprefix(name + ': ')}"
        if note not in self.notes:
            self.notes.append(note)

    def _case(self, threads, prompt, depth, workers, opened):
        rng = random.Random(f"{prompt} after {depth}")
        vocabulary = range(self.config.vocab_size)
        context = random.Random(0).choices(vocabulary, k=max(self.depths))[:depth]
        case = {"threads": threads, "prompt": prompt, "depth": depth, "new": self.new, "limits": [], "runtimes": {}}
        active = {name: {"samples": []} for name in opened if not opened[name].get("failed")}
        for turn in range(-1, self.repeat):
            fields = {"depth_ids": context, "ids": rng.choices(vocabulary, k=prompt), "new": self.new}
            limit = lambda kind: workers["machine"].ask("limit", kind=kind)["rate"]
            if turn >= 0:
                case["limits"].append({kind: limit(kind) for kind in ("dot", "fma", "read")})
                read = case["limits"][-1]["read"]
            # there and back: neither is always first
            for name in list(active) if turn % 2 else reversed(list(active)):
                part = "warm-up" if turn < 0 else f"sample {turn + 1} of {self.repeat}"
                self.progress(f"{threads} threads, prompt {prompt} after {depth}: {name}, {part}")
                try:
                    if turn < 0:
                        active[name] |= workers[name].ask("watch", **fields)
                    else:
                        sample = workers[name].ask("sample", **fields)
                        before, read = read, limit("read")
                        active[name]["samples"].append(sample | {"read": [before, read]} | metrics(sample["seconds"], prompt, self.new))
                except BenchmarkError as error:
                    self._fail(name, BenchmarkError(f"prompt {prompt} after {depth}: {str(error).removeprefix(name + ': ')}"))
                    opened[name]["failed"] = True
                    del active[name]
        case["runtimes"] = {name: self._figures(found, case, opened[name]["facts"], active[OURS]) for name, found in active.items()}
        self.report["cases"].append(case)

    def _figures(self, found, case, facts, ours):
        """The samples of a runtime with what follows from them."""
        prompt, depth, new, samples = case["prompt"], case["depth"], case["new"], found["samples"]
        macs = self.work.prefill(prompt, depth) if self.work.token else None
        nbytes = None
        if facts.get("weight_bytes") and facts.get("kv_bytes") is not None and new > 1:
            nbytes = self.work.decode_bytes(facts["weight_bytes"], facts["kv_bytes"], prompt, depth, new)
        peak = "fma" if facts.get("activations") == "f32" else "dot"
        for sample, limits in zip(samples, case["limits"], strict=True):
            steps, first = sum(sample["seconds"][1:]), sample["seconds"][0]
            sample["bytes_rate"] = nbytes / steps if nbytes and steps > 0 else None
            sample["bandwidth_share"] = sample["bytes_rate"] / statistics.fmean(sample["read"]) if sample["bytes_rate"] else None
            sample["macs_rate"] = macs / first if macs and first > 0 else None
            sample["macs_share"] = sample["macs_rate"] / limits[peak] if sample["macs_rate"] else None
        result = {"summary": summary([{k: v for k, v in s.items() if k not in RAW} for s in samples])} | found
        if found is not ours:
            ratio = lambda a, b: a / b if a and b else None
            pairs = [{"prefill": ratio(o["prefill"], p["prefill"]), "decode": ratio(o["decode"], p["decode"]), "output": ratio(o["output"], p["output"])}
                     for o, p in zip(ours["samples"], samples, strict=True)]
            result["ratio"] = summary(pairs)
        return result


def _number(name, value, least, most=2**31 - 1):
    if not is_integer(value) or not least <= value <= most:
        raise UsageError(f"benchmark: {name}: expected an integer from {least} to {most}, got {value!r}")
    return int(value)


def _numbers(name, values, least, most=2**31 - 1):
    values = tuple(dict.fromkeys(_number(name, value, least, most) for value in values))
    if not values:
        raise UsageError(f"benchmark: {name}: expected at least one number, got none")
    return values


def _buffer_size():
    """16 times the last cache, or twice that of a large machine, but no more than a quarter of the memory that is free."""
    wanted = max(256 << 20, 2 * last_cache(), min(1 << 30, 16 * last_cache()))
    try:
        free = next(1024 * int(line.split()[1]) for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = 4 * wanted
    return min(wanted, max(1 << 20, free // 4))


def _stored_bytes(path):
    """Bytes of the matrices of an ONNX graph as they are stored, or None where it is not one that our own runner plans."""
    try:
        from qwen3.onnx_decoder import OnnxDecoder

        plan = OnnxDecoder(path, prepare=False).plan
    except (ImportError, ValueError):
        return None
    return sum({spec.key: spec.stored for step in plan.steps for _, group in step.packed for spec in group}.values())


def _words(shape):
    return f"{shape['layers']} layers, {shape['kv_heads']} key and value heads of size {shape['head_dim']}"
