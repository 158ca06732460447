"""`python -m qwen3` is the command `qwen3`."""
from qwen3.cli import main

if __name__ == "__main__":
    main()
