"""`qwen3 benchmark`: definitions, the order of measurements, what a peer may do wrong, the command."""
import csv
import io
import itertools
import json
import os
import pathlib
import platform
import re
import select
import signal
import statistics
import subprocess
import sys
import types

import numpy as np
import pytest

import qwen3
from qwen3 import benchmark_worker
from qwen3.benchmark import BenchmarkError, UsageError, Work, Worker, benchmark, metrics, summary
from qwen3.benchmark_report import render
from qwen3.checkpoint import EMBEDDING, tensor_shapes
from qwen3.machine import fingerprint
from tests.qwen3.checkpoints import make_checkpoint
from tests.qwen3.test_cli import command, fails

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A peer without a library. Its samples take 2 s for the prompt and 1 s for each token; before it answers one it looks whether all other children
# of its parent are stopped.
PEER = '''
import json, os, pathlib, sys
kind, log = sys.argv[1:]

def others():
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, (state, parent) = int(path.parent.name), path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getppid() and pid != os.getpid():
            yield state

for line in sys.stdin:
    request = json.loads(line)
    op = request["op"]
    with open(log, "a") as file:
        file.write(json.dumps([kind, request | {"others": "".join(others())}]) + "\\n")
    answer = {"versions": {kind: "1.0"}, "memory": {"resident": 1 << 20, "peak": 2 << 20}}
    if op == "open":
        answer |= {"seconds": 0.5, "facts": {"weight_bytes": 1000, "kv_bytes": 10}}
        if kind == "other model":
            answer["facts"]["shape"] = {"layers": 1, "kv_heads": 2, "head_dim": 128}
    if op == "sample":
        if kind == "dies":
            print("no more memory", file=sys.stderr)
            os.kill(os.getpid(), 9)
        answer = {"seconds": [2.0] + [1.0] * (request["new"] - 1), "tokens": [0] * request["new"]}
    if op == "watch":
        answer = {"allocated": None, "copied": 7}
    if kind == "missing" or kind == "fails" and op == "sample":
        answer = {"error": "thing is not installed: pip install thing"}
    print("no JSON" if kind == "babbles" and op == "sample" else json.dumps(answer), flush=True)
'''


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """Commands of faked peers, and what they were asked, in order: (kind, request)."""
    monkeypatch.setattr("qwen3.benchmark._buffer_size", lambda: 1 << 20)
    script, log = tmp_path / "peer.py", tmp_path / "log"
    script.write_text(PEER)
    log.touch()
    return types.SimpleNamespace(command=lambda kind: [sys.executable, str(script), kind, str(log)],
                                 requests=lambda: [tuple(json.loads(line)) for line in log.read_text().splitlines()])


# --- definitions -----------------------------------------------------------------------------------------------------------------------

def test_metrics():
    m = metrics([2.0, 0.5, 0.25, 1.0, 0.25], prompt=100, new=5)
    assert m == {"ttft": 2.0, "prefill": 50.0, "tpot": 0.5, "tpot_median": 0.375, "tpot_p95": pytest.approx(0.5 + 0.85 * 0.5), "decode": 2.0, "peak": 4.0,
                 "output": 5 / 4}
    steps = np.random.default_rng(0).random(40)
    assert metrics([1.0, *steps], prompt=1, new=41)["tpot_p95"] == pytest.approx(np.percentile(steps, 95))


def test_metrics_of_one_and_no_tokens():
    assert metrics([4.0], prompt=8, new=1) == {"ttft": 4.0, "prefill": 2.0, "tpot": None, "tpot_median": None, "tpot_p95": None, "decode": None, "peak": None,
                                               "output": 0.25}
    assert metrics([4.0], prompt=8, new=0) == {"ttft": None, "prefill": 2.0, "tpot": None, "tpot_median": None, "tpot_p95": None, "decode": None, "peak": None,
                                               "output": 0.0}
    assert metrics([3.0, 1.5], prompt=1, new=2)["tpot_p95"] == 1.5


def test_metrics_of_a_clock_that_stands():
    m = metrics([0.0, 0.0], prompt=8, new=2)
    assert (m["ttft"], m["tpot"]) == (0.0, 0.0)
    assert [m[name] for name in ("prefill", "decode", "peak", "output")] == [None] * 4
    with pytest.raises(BenchmarkError, match="seconds: expected 3 numbers for 3 new tokens, got 2"):
        metrics([1.0, 1.0], prompt=8, new=3)


def test_summary():
    assert summary([{"a": 3.0, "b": None}, {"a": 1.0, "b": 5.0}, {"a": 2.5, "b": None}]) == {
        "a": {"median": 2.5, "min": 1.0, "max": 3.0}, "b": {"median": 5.0, "min": 5.0, "max": 5.0}}
    assert summary([{"a": None}]) == {"a": None}


def test_work():
    config = qwen3.load().config
    work = Work.of(config)
    matrices = sum(shape[0] * shape[1] for name, shape in tensor_shapes(config).items() if len(shape) == 2 and name != EMBEDDING)
    head = config.vocab_size * config.hidden_size
    pairs = sum(1 for query in range(5) for _ in range(3 + query + 1))
    assert config.tie_word_embeddings
    assert work.prefill(prompt=5, depth=3) == 5 * matrices + head + pairs * 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim
    # the first of 4 tokens comes from the prompt; the others read the weights and 5 + 3 + 1 … 3 keys and values
    assert work.decode_bytes(100, 10, prompt=5, depth=3, new=4) == 3 * 100 + 10 * (9 + 10 + 11)
    assert work.decode_bytes(100, 10, prompt=5, depth=3, new=1) == 0


def test_fingerprint():
    text = json.dumps(fingerprint())
    assert platform.node() not in text
    found = json.loads(text)
    assert {"cpu", "isa", "compiler", "os", "date", "versions", "caches", "memory"} <= found.keys()
    assert found["versions"]["numpy"] == np.__version__


# --- our own runtime -------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """The demo model as a graph."""
    from qwen3.onnx_export import export

    directory = tmp_path_factory.mktemp("graph")
    export(None, directory)
    return directory


def opened(runtime, model=None, **options):
    runtime.open(str(model or qwen3.resolve()), 1, 64, options)
    return runtime


def test_seconds_are_of_a_fake_clock():
    """Loading reads the clock twice; a sample once before the prompt and once after each token."""
    readings = [0, 10, 100, 104, 105, 107, 200, 203, 300, 305]
    runtime = benchmark_worker.QKernels(clock=iter(readings).__next__)
    assert runtime.open(str(qwen3.resolve()), 1, 64, {})["seconds"] == 10
    assert runtime.sample([], [5, 6], 3)["seconds"] == [4, 1, 2]
    assert runtime.sample([], [5, 6], 1)["seconds"] == [3]
    assert runtime.sample([], [5, 6], 0) == {"seconds": [5], "tokens": []}
    assert runtime.cache.length == 2


def test_samples_run_the_model():
    """The same tokens as without a benchmark, wherever the context before the prompt comes from."""
    model = qwen3.load(threads=1, max_context=64)
    context, prompt = list(range(20, 30)), [7, 8, 9]
    expected = [s.token for s in model.generate(context + prompt, max_new_tokens=4, sampler=qwen3.Sampler(temperature=0), ignore_eos=True)]
    runtime = opened(benchmark_worker.QKernels())
    for depth in (0, 4, 10, 10, 10):  # anew, longer, the same
        sample = runtime.sample(context[:depth], context[depth:] + prompt, 4)
        assert sample["tokens"] == expected
        assert len(sample["seconds"]) == 4
    assert runtime.sample([1, 2], context + prompt, 4)["tokens"] != expected  # another context


def test_bytes_of_a_token():
    runtime = opened(benchmark_worker.QKernels())
    facts = runtime.load(str(qwen3.resolve()), 1, 200, {})
    config = runtime.model.config
    assert facts["weight_bytes"] == runtime.model.nbytes
    assert facts["kv_bytes"] == 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    seen = runtime.watch([], [1] * 60, 11)
    # the cache has room for 64 tokens first; the step of the 65th moves 64 tokens, of 10 steps
    assert seen["copied"] == 64 * facts["kv_bytes"] / 10
    logits = 4 * config.vocab_size
    assert logits <= seen["allocated"] < 4 * logits


def test_bytes_of_a_token_of_graph_tensors(graph, monkeypatch):
    """Tensors as past and present are copied at every step, all of them."""
    from qwen3 import onnx_decoder

    monkeypatch.setattr(onnx_decoder.Plan, "cache_layers", property(lambda self: 0, lambda self, value: None), raising=False)
    runtime = opened(benchmark_worker.QKernels(), graph)
    assert runtime.model.cache_kind == "tensors"
    config = runtime.model.config
    token = 2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim  # float32
    assert runtime.watch([], [1, 2, 3], 3)["copied"] == token * statistics.mean([3, 4])


# --- ONNX Runtime ----------------------------------------------------------------------------------------------------------------------

def test_onnxruntime_runs_the_graph_either_way(graph):
    pytest.importorskip("onnxruntime")
    ours, path = opened(benchmark_worker.QKernels(), graph), graph / "model.onnx"
    kinds = {io: opened(benchmark_worker.OnnxRuntime(), path, io=io) for io in ("copy", "shared")}
    context, prompt = list(range(20, 30)), [7, 8, 9]
    for depth in (0, 4, 10, 10):
        tokens = {io: r.sample(context[:depth], context[depth:] + prompt, 5)["tokens"] for io, r in kinds.items()}
        assert tokens["copy"] == tokens["shared"] == ours.sample(context[:depth], context[depth:] + prompt, 5)["tokens"]
    facts = {io: r.load(str(path), 1, 64, {"io": io}) for io, r in kinds.items()}
    config = ours.model.config
    assert facts["copy"]["kv_bytes"] == facts["shared"]["kv_bytes"] == 2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    for r in kinds.values():
        r.filled = []
    assert kinds["copy"].watch([], [1, 2, 3], 3)["copied"] == facts["copy"]["kv_bytes"] * statistics.mean([3, 4])
    assert kinds["shared"].watch([], [1, 2, 3], 3)["copied"] == 0
    assert [len(r.sample([], [1, 2], 0)["seconds"]) for r in kinds.values()] == [1, 1]


def test_onnxruntime_wants_a_decoder(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Sigmoid", ["x"], ["y"])], "g", [value("x")], [value("y")])
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 23)]), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="expected the inputs of a decoder with past keys and values, got x"):
        opened(benchmark_worker.OnnxRuntime(), tmp_path / "model.onnx")


# --- processes -------------------------------------------------------------------------------------------------------------------------

def test_a_library_that_is_missing(tmp_path, monkeypatch):
    with pytest.raises(benchmark_worker.MissingError, match=re.escape(f"nothing-cpp is not installed: pip install nothing-cpp, for {sys.executable}")):
        benchmark_worker.require("there_is_nothing", "nothing-cpp")
    (tmp_path / "broken_library.py").write_text("import there_is_nothing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(benchmark_worker.MissingError, match="broken cannot be imported .No module named 'there_is_nothing'.: pip install broken"):
        benchmark_worker.require("broken_library", "broken")


def test_what_a_library_prints_is_no_answer(tmp_path):
    (tmp_path / "onnxruntime.py").write_text("import os\nprint('hello')\nos.write(1, b'hello')\n__version__ = '9'\n")
    worker = Worker("onnxruntime", [sys.executable, benchmark_worker.__file__, "onnxruntime"], os.environ | {"PYTHONPATH": str(tmp_path)})
    try:
        assert worker.ask("versions")["versions"]["onnxruntime"] == "9"
        with pytest.raises(BenchmarkError, match="onnxruntime: AttributeError: 'OnnxRuntime' object has no attribute 'nothing'"):
            worker.ask("nothing")
    finally:
        worker.close()
    assert worker.process.returncode == 0


def test_command_that_is_none():
    with pytest.raises(BenchmarkError, match="x: /there/is/nothing: No such file or directory"):
        Worker("x", ["/there/is/nothing"], {})
    worker = Worker("x", [sys.executable, "-c", "raise SystemExit('no way')"], {})
    with pytest.raises(BenchmarkError, match="x: its process ended with code 1: no way"):
        worker.ask("open")
    worker.close()


@linux
def test_workers_stand_still_between_requests_and_end_with_their_parent(tmp_path):
    code = (f"import sys; sys.path.insert(0, {str(qwen3.__path__[0] + '/..')!r})\nfrom qwen3.benchmark import *\nfrom qwen3 import benchmark as b\n"
            "import os\nw = b.Worker('machine', [sys.executable, '-P', str(b.WORKER), 'machine'], dict(os.environ))\nw.ask('memory')\n"
            "print(w.process.pid, flush=True)\nsys.stdin.read()")
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    pid = int(parent.stdout.readline())
    assert "\nState:\tT" in pathlib.Path(f"/proc/{pid}/status").read_text()
    handle = os.pidfd_open(pid)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert select.select([handle], [], [], 60)[0]
    os.close(handle)


# --- the whole -------------------------------------------------------------------------------------------------------------------------

@linux
def test_measures_in_turns_one_at_a_time(peer):
    texts = []
    report = benchmark(prompts=(2, 3), new=3, depths=(0, 4), threads=(1,), repeat=3, peers=("llama.cpp", "openvino"), gguf="model.gguf", progress=texts.append,
                       commands={"llama.cpp": peer.command("one"), "openvino": peer.command("two")})
    assert report["complete"]
    assert report["notes"] == []
    requests = peer.requests()
    per_case = [("watch", "one"), ("watch", "two")] + [("sample", "two"), ("sample", "one"), ("sample", "one"), ("sample", "two"), ("sample", "two"), ("sample", "one")]
    expected = [("versions", "one"), ("versions", "two"), ("open", "one"), ("open", "two"), *4 * per_case, ("memory", "one"), ("memory", "two")]
    assert [(r["op"], kind) for kind, r in requests] == expected
    # of the machine's process, ours and the other peer's, whoever is there stands still
    assert {r["others"] for _, r in requests if r["op"] in ("watch", "sample")} == {"TTT"}
    opening = next(r for kind, r in requests if r["op"] == "open")
    assert (opening["model"], opening["threads"], opening["max_context"]) == (os.path.abspath("model.gguf"), 1, 3 + 4 + 3)
    samples = [r for kind, r in requests if r["op"] == "sample" and kind == "one"]
    assert [(len(r["depth_ids"]), len(r["ids"])) for r in samples] == [(0, 2)] * 3 + [(0, 3)] * 3 + [(4, 2)] * 3 + [(4, 3)] * 3
    assert len({tuple(r["ids"]) for r in samples[:3]}) == 3, "a prefix cache must not know the prompt"
    assert len({tuple(r["depth_ids"]) for r in samples}) == 2
    assert [r["ids"] for r in samples] == [r["ids"] for kind, r in requests if r["op"] == "sample" and kind == "two"]
    assert texts[0].startswith("1 threads: loading qkernels")
    assert "1 threads, prompt 3 after 4: openvino, sample 2 of 3" in texts

    assert [(c["threads"], c["depth"], c["prompt"]) for c in report["cases"]] == [(1, 0, 2), (1, 0, 3), (1, 4, 2), (1, 4, 3)]
    for case in report["cases"]:
        assert [len(r["samples"]) for r in case["runtimes"].values()] == [3, 3, 3]
        assert [len(limit) for limit in case["limits"]] == [3, 3, 3]
        ours, one = case["runtimes"]["qkernels"], case["runtimes"]["llama.cpp"]
        assert one["summary"]["decode"] == {"median": 1.0, "min": 1.0, "max": 1.0}
        assert one["copied"] == 7
        ratios = [sample["decode"] / 1.0 for sample in ours["samples"]]
        assert one["ratio"]["decode"] == {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
        # two tokens after the first read the weights and a context of one token more each, in 2 s
        length = case["prompt"] + case["depth"]
        rate = (2 * 1000 + 10 * (2 * length + 3)) / 2
        assert [s["bytes_rate"] for s in one["samples"]] == [rate] * 3
        assert [s["bandwidth_share"] for s in one["samples"]] == [rate / statistics.mean(s["read"]) for s in one["samples"]]
        # what is read after a sample is what is read before the next one of the round
        for turn in range(3):
            reads = [found["samples"][turn]["read"] for found in case["runtimes"].values()]
            reads = reads if turn % 2 else reads[::-1]
            assert reads[0][0] == case["limits"][turn]["read"]
            assert [after for _, after in reads[:-1]] == [before for before, _ in reads[1:]]
        assert all(s["macs_share"] == s["macs_rate"] / limit["dot"] for s, limit in zip(one["samples"], case["limits"], strict=True))


@linux
@pytest.mark.parametrize(("kind", "note"), [
    ("missing", "llama.cpp: not measured: thing is not installed: pip install thing"),
    ("fails", "llama.cpp: not measured: prompt 2 after 0: thing is not installed: pip install thing"),
    ("dies", "llama.cpp: not measured: prompt 2 after 0: its process ended by SIGKILL (out of memory?): no more memory"),
    ("babbles", "llama.cpp: not measured: prompt 2 after 0: expected an answer in JSON, got 'no JSON\\n'"),
])
def test_a_peer_that_cannot_is_named_and_the_rest_measured(peer, kind, note):
    report = benchmark(prompts=(2, 3), new=2, threads=(1,), repeat=2, peers=("llama.cpp", "openvino"), gguf="x",
                       commands={"llama.cpp": peer.command(kind), "openvino": peer.command("good")})
    assert report["complete"]
    assert report["notes"] == [note]
    assert [list(case["runtimes"]) for case in report["cases"]] == [["qkernels", "openvino"]] * 2
    assert f"- {note}\n" in render(report)


@linux
def test_another_model_is_named(peer):
    report = benchmark(prompts=(2,), new=1, threads=(1,), repeat=1, peers=("openvino",), gguf="x", commands={"openvino": peer.command("other model")})
    assert report["notes"] == ["openvino: another model? It has 1 layers, 2 key and value heads of size 128, the demo model 4 layers, "
                               "2 key and value heads of size 128"]


@linux
def test_our_own_failure_is_an_error(peer):
    with pytest.raises(BenchmarkError, match="prompt 2 after 0: thing is not installed"):
        benchmark(prompts=(2,), new=1, threads=(1,), repeat=1, commands={"qkernels": peer.command("fails")})


def test_export_that_is_impossible_is_named(peer, monkeypatch):
    monkeypatch.setitem(sys.modules, "qwen3.onnx_export", None)
    report = benchmark(prompts=(2,), new=1, threads=(1,), repeat=1, peers=("onnxruntime",), commands={"onnxruntime": peer.command("good")})
    assert re.match("onnxruntime: not measured: import of qwen3.onnx_export", report["notes"][0])


def test_broken_off(peer):
    """What was measured so far is reported, and no process stays."""
    count = itertools.count()

    def progress(text):
        if "prompt 3" in text and next(count) == 2:
            raise KeyboardInterrupt

    report = benchmark(prompts=(2, 3), new=2, threads=(1,), repeat=2, progress=progress)
    assert not report["complete"]
    assert [case["prompt"] for case in report["cases"]] == [2]
    assert report["notes"] == ["broken off: not everything was measured"]
    assert "- broken off" in render(report)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_prompts_that_the_context_has_no_room_for(tmp_path, peer):
    make_checkpoint(tmp_path, max_position_embeddings=200)
    report = benchmark(tmp_path, new=3, threads=(1,), repeat=1)
    assert [case["prompt"] for case in report["cases"]] == [16, 128]
    assert report["notes"] == ["prompts of 512, 1024 tokens: left out, the model has 200 positions"]
    benchmark(tmp_path, prompts=(150,), depths=(48,), new=2, threads=(1,), repeat=1)
    with pytest.raises(UsageError, match="prompts: 150 tokens after 49 and before 2 new ones are more than the 200 positions of"):
        benchmark(tmp_path, prompts=(2, 150), depths=(0, 49), new=2)
    with pytest.raises(UsageError, match="prompts: 16 tokens after 0 and before 200 new ones"):
        benchmark(tmp_path, new=200)


@pytest.mark.parametrize(("match", "arguments"), [
    ("new: expected an integer from 0 to", {"new": -1}),
    ("new: expected an integer from 0 to", {"new": 1.5}),
    ("repeat: expected an integer from 1 to", {"repeat": 0}),
    ("threads: expected an integer from 1 to 1024, got 0", {"threads": (1, 0)}),
    ("depths: expected an integer from 0", {"depths": (-1,)}),
    ("prompts: expected an integer from 1", {"prompts": (True,)}),
    ("prompts: expected at least one number, got none", {"prompts": ()}),
    ("peers: expected onnxruntime, llama.cpp, llama.cpp-flash, openvino, got 'vllm'", {"peers": ("vllm",)}),
    ("peers: openvino needs the model as a GGUF file", {"peers": ("openvino",)}),
    ("ort_io: expected copy or shared, got 'both'", {"ort_io": "both"}),
    ("ort_io: of no use without the peer onnxruntime", {"ort_io": "shared", "peers": ("openvino",), "gguf": "x"}),
    ("ort_model: of no use without the peer onnxruntime", {"ort_model": "x"}),
    ("gguf: of no use without the peer llama.cpp or llama.cpp-flash or openvino", {"gguf": "x", "peers": ("onnxruntime",)}),
    ("peer_python: of no use without the peer onnxruntime or", {"peer_python": "x"}),
    ("weights: expected one of int4, int8, bf16, f32, got 'int3'", {"weights": "int3"}),
    ("activations: int8 needs integer weights, got weights='f32'", {"activations": "int8", "weights": "f32"}),
])
def test_arguments(match, arguments):
    with pytest.raises(UsageError, match="benchmark: " + match):
        benchmark(**arguments)


def test_a_graph_is_measured_too(graph, peer):
    report = benchmark(graph, prompts=(2,), depths=(0, 3), new=2, threads=(1,), repeat=1)
    assert (report["graph"], report["complete"], report["notes"]) == (True, True, [])
    assert report["runtimes"][0]["facts"]["cache"] == "persistent"
    assert all(case["runtimes"]["qkernels"]["summary"]["macs_rate"] for case in report["cases"])
    with pytest.raises(UsageError, match="weights: an ONNX graph has its own, got 'int4'"):
        benchmark(graph, weights="int4")
    with pytest.raises(UsageError, match="3000 tokens after 0 and before 128 new ones are more than the 2048 positions"):
        benchmark(graph, prompts=(3000,))


def test_onnxruntime_beside_ours(graph, peer):
    pytest.importorskip("onnxruntime")
    reports = [benchmark(prompts=(4,), new=3, threads=(1,), repeat=1, peers=("onnxruntime",)),
               benchmark(graph, prompts=(4,), new=3, threads=(1,), repeat=1, peers=("onnxruntime",), ort_io="shared")]
    for report, copied in zip(reports, (2 * 4 * 4 * 2 * 128 * 4.5, 0), strict=True):
        assert report["notes"] == []
        found = report["cases"][0]["runtimes"]
        assert found["onnxruntime"]["samples"][0]["tokens"] == found["qkernels"]["samples"][0]["tokens"]
        assert found["onnxruntime"]["copied"] == copied
        assert found["onnxruntime"]["summary"]["bytes_rate"]["median"] > 0
    assert [r["settings"]["ort_io"] for r in reports] == ["copy", "shared"]
    assert "past and present in one shared buffer" in render(reports[1])


# --- the report and the command --------------------------------------------------------------------------------------------------------

OPTIONS = ["benchmark", "--prompt", "2", "--new", "2", "--threads", "1", "--repeat", "1"]


def test_markdown_on_the_terminal_and_json_in_a_file(tmp_path):
    done = command(*OPTIONS, "--depth", "0,3", "-o", tmp_path / "report.json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((tmp_path / "report.json").read_text())
    assert done.stdout == render(report)
    assert done.stdout.startswith("# qwen3 benchmark: the demo model\n")
    rows = [line for line in done.stdout.splitlines() if re.match(r"\| 1 +\| [03] +\| 2 +\| qkernels ", line)]
    assert len(rows) == 4  # two cases in two tables
    case = report["cases"][0]["runtimes"]["qkernels"]
    assert f"{1000 * case['summary']['ttft']['median']:,.1f}" in rows[0]
    assert f"{case['summary']['decode']['median']:,.1f}" in rows[0]
    assert report["machine"]["cpu"] in done.stdout


@pytest.mark.parametrize(("new", "ttft", "decode"), [(0, False, False), (1, True, False), (2, True, True)])
def test_few_tokens_as_csv(new, ttft, decode):
    done = command("benchmark", "--prompt", "2,3", "--new", new, "--threads", "1", "--repeat", "2", "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(r["prompt"], r["sample"], r["new"]) for r in rows] == [(p, s, str(new)) for p in "23" for s in "12"]
    for row in rows:
        assert (row["ttft"] != "", row["tpot"] != "", row["decode"] != "", row["peak"] != "") == (ttft, decode, decode, decode)
        times = [float(x) for x in row["seconds"].split(" ")]
        assert len(times) == max(1, new)
        assert float(row["output"]) == new / sum(times)
        assert float(row["prefill"]) == int(row["prompt"]) / times[0]


def test_no_tokens_as_markdown():
    done = command("benchmark", "--prompt", "2", "--new", "0", "--threads", "1", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| 1 "))
    assert [cell.strip() for cell in row.strip("|").split("|")][4::2] == ["—", "—", "—", "0.0"]


def test_peers_that_are_not_installed_are_named(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules |= dict.fromkeys(['onnxruntime', 'llama_cpp', 'openvino'])\n")
    (tmp_path / "model.gguf").touch()
    peers = [word for name in ("onnxruntime", "llama.cpp", "openvino") for word in ("--peer", name)]
    done = command(*OPTIONS, *peers, "--gguf", tmp_path / "model.gguf", "--format", "json", env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    notes = json.loads(done.stdout)["notes"]
    for name, package in (("onnxruntime", "onnxruntime"), ("llama.cpp", "llama-cpp-python"), ("openvino", "openvino")):
        note = next(n for n in notes if n.startswith(name))
        assert note == f"{name}: not measured: {package} is not installed: pip install {package}, for {sys.executable}"
        assert f"Note: {note}\n" in done.stderr


@pytest.mark.parametrize(("match", "args"), [
    ("'--prompt': expected numbers from 1 to 2147483647 between commas, got '0'", ["--prompt", "0"]),
    ("'--prompt': expected numbers .* got 'x'", ["--prompt", "3,x"]),
    ("'--prompt': expected numbers .* got ''", ["--prompt", ""]),
    ("'--depth': expected numbers from 0 .* got '-1'", ["--depth", "-1"]),
    ("'--threads': expected numbers from 1 to 1024 .* got '2000'", ["--threads", "1,2000"]),
    ("'--new': -1 is not in the range", ["--new", "-1"]),
    ("'--repeat': 0 is not in the range", ["--repeat", "0"]),
    ("'--peer': 'foo' is not one of", ["--peer", "foo"]),
    ("llama.cpp needs the model as a GGUF file", ["--peer", "llama.cpp"]),
    ("'--gguf': Path '/nope' does not exist", ["--gguf", "/nope"]),
    ("ort_io: of no use without the peer onnxruntime", ["--ort-io", "shared"]),
    ("activations: int8 needs integer weights", ["--weights", "bf16", "--activations", "int8"]),
    ("--output: /nope/x.json: its directory is not there", ["-o", "/nope/x.json"]),
    ("4000 tokens after 0 and before 128 new ones are more than the 2048 positions of the demo model", ["--prompt", "4000"]),
    ("16 tokens after 2000 and before 128 new ones", ["--depth", "2000"]),
    ("No such option", ["--nonsense"]),
])
def test_usage_errors(match, args):
    fails(2, match, "benchmark", *args)


def test_models_that_are_none(tmp_path):
    fails(1, "no such directory", "benchmark", tmp_path / "x")
    fails(1, "config.json: no such file", "benchmark", tmp_path)


@linux
def test_interrupt_reports_what_there_is(tmp_path):
    """On a terminal the progress is shown; an interrupt during the second case leaves the first."""
    ours, theirs = os.openpty()
    process = subprocess.Popen([sys.executable, "-m", "qwen3", "benchmark", "--prompt", "2,100", "--new", "2", "--threads", "1", "--repeat", "400"],
                               stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"prompt 2 after 0: qkernels, sample" not in shown:
        shown += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    output = process.communicate()[0].decode()
    os.close(ours)
    assert process.returncode == 1
    assert "- broken off: not everything was measured" in output
