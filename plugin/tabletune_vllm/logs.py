"""One logger for the plugin, below vLLM's own so that its handlers print our lines."""

import logging

logger = logging.getLogger("vllm.tabletune")
_said: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning the first time this process says it, and never again."""
    if message not in _said:
        _said.add(message)
        logger.warning("%s", message)
