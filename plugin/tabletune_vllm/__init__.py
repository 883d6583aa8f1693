"""The TableTune plugin for vLLM: it counts engine steps and swaps draft-length tables."""

__version__ = "0.1.0"
