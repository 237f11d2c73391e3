"""`python -m sapiens_batch`, where the command itself is not on the PATH; see `cli`."""

from sapiens_batch.cli import main

if __name__ == "__main__":
    main()
