"""Finding, opening and checking checkpoints."""
import json
import os
import random
import subprocess
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest

import qwen3
from qwen3.checkpoint import SafetensorsFile, tensor_shapes
from tests.qwen3.checkpoints import make_checkpoint, write_safetensors


def open_and_check(directory):
    checkpoint, config = qwen3.Checkpoint(directory), qwen3.Qwen3Config.from_directory(directory)
    return checkpoint, checkpoint.check(config)


def refuse(directory, match):
    with pytest.raises(qwen3.CheckpointError, match=match):
        open_and_check(directory)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_tensors_are_read_only_views(tmp_path, shards, dtype):
    tensors = make_checkpoint(tmp_path, shards=shards, dtype=dtype)
    checkpoint, head = open_and_check(tmp_path)
    assert head == "model.embed_tokens.weight"
    assert sorted(checkpoint.names) == sorted(tensors)
    for name, expected in tensors.items():
        actual = checkpoint.tensor(name)
        assert actual.dtype == checkpoint.dtype(name) == expected.dtype
        assert actual.shape == checkpoint.shape(name) == expected.shape
        assert checkpoint.nbytes(name) == expected.nbytes
        assert np.array_equal(actual, expected)
        assert actual.flags.aligned
        with pytest.raises(ValueError, match="read-only"):
            actual[...] = 0
        checkpoint.release(name)
        assert np.array_equal(actual, expected)
    again = checkpoint.tensor(checkpoint.names[0])
    assert np.shares_memory(again, checkpoint.tensor(checkpoint.names[0]))


def test_expected_tensors_are_those_of_a_checkpoint(tmp_path):
    tensors = make_checkpoint(tmp_path, tied=False, layers=3)
    assert {n: t.shape for n, t in tensors.items()} == tensor_shapes(qwen3.Qwen3Config.from_directory(tmp_path))


def test_B68_tied_without_a_head(tmp_path):
    make_checkpoint(tmp_path, tied=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_and_check(tmp_path)[1] == "model.embed_tokens.weight"


def test_B68_tied_with_a_head(tmp_path):
    make_checkpoint(tmp_path, tied=True, head="copy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_and_check(tmp_path)[1] == "model.embed_tokens.weight"
    make_checkpoint(tmp_path, tied=True, head="double")
    with pytest.warns(UserWarning, match="lm_head.weight differs from model.embed_tokens.weight"):
        assert open_and_check(tmp_path)[1] == "model.embed_tokens.weight"


def test_B68_untied_with_a_head(tmp_path):
    tensors = make_checkpoint(tmp_path, tied=False, head="double")
    checkpoint, head = open_and_check(tmp_path)
    assert head == "lm_head.weight"
    assert np.array_equal(checkpoint.tensor(head), 2 * tensors["model.embed_tokens.weight"])


def test_B68_untied_without_a_head(tmp_path):
    make_checkpoint(tmp_path, tied=False, head="missing")
    refuse(tmp_path, r"lm_head.weight: expected shape \(320, 64\), it is missing \(tie_word_embeddings is false\)")


def test_B69_missing_shard_is_named(tmp_path):
    make_checkpoint(tmp_path, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    refuse(tmp_path, "1 of 3 files of the index are missing: model-00002-of-00003.safetensors")


def test_B69_index_names_an_absent_tensor(tmp_path):
    make_checkpoint(tmp_path, shards=2)
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = next(f for f in index["weight_map"].values() if f != index["weight_map"]["model.norm.weight"])
    path.write_text(json.dumps(index))
    refuse(tmp_path, "model-0000[12]-of-00002.safetensors: model.norm.weight: the index puts it in this file, but it is not there")


def test_B69_stray_file_beside_shards_is_ignored(tmp_path):
    tensors = make_checkpoint(tmp_path, shards=2)
    write_safetensors(tmp_path / "model.safetensors", {"model.norm.weight": np.zeros(64, np.float32), "stray": np.zeros(1, np.float32)})
    checkpoint, _ = open_and_check(tmp_path)
    assert "stray" not in checkpoint.names
    assert np.array_equal(checkpoint.tensor("model.norm.weight"), tensors["model.norm.weight"])


def test_B69_empty_directory(tmp_path):
    with pytest.raises(qwen3.CheckpointError, match="expected model.safetensors or model.safetensors.index.json with its shards, found neither$"):
        qwen3.Checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(qwen3.CheckpointError, match="it holds pytorch_model.bin, but only safetensors files are read"):
        qwen3.Checkpoint(tmp_path)
    with pytest.raises(qwen3.CheckpointError, match="no such directory"):
        qwen3.Checkpoint(tmp_path / "absent")


def test_B69_wrong_shape(tmp_path):
    tensors = make_checkpoint(tmp_path)
    tensors["model.layers.1.self_attn.q_proj.weight"] = np.zeros((128, 64), ml_dtypes.bfloat16)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    write_safetensors(tmp_path / "model.safetensors", tensors)
    refuse(tmp_path, r"model.layers.0.mlp.up_proj.weight: expected shape \(96, 64\), it is missing; "
                     r"model.layers.1.self_attn.q_proj.weight: expected shape \(256, 64\), got \(128, 64\)$")


def test_many_missing_tensors_are_summed_up(tmp_path):
    make_checkpoint(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", {"model.norm.weight": np.zeros(64, np.float32)})
    refuse(tmp_path, "; and 18 more$")


def test_unexpected_tensors_are_named(tmp_path):
    tensors = make_checkpoint(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", tensors | {"model.layers.0.self_attn.q_proj.bias": np.zeros(256, np.float32),
                                                                 "position_ids": np.arange(4)})
    with pytest.warns(UserWarning, match="tensors that are not used: model.layers.0.self_attn.q_proj.bias, position_ids$"):
        open_and_check(tmp_path)


def test_B71_dtypes(tmp_path):
    bits = np.array([0x3F80, 0xC000, 0x7F80], np.uint16).view(ml_dtypes.bfloat16)
    tensors = {"b": bits, "h": np.array([1, -2, np.inf], np.float16), "f": np.array([[1, -2, np.inf]], np.float32),
               "empty": np.zeros((0, 4), np.float32), "scalar": np.array(3, np.float32), "i": np.arange(3)}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    checkpoint = qwen3.Checkpoint(tmp_path)
    for name in "bhf":
        assert checkpoint.tensor(name).dtype == tensors[name].dtype
        assert checkpoint.tensor(name).astype(np.float32).ravel().tolist() == [1, -2, np.inf]
    assert checkpoint.tensor("empty").shape == (0, 4)
    assert checkpoint.tensor("scalar").shape == ()
    assert checkpoint.tensor("scalar") == 3
    with pytest.raises(qwen3.CheckpointError, match="i: expected BF16, F16 or F32, got I64"):
        checkpoint.tensor("i")
    with pytest.raises(qwen3.CheckpointError, match="x: no such tensor"):
        checkpoint.tensor("x")


def test_B71_without_torch(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", {"b": np.array([0x3F80, 0xC000, 0x7F80], np.uint16).view(ml_dtypes.bfloat16)})
    code = ("import sys\nfor name in ('torch', 'safetensors'): sys.modules[name] = None\n"
            "import qwen3\nprint(qwen3.Checkpoint(sys.argv[1]).tensor('b').astype('f4').tolist())")
    assert subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout.strip() == "[1.0, -2.0, inf]"


def test_a_needed_tensor_of_another_type(tmp_path):
    tensors = make_checkpoint(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", tensors | {"model.norm.weight": np.arange(64)})
    refuse(tmp_path, "model.norm.weight: expected BF16, F16 or F32, got I64")


def test_header_of_odd_length(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", {"x": np.array([1, 2, 3], np.float32)}, pad=False)
    tensor = qwen3.Checkpoint(tmp_path).tensor("x")
    assert tensor.tolist() == [1, 2, 3]
    assert tensor.flags.aligned
    assert not tensor.flags.writeable


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(("header", "match"), [
    (b"{", "header is not JSON"),
    (b"\xff{}", "header is not JSON"),
    (b"[" * 100_000, "header is not JSON"),
    (b"[]", "header: expected a JSON object, got list"),
    (b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
     "'a' occurs twice"),
    ({"a": [1]}, "a: expected dtype, shape and data_offsets"),
    ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, "a: expected dtype, shape and data_offsets"),
    ({"a": entry(shape=(-2,))}, "a: expected dtype, shape and data_offsets"),
    ({"a": entry(shape=(2.0,))}, "a: expected dtype, shape and data_offsets"),
    ({"a": entry(shape=(True, 2))}, "a: expected dtype, shape and data_offsets"),
    ({"a": entry(offsets=(8, 0))}, "a: data_offsets: expected .start, stop., got .8, 0."),
    ({"a": entry(offsets=(0, 4, 8))}, "a: data_offsets"),
    ({"a": entry(offsets=(-8, 0))}, "a: data_offsets"),
    ({"a": entry(shape=(3,))}, r"a: F32 of shape \(3,\) is 12 bytes, data_offsets give 8"),
    ({"a": entry(shape=(2**40, 2**40))}, "a: F32 of shape"),
    ({"a": entry(), "b": entry()}, "b: data_offsets leave a gap or overlap: expected to start at 8, got 0"),
    ({"a": entry(shape=(1,), offsets=(4, 8))}, "a: data_offsets leave a gap or overlap: expected to start at 0, got 4"),
    ({"a": entry(), "b": entry(offsets=(8, 16))}, "truncated: expected [0-9]+ bytes, got [0-9]+"),
    ({"a": entry(shape=(1,), offsets=(0, 4))}, "longer than its header says: expected [0-9]+ bytes, got [0-9]+"),
    ({}, "longer than its header says"),
])
def test_damaged_header(tmp_path, header, match):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a": np.array([1, 2], np.float32)}, header=header)
    with pytest.raises(qwen3.CheckpointError, match=match) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [0, 7, 8, 100, -1])
def test_truncated_file(tmp_path, size):
    make_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:size])
    refuse(tmp_path, "model.safetensors: truncated")


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 200_000_000])
def test_absurd_header_length(tmp_path, length):
    (tmp_path / "model.safetensors").write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(qwen3.CheckpointError, match=f"header of {length} bytes, file of 10"):
        qwen3.Checkpoint(tmp_path)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\b", "a\0b"])
def test_index_that_leaves_the_directory(tmp_path, shard):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": shard}}))
    with pytest.raises(qwen3.CheckpointError, match="expected names of files in this directory"):
        qwen3.Checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'])
def test_index_that_is_none(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(qwen3.CheckpointError, match="model.safetensors.index.json"):
        qwen3.Checkpoint(tmp_path)


def make_hub_cache(cache, repository="models--Some--Tiny-Qwen3"):
    """A checkpoint as the hub's cache keeps it: blobs, and links to them from a snapshot."""
    blobs, snapshot = cache / repository / "blobs", cache / repository / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (cache / repository / "refs").mkdir()
    (cache / repository / "refs" / "main").write_text("0123abcd")
    make_checkpoint(blobs, shards=2)
    for i, file in enumerate(sorted(blobs.iterdir())):
        blob = file.rename(blobs / f"blob{i}")
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_hub_id_in_the_local_cache(tmp_path, variable):
    snapshot = make_hub_cache(tmp_path / "hub")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGINGFACE_"))}
    environment[variable] = str(tmp_path if variable == "HF_HOME" else tmp_path / "hub")
    code = ("import qwen3\npath = qwen3.resolve('Some/Tiny-Qwen3')\nprint(path)\n"
            "print(qwen3.Checkpoint(path).check(qwen3.Qwen3Config.from_directory(path)))\n"
            "try: qwen3.resolve('Some/Other')\nexcept qwen3.CheckpointError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    path, head, error = done.stdout.splitlines()
    assert path == str(snapshot)
    assert head == "model.embed_tokens.weight"
    assert f"no config.json of Some/Other in {tmp_path / 'hub'}" in error
    assert str(tmp_path / "Some/Other") in error


def test_resolve_directories(tmp_path):
    assert qwen3.resolve(tmp_path) == tmp_path
    assert qwen3.resolve(str(tmp_path)) == tmp_path
    for absent in ("./absent", "a/b/c", "/absent", tmp_path / "absent", "../x"):
        with pytest.raises(qwen3.CheckpointError, match="no such directory"):
            qwen3.resolve(absent)
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    with pytest.raises(qwen3.CheckpointError, match="expected a model directory or a hub id, got a file"):
        qwen3.resolve(file)


def test_any_damage_is_reported_or_harmless(tmp_path):
    """Bytes of the header replaced at random: a named error, or tensors that lie within the file."""
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(4, dtype=np.float16)})
    intact = path.read_bytes()
    header = 8 + int.from_bytes(intact[:8], "little")
    draw = random.Random(0)
    refused = 0
    for _ in range(500):
        data = bytearray(intact)
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            data[draw.randrange(header)] = draw.choice(b'0123456789{}[]",:-aF \x00\xff')
        path.write_bytes(data)
        try:
            file = SafetensorsFile(path)
        except qwen3.CheckpointError as error:
            assert str(path) in str(error)
            refused += 1
            continue
        assert sum(e.stop - e.start for e in file.entries.values()) == len(intact) - header
        for name, entry in file.entries.items():
            if entry.dtype in ("F16", "F32"):
                assert file.tensor(name).nbytes == entry.stop - entry.start
    assert 250 < refused < 500
