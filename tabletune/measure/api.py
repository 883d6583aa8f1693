"""Talks to one running engine over HTTP: health, models, metrics and the plugin's endpoints."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import httpx

from tabletune.measure.steps import StepBatch, parse_steps

#: A question that may be asked twice is asked again after so long without an answer. Between
#: the tries the engine's log is looked at: the server of a core that was killed answers nothing.
TRY_S = 3.0


def _never() -> bool:
    return False


class EngineApiError(RuntimeError):
    """A running engine answered with an error, or not at all.

    Attributes:
        request: method and path.
        found: the answer, or the transport error.
        advice: what to do next.
    """

    def __init__(self, request: str, found: str, advice: str) -> None:
        self.request, self.found, self.advice = request, found, advice
        super().__init__(f"{request}: {found}; {advice}")


@dataclass(frozen=True)
class EngineAddress:
    """Where an engine listens, and the bearer token of its plugin's endpoints, if any."""

    base_url: str
    token: str = ""


@dataclass(frozen=True)
class ServedModel:
    """A served model's name, and the longest sequence in tokens."""

    name: str
    max_model_len: int


class EngineApi:
    """A synchronous client of one engine.

    Args:
        address: where the engine listens.
        timeout_s: for each call; calls do no work in the engine beyond a look-up.
        transport: for tests.
        lost: whether the engine is known to be gone (RunningEngine.is_lost). Then no answer
            is waited for to the end.
        try_s: see TRY_S.
    """

    def __init__(
        self,
        address: EngineAddress,
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
        lost: Callable[[], bool] = _never,
        try_s: float = TRY_S,
    ) -> None:
        headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        self.address = address
        self._timeout_s, self._lost, self._try_s = timeout_s, lost, try_s
        self._http = httpx.Client(
            base_url=address.base_url,
            timeout=timeout_s,
            headers=headers,
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def healthy(self) -> bool:
        """Whether `/health` answers 200."""
        try:
            return self._http.get("/health").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def model(self) -> ServedModel:
        """The first served model."""
        facts = self._json("GET", "/v1/models")["data"][0]
        return ServedModel(str(facts["id"]), int(facts["max_model_len"]))

    def complete(self, model: str, prompt: Any, max_tokens: int, **sampling: Any) -> Any:
        """One blocking completion; the parsed answer."""
        body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, **sampling}
        return self._json("POST", "/v1/completions", body, timeout_s=600.0)

    def chat_token_ids(self, model: str, messages: list[dict[str, str]]) -> list[int]:
        """The token ids of a conversation under the model's chat template."""
        body = {"model": model, "messages": messages, "add_generation_prompt": True}
        return list(self._json("POST", "/tokenize", body)["tokens"])

    def metrics_text(self) -> str:
        """The engine's Prometheus page."""
        return self._request("GET", "/metrics").text

    def status(self) -> dict[str, Any]:
        """The plugin's status.

        Raises:
            EngineApiError: the plugin's endpoints are not there, or refuse.
        """
        return self._json("GET", "/tabletune/status")

    def graphs(self) -> dict[str, Any]:
        """The CUDA graphs that the engine captured: ``known``, then ``graphs`` as rows of
        [mode, tokens, requests or None, query length or None]; else the ``reason``."""
        return self._json("GET", "/tabletune/graphs")

    def steps(self, since: int = 0, limit: int = 16_384) -> StepBatch:
        """Recorded engine steps with sequence numbers from `since` on."""
        path = f"/tabletune/steps?since={since}&limit={limit}"
        return parse_steps(self._json("GET", path))

    def pin(self, draft_length: int | None) -> None:
        """Pin one draft length for every batch size; None returns to the table in force."""
        self._json("POST", "/tabletune/pin", {"draft_length": draft_length}, repeatable=True)

    def pin_schedule(self, schedule: list[tuple[int, int]], repeat: int = 1) -> None:
        """Let the engine itself walk through (draft length, steps) pairs, `repeat` times."""
        body = {"schedule": [list(pair) for pair in schedule], "repeat": repeat}
        self._json("POST", "/tabletune/pin", body)

    def swap_table(self, ranges: list[list[int]] | None) -> None:
        """Put a table in force between two steps; None returns to the boot table."""
        self._json("POST", "/tabletune/table", {"ranges": ranges}, repeatable=True)

    def _json(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout_s: float | None = None,
        repeatable: bool = False,
    ) -> Any:
        return self._request(method, path, body, timeout_s, repeatable).json()

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout_s: float | None = None,
        repeatable: bool = False,
    ) -> httpx.Response:
        what = f"{method} {path}"
        # A schedule that was sent twice would begin twice.
        tries = round(self._timeout_s / self._try_s) if repeatable or method == "GET" else 1
        try:
            answer = self._ask(method, path, body, timeout_s or self._timeout_s, max(1, tries))
        except httpx.HTTPError as error:
            advice = "see whether the engine still runs, and its log"
            raise EngineApiError(what, f"{type(error).__name__}: {error}", advice) from error
        if answer.status_code == httpx.codes.NOT_FOUND and path.startswith("/tabletune"):
            advice = "start the engine with VLLM_PLUGINS=tabletune and TABLETUNE_MEASURE=1"
            raise EngineApiError(what, "the plugin's endpoints are not there", advice)
        if answer.is_error:
            found = f"HTTP {answer.status_code}: {answer.text[:500]}"
            raise EngineApiError(what, found, "see the engine's log")
        return answer

    def _ask(
        self, method: str, path: str, body: Any, timeout_s: float, tries: int
    ) -> httpx.Response:
        """Ask, in `tries` of equal length, until the engine answers or is known to be gone."""
        limit = httpx.Timeout(timeout_s, read=timeout_s / tries)
        for left in reversed(range(tries)):
            try:
                return self._http.request(method, path, json=body, timeout=limit)
            except httpx.ReadTimeout:
                if not left or self._lost():
                    raise
        raise AssertionError("unreachable: the loop returns or raises")
