"""TableTune: measured, validated and promoted draft-length tables for vLLM."""

__version__ = "0.1.0"
