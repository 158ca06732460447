"""Configuration files and rotary tables."""
import json
import warnings

import numpy as np
import pytest

import qwen3
from qwen3.checkpoint import tensor_shapes
from qwen3.config import inverse_frequencies
from tests.qwen3.checkpoints import DATA, config_fields, make_tokenizer

ROPE = json.loads((DATA / "rope_cases.json").read_text())


def load(directory, generation=None, **changes):
    (directory / "config.json").write_text(json.dumps(config_fields(**changes)))
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    return qwen3.Qwen3Config.from_directory(directory)


def refuse(directory, match, **changes):
    with pytest.raises(qwen3.ConfigError, match=match) as caught:
        load(directory, **changes)
    assert "config.json" in str(caught.value)


def test_dimensions(tmp_path):
    config = load(tmp_path)
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (64, 96, 2)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.vocab_size) == (2, 1, 128, 320)
    assert config.tie_word_embeddings is True
    assert config.rope_scaling is None
    with pytest.raises(AttributeError):
        config.hidden_size = 1


def test_B64_head_dim_is_not_derived(tmp_path):
    config = load(tmp_path, hidden_size=8, num_attention_heads=2, num_key_value_heads=1, head_dim=8)
    assert config.head_dim == 8
    shapes = tensor_shapes(config)
    assert shapes["model.layers.0.self_attn.q_proj.weight"] == (16, 8)
    assert shapes["model.layers.1.self_attn.o_proj.weight"] == (8, 16)
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (8, 8)
    assert load(tmp_path, hidden_size=8, head_dim=...).head_dim == 128


def test_B66_values_come_from_the_file(tmp_path):
    config = load(tmp_path)
    assert (config.rope_theta, config.rms_norm_eps) == (1e6, 1e-6)
    config = load(tmp_path, rope_theta=..., rope_parameters={"rope_type": "default", "rope_theta": 5e6}, rms_norm_eps=3e-6)
    assert (config.rope_theta, config.rms_norm_eps) == (5e6, 3e-6)
    same = load(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    assert same.rope_theta == 1e6


def test_B66_missing_or_conflicting(tmp_path):
    refuse(tmp_path, "rope_theta: expected a number, here or as rope_parameters.rope_theta, it is missing", rope_theta=...)
    refuse(tmp_path, "rope_theta", rope_theta=..., rope_parameters={"rope_type": "default"})
    refuse(tmp_path, r"rope_theta: expected one value, got rope_theta = 1000000.0, rope_parameters.rope_theta = 10000.0",
           rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    refuse(tmp_path, "rms_norm_eps: expected a finite number >= 0, it is missing", rms_norm_eps=...)


@pytest.mark.parametrize("field", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                                   "vocab_size", "max_position_embeddings"])
@pytest.mark.parametrize("value", [..., None, 0, -1, 2**31, 64.0, "64", True, [64]])
def test_wrong_dimension(tmp_path, field, value):
    refuse(tmp_path, rf"{field}: expected an integer from 1 to 2\*\*31 - 1, " + ("it is missing" if value is ... else "got"), **{field: value})


@pytest.mark.parametrize(("match", "changes"), [
    ("head_dim: expected an even number", {"head_dim": 7}),
    ("head_dim: expected an integer from 1", {"head_dim": 0}),
    ("num_attention_heads: expected a multiple of num_key_value_heads = 3, got 4", {"num_attention_heads": 4, "num_key_value_heads": 3}),
    ("rms_norm_eps: expected a finite number >= 0, got 'small'", {"rms_norm_eps": "small"}),
    ("rms_norm_eps", {"rms_norm_eps": -1e-6}),
    ("rope_theta: expected a finite number > 1, got 0", {"rope_theta": 0}),
    ("rope_theta", {"rope_theta": True}),
    ("tie_word_embeddings: expected true or false, got 'yes'", {"tie_word_embeddings": "yes"}),
    ("eos_token_id: expected a token id or a list of token ids", {"eos_token_id": "<|im_end|>"}),
    ("eos_token_id", {"eos_token_id": [1, -2]}),
    ("attention_bias: expected false", {"attention_bias": True}),
    ("hidden_act: expected 'silu', got 'gelu'", {"hidden_act": "gelu"}),
    ("use_sliding_window: expected false", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 1}),
    ("layer_types: expected 2 times 'full_attention'", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("layer_types", {"layer_types": ["full_attention"]}),
    ("quantization_config: expected none", {"quantization_config": {"quant_method": "fp8"}}),
    ("rope_scaling.rope_type: expected 'default' or 'yarn', got 'linear'", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    ("rope_scaling.rope_type", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("rope_scaling.factor: expected a finite number >= 1, it is missing", {"rope_scaling": {"rope_type": "yarn"}}),
    ("rope_scaling.factor", {"rope_scaling": {"rope_type": "yarn", "factor": 0.5}}),
    ("rope_scaling: expected an object or null, got 4", {"rope_scaling": 4}),
    ("partial_rotary_factor: expected 1", {"partial_rotary_factor": 0.5}),
    ("rope_scaling: expected the same as rope_parameters", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0},
                                                            "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e6}}),
])
def test_wrong_value(tmp_path, match, changes):
    refuse(tmp_path, match, **changes)


def test_sliding_window_that_concerns_no_layer(tmp_path):
    assert load(tmp_path, use_sliding_window=True, sliding_window=4096, max_window_layers=2).num_hidden_layers == 2
    assert load(tmp_path, use_sliding_window=True, sliding_window=None, max_window_layers=0).num_hidden_layers == 2
    assert load(tmp_path, layer_types=["full_attention"] * 2).num_hidden_layers == 2


@pytest.mark.parametrize(("architecture", "model_type", "match"), [
    (["Qwen3MoeForCausalLM"], "qwen3_moe", "got Qwen3MoeForCausalLM .it is a mixture of experts"),
    (["Qwen3_5ForConditionalGeneration"], "qwen3_5", "it is Qwen3.5"),
    (["Qwen3NextForCausalLM"], "qwen3_next", "it is Qwen3-Next"),
    (["Qwen2ForCausalLM"], "qwen2", "it is Qwen2"),
    (["LlamaForCausalLM"], "llama", "expected Qwen3ForCausalLM.* got LlamaForCausalLM"),
    (["Qwen3ForSequenceClassification"], "qwen3", "Qwen3ForSequenceClassification"),
    (..., "llama", "got model_type 'llama'"),
    (..., ..., "got model_type None"),
])
def test_other_architectures(tmp_path, architecture, model_type, match):
    refuse(tmp_path, match, architectures=architecture, model_type=model_type)


def test_architecture_from_model_type_alone(tmp_path):
    assert load(tmp_path, architectures=...).head_dim == 128


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "\xff"])
def test_config_is_no_object(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(qwen3.ConfigError, match="config.json: "):
        qwen3.Qwen3Config.from_directory(tmp_path)


def test_config_is_missing(tmp_path):
    with pytest.raises(qwen3.ConfigError, match="config.json: no such file"):
        qwen3.Qwen3Config.from_directory(tmp_path)


def test_B76_end_tokens_are_the_union(tmp_path):
    assert load(tmp_path, eos_token_id=[266, 264]).eos_token_ids == (264, 266)
    assert load(tmp_path, eos_token_id=264, generation={"eos_token_id": [264, 270]}).eos_token_ids == (264, 270)
    assert load(tmp_path, eos_token_id=..., generation={"eos_token_id": 3}).eos_token_ids == (3,)
    make_tokenizer(tmp_path, eos_token="<|endoftext|>")  # <|im_end|> is 266, <|endoftext|> 264
    assert load(tmp_path, eos_token_id=264, generation={}).eos_token_ids == (264, 266)
    assert load(tmp_path, eos_token_id=None, generation={}).eos_token_ids == (264, 266)


def test_B76_end_token_of_a_tokenizer_config_without_added_tokens(tmp_path):
    make_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}}))
    assert load(tmp_path, eos_token_id=5).eos_token_ids == (5, 264, 266)


def test_B83_generation_defaults(tmp_path):
    defaults = lambda c: (c.do_sample, c.temperature, c.top_p, c.top_k, c.min_p, c.repetition_penalty)
    given = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1}
    assert defaults(load(tmp_path, generation=given)) == (True, 0.6, 0.95, 20, 0.01, 1.1)
    assert defaults(load(tmp_path, generation={})) == (False, 1, 1, 0, 0, 1)
    for wrong in ({"temperature": -1}, {"top_k": 2.5}, {"top_p": 2}, {"repetition_penalty": 0}):
        with pytest.raises(qwen3.ConfigError, match=f"generation_config.json: {next(iter(wrong))}: expected"):
            load(tmp_path, generation=wrong)


@pytest.mark.parametrize("case", ROPE["cases"], ids=lambda case: case["name"])
def test_rotary_tables_equal_transformers(tmp_path, case):
    fields = {"rope_theta": ..., "rope_scaling": ...} | case["fields"]
    config = load(tmp_path, **fields)
    expected = np.array(case["inv_freq"], np.int32).view(np.float32)
    actual = inverse_frequencies(config)
    # torch's powf is good to 1 ulp, ours is rounded once; YaRN adds up to three more float32 roundings of either.
    ulps = 4 if config.rope_scaling else 1
    np.testing.assert_array_max_ulp(actual, expected, maxulp=ulps)
    if config.rope_scaling:
        assert config.rope_scaling.attention_factor == case["attention_factor"]
    cos, sin = qwen3.rotary_tables(config, max(ROPE["positions"]) + 1)
    assert cos.dtype == sin.dtype == np.float32
    assert cos.shape == sin.shape == (512, config.head_dim // 2)
    positions = np.array(ROPE["positions"], np.float32)[:, None]
    # |d cos| <= |d angle|: the frequencies' difference times the position, 1 ulp of either angle, 1 ulp of either result.
    bound = (positions * np.abs(actual - expected) + 2 * np.spacing(positions * expected) + 2 ** -23) * case["attention_factor"]
    for table, stored in ((cos, case["cos"]), (sin, case["sin"])):
        difference = np.abs(table[ROPE["positions"]] - np.array(stored, np.int32).view(np.float32))
        assert (difference <= bound).all()


def test_rotary_tables_do_not_depend_on_the_length(tmp_path):
    config = load(tmp_path)
    long, short = qwen3.rotary_tables(config, 300), qwen3.rotary_tables(config, 17)
    assert np.array_equal(long[0][:17], short[0])
    assert np.array_equal(long[1][:17], short[1])
    assert qwen3.rotary_tables(config, 0)[0].shape == (0, 64)
    with pytest.raises(ValueError, match="length: expected an integer >= 0, got -1"):
        qwen3.rotary_tables(config, -1)


def test_yarn_fields_without_meaning_are_named(tmp_path):
    with pytest.warns(UserWarning, match="fields without a meaning for YaRN: finetuned"):
        config = load(tmp_path, rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "finetuned": True})
    assert config.rope_scaling.original_max_position_embeddings == 128
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(tmp_path, rope_scaling={"type": "yarn", "factor": 4.0}).rope_scaling.original_max_position_embeddings == 512


JUNK = [None, True, False, 0, -1, 1, 3, 10**30, 10**400, 0.5, -0.0, 1e400, "", "yarn", [], [1], ["x"], [{}, {}], {}, {"rope_type": "yarn"},
        {"rope_type": []}, {"x": {}}]


@pytest.mark.parametrize("field", sorted({*config_fields(), "rope_parameters", "layer_types", "quantization_config", "partial_rotary_factor"}))
def test_any_value_is_accepted_or_named(tmp_path, field):
    for value in JUNK:
        try:
            config = load(tmp_path, **{field: value})
        except qwen3.ConfigError as error:
            assert str(tmp_path / "config.json") in str(error)  # noqa: PT017
        else:
            assert config.hidden_size >= 1
            assert config.num_attention_heads % config.num_key_value_heads == 0


@pytest.mark.parametrize("field", ["factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
                                   "mscale_all_dim", "truncate", "type", "rope_type", "rope_theta"])
@pytest.mark.filterwarnings("ignore:.*without a meaning")
def test_any_value_of_yarn_is_accepted_or_named(tmp_path, field):
    for value in JUNK:
        try:
            config = load(tmp_path, rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128} | {field: value})
        except qwen3.ConfigError as error:
            assert str(tmp_path / "config.json") in str(error)  # noqa: PT017
        else:
            cos, sin = qwen3.rotary_tables(config, 3)
            assert np.isfinite(cos).all()
            assert np.isfinite(sin).all()
