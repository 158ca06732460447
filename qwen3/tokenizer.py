"""Text to token ids and back, the streaming decoder, and the chat template."""
import codecs
import json
import operator
import pathlib
from functools import cached_property

from qwen3._extras import require
from qwen3.config import ConfigError, read_json

__all__ = ["StreamDecoder", "Tokenizer"]

ROLES = ("system", "user", "assistant", "tool")
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def _byte_alphabet():
    """Byte-level BPE's characters and the bytes they stand for."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(moved)}


BYTE_OF = _byte_alphabet()


class Tokenizer:
    """The tokenizer of a checkpoint: `tokenizer.json`, and the chat template beside it.

    Parameters
    ----------
    directory : str or os.PathLike

    Attributes
    ----------
    vocab_size : int
        1 + the largest id; a model may have more rows of logits, which no token belongs to.
    special_ids : frozenset of int
        Control tokens such as ``<|im_end|>``, which `decode` leaves out.

    Raises
    ------
    ConfigError
        If the file is missing or is no byte-level BPE, as every Qwen3 has.

    Examples
    --------
    >>> import qwen3
    >>> tokenizer = qwen3.Tokenizer(qwen3.resolve())
    >>> tokenizer.decode(tokenizer.encode("Hello, wörld!"))
    'Hello, wörld!'
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        path = self.directory / "tokenizer.json"
        library = require("tokenizers")
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; expected the tokenizer of the checkpoint")
        try:
            self._backend = library.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ConfigError(f"{path}: not a usable tokenizer: {error}") from error
        if not isinstance(self._backend.decoder, library.decoders.ByteLevel):
            raise ConfigError(f"{path}: decoder: expected ByteLevel, got {type(self._backend.decoder).__name__}")
        self._settings = read_json(self.directory / "tokenizer_config.json", optional=True)
        added = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.vocab_size = max(self._backend.get_vocab_size(with_added_tokens=False), 1 + max(added, default=-1))

    def encode(self, text):
        """Token ids of `text`; control tokens written out in it count as such, as in Hugging Face's tokenizer.

        Parameters
        ----------
        text : str

        Returns
        -------
        list of int
        """
        if not isinstance(text, str):
            raise TypeError(f"encode: text: expected str, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"encode: text: expected valid Unicode, got the lone surrogate {text[error.start]!r} at {error.start}") from None
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids, *, skip_special_tokens=True):
        """Text of `ids`; bytes that are no UTF-8 become U+FFFD, ids without a token become nothing.

        Parameters
        ----------
        ids : iterable of int
        skip_special_tokens : bool
            Leave out control tokens.

        Returns
        -------
        str
        """
        return self._backend.decode([_checked_id(i, "decode") for i in ids], skip_special_tokens=skip_special_tokens)

    def stream(self, *, skip_special_tokens=True):
        """A decoder that takes one id at a time and never gives half a character.

        Returns
        -------
        StreamDecoder
        """
        return StreamDecoder(self, skip_special_tokens)

    def token_bytes(self, token_id):
        """The bytes that a token adds to the text; none for an id without a token.

        Parameters
        ----------
        token_id : int

        Returns
        -------
        bytes
        """
        token = self._backend.id_to_token(_checked_id(token_id, "token_bytes"))
        if token is None:
            return b""
        try:
            return bytes(BYTE_OF[c] for c in token)
        except KeyError:  # an added token outside the byte alphabet is plain text
            return token.encode()

    @cached_property
    def _templates(self):
        """Source of the chat templates by name, from where Hugging Face looks for them, in its order."""
        path = self.directory / "chat_template.jinja"
        if path.is_file():
            return {"default": path.read_text(encoding="utf-8")}
        source = self._settings.get("chat_template")
        if source is None:
            source = read_json(self.directory / "chat_template.json", optional=True).get("chat_template")
        if isinstance(source, list):
            source = {t.get("name"): t.get("template") for t in source if isinstance(t, dict)}
        return source if isinstance(source, dict) else {"default": source} if source is not None else {}

    @cached_property
    def _environment(self):
        return _template_environment()

    def _template_source(self, tools):
        name = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        source = self._templates.get(name)
        if not isinstance(source, str):
            raise ConfigError(f"{self.directory}: no chat template in chat_template.jinja, tokenizer_config.json or chat_template.json")
        return source

    def apply_chat_template(self, messages, tools=None, add_generation_prompt=True, enable_thinking=True, **variables):
        """The prompt of a conversation, byte for byte as Hugging Face renders it.

        Parameters
        ----------
        messages : sequence of dict
            Each with `role` (system, user, assistant, tool) and `content`; an assistant's content may be None or absent beside
            `tool_calls`, and its reasoning may be given as `reasoning_content`.
        tools : sequence of dict, optional
            JSON schemas of functions that the model may call.
        add_generation_prompt : bool
            End with the head of the assistant's turn.
        enable_thinking : bool
            False closes the reasoning before it begins, with an empty block in the prompt.
        **variables
            Further variables of the template.

        Returns
        -------
        str

        Raises
        ------
        ValueError, TypeError
            For an empty conversation, a message without a role or a text, or when the template itself refuses.

        Examples
        --------
        >>> import qwen3
        >>> tokenizer = qwen3.Tokenizer(qwen3.resolve())
        >>> tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
        '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        messages = _checked_messages(messages)
        if tools is not None and (not isinstance(tools, (list, tuple)) or not all(isinstance(t, dict) for t in tools)):
            raise TypeError("apply_chat_template: tools: expected a list of JSON schemas as dicts")
        special = {name: token for name in SPECIAL_TOKENS if (token := _token_text(self._settings.get(name))) is not None}
        source, environment = self._template_source(tools), self._environment
        try:
            return environment.from_string(source).render(special | variables | {
                "messages": messages, "tools": tools, "documents": variables.get("documents"),
                "add_generation_prompt": add_generation_prompt, "enable_thinking": enable_thinking})
        except Exception as error:  # a template is a program of the checkpoint's author, and may fail in any way
            raise ValueError(f"apply_chat_template: the template of {self.directory} failed: {error}") from error


def _checked_id(value, function):
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{function}: expected integer token ids, got {value!r}") from None
    if not 0 <= value < 2**32:
        raise IndexError(f"{function}: expected 0 <= id < 2**32, got {value}")
    return value


def _token_text(value):
    return value.get("content") if isinstance(value, dict) else value


def _checked_messages(messages):
    """Copies of the messages as the templates want them: text everywhere, and nothing that a template would drop unseen."""
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"apply_chat_template: messages: expected a list of dicts, got {type(messages).__name__}")
    if not messages:
        raise ValueError("apply_chat_template: messages: expected at least one message, got an empty list")
    checked = []
    for i, message in enumerate(messages):
        where = f"apply_chat_template: messages[{i}]"
        if not isinstance(message, dict):
            raise TypeError(f"{where}: expected a dict, got {type(message).__name__}")
        message = {key: value for key, value in message.items() if value is not None}
        role = message.get("role")
        if role not in ROLES:
            raise ValueError(f"{where}: role: expected one of {', '.join(ROLES)}, got {role!r}")
        if role == "assistant":
            message.setdefault("content", "")
        if not isinstance(message.get("content"), str):
            raise TypeError(f"{where}: content: expected a string, got {message.get('content')!r}")
        # The older names of the same field, as Hugging Face takes them.
        reasoning = next((message[k] for k in ("reasoning_content", "thinking", "reasoning") if k in message), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        checked.append(message)
    return checked


def _template_environment():
    """Hugging Face's environment for chat templates: a sandbox, as a template comes with a checkpoint from anywhere."""
    jinja2 = require("jinja2")
    sandbox = require("jinja2.sandbox")
    extension = require("jinja2.ext")
    import datetime

    class GenerationBlock(extension.Extension):
        """`{% generation %}` marks what an assistant wrote, for training; here it is only its content."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, extension.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


class StreamDecoder:
    """Decodes ids one by one; all that it gives, put together, is what `Tokenizer.decode` gives for the whole list.

    Examples
    --------
    >>> import qwen3
    >>> tokenizer = qwen3.Tokenizer(qwen3.resolve())
    >>> stream = tokenizer.stream()
    >>> "".join(stream.push(i) for i in tokenizer.encode("naïve 😀")) + stream.flush()
    'naïve 😀'
    """

    def __init__(self, tokenizer, skip_special_tokens=True):
        self._tokenizer = tokenizer
        self._skip = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id):
        """The text that is certain once `token_id` is there: '' while a character is incomplete.

        Parameters
        ----------
        token_id : int

        Returns
        -------
        str
        """
        return "" if token_id in self._skip else self._utf8.decode(self._tokenizer.token_bytes(token_id))

    def flush(self):
        """What is left at the end: U+FFFD for an incomplete character. The decoder can be used again afterwards.

        Returns
        -------
        str
        """
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest
