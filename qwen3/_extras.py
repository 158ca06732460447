"""Libraries of the `qwen3` extra, imported when first needed, so that `import qwen3` stays light and works without them."""
import importlib

__all__ = ["MissingExtraError", "require"]


class MissingExtraError(ImportError):
    """A library of the `qwen3` extra is not installed."""


def require(module):
    """Import `module`, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f'qwen3 needs {package}, which is not usable here ({error}): pip install "qkernels[qwen3]"') from error
