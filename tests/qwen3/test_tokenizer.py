"""Text to ids and back, and the streaming decoder."""
import json
import random

import numpy as np
import pytest

import qwen3
from tests.qwen3.checkpoints import DATA, make_tokenizer

CASES = json.loads((DATA / "tokenizer_cases.json").read_text())["cases"]
IM_END = 266


def streamed(tokenizer, ids, **options):
    stream = tokenizer.stream(**options)
    return "".join([stream.push(i) for i in ids]) + stream.flush()


def test_B80_equal_to_hugging_face(real_tokenizer):
    for case in CASES:
        assert real_tokenizer.encode(case["text"]) == case["ids"], case["text"]
        assert real_tokenizer.decode(case["ids"], skip_special_tokens=False) == case["decoded"], case["text"]
        assert real_tokenizer.decode(case["ids"]) == case["plain"], case["text"]
        assert streamed(real_tokenizer, case["ids"]) == case["plain"], case["text"]


def test_B80_rules(real_tokenizer):
    encode = real_tokenizer.encode
    assert encode("x.<|im_end|>")[-1] == 151645
    assert encode("  x") == encode(" ") + encode(" x")
    assert len(encode("123")) == 3
    assert encode("e\u0301") == encode("\u00e9")
    assert (real_tokenizer.vocab_size, len(real_tokenizer.special_ids)) == (151669, 14)


def test_B80_rules_of_the_small_tokenizer(tiny_tokenizer):
    assert tiny_tokenizer.encode("x.<|im_end|>") == [ord("x"), ord("."), IM_END]
    assert tiny_tokenizer.encode("hello the") == [259, 261]
    assert tiny_tokenizer.encode("e\u0301") == [0xC3, 0xA9]
    assert tiny_tokenizer.encode("") == []
    assert tiny_tokenizer.vocab_size == 273
    assert tiny_tokenizer.special_ids == {264, 265, 266}


def test_round_trip_of_every_character(tiny_tokenizer):
    # NFC is what the tokenizer itself applies, so text that is not normalized does not come back as it was.
    text = "".join(chr(c) for c in range(1, 0x3000) if not 0xD800 <= c < 0xE000)
    import unicodedata

    text = unicodedata.normalize("NFC", text)
    assert tiny_tokenizer.decode(tiny_tokenizer.encode(text)) == text


def test_B77_character_over_two_tokens(tiny_tokenizer):
    stream = tiny_tokenizer.stream()
    assert [stream.push(b) for b in b"\xf0\x9f\x98\x80"] == ["", "", "", "😀"]
    assert stream.flush() == ""


def test_B77_invalid_head(tiny_tokenizer):
    stream = tiny_tokenizer.stream()
    assert stream.push(262) == ""  # the token of the bytes E4 BD
    assert stream.push(ord(" ")) == "\ufffd "
    assert stream.flush() == ""


def test_B77_tail_is_flushed(tiny_tokenizer):
    stream = tiny_tokenizer.stream()
    assert [stream.push(ord("a")), stream.push(0xF0), stream.push(0x9F)] == ["a", "", ""]
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.push(ord("b")) == "b"


@pytest.mark.parametrize("skip", [True, False])
def test_B77_stream_equals_decode(tiny_tokenizer, skip):
    # Every token is as likely here, so nearly every list breaks characters, and some have control tokens inside them.
    draw = random.Random(0)
    for _ in range(1000):
        ids = [draw.randrange(tiny_tokenizer.vocab_size + 3) for _ in range(draw.randrange(1, 40))]
        assert streamed(tiny_tokenizer, ids, skip_special_tokens=skip) == tiny_tokenizer.decode(ids, skip_special_tokens=skip)


def test_B77_stream_equals_decode_on_the_real_vocabulary(real_tokenizer):
    draw = random.Random(1)
    for _ in range(1000):
        ids = [draw.randrange(151936) for _ in range(draw.randrange(1, 40))]
        assert streamed(real_tokenizer, ids) == real_tokenizer.decode(ids)


def test_control_tokens_are_skipped_unless_asked_for(tiny_tokenizer):
    ids = tiny_tokenizer.encode("<|im_start|>a<think>b<|im_end|>")
    assert tiny_tokenizer.decode(ids) == streamed(tiny_tokenizer, ids) == "a<think>b"
    assert tiny_tokenizer.decode(ids, skip_special_tokens=False) == streamed(tiny_tokenizer, ids, skip_special_tokens=False)
    assert tiny_tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>a<think>b<|im_end|>"


def test_B79_ids_beyond_the_vocabulary(tiny_tokenizer, real_tokenizer):
    assert tiny_tokenizer.decode([ord("a"), 273, 319, 2**31, ord("b")]) == "ab"
    assert real_tokenizer.decode([151700]) == ""
    stream = tiny_tokenizer.stream()
    assert [stream.push(i) for i in (300, ord("x"))] == ["", "x"]
    for wrong in (-1, 2**32):
        with pytest.raises(IndexError, match=f"got {wrong}"):
            tiny_tokenizer.decode([wrong])
    with pytest.raises(TypeError, match="expected integer token ids, got 1.5"):
        tiny_tokenizer.decode([1.5])


def test_numpy_ids(tiny_tokenizer):
    assert tiny_tokenizer.decode(np.array([259], np.int64)) == "hello"
    assert streamed(tiny_tokenizer, np.array([259], np.uint32)) == "hello"


def test_wrong_text(tiny_tokenizer):
    with pytest.raises(TypeError, match="text: expected str, got bytes"):
        tiny_tokenizer.encode(b"x")
    with pytest.raises(ValueError, match="lone surrogate .* at 1"):
        tiny_tokenizer.encode("a\ud800")


def test_wrong_files(tmp_path):
    with pytest.raises(qwen3.ConfigError, match="tokenizer.json: no such file"):
        qwen3.Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(qwen3.ConfigError, match="tokenizer.json: not a usable tokenizer"):
        qwen3.Tokenizer(tmp_path)
    make_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"decoder": {"type": "Fuse"}}))
    with pytest.raises(qwen3.ConfigError, match="decoder: expected ByteLevel, got Fuse"):
        qwen3.Tokenizer(tmp_path)
