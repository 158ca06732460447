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
