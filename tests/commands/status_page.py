"""An engine's status as the plugin answers it, and a small server that answers with it."""

import contextlib
import copy
import json
import threading
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import numpy as np

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.settings import ControllerSettings
from tests.records.decision_log import BATCH_SIZE, SEED, STARTED_UNIX_S
from tests.records.live import BAD, MAX_NUM_SEQS, observed, promoted


def engine_status() -> dict[str, Any]:
    """The status of an engine whose drafts are bad, from a real controller; a copy each time."""
    return copy.deepcopy(_engine_status(30))


@cache
def _engine_status(seconds: int) -> dict[str, Any]:
    controller = Controller(
        ControllerSettings(), promoted(), (4,) * MAX_NUM_SEQS, np.random.default_rng(SEED)
    )
    decisions: list[dict[str, object]] = []
    counts: dict[str, int] = {}
    for second in range(seconds):
        seen = observed(second, BATCH_SIZE, controller.table[BATCH_SIZE - 1], BAD)
        decision = controller.tick(seen, 1.0 + second)
        counts[decision.kind] = counts.get(decision.kind, 0) + 1
        if decision.kind != "hold":
            unix_s = STARTED_UNIX_S + second
            decisions.append({"unix_s": unix_s, "applied": True, **decision.to_dict()})
    table = controller.table
    edges = [i for i in range(len(table)) if not i or table[i] != table[i - 1]] + [len(table)]
    return {
        "plugin_version": "0.1.0",
        "active": True,
        "reason": None,
        "vllm_version": "0.32.0",
        "runner": "V2",
        "device": "cuda",
        "method": "eagle3",
        "max_num_seqs": MAX_NUM_SEQS,
        "max_draft_length": 4,
        "run_id": "run-1",
        "started_unix_s": STARTED_UNIX_S,
        "boot_table": [[1, 15, 4], [16, 16, 2]],
        "table": [[a + 1, b, table[a]] for a, b in pairwise(edges)],
        "pin": None,
        "swaps": counts.get("swap", 0),
        "steps": 1000 * seconds,
        "controller": {
            "mode": "adapt",
            "ceiling": "adapt",
            "channel": "live",
            "source": "file:///srv/tables",
            "version": "0123456789abcdef",
            "from_cache": False,
            "notes": [],
            "suspended": None,
            "state": controller.state(),
            "last_decisions": decisions[-32:],
            "decisions_by_kind": counts,
            "refusals": 2,
            "last_refusals": [
                {
                    "first_unix_s": STARTED_UNIX_S,
                    "last_unix_s": STARTED_UNIX_S + 20,
                    "times": 2,
                    "reason": "version fedcba987654: fingerprint differs in driver",
                }
            ],
        },
    }


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, StatusServer)
        wanted = f"Bearer {server.token}"
        if self.path != "/tabletune/status" or server.status is None:
            self._answer(404, {"detail": "Not Found"})
        elif server.token and self.headers.get("Authorization") != wanted:
            self._answer(403, {"error": {"expected": "a token"}})
        else:
            self._answer(200, server.status)

    def _answer(self, code: int, value: object) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class StatusServer(ThreadingHTTPServer):
    """`status` is what it answers: a status, raw bytes, or None for an engine without plugin."""

    status: dict[str, Any] | bytes | None = None
    token = ""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def serving(status: dict[str, Any] | bytes | None, token: str = "") -> Iterator[StatusServer]:
    """A server on a free port of this machine."""
    with StatusServer(("127.0.0.1", 0), _Handler) as server:
        server.status, server.token = status, token
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
