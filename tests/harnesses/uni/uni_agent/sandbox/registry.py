"""Providers by name."""
SANDBOX_REGISTRY = {}


def register_sandbox(name):
    def decorate(cls):
        cls.provider = name
        SANDBOX_REGISTRY[name] = cls
        return cls
    return decorate


def build_sandbox(config):
    return SANDBOX_REGISTRY[config.provider].from_config(config)
