"""The source of an engine's tables: follows a channel's pointer and checks what it finds."""

from tabletune_vllm.source.answers import (
    Answer,
    NewVersion,
    Refused,
    SwitchedOff,
    Unchanged,
    Unreachable,
)
from tabletune_vllm.source.engine_self import EngineSelf
from tabletune_vllm.source.follower import Follower
from tabletune_vllm.source.opening import open_follower

__all__ = [
    "Answer",
    "EngineSelf",
    "Follower",
    "NewVersion",
    "Refused",
    "SwitchedOff",
    "Unchanged",
    "Unreachable",
    "open_follower",
]
