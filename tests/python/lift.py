"""The synchronous client in the asynchronous one's form, so that one case is run with both."""
import inspect

import bothy

OBJECTS = (bothy.Client, bothy.Sandbox, bothy.Session, bothy.Process, bothy.Files)


class Lift:
    """Every method can be awaited, every iterator be iterated over by `async for`; what is given back is lifted, too."""

    def __init__(self, plain):
        self.plain = plain

    def __getattr__(self, name):
        found = getattr(self.plain, name)
        return lifted_call(found) if callable(found) else lift(found)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *why):
        self.plain.__exit__(*why)


def lift(value):
    if isinstance(value, OBJECTS):
        return Lift(value)
    return [lift(one) for one in value] if isinstance(value, list) else value


def lifted_call(function):
    iterates = bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & inspect.CO_GENERATOR)

    def call(*words, **options):
        return iterate(function(*words, **options)) if iterates else answer(function, words, options)
    return call


async def iterate(plain):
    for one in plain:
        yield lift(one)


async def answer(function, words, options):
    return lift(function(*words, **options))
