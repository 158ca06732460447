"""A dense Qwen3 on `qkernels`: load a Hugging Face checkpoint, generate text.

>>> import qwen3
>>> model = qwen3.load()
>>> sum(step.finish_reason is not None for step in model.generate(model.tokenizer.encode("Hi"), max_new_tokens=4))
1
"""
import importlib

_HOME = {
    "load": "model", "Qwen3Model": "model",
    "Qwen3Config": "config", "ConfigError": "config", "rotary_tables": "config",
    "Checkpoint": "checkpoint", "CheckpointError": "checkpoint", "resolve": "checkpoint",
    "Tokenizer": "tokenizer",
    "Generation": "generate", "Sampler": "generate", "Step": "generate",
    "Conversation": "chat",
}

__all__ = sorted(_HOME)


def __getattr__(name):
    # Names come from their modules when first used: `import qwen3` alone loads neither NumPy nor the tokenizer.
    if name not in _HOME:
        raise AttributeError(f"module 'qwen3' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"qwen3.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOME})
