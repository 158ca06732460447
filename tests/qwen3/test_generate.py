"""Sampler, generation and conversations, on a model whose logits are a script."""
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

import qkernels
import qwen3
from qwen3.chat import common_prefix
from qwen3.generate import PREFILL_CHUNK, generate
from tests.qwen3.checkpoints import config_fields, make_checkpoint

ENDOFTEXT, IM_END = 264, 266
VOCAB = 320  # the tokenizer has 273 tokens


def greedy(logits, previous_ids):
    return int(np.argmax(logits))


class Cache:
    """A cache that holds the ids themselves."""

    def __init__(self):
        self.ids = []

    @property
    def length(self):
        return len(self.ids)

    def truncate(self, n):
        assert 0 <= n <= len(self.ids)
        del self.ids[n:]


class Model:
    """After a sequence of n ids, the largest logit is that of `script(ids)`; `calls` records what was run."""

    def __init__(self, script, tokenizer, context=64, eos=(ENDOFTEXT, IM_END)):
        self.script, self.tokenizer, self.max_context, self.calls = script, tokenizer, context, []
        self.config = SimpleNamespace(vocab_size=VOCAB, eos_token_ids=tuple(eos), do_sample=False, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0,
                                      repetition_penalty=1.0)

    def new_cache(self):
        return Cache()

    def forward(self, ids, cache, last_only=True):
        assert last_only
        assert len(ids) >= 1
        assert cache.length + len(ids) <= self.max_context
        self.calls.append(list(ids))
        cache.ids.extend(ids)
        logits = np.zeros((1, VOCAB), np.float32)
        logits[0, self.script(cache.ids)] = 1
        return logits


@pytest.fixture
def says(tiny_tokenizer):
    """A model that answers a prompt of n ids with the given tokens, and then `rest` for ever."""
    def build(tokens, prompt, rest=IM_END, **options):
        line = lambda ids: [*tokens, rest][min(max(len(ids) - prompt, 0), len(tokens))]
        return Model(line, tiny_tokenizer, **options)

    return build


def run(model, prompt, **options):
    generation = generate(model, prompt, **{"sampler": greedy} | options)
    steps = list(generation)
    return [s.token for s in steps], "".join(s.text for s in steps), [s.finish_reason for s in steps], generation


def test_steps_and_statistics(says):
    ticks = itertools.count(10.0, 0.5)
    model = says([ord("H"), ord("i")], prompt=3)
    tokens, text, reasons, generation = run(model, [1, 2, 3], clock=lambda: next(ticks))
    assert tokens == [ord("H"), ord("i"), IM_END]
    assert text == "Hi"
    assert reasons == [None, None, "stop"]
    assert model.calls == [[1, 2, 3], [ord("H")], [ord("i")]]
    assert generation.ids == [1, 2, 3, ord("H"), ord("i"), IM_END]
    assert generation.cache.ids == [1, 2, 3, ord("H"), ord("i")]
    stats = generation.stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.new_tokens, stats.decode_steps, stats.finish_reason) == (3, 0, 2, 2, "stop")
    assert (stats.first_token_seconds, stats.decode_seconds) == (0.5, 1.0)
    assert (stats.prompt_tokens_per_second, stats.tokens_per_second, stats.seconds_per_token) == (6.0, 2.0, 0.5)


def test_nothing_runs_before_the_first_step(says):
    model = says([65], prompt=1)
    generation = generate(model, [1], sampler=greedy)
    assert model.calls == []
    next(generation)
    assert model.calls == [[1]]
    generation.close()
    assert list(generation) == []


@pytest.mark.parametrize("eos", [[ENDOFTEXT], [IM_END], [IM_END, ENDOFTEXT]])
def test_B76_stops_at_every_end_token(says, eos):
    for end in eos:
        tokens, text, reasons, generation = run(says([65, end], prompt=1, eos=eos), [1])
        assert tokens == [65, end]
        assert text == "A"
        assert reasons == [None, "stop"]
        assert generation.stats.new_tokens == 1


def test_B76_union_of_the_files_stops(tmp_path, tiny_tokenizer):
    make_checkpoint(tmp_path, generation={"eos_token_id": ENDOFTEXT})
    (tmp_path / "config.json").write_text(json.dumps(config_fields(eos_token_id=ENDOFTEXT)))
    model = Model(lambda ids: IM_END, tiny_tokenizer, eos=qwen3.Qwen3Config.from_directory(tmp_path).eos_token_ids)
    assert run(model, [1])[0] == [IM_END]


def test_B76_ignore_eos(says):
    model = says([65, IM_END, 66], prompt=1)
    tokens, text, reasons, generation = run(model, [1], ignore_eos=True, max_new_tokens=4)
    assert tokens == [65, IM_END, 66, IM_END]
    assert text == "AB"
    assert reasons == [None, None, None, "length"]
    assert generation.stats.new_tokens == 4


def test_stop_ids_replace_the_end_tokens(says):
    assert run(says([65, IM_END, 66, 67], prompt=1), [1], stop_ids=[66])[0] == [65, IM_END, 66]


def test_B77_half_a_character_is_not_shown(says):
    steps = list(generate(says(list("é".encode()), prompt=1), [1], sampler=greedy))
    assert [s.text for s in steps] == ["", "é", ""]
    steps = list(generate(says([0xC3], prompt=1), [1], sampler=greedy))
    assert [s.text for s in steps] == ["", "\ufffd"]
    steps = list(generate(says([65, 0xC3], prompt=1), [1], sampler=greedy, max_new_tokens=2))
    assert [(s.text, s.finish_reason) for s in steps] == [("A", None), ("\ufffd", "length")]


def test_B79_rows_beyond_the_tokenizer_are_never_chosen(tiny_tokenizer):
    model = Model(lambda ids: 300, tiny_tokenizer)
    seen = []
    steps = list(generate(model, [1], sampler=lambda logits, ids: seen.append(logits.shape) or greedy(logits, ids), max_new_tokens=2))
    assert seen == [(273,), (273,)]
    assert [s.token for s in steps] == [0, 0]


def test_a_model_without_a_tokenizer():
    model = Model(lambda ids: 300, None)
    assert [(s.token, s.text) for s in generate(model, [1], sampler=greedy, max_new_tokens=2)] == [(300, ""), (300, "")]


def test_B88_prompt_and_context(says):
    forever = lambda n: says([], prompt=n, rest=65, context=16)
    with pytest.raises(ValueError, match="the prompt of 16 tokens leaves no room in a context of 16"):
        generate(forever(16), [1] * 16, sampler=greedy)
    with pytest.raises(ValueError, match="expected at most 15 tokens for a context of 16, got 17"):
        generate(forever(17), [1] * 17, sampler=greedy)
    tokens, _, reasons, _ = run(forever(15), [1] * 15)
    assert (tokens, reasons) == ([65], ["length"])
    tokens, _, reasons, generation = run(forever(1), [1], max_new_tokens=100)
    assert (len(tokens), reasons[-1]) == (15, "length")
    assert generation.cache.ids == [1] + [65] * 14


def test_B88_max_new_tokens(says):
    model = says([], prompt=2, rest=65)
    assert run(model, [1, 2], max_new_tokens=0)[:3] == ([], "", [])
    assert model.calls == []
    tokens, text, reasons, _ = run(model, [1, 2], max_new_tokens=3)
    assert (tokens, text, reasons) == ([65] * 3, "AAA", [None, None, "length"])
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match="max_new_tokens: expected an integer >= 0 or None"):
            generate(model, [1], max_new_tokens=wrong)


def test_B88_end_token_in_the_last_place(says):
    assert run(says([65, IM_END], prompt=1), [1], max_new_tokens=2)[1:3] == ("A", [None, "stop"])


def test_B89_empty_prompt(says):
    with pytest.raises(ValueError, match="ids: expected at least one token, got an empty prompt"):
        generate(says([], prompt=0), [])
    tokens, text, _, generation = run(says([], prompt=1), [1])
    assert (tokens, text, generation.stats.new_tokens) == ([IM_END], "", 0)
    assert generation.stats.tokens_per_second == 0
    assert generation.stats.seconds_per_token == 0


@pytest.mark.parametrize(("ids", "error", "match"), [
    ([1, VOCAB], IndexError, r"ids\[1\]: expected 0 <= id < 320, got 320"),
    ([-1], IndexError, r"ids\[0\]: expected 0 <= id < 320, got -1"),
    ([1.0], TypeError, "ids: expected a flat sequence of integers, got float64"),
    ([[1]], TypeError, r"ids: expected a flat sequence of integers, got int64 of shape \(1, 1\)"),
    ("ab", TypeError, "ids: expected a flat sequence of integers"),
])
def test_B16_wrong_ids(says, ids, error, match):
    with pytest.raises(error, match=match):
        generate(says([], prompt=1), ids)


def test_long_prompts_are_run_in_pieces(says):
    n = 2 * PREFILL_CHUNK + 1
    prompt = [i % 256 for i in range(n)]
    model = says([65], prompt=n, context=n + 2)
    assert run(model, np.array(prompt, np.uint16))[0] == [65, IM_END]
    assert [len(call) for call in model.calls] == [PREFILL_CHUNK, PREFILL_CHUNK, 1, 1]
    assert list(itertools.chain(*model.calls)) == [*prompt, 65]


def test_prompt_is_not_changed(says):
    prompt = [1, 2]
    run(says([65], prompt=2), prompt)
    assert prompt == [1, 2]


def test_cache_with_a_beginning(says):
    model, cache = says([65], prompt=3), Cache()
    cache.ids = [1, 2]
    tokens, _, _, generation = run(model, [1, 2, 3], cache=cache)
    assert tokens == [65, IM_END]
    assert model.calls == [[3], [65]]
    assert generation.stats.cached_tokens == 2
    cache.ids = [1, 2, 3]
    with pytest.raises(ValueError, match="cache: expected fewer tokens than the prompt's 3, got 3"):
        generate(model, [1, 2, 3], cache=cache)


def test_sampler_sees_prompt_and_text(says):
    seen = []
    list(generate(says([65], prompt=2), [1, 2], sampler=lambda logits, ids: seen.append(list(ids)) or greedy(logits, ids)))
    assert seen == [[1, 2], [1, 2, 65]]


def test_default_sampler_is_the_checkpoints(says):
    assert run(says([65], prompt=1), [1], sampler=None)[0] == [65, IM_END]


# --- Sampler ---------------------------------------------------------------------------------------------------------------------------

LOGITS = np.array([0.5, 2.0, -1.0, 1.9, 0.0], np.float32)


@pytest.mark.parametrize(("name", "value"), [
    ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")), ("temperature", "1"), ("temperature", None),
    ("top_k", -1), ("top_k", 1.5), ("top_k", True), ("top_p", -0.1), ("top_p", 1.1), ("top_p", float("nan")), ("min_p", -0.1), ("min_p", 2),
    ("repetition_penalty", 0), ("repetition_penalty", -1), ("repetition_penalty", float("nan")), ("repetition_penalty", float("inf")),
    ("seed", -1), ("seed", 2**64), ("seed", 1.0),
])
def test_B82_B84_wrong_parameter(name, value):
    with pytest.raises(ValueError, match=f"Sampler: {name}: expected .*, got {value!r}"):
        qwen3.Sampler(**{name: value})


@pytest.mark.parametrize("temperature", [0, 1e-4, 1e-40])
def test_B82_small_temperatures_are_argmax(temperature):
    for seed in range(20):
        assert qwen3.Sampler(temperature=temperature, seed=seed)(LOGITS * 100, []) == 1
    assert qwen3.Sampler(temperature=temperature, seed=0)(np.array([3, 3, 1], np.float32), []) in ((0,) if temperature == 0 else (0, 1))


def test_B83_top_k():
    for seed in range(20):
        assert qwen3.Sampler(top_k=1, seed=seed)(LOGITS, []) == 1
    everything = {qwen3.Sampler(top_k=k, seed=s)(LOGITS, []) for s in range(200) for k in (0, None)}
    assert everything == set(range(5))
    for seed in range(50):
        assert qwen3.Sampler(top_k=10**9, seed=seed)(LOGITS, []) == qwen3.Sampler(top_k=0, seed=seed)(LOGITS, [])
        assert qwen3.Sampler(top_k=2, seed=seed)(LOGITS, []) in (1, 3)


def config(**changes):
    return qwen3.Qwen3Config(**{"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
                                "head_dim": 8, "vocab_size": 8, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 8} | changes)


def test_B83_defaults_come_from_the_checkpoint():
    of = lambda c, **given: (lambda s: (s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty))(qwen3.Sampler.from_config(c, **given))
    qwen = config(do_sample=True, temperature=0.6, top_k=20, top_p=0.95)
    assert of(qwen) == (0.6, 20, 0.95, 0, 1)
    assert of(qwen, temperature=None, top_k=0, repetition_penalty=1.5) == (0.6, 0, 0.95, 0, 1.5)
    assert of(config()) == (0, 0, 1, 0, 1)
    assert of(config(temperature=0.6)) == (0, 0, 1, 0, 1)
    assert of(config(), repetition_penalty=2.0) == (0, 0, 1, 0, 2)
    # a parameter that only sampling has a use for asks for sampling
    assert of(config(), top_k=3) == (1, 3, 1, 0, 1)
    assert of(config(), temperature=0.5) == (0.5, 0, 1, 0, 1)


def test_B84_repetition_penalty():
    logits = np.array([2, -2, 1], np.float32)
    assert qwen3.Sampler(temperature=0, repetition_penalty=3)(logits, [0, 0, 1]) == 2
    # once per token, not per occurrence: 2 / 1.5 stays above 1
    assert qwen3.Sampler(temperature=0, repetition_penalty=1.5)(logits, [0, 0, 0, 1]) == 0
    # a negative logit is lowered, not raised
    assert qwen3.Sampler(temperature=0, repetition_penalty=4)(np.array([-2, -3], np.float32), [0]) == 1
    assert qwen3.Sampler(temperature=0, repetition_penalty=1)(logits, [0]) == 0
    assert logits.tolist() == [2, -2, 1]
    with pytest.raises(IndexError, match="previous: .*got 3"):
        qwen3.Sampler(temperature=0, repetition_penalty=2)(logits, [3])


def test_B86_edges():
    for seed in range(20):
        for only in ({"top_p": 0}, {"top_p": 1e-9}, {"min_p": 1}):
            assert qwen3.Sampler(seed=seed, **only)(LOGITS, []) == 1


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("logits", [[1, np.nan, 2], [np.nan] * 3, [-np.inf] * 3])
def test_B86_unusable_logits_name_the_step(temperature, logits):
    sampler = qwen3.Sampler(temperature=temperature, seed=0)
    sampler(LOGITS, [])
    with pytest.raises(ValueError, match="step 1"):
        sampler(np.array(logits, np.float32), [])


def test_seed():
    draws = lambda seed: (lambda sampler: [sampler(LOGITS, []) for _ in range(50)])(qwen3.Sampler(seed=seed))
    assert draws(7) == draws(7)
    assert draws(7) != draws(8)
    assert len(set(draws(7))) > 1
    assert qwen3.Sampler().seed != qwen3.Sampler().seed


def test_sample_is_called_with_everything(monkeypatch):
    seen = {}
    monkeypatch.setattr(qkernels, "sample", lambda logits, **options: seen.update(options) or 3, raising=False)
    sampler = qwen3.Sampler(temperature=0.5, top_k=4, top_p=0.75, min_p=0.25, repetition_penalty=2, seed=9)
    assert sampler(LOGITS, [1, 2]) == 3
    assert seen.pop("previous").tolist() == [1, 2]
    assert seen == {"temperature": 0.5, "top_k": 4, "top_p": 0.75, "min_p": 0.25, "repetition_penalty": 2.0, "seed": 9, "step": 0}
    sampler(LOGITS, [1, 2])
    assert seen["step"] == 1


# --- Conversation ----------------------------------------------------------------------------------------------------------------------

def test_common_prefix():
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([1, 2, 3], [1, 2]) == 2
    assert common_prefix([1, 5, 3], [1, 2, 3]) == 1


def answering(tokenizer, text, context=512):
    """A model that answers every prompt with `text`: where the prompt ends with the head of a turn, the answer begins."""
    answer, head = tokenizer.encode(text), tokenizer.encode("<|im_start|>assistant\n")

    def script(ids):
        start = max(i for i in range(len(ids)) if ids[i:i + len(head)] == head) + len(head)
        said = len(ids) - start
        return answer[said] if said < len(answer) else IM_END

    return Model(script, tokenizer, context=context)


def test_B73_only_the_common_prefix_is_used_again(tiny_tokenizer):
    model = answering(tiny_tokenizer, "<think>\na\n</think>\n\nb")
    talk = qwen3.Conversation(model)
    assert "".join(s.text for s in talk.send("Hi", sampler=greedy)) == "<think>\na\n</think>\n\nb"
    first = tiny_tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert model.calls[0] == first
    model.calls.clear()
    generation = talk.start(sampler=greedy, max_new_tokens=0)
    assert "".join(s.text for s in talk.send("c", sampler=greedy)) == "<think>\na\n</think>\n\nb"
    second = tiny_tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
                                   "<|im_start|>assistant\n")
    # The reasoning is gone from the history: what was run again begins where the two part, right after the head of the turn.
    assert model.calls[0] == second[len(first):]
    assert generation.cache.ids[:len(second)] == second
    assert [m["content"] for m in talk.messages] == ["Hi", "<think>\na\n</think>\n\nb", "c", "<think>\na\n</think>\n\nb"]


def test_B73_the_same_prompt_again_runs_one_token(tiny_tokenizer):
    model = answering(tiny_tokenizer, "b")
    talk = qwen3.Conversation(model, [{"role": "user", "content": "Hi"}])
    list(talk.start(sampler=greedy))
    model.calls.clear()
    assert [s.token for s in talk.start(sampler=greedy)] == [ord("b"), IM_END]
    assert [len(call) for call in model.calls] == [1, 1]


def test_conversation_broken_off(tiny_tokenizer):
    model = answering(tiny_tokenizer, "long answer")
    talk = qwen3.Conversation(model, [{"role": "system", "content": "s"}])
    steps = talk.send("Hi", sampler=greedy)
    assert "".join(next(steps).text for _ in range(4)) == "long"
    steps.close()
    assert talk.messages[1:] == [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "long"}]
    assert "".join(s.text for s in talk.send("again", sampler=greedy)) == "long answer"


def test_conversation_that_does_not_fit(tiny_tokenizer):
    model = answering(tiny_tokenizer, "b", context=40)
    talk = qwen3.Conversation(model)
    list(talk.send("Hi", sampler=greedy))
    before = list(talk.messages)
    with pytest.raises(ValueError, match="expected at most 39 tokens for a context of 40"):
        list(talk.send("x" * 100, sampler=greedy))
    assert talk.messages == before


def test_B73_reuse_gives_the_logits_of_a_fresh_run(tmp_path):
    make_checkpoint(tmp_path)
    model = qwen3.load(tmp_path)

    def turn(talk, text):
        """The logits of every step of one turn; the answer is that of the model, with its reasoning."""
        rows = []
        list(talk.send(text, sampler=lambda logits, ids: rows.append(logits.copy()) or greedy(logits, ids), max_new_tokens=8))
        return np.array(rows)

    talk = qwen3.Conversation(model)
    turn(talk, "Hi")
    talk.messages[-1]["content"] = "<think>\na\n</think>\n\n" + talk.messages[-1]["content"]
    fresh = qwen3.Conversation(model, talk.messages)
    assert np.array_equal(turn(talk, "And now?"), turn(fresh, "And now?"))
    assert turn(talk, "Once more").std() > 0.1
