"""Conversations: messages to prompts, and the cache of one turn used again in the next."""
from qwen3.generate import generate

__all__ = ["Conversation", "common_prefix"]


def common_prefix(a, b):
    """Length of the longest common beginning of two sequences.

    Examples
    --------
    >>> from qwen3.chat import common_prefix
    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Conversation:
    """Messages with a model, turn by turn.

    The template leaves the reasoning of earlier turns out of the prompt, so that a turn's prompt need not begin with all of the one
    before: the cache is cut back to the longest common prefix, and the rest is run again.

    Parameters
    ----------
    model : Qwen3Model
    messages : iterable of dict, optional
        The beginning, a system message for instance.
    tools : list of dict, optional
    enable_thinking : bool

    Attributes
    ----------
    messages : list of dict
        May be changed between turns.

    Examples
    --------
    >>> import qwen3
    >>> talk = qwen3.Conversation(qwen3.load(), enable_thinking=False)
    >>> text = "".join(step.text for step in talk.send("Hello!", max_new_tokens=16))
    >>> [message["role"] for message in talk.messages]
    ['user', 'assistant']
    """

    def __init__(self, model, messages=(), *, tools=None, enable_thinking=True):
        self.model, self.messages, self.tools, self.enable_thinking = model, list(messages), tools, enable_thinking
        self._cache, self._cached_ids = None, []

    def prompt_ids(self):
        """Token ids of the messages and the head of the assistant's turn.

        Returns
        -------
        list of int
        """
        tokenizer = self.model.tokenizer
        return tokenizer.encode(tokenizer.apply_chat_template(self.messages, tools=self.tools, enable_thinking=self.enable_thinking))

    def start(self, **options):
        """Generate after the messages as they are, with as much of the cache as fits; adds no message.

        Parameters
        ----------
        **options
            Of `generate`.

        Returns
        -------
        Generation
        """
        ids = self.prompt_ids()
        if self._cache is None:
            self._cache = self.model.new_cache()
        # At least one token is run: the cache keeps no logits.
        self._cache.truncate(min(common_prefix(self._cached_ids[:self._cache.length], ids), len(ids) - 1))
        generation = generate(self.model, ids, cache=self._cache, **options)
        self._cached_ids = generation.ids
        return generation

    def send(self, text, **options):
        """Say `text`; gives the steps of the answer and adds both to the messages, the answer also when it is broken off.

        Parameters
        ----------
        text : str
        **options
            Of `generate`.

        Yields
        ------
        Step
        """
        self.messages.append({"role": "user", "content": text})
        try:
            generation = self.start(**options)
        except Exception:
            self.messages.pop()
            raise
        answer = []
        try:
            for step in generation:
                answer.append(step.text)
                yield step
        finally:
            self.messages.append({"role": "assistant", "content": "".join(answer)})
