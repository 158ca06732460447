"""The command line, as a user meets it: in processes of their own."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import qkernels
import qwen3
from qwen3.checkpoint import tensor_shapes
from qwen3.inspection import packed_nbytes
from tests.qwen3.checkpoints import make_checkpoint

ROOT = pathlib.Path(__file__).parents[2]


def command(*args, stdin=None, **options):
    """Run `python -m qwen3 …`; text in and out."""
    return subprocess.run([sys.executable, "-m", "qwen3", *map(str, args)], input=stdin, capture_output=True, encoding="utf-8", **options)


def fails(code, match, *args, **options):
    done = command(*args, **options)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert re.search(match, done.stderr), done.stderr


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random model: its text is noise, but the same noise each time."""
    directory = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(directory)
    return directory


def test_import_is_light():
    code = "import sys, qwen3\nprint(sorted({'numpy', 'tokenizers', 'jinja2', 'click', 'rich', 'huggingface_hub', 'qkernels'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_public_names():
    assert set(qwen3.__all__) <= set(dir(qwen3))
    with pytest.raises(AttributeError, match="module 'qwen3' has no attribute 'nothing'"):
        _ = qwen3.nothing


@pytest.mark.parametrize("library", ["tokenizers", "jinja2", "click"])
def test_missing_library_says_how_to_install_it(library, tmp_path, checkpoint):
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{library!r}] = None\n")
    fails(1, rf'Error: qwen3 needs {library}.*pip install "qkernels\[qwen3\]"', "generate", checkpoint, "-p", "Hi",
          env=os.environ | {"PYTHONPATH": str(tmp_path)})


def test_version_and_help():
    import importlib.metadata

    assert command("--version").stdout == f"qwen3 {importlib.metadata.version('qkernels')}\n"
    for args in (["--help"], ["generate", "--help"], ["inspect", "-h"]):
        done = command(*args)
        assert done.returncode == 0
        assert "Usage: qwen3" in done.stdout


# --- generate --------------------------------------------------------------------------------------------------------------------------

def test_text_on_stdout_statistics_on_stderr():
    done = command("generate", "-p", "Hi", "--temperature", "0", "--no-think")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert done.stdout.strip()
    model = qwen3.load()
    prompt = model.tokenizer.encode(model.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], enable_thinking=False))
    steps = list(model.generate(prompt, sampler=qwen3.Sampler(temperature=0)))
    assert done.stdout == "".join(s.text for s in steps) + "\n"
    assert steps[-1].finish_reason == "stop"
    assert re.fullmatch(
        rf"prompt     {len(prompt)} tokens, TTFT \d+\.\d{{3}} s, \d+\.\d tok/s\n"
        rf"generated  {len(steps) - 1} tokens, TPOT \d+\.\d\d ms, \d+\.\d tok/s, ended by an end token\n"
        r"machine    \d+ threads, (scalar|avx2|avx512|amx), weights int4, activations int16, cache f16, peak memory \d+ MiB\n", done.stderr), done.stderr


def test_stdin_loses_one_newline(checkpoint):
    options = ["generate", checkpoint, "--temperature", "0", "--raw", "--max-new-tokens", "8"]
    expected = command(*options, "-p", "hello\n the")
    assert expected.returncode == 0, expected.stderr
    for text in ("hello\n the", "hello\n the\n", "hello\n the\r\n"):
        assert command(*options, "-p", "-", stdin=text).stdout.splitlines() == expected.stdout.splitlines()
    assert "prompt     3 tokens" in expected.stderr
    assert "prompt     4 tokens" in command(*options, "-p", "-", stdin="hello\n the\n\n").stderr


def test_seed_is_shown_and_repeats(checkpoint):
    options = ["generate", checkpoint, "-p", "Hi", "--max-new-tokens", "12", "--temperature", "1", "--top-k", "0", "--top-p", "1"]
    first = command(*options)
    seed = re.search(r"seed (\d+)", first.stderr).group(1)
    assert command(*options, "--seed", seed).stdout == first.stdout
    assert command(*options, "--seed", "1").stdout != command(*options, "--seed", "2").stdout


def test_lengths_and_threads(checkpoint):
    done = command("generate", checkpoint, "-p", "Hi", "--max-new-tokens", "3", "--ignore-eos", "--threads", "1", "--weights", "f32",
                   "--activations", "f32", "--kv", "bf16")
    assert done.returncode == 0, done.stderr
    assert "generated  3 tokens" in done.stderr
    assert "ended by the length" in done.stderr
    assert "1 threads" in done.stderr
    assert "weights f32, activations f32, cache bf16" in done.stderr
    done = command("generate", checkpoint, "-p", "Hi", "--max-new-tokens", "0")
    assert (done.returncode, done.stdout) == (0, "\n")
    done = command("generate", checkpoint, "--raw", "-p", "a" * 15, "--ignore-eos", "--max-context", "16")
    assert "generated  1 tokens" in done.stderr


def test_B88_prompt_beyond_the_context(checkpoint):
    for n in (16, 17):
        fails(2, f"-p: the prompt has {n} tokens, but a context of 16 has room for 15 and an answer", "generate", checkpoint, "--raw", "-p", "a" * n,
              "--max-context", 16)


@pytest.mark.parametrize(("match", "args"), [
    ("Invalid value for -p: the prompt is empty", ["-p", ""]),
    ("Invalid value for -p: the prompt has nothing but white space", ["-p", " \n\t"]),
    ("the name of the model is empty", ["", "-p", "x"]),
    ("Missing option '-p'", []),
    ("temperature: expected a finite number >= 0, got -1.0", ["-p", "x", "--temperature", "-1"]),
    ("temperature: expected a finite number >= 0, got nan", ["-p", "x", "--temperature", "nan"]),
    ("top_p: expected a number in", ["-p", "x", "--top-p", "1.5"]),
    ("top_k: expected an integer >= 0", ["-p", "x", "--top-k", "-2"]),
    ("repetition_penalty: expected a finite number > 0", ["-p", "x", "--repetition-penalty", "0"]),
    ("seed: expected an integer in", ["-p", "x", "--seed", "-1"]),
    ("'--top-k': 'two' is not a valid integer", ["-p", "x", "--top-k", "two"]),
    ("'--threads': 0 is not in the range", ["-p", "x", "--threads", "0"]),
    ("'--max-context': 0 is not in the range", ["-p", "x", "--max-context", "0"]),
    ("'--weights': 'int3' is not one of", ["-p", "x", "--weights", "int3"]),
    ("--no-think is a matter of the chat template", ["-p", "x", "--raw", "--no-think"]),
    ("No such option", ["-p", "x", "--nonsense"]),
])
def test_B89_usage_errors(match, args):
    fails(2, match, "generate", *args)


@pytest.mark.parametrize(("match", "args"), [
    ("accuracy_level: expected None for contract float", ["--contract", "float", "--accuracy-level", "2"]),
    ("dtype: expected f32, got 'bf16'", ["--dtype", "bf16"]),
])
def test_usage_errors_of_export(match, args, tmp_path):
    pytest.importorskip("onnx")
    fails(2, match, "export", ROOT / "qwen3/demo", tmp_path / "graph", *args)
    assert not (tmp_path / "graph").exists()


def test_what_a_graph_has_of_its_own(exported, tmp_path):
    graph = exported()[1]
    fails(2, "weights: expected None for an ONNX graph", "generate", graph, "-p", "x", "--weights", "int8")
    fails(2, "--weights: an ONNX graph has its own, got int8", "inspect", graph, "--weights", "int8")
    fails(2, "a prompt of 500 tokens and 16 after it exceed the context of 512", "profile", graph, "--prompt-tokens", "500")
    fails(2, "model: expected a checkpoint, got the ONNX graph", "export", graph, tmp_path / "graph")


# --- streams that are closed, full, or that nobody reads -----------------------------------------------------------------------------

@pytest.fixture(params=[["qkernels"], ["qkernels.registry"], ["qwen3", "--help"], ["qwen3", "inspect", "--help"], ["qwen3", "--version"], ["qwen3", "inspect"],
                        ["qwen3", "inspect", "GRAPH"], ["qwen3", "profile", "GRAPH", "--prompt-tokens", "4", "--tokens", "1"],
                        ["qwen3", "benchmark", "--prompt", "2", "--new", "1", "--repeat", "1", "--threads", "1"],
                        ["qwen3", "generate", "-p", "Hi", "--temperature", "0", "--max-new-tokens", "4"]], ids=" ".join)
def program(request):
    """The words of a command that writes to standard output."""
    graph = str(request.getfixturevalue("exported")()[1]) if "GRAPH" in request.param else None
    return [sys.executable, "-m", *(graph if word == "GRAPH" else word for word in request.param)]


def test_a_reader_that_has_gone(program):
    """`… | true`: what cannot be written is no mistake of the program's."""
    for unbuffered in ("", "1"):
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run(program, stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
        os.close(theirs)
        assert done.returncode == 0
        assert not re.search("Traceback|Exception ignored|Error", done.stderr), done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed, program):
    done = subprocess.run(f"{shlex.join(program)} {closed}", shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0
    assert not re.search("Traceback|Exception ignored|Error", done.stderr), done.stderr
    assert bool(done.stdout) == (">&-" not in closed.split())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk(program):
    for unbuffered in ("", "1"):  # with a buffer there is something left to write at exit
        with open("/dev/full", "w") as full:
            done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
        assert done.returncode == 1, done.stderr
        assert not re.search("Traceback|Exception ignored", done.stderr), done.stderr
        assert "No space left on device" in done.stderr


def test_a_prompt_from_a_closed_stream():
    done = subprocess.run(f"{sys.executable} -m qwen3 generate -p - <&-", shell=True, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the prompt is empty" in done.stderr and "Traceback" not in done.stderr


def test_B89_empty_stdin():
    fails(2, "the prompt is empty", "generate", "-p", "-", stdin="")
    fails(2, "the prompt is empty", "generate", "-p", "-", stdin="\n")


def test_stdin_that_is_no_text():
    done = subprocess.run([sys.executable, "-m", "qwen3", "generate", "-p", "-"], input=b"\xff\xfe", capture_output=True)
    assert done.returncode == 2
    assert b"Invalid value for -p: not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


def test_models_that_are_none(tmp_path, checkpoint):
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "cache")}
    fails(1, r"no config.json of Nobody/Nothing in .*cache", "generate", "Nobody/Nothing", "-p", "x", env=environment)
    fails(1, "no such directory", "generate", tmp_path / "x", "-p", "x")
    fails(1, "config.json: no such file", "generate", tmp_path, "-p", "x")
    config = json.loads((checkpoint / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3MoeForCausalLM"]}))
    fails(1, "it is a mixture of experts", "generate", tmp_path, "-p", "x")
    (tmp_path / "config.json").write_text(json.dumps(config))
    fails(1, "expected model.safetensors or model.safetensors.index.json", "generate", tmp_path, "-p", "x")
    fails(1, "expected model.safetensors or model.safetensors.index.json", "inspect", tmp_path)


def test_reader_that_goes_away(checkpoint):
    process = subprocess.Popen([sys.executable, "-m", "qwen3", "generate", str(checkpoint), "-p", "Hi", "--ignore-eos", "--max-new-tokens", "200"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait() == 0, errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_B89_interrupt(tmp_path):
    make_checkpoint(tmp_path, max_position_embeddings=100_000)
    process = subprocess.Popen([sys.executable, "-m", "qwen3", "generate", str(tmp_path), "-p", "Hi", "--ignore-eos", "--max-context", "100000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert b"Traceback" not in errors
    assert b"broken off" in errors


def test_progress_bar_on_a_terminal_only(checkpoint):
    options = ["generate", str(checkpoint), "-p", "Hi", "--max-new-tokens", "2", "--ignore-eos", "--temperature", "0"]
    plain = command(*options)
    assert "Packing" not in plain.stderr
    ours, theirs = os.openpty()
    done = subprocess.run([sys.executable, "-m", "qwen3", *options], stdout=subprocess.PIPE, stderr=theirs, encoding="utf-8",
                          env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert "Packing weights" in shown
    assert "generated  2 tokens" in shown


def test_warnings_are_one_line(tmp_path):
    make_checkpoint(tmp_path, head="double")
    done = command("inspect", tmp_path)
    assert done.returncode == 0
    assert re.fullmatch("Warning: .*lm_head.weight differs from model.embed_tokens.weight, .*\n", done.stderr)


# --- inspect ---------------------------------------------------------------------------------------------------------------------------

def test_inspect(checkpoint):
    done = command("inspect", checkpoint)
    assert (done.returncode, done.stderr) == (0, "")
    projections = 2 * (256 * 64 + 2 * 128 * 64 + 64 * 256)
    mlp, norms, embedding = 2 * 3 * 96 * 64, 64 + 2 * (2 * 64 + 2 * 128), 320 * 64
    packed = lambda n: n * 18 // 32
    assert done.stdout == f"""\
directory     {checkpoint}
architecture  Qwen3ForCausalLM: 2 layers, hidden size 64, inner size 96
attention     2 query heads, 1 key and value heads of size 128
rotary        theta 1,000,000
positions     512
vocabulary    320 rows, head tied to the embedding
end tokens    264, 266
sampling      temperature 0.6, top-k 20, top-p 0.95, min-p 0
parameters    {projections + mlp + norms + embedding:,}

           tensors  stored as        bytes  packed as                 bytes
embedding        1  bfloat16        40,960  rows read from the file       0
attention        8  bfloat16       196,608  int4, block 32           {packed(projections):,}
MLP              6  bfloat16        73,728  int4, block 32           {packed(mlp):,}
norms            9  bfloat16         1,664  f32                       3,328
head             1  the embedding        0  int4, block 32           {packed(embedding):,}
total                              312,960                           {packed(projections + mlp + embedding) + 4 * norms:,}

keys and values per 1,000 tokens: 2.0 MiB in f32, 1.0 MiB in f16 or bf16, 0.5 MiB in int8
"""


@pytest.mark.parametrize("shape", [(1, 33), (16, 32), (256, 64), (40, 100)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_inspect_knows_the_packed_layout(shape, dtype):
    weights = np.random.default_rng(0).standard_normal(shape, np.float32).astype(getattr(ml_dtypes, dtype, dtype))
    assert packed_nbytes(shape, "int4", dtype) == qkernels.PackedNBits.quantize(weights).nbytes
    assert packed_nbytes(shape, "int8", dtype) == qkernels.PackedInt8Rows(weights).nbytes
    for kind in ("bf16", "f32"):
        numbers = np.dtype(np.float32 if kind == "f32" else ml_dtypes.bfloat16)
        assert packed_nbytes(shape, kind, dtype) == qkernels.PackedMatrix([weights], trans_b=True, dtype=numbers).nbytes


def test_inspect_reads_no_weights(tmp_path):
    """A checkpoint of Qwen3-0.6B's shapes whose tensors are a hole in the file: reading them would fill the memory."""
    make_checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "vocab_size": 151936}))
    offset, header = 0, {}
    for name, shape in tensor_shapes(qwen3.Qwen3Config.from_directory(tmp_path)).items():
        nbytes = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + nbytes]}
        offset += nbytes
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    code = ("import resource, sys\nfrom qwen3.inspection import describe\nprint(describe(sys.argv[1]))\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    *lines, peak = done.stdout.splitlines()
    assert "parameters    596,049,920" in lines
    assert lines[-1] == "keys and values per 1,000 tokens: 218.8 MiB in f32, 109.4 MiB in f16 or bf16, 56.4 MiB in int8"
    assert offset == 2 * 596_049_920
    assert int(peak) * 1024 < offset // 4
