"""What `python -m qkernels…` does where standard output cannot be written."""
import os
import sys


def run(main):
    """Exit with what `main()` returns; a reader that has gone is no mistake, a full disk is one without a traceback."""
    try:
        code = main()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = 0
        _silence()
    except OSError as error:
        code = f"standard output: {error.strerror}"
        _silence()
    sys.exit(code)


def _silence():
    # What is still buffered must not fail when the interpreter flushes it at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
