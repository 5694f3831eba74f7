"""The command line: what it writes, says and leaves behind."""
