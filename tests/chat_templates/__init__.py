"""Chat templates as programs that write: what they write, and which table reads it."""
