"""What the configuration files of a checkpoint say about a dense Qwen3, checked, and the rotary tables that follow from it."""
import json
import math
import numbers
import pathlib
import sys
import warnings
from dataclasses import dataclass

import numpy as np

__all__ = ["ConfigError", "Qwen3Config", "YarnScaling", "rotary_tables"]

DEFAULT_HEAD_DIM = 128  # Hugging Face's Qwen3Config; Qwen3-0.6B, 4B and 32B differ from hidden_size / num_attention_heads

OTHER_ARCHITECTURES = {
    "Qwen3MoeForCausalLM": "it is a mixture of experts",
    "Qwen3NextForCausalLM": "it is Qwen3-Next, with linear attention and experts",
    "Qwen3_5ForCausalLM": "it is Qwen3.5, with linear attention",
    "Qwen3_5ForConditionalGeneration": "it is Qwen3.5, with linear attention and vision",
    "Qwen3_5MoeForCausalLM": "it is Qwen3.5, with linear attention and experts",
    "Qwen3_5MoeForConditionalGeneration": "it is Qwen3.5, with linear attention, experts and vision",
    "Qwen3VLForConditionalGeneration": "it is a vision model",
    "Qwen2ForCausalLM": "it is Qwen2, without query and key norms",
}


class ConfigError(ValueError):
    """A configuration file that is missing, malformed, contradictory, or of a model that is not a dense Qwen3."""


@dataclass(frozen=True)
class YarnScaling:
    """YaRN's parameters, by Hugging Face's names.

    Attributes
    ----------
    factor : float
        Ratio of the extended to the original context.
    original_max_position_embeddings : int
        Context that the model was trained with.
    attention_factor : float
        Factor on cos and sin, given or derived from `factor`, `mscale` and `mscale_all_dim`.
    beta_fast, beta_slow : float
        Rotations over the original context between which the frequencies are blended.
    truncate : bool
        Whether the ends of that range are rounded to whole dimensions.
    """

    factor: float
    original_max_position_embeddings: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True)
class Qwen3Config:
    """The dimensions of a dense Qwen3 and its defaults for generation; `from_directory` reads and checks them.

    Attributes
    ----------
    hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, vocab_size : int
        As in Hugging Face's `Qwen3Config`.
    rms_norm_eps, rope_theta : float
        Always from the file: there is no safe default for either.
    rope_scaling : YarnScaling or None
    max_position_embeddings : int
    tie_word_embeddings : bool
    eos_token_ids : tuple of int
        Union of `config.json`, `generation_config.json`, and the tokenizer's eos token and ``<|im_end|>``.
    do_sample : bool
    temperature, top_p, min_p, repetition_penalty : float
    top_k : int
        0 is off. What `generation_config.json` does not name is off too.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    rope_scaling: YarnScaling | None = None
    tie_word_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = ()
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def from_directory(cls, path):
        """Read `config.json` and, where they are, `generation_config.json` and the tokenizer's files.

        Parameters
        ----------
        path : str or os.PathLike
            A checkpoint in Hugging Face's layout.

        Returns
        -------
        Qwen3Config

        Raises
        ------
        ConfigError
            Naming the file, the field, what it holds and what was expected.

        Examples
        --------
        >>> import qwen3
        >>> qwen3.Qwen3Config.from_directory(qwen3.resolve()).head_dim
        128
        """
        directory = pathlib.Path(path)
        config = Fields(directory / "config.json")
        generation = Fields(directory / "generation_config.json", optional=True)
        _check_architecture(config)
        heads = config.integer("num_attention_heads")
        kv_heads = config.integer("num_key_value_heads")
        head_dim = config.integer("head_dim", DEFAULT_HEAD_DIM)
        if heads % kv_heads:
            config.fail("num_attention_heads", f"a multiple of num_key_value_heads = {kv_heads}")
        if head_dim % 2:
            config.fail("head_dim", "an even number, as rotary embedding turns pairs")
        max_positions = config.integer("max_position_embeddings")
        theta, yarn = _rope(config, max_positions)
        eos = {*config.token_ids("eos_token_id"), *generation.token_ids("eos_token_id"), *tokenizer_eos(directory)}
        return cls(
            hidden_size=config.integer("hidden_size"),
            intermediate_size=config.integer("intermediate_size"),
            num_hidden_layers=config.integer("num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=config.integer("vocab_size"),
            rms_norm_eps=config.number("rms_norm_eps", minimum=0),
            rope_theta=theta,
            max_position_embeddings=max_positions,
            rope_scaling=yarn,
            tie_word_embeddings=config.boolean("tie_word_embeddings", False),
            eos_token_ids=tuple(sorted(eos)),
            do_sample=generation.boolean("do_sample", False),
            temperature=generation.number("temperature", 1.0, minimum=0),
            top_k=generation.integer("top_k", 0, minimum=0),
            top_p=generation.number("top_p", 1.0, minimum=0, maximum=1),
            min_p=generation.number("min_p", 0.0, minimum=0, maximum=1),
            repetition_penalty=generation.number("repetition_penalty", 1.0, above=0),
        )


_REQUIRED = object()


class Fields:
    """A JSON object whose fields are read with a check; null counts as absent only where the field has a default."""

    def __init__(self, path, *, optional=False, values=None, prefix=""):
        self.path, self.prefix = path, prefix
        self.values = read_json(path, optional=optional) if values is None else values

    def section(self, name):
        """The object under `name`, or None where it is absent, null or empty."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            self.fail(name, "an object or null")
        return Fields(self.path, values=value, prefix=f"{self.prefix}{name}.") if value else None

    def fail(self, name, expected):
        """Raise ConfigError about field `name`."""
        given = f"got {self.values[name]!r}" if name in self.values else "it is missing"
        raise ConfigError(f"{self.path}: {self.prefix}{name}: expected {expected}, {given}")

    def _read(self, name, default, expected, accept):
        value = self.values.get(name)
        if value is None and default is not _REQUIRED:
            return default
        if not accept(value):
            self.fail(name, expected)
        return value

    def integer(self, name, default=_REQUIRED, minimum=1):
        return self._read(name, default, f"an integer from {minimum} to 2**31 - 1", lambda v: is_integer(v) and minimum <= v < 2**31)

    def number(self, name, default=_REQUIRED, *, minimum=-math.inf, maximum=math.inf, above=-math.inf):
        bounds = [f">= {minimum}"] * (minimum > -math.inf) + [f"<= {maximum}"] * (maximum < math.inf) + [f"> {above}"] * (above > -math.inf)
        value = self._read(name, default, " ".join(["a finite number", " and ".join(bounds)]).strip(),
                           lambda v: is_number(v) and minimum <= v <= maximum and v > above)
        return value if value is None else float(value)

    def boolean(self, name, default=_REQUIRED):
        return self._read(name, default, "true or false", lambda v: isinstance(v, bool))

    def token_ids(self, name):
        """One id or a list of ids, as a tuple; absent or null is none."""
        value = self.values.get(name)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(is_integer(i) and i >= 0 for i in ids):
            self.fail(name, "a token id or a list of token ids")
        return tuple(ids)


def is_integer(value):
    """True for an integer that is not a bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value):
    """True for a finite real number that is not a bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def read_json(path, *, optional=False, error=ConfigError):
    """The JSON object in the file at `path`; an absent optional file is {}."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if optional:
            return {}
        raise error(f"{path}: no such file; expected a model directory in Hugging Face's layout") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{path}: not readable as JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise error(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _check_architecture(config):
    architectures = config.values.get("architectures") or []
    model_type = config.values.get("model_type")
    names = [str(name) for name in (architectures if isinstance(architectures, list) else [architectures])]
    if (names and "Qwen3ForCausalLM" not in names) or (model_type or "qwen3") != "qwen3" or not (names or model_type):
        given = ", ".join(names) or f"model_type {model_type!r}"
        why = "".join(f" ({OTHER_ARCHITECTURES[n]})" for n in names if n in OTHER_ARCHITECTURES)
        raise ConfigError(f"{config.path}: architectures: expected Qwen3ForCausalLM with model_type 'qwen3', a dense Qwen3, got {given}{why}")
    if config.boolean("attention_bias", False):
        config.fail("attention_bias", "false, as projections with a bias are not supported")
    if config.values.get("hidden_act", "silu") != "silu":
        config.fail("hidden_act", "'silu'")
    if config.section("quantization_config"):
        config.fail("quantization_config", "none, as the weights are quantized while loading: give the BF16, F16 or F32 checkpoint")
    layers = config.integer("num_hidden_layers")
    kinds = config.values.get("layer_types")
    if kinds is not None and kinds != ["full_attention"] * layers:
        config.fail("layer_types", f"{layers} times 'full_attention', as sliding windows are not supported")
    # As in Hugging Face, the window concerns the layers from max_window_layers (28 where it is absent) on.
    if kinds is None and config.boolean("use_sliding_window", False) and config.values.get("sliding_window", 4096) is not None \
            and config.integer("max_window_layers", 28, minimum=0) < layers:
        config.fail("use_sliding_window", "false, as sliding windows are not supported")


YARN_FIELDS = {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}


def _rope(config, max_positions):
    """rope_theta, and YaRN's parameters or None, from wherever the versions of the format put them."""
    # transformers 4 writes rope_theta and rope_scaling, transformers 5 rope_parameters with both in it.
    sections = {name: section for name in ("rope_parameters", "rope_scaling") if (section := config.section(name))}
    if len(sections) == 2:
        new, old = ({k: v for k, v in s.values.items() if k not in ("rope_theta", "type", "rope_type")} | {"rope_type": _rope_type(s)}
                    for s in sections.values())
        if new != old:
            config.fail("rope_scaling", f"the same as rope_parameters = {sections['rope_parameters'].values!r}")
    thetas = {f.prefix + "rope_theta": f.number("rope_theta", above=1)
              for f in (config, *sections.values()) if f.values.get("rope_theta") is not None}
    if not thetas:
        config.fail("rope_theta", "a number, here or as rope_parameters.rope_theta")
    if len(set(thetas.values())) > 1:
        raise ConfigError(f"{config.path}: rope_theta: expected one value, got " + ", ".join(f"{k} = {v!r}" for k, v in thetas.items()))
    theta = next(iter(thetas.values()))
    for section in (config, *sections.values()):
        if section.number("partial_rotary_factor", 1.0) != 1:
            section.fail("partial_rotary_factor", "1, as in every Qwen3")
    if not sections:
        return theta, None
    scaling = next(iter(sections.values()))
    kind = _rope_type(scaling)
    if kind == "default":
        return theta, None
    if kind != "yarn":
        raise ConfigError(f"{config.path}: {scaling.prefix}rope_type: expected 'default' or 'yarn', got {kind!r}")
    if unknown := scaling.values.keys() - YARN_FIELDS - {"type", "rope_type", "rope_theta", "partial_rotary_factor"}:
        warnings.warn(f"{config.path}: {scaling.prefix[:-1]}: fields without a meaning for YaRN: {', '.join(sorted(unknown))}", stacklevel=4)
    return theta, _yarn(config, scaling, max_positions)


def _rope_type(section):
    return section.values.get("rope_type", section.values.get("type", "default"))


def _yarn(config, scaling, max_positions):
    # The order of precedence is transformers': the top-level field, then the section's, then max_position_embeddings.
    original = config.integer("original_max_position_embeddings", None) or scaling.integer("original_max_position_embeddings", max_positions)
    factor = max_positions / original if scaling.values.get("factor", 0) is None else scaling.number("factor", minimum=1)
    attention = scaling.number("attention_factor", None, above=0)
    mscale, mscale_all_dim = scaling.number("mscale", None), scaling.number("mscale_all_dim", None)
    if attention is None:
        magnitude = lambda m: 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0
        attention = magnitude(mscale) / magnitude(mscale_all_dim) if mscale and mscale_all_dim else magnitude(1)
    return YarnScaling(factor=factor, original_max_position_embeddings=original, attention_factor=attention,
                       beta_fast=scaling.number("beta_fast", None, minimum=0) or 32.0, beta_slow=scaling.number("beta_slow", None, minimum=0) or 1.0,
                       truncate=scaling.boolean("truncate", True))


def tokenizer_eos(directory):
    """Ids of the tokenizer's eos token and of <|im_end|>, which ends a turn whatever the configuration says."""
    settings = read_json(directory / "tokenizer_config.json", optional=True)
    eos = settings.get("eos_token")
    names = {"<|im_end|>", eos.get("content") if isinstance(eos, dict) else eos}
    added = settings.get("added_tokens_decoder")
    if isinstance(added, dict):
        pairs = [(t.get("content"), int(i)) for i, t in added.items() if isinstance(t, dict) and i.isdecimal()]
    else:  # transformers 5 leaves them to tokenizer.json alone
        tokens = read_json(directory / "tokenizer.json", optional=True).get("added_tokens") or []
        pairs = [(t.get("content"), t.get("id")) for t in tokens if isinstance(t, dict)]
    return [i for content, i in pairs if content in names and is_integer(i) and i >= 0]


def rotary_tables(config, length):
    """cos and sin of the rotary embedding for the positions 0 … length - 1.

    The steps and their float32 roundings are those of transformers' `Qwen3RotaryEmbedding`; powers, cos and sin are taken in
    double and rounded once, so that the tables do not depend on the machine's vector library.

    Parameters
    ----------
    config : Qwen3Config
    length : int
        Number of positions.

    Returns
    -------
    cos, sin : ndarray of float32, shape (length, head_dim / 2)
        With YaRN's attention factor multiplied in.

    Examples
    --------
    >>> import qwen3
    >>> cos, sin = qwen3.rotary_tables(qwen3.Qwen3Config.from_directory(qwen3.resolve()), 16)
    >>> cos.shape, float(cos[0, 0]), float(sin[0, 0])
    ((16, 64), 1.0, 0.0)
    """
    if not is_integer(length) or length < 0:
        raise ValueError(f"rotary_tables: length: expected an integer >= 0, got {length!r}")
    frequencies = inverse_frequencies(config)
    angles = (np.arange(length, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    scale = np.float32(config.rope_scaling.attention_factor if config.rope_scaling else 1)
    return np.cos(angles).astype(np.float32) * scale, np.sin(angles).astype(np.float32) * scale


def inverse_frequencies(config):
    """float32 angle per position of each pair of dimensions, shape (head_dim / 2,)."""
    dim, one = config.head_dim, np.float32(1)
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    powers = np.power(config.rope_theta, exponents.astype(np.float64)).astype(np.float32)
    yarn = config.rope_scaling
    if yarn is None:
        return one / powers
    edge = lambda rotations: (dim * math.log(yarn.original_max_position_embeddings / (rotations * 2 * math.pi))) / (2 * math.log(config.rope_theta))
    low, high = edge(yarn.beta_fast), edge(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)
    keep = one - ramp  # 1 where a frequency is fast enough to stay as it was trained
    return (one / (np.float32(yarn.factor) * powers)) * (one - keep) + (one / powers) * keep
