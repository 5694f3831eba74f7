"""Owns `python -m turnscript`: the command line, where its program is not on the path."""

from turnscript.cli.main import main

if __name__ == "__main__":
    main()
