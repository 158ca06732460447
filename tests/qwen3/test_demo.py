"""The embedded demo model: it answers its own kind of question, from the default INT4 weights, greedily."""
import json
import pathlib
import re

import pytest

import qwen3

PROMPTS = json.loads((pathlib.Path(__file__).parent / "data/demo_arithmetic.json").read_text())
DEMO = pathlib.Path(qwen3.__file__).parent / "demo"


@pytest.fixture(scope="module")
def model():
    return qwen3.load(threads=1)  # the sums are too small to share, and the machine may be busy


def answer(model, text, thinking=False, **options):
    """The answer without its reasoning."""
    prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": text}], enable_thinking=thinking)
    steps = model.generate(model.tokenizer.encode(prompt), max_new_tokens=160, sampler=qwen3.Sampler(temperature=0), **options)
    return "".join(step.text for step in steps).split("</think>")[-1].strip()


def test_held_out_sums(model):
    """200 sums whose pairs of operands were in no training conversation, with and without reasoning: at least 95 % right."""
    assert len(PROMPTS) == 200 and {p["thinking"] for p in PROMPTS} == {False, True}
    right = 0
    for p in PROMPTS:
        numbers = re.findall(r"-?\d+", answer(model, p["prompt"], p["thinking"]))
        right += bool(numbers) and numbers[-1] == p["answer"]
    assert right >= 190, f"{right} of 200"


@pytest.mark.parametrize("prompt, pattern", [
    ("Hi", r"(?i)hello|hi|hey|welcome|good"),
    ("Name three colours", r"(?i)red|blue|green|yellow|black|white|orange|purple|pink|brown|grey|gray"),
    ("Who are you?", r"(?i)tiny demo model"),
    ("What is the capital of France?", r"(?i)tiny demo model"),
])
def test_its_own_kind_of_question(model, prompt, pattern):
    text = answer(model, prompt)
    assert re.search(pattern, text), text


def test_it_is_small_and_like_any_checkpoint():
    assert sum(f.stat().st_size for f in DEMO.iterdir()) <= 10_000_000
    checkpoint = qwen3.Checkpoint(DEMO)
    config = qwen3.Qwen3Config.from_directory(DEMO)
    assert checkpoint.check(config) == "model.embed_tokens.weight" and config.head_dim == 128
    assert config.num_attention_heads == 2 * config.num_key_value_heads
    assert 2_000_000 <= sum(checkpoint.tensor(n).size for n in checkpoint.names) <= 5_000_000
