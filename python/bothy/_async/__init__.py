"""The asynchronous client; the synchronous one is made of it (tools/gen-python)."""
