"""The checks of the playground: what its page is told, and over HTTP."""
