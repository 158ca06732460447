"""Fixtures of the model's tests."""
import os
import pathlib

import pytest

import qwen3
from tests.qwen3.checkpoints import make_checkpoint, make_tokenizer

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(name="make_checkpoint", scope="session")
def make_checkpoint_fixture():
    """`checkpoints.make_checkpoint(directory, …)`."""
    return make_checkpoint


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory):
    """The small tokenizer of `make_tokenizer`, loaded."""
    return qwen3.Tokenizer(make_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="session")
def real_tokenizer():
    """Qwen3's own tokenizer, which is too large for this repository."""
    places = [os.environ.get("QWEN3_TOKENIZER_DIR"), ROOT.parent / "shared/data/qwen3-tokenizer"]
    for place in filter(None, places):
        if (pathlib.Path(place) / "tokenizer.json").is_file():
            return qwen3.Tokenizer(place)
    pytest.skip("Qwen3's tokenizer.json (11 MB) is not here: set QWEN3_TOKENIZER_DIR to its directory")


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """``exported(contract, tied, **options)``: (checkpoint's directory, graph's directory), each made once."""
    pytest.importorskip("onnx")
    from qwen3.onnx_export import export

    made = {}

    def get(contract="ort-int4", tied=True, **options):
        key = (contract, tied, *sorted(options.items()))
        if key not in made:
            base = tmp_path_factory.mktemp("export")
            make_checkpoint(base / "checkpoint", seed=4, tied=tied, heads=4, kv_heads=2)
            export(base / "checkpoint", base / "graph", contract=contract, **options)
            made[key] = base / "checkpoint", base / "graph"
        return made[key]

    return get
