"""The synchronous client, made of the asynchronous one by tools/gen-python: change that."""
