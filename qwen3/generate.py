"""Generation: an iterator of steps over a model, a cache and a sampler."""
import math
import secrets
import time
from dataclasses import dataclass

import numpy as np

import qkernels
from qwen3.config import is_integer, is_number

__all__ = ["Generation", "Sampler", "Statistics", "Step", "generate"]

PREFILL_CHUNK = 512  # tokens; bounds the activations of a long prompt


class Sampler:
    """Chooses a token from logits: Hugging Face's penalty, temperature, top-k, top-p and min-p, in that order.

    Parameters
    ----------
    temperature : float
        0 takes the largest logit.
    top_k : int or None
        Keep this many candidates; 0 or None keeps all.
    top_p : float or None
        Keep the smallest set whose probabilities reach this sum; at least one.
    min_p : float or None
        Drop what is less likely than this share of the likeliest.
    repetition_penalty : float
        Divides the positive and multiplies the negative logits of tokens seen before, once each; 1 is off.
    seed : int or None
        None draws one; `seed` says which it was. Calls are counted, and the same seed and count give the same draw.

    Raises
    ------
    ValueError
        Naming the parameter and its range.

    Examples
    --------
    >>> import numpy as np
    >>> import qwen3
    >>> qwen3.Sampler(temperature=0)(np.array([0.5, 2.0, 1.0], np.float32), [])
    1
    """

    def __init__(self, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, seed=None):
        def check(name, value, good, expected):
            if not good:
                raise ValueError(f"Sampler: {name}: expected {expected}, got {value!r}")

        unit = lambda v: is_number(v) and 0 <= v <= 1
        top_k, top_p, min_p = (default if v is None else v for v, default in ((top_k, 0), (top_p, 1.0), (min_p, 0.0)))
        check("temperature", temperature, is_number(temperature) and temperature >= 0, "a finite number >= 0")
        check("top_k", top_k, is_integer(top_k) and top_k >= 0, "an integer >= 0 or None")
        check("top_p", top_p, unit(top_p), "a number in [0, 1] or None")
        check("min_p", min_p, unit(min_p), "a number in [0, 1] or None")
        check("repetition_penalty", repetition_penalty, is_number(repetition_penalty) and repetition_penalty > 0, "a finite number > 0")
        check("seed", seed, seed is None or (is_integer(seed) and 0 <= seed < 2**64), "an integer in [0, 2**64) or None")
        self.temperature, self.top_k, self.top_p, self.min_p = float(temperature), int(top_k), float(top_p), float(min_p)
        self.repetition_penalty = float(repetition_penalty)
        self.seed = secrets.randbits(32) if seed is None else int(seed)
        self.step = 0

    @classmethod
    def from_config(cls, config, **given):
        """The sampler that a checkpoint's `generation_config.json` asks for, with the `given` parameters in place of its own.

        Without `do_sample` in the file it is greedy, unless a parameter that only sampling has a use for is given.

        Parameters
        ----------
        config : Qwen3Config
        **given
            Parameters of `Sampler`; None leaves the file's.

        Returns
        -------
        Sampler
        """
        given = {name: value for name, value in given.items() if value is not None}
        settings = {name: getattr(config, name) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
        if not config.do_sample and not given.keys() & {"temperature", "top_k", "top_p", "min_p"}:
            settings["temperature"] = 0.0
        return cls(**settings | given)

    def __call__(self, logits, previous_ids):
        """The next token.

        Parameters
        ----------
        logits : ndarray of float32, shape (n,)
        previous_ids : sequence of int
            Prompt and generated tokens, for the repetition penalty.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If a logit is NaN, or none is above minus infinity.
        """
        step, self.step = self.step, self.step + 1
        penalized = self.repetition_penalty != 1
        if self.temperature == 0 and not penalized:
            best = int(qkernels.argmax(logits, keepdims=0))
            # NaN counts as the largest, and only where all are -inf is the largest -inf.
            if not logits[best] > -math.inf:
                raise ValueError(f"Sampler: step {step}: logits: expected a number above -inf, got {logits[best]} as the largest")
            return best
        try:
            return qkernels.sample(
                logits, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p,
                repetition_penalty=self.repetition_penalty, previous=np.asarray(previous_ids, np.int64) if penalized else None,
                seed=self.seed, step=step)
        except ValueError as error:
            raise ValueError(f"Sampler: step {step}: {error}") from error


@dataclass(frozen=True, slots=True)
class Step:
    """One generated token.

    Attributes
    ----------
    token : int
    text : str
        What the token adds to the text: '' for an end token and inside a character.
    finish_reason : {None, 'stop', 'length'}
        Of the last step: an end token came, or `max_new_tokens` or the context is used up.
    """

    token: int
    text: str
    finish_reason: str | None = None


@dataclass
class Statistics:
    """Counts and times of one generation, in seconds; an end token is not counted as generated.

    Attributes
    ----------
    prompt_tokens : int
    cached_tokens : int
        How many of them were in the cache before.
    new_tokens : int
    first_token_seconds : float
        From the first request to the first token (TTFT).
    decode_seconds : float
        For the tokens after the first, without the time that the caller takes between them.
    decode_steps : int
        Tokens after the first, an end token included.
    finish_reason : {None, 'stop', 'length'}
    """

    prompt_tokens: int
    cached_tokens: int = 0
    new_tokens: int = 0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    decode_steps: int = 0
    finish_reason: str | None = None

    @property
    def seconds_per_token(self):
        """Mean time of a token after the first (TPOT); 0 without one."""
        return self.decode_seconds / self.decode_steps if self.decode_steps else 0.0

    @property
    def prompt_tokens_per_second(self):
        """Prompt tokens that were run, per second up to the first token; 0 without one."""
        return (self.prompt_tokens - self.cached_tokens) / self.first_token_seconds if self.first_token_seconds else 0.0

    @property
    def tokens_per_second(self):
        """Tokens after the first, per second; 0 without one."""
        return self.decode_steps / self.decode_seconds if self.decode_seconds else 0.0


class Generation:
    """An iterator of `Step`, with what it knows at any time.

    Attributes
    ----------
    stats : Statistics
    cache
        The cache in use: it holds all tokens but those that were not run, of which the last generated one always is.
    ids : list of int
        Prompt and generated tokens, an end token included.
    """

    def __init__(self, steps, stats, cache, ids):
        self._steps, self.stats, self.cache, self.ids = steps, stats, cache, ids

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._steps)

    def close(self):
        """End the generation; the cache stays as it is."""
        self._steps.close()


def generate(model, ids, *, max_new_tokens=None, sampler=None, cache=None, stop_ids=None, ignore_eos=False, clock=time.perf_counter):
    """Generate tokens after a prompt.

    Prompt and generated tokens together never exceed `model.max_context`: nothing is cut off silently.

    Parameters
    ----------
    model
        With `config`, `tokenizer`, `max_context`, `new_cache()` and `forward(ids, cache, last_only=True)`.
    ids : sequence of int
        The whole prompt. What `cache` already holds must be its beginning; only the rest is run.
    max_new_tokens : int or None
        None: until an end token comes or the context is full.
    sampler : callable, optional
        ``sampler(logits, ids) -> int``; by default the one that the checkpoint's generation defaults ask for.
    cache : optional
        A cache of the model with fewer tokens than the prompt; by default a new one.
    stop_ids : iterable of int, optional
        End tokens in place of `model.config.eos_token_ids`.
    ignore_eos : bool
        Go on after end tokens, which then are tokens like any other; for measurements.
    clock : callable
        Source of the times in the statistics.

    Returns
    -------
    Generation
        Arguments are checked at once; the model runs when the first step is asked for.

    Raises
    ------
    ValueError
        For an empty prompt, or one that leaves no room in the context.
    IndexError
        For an id outside the vocabulary.

    Examples
    --------
    >>> import qwen3
    >>> model = qwen3.load()
    >>> prompt = model.tokenizer.encode(model.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]))
    >>> steps = list(model.generate(prompt, max_new_tokens=3, sampler=qwen3.Sampler(temperature=0)))
    >>> len(steps) <= 3
    True
    """
    ids = _checked_ids(ids, model.config.vocab_size)
    context = model.max_context
    if max_new_tokens is not None and (not is_integer(max_new_tokens) or max_new_tokens < 0):
        raise ValueError(f"generate: max_new_tokens: expected an integer >= 0 or None, got {max_new_tokens!r}")
    if len(ids) > context:
        raise ValueError(f"generate: ids: expected at most {context - 1} tokens for a context of {context}, got {len(ids)}")
    if len(ids) == context and max_new_tokens != 0:
        raise ValueError(f"generate: ids: the prompt of {len(ids)} tokens leaves no room in a context of {context}: expected at most {context - 1}")
    cached = 0 if cache is None else cache.length
    if cached >= len(ids):
        raise ValueError(f"generate: cache: expected fewer tokens than the prompt's {len(ids)}, got {cached}: truncate it to a common prefix")
    room = context - len(ids)
    limit = room if max_new_tokens is None else min(room, max_new_tokens)
    if sampler is None:
        sampler = Sampler.from_config(model.config)
    stop = frozenset() if ignore_eos else frozenset(model.config.eos_token_ids if stop_ids is None else stop_ids)
    cache = model.new_cache() if cache is None else cache
    stats = Statistics(prompt_tokens=len(ids), cached_tokens=cached)
    return Generation(_steps(model, ids, limit, sampler, cache, stop, stats, clock), stats, cache, ids)


def _steps(model, ids, limit, sampler, cache, stop, stats, clock):
    if limit == 0:
        stats.finish_reason = "length"
        return
    tokenizer = model.tokenizer
    stream = tokenizer.stream() if tokenizer is not None else None
    # A model may have more rows of logits than its tokenizer has tokens; those are never chosen.
    tokens = tokenizer.vocab_size if tokenizer is not None else model.config.vocab_size
    prompt = len(ids)
    begin = clock()
    for start in range(cache.length, prompt, PREFILL_CHUNK):
        logits = model.forward(ids[start:min(start + PREFILL_CHUNK, prompt)], cache, last_only=True)
    for count in range(1, limit + 1):
        token = sampler(logits[-1][:tokens], ids)
        ids.append(token)
        seconds = clock() - begin
        if count == 1:
            stats.first_token_seconds = seconds
        else:
            stats.decode_seconds, stats.decode_steps = stats.decode_seconds + seconds, count - 1
        if token in stop:
            text, reason = "", "stop"
        else:
            stats.new_tokens = count
            text, reason = stream.push(token) if stream else "", "length" if count == limit else None
        if reason:
            stats.finish_reason = reason
            yield Step(token, text + (stream.flush() if stream else ""), reason)
            return
        yield Step(token, text)
        begin = clock()
        logits = model.forward([token], cache, last_only=True)


def _checked_ids(ids, vocab_size):
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"generate: ids: expected a flat sequence of integers, got {array.dtype} of shape {array.shape}")
    if not array.size:
        raise ValueError("generate: ids: expected at least one token, got an empty prompt")
    wrong = np.flatnonzero((array < 0) | (array >= vocab_size))
    if wrong.size:
        raise IndexError(f"generate: ids[{wrong[0]}]: expected 0 <= id < {vocab_size}, got {array[wrong[0]]}")
    return array.tolist()
