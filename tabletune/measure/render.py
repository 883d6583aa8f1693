"""Turns sample prompts into requests: conversations with the model's own chat template.

The engine itself renders a conversation (``POST /tokenize`` gives the token ids), and the
ids are sent as an ordinary completion: so chat and plain prompts take one path, and what is
measured is what a chat client would cause.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from tabletune.measure.api import EngineApiError
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.prompts import Prompt


class ChatTokenizer(Protocol):
    """An engine that renders conversations."""

    def chat_token_ids(self, model: str, messages: list[dict[str, str]]) -> list[int]: ...


class Renderer:
    """Makes requests of prompts; falls back to plain text once if there is no chat template.

    Args:
        max_tokens: output tokens of each request.
        max_prompt_tok: longer conversations keep only their last tokens; None keeps all.
        extra: further fields of every request.
    """

    def __init__(
        self,
        engine: ChatTokenizer,
        model: str,
        max_tokens: int,
        progress: Progress,
        max_prompt_tok: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self._engine, self._model, self._progress = engine, model, progress
        self._max_tokens, self._max_prompt_tok = max_tokens, max_prompt_tok
        self._extra = dict(extra or {})
        self._chat = True

    def __call__(self, prompts: Sequence[Prompt]) -> list[LoadRequest]:
        return [self._request(prompt) for prompt in prompts]

    def _request(self, prompt: Prompt) -> LoadRequest:
        if prompt.messages and self._chat:
            messages = [{"role": role, "content": text} for role, text in prompt.messages]
            try:
                ids = self._engine.chat_token_ids(self._model, messages)
            except EngineApiError as error:
                if "HTTP 4" not in error.found and "HTTP 5" not in error.found:
                    raise
                self._chat = False
                self._progress.say(f"conversations are sent as plain text: {error.found[:200]}")
            else:
                kept = ids if self._max_prompt_tok is None else ids[-self._max_prompt_tok :]
                return LoadRequest(kept, self._max_tokens, self._extra)
        extra = self._extra
        if self._max_prompt_tok is not None:
            extra = {"truncate_prompt_tokens": self._max_prompt_tok, **extra}
        return LoadRequest(prompt.text, self._max_tokens, extra)
