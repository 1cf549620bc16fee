"""uni-agent's interface to sandboxes, as far as a provider sees it: for tests where its repository is not at hand (BOTHY_UNI_AGENT)."""
