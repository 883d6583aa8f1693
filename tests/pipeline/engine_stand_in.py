"""Stands in for vLLM's API server with the plugin: real HTTP, real processes, invented steps.

    python engine_stand_in.py --host 127.0.0.1 --port PORT --model NAME --max-num-seqs 4 …

Standard library only. It is started as an engine environment's
``-m vllm.entrypoints.openai.api_server`` (see fake_environment.py) and answers what TableTune
asks of an engine: /health, /v1/models, /v1/completions, /tokenize, /metrics and, where
VLLM_PLUGINS names it, the plugin's endpoints (docs/plugin.md). Steps take real time, so that
throughput read from the metrics page means something; their recorded times are free of the
host's jitter. The text of an answer depends on its prompt alone, as under greedy decoding.

Like vLLM it has a second process in a session of its own, the engine core, and ends with a
fatal error when that dies. FAKE_ENGINE_STATE names a folder: each boot adds a line to
boots.jsonl. Faults are put in by variables:

    FAKE_ENGINE_BOOT         prints | dies | hangs | hangs_without_plugin | plugin_off
    FAKE_ENGINE_SLOW_TABLE   factor on step time while a table was swapped in
    FAKE_ENGINE_REJECTS      1: no guess is ever accepted
    FAKE_ENGINE_SILENT       1: the drafter never proposes anything
    FAKE_ENGINE_KV_GIB       what it says to have free for its KV cache; then it also knows
                             --kv-cache-memory-bytes and --gpu-memory-utilization, unless
                             this is negative
    FAKE_ENGINE_SHARE        dies | fails: with a drafter and a share of the memory it dies in its
                             boot, once another engine was asked for its model; or comes up and
                             fails to tell its model
    FAKE_ENGINE_PLAN         dies: with VLLM_ENABLE_STARTUP_PLAN=1 it takes an earlier boot's
                             memory, and dies of it
    FAKE_ENGINE_LINGERS      fails | ignores: the server stays when its core has died, and fails
                             every call, or leaves the plugin's without an answer
"""

import http.server
import json
import logging
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import zlib
from dataclasses import dataclass, field
from typing import Any

#: Stretches of the text that are guessed right or wrong as a whole, and the share of right ones.
STRETCH_TOK = 4
PREDICTABLE = 0.6
MAX_MODEL_LEN = 1024
LOG = logging.getLogger("engine")
KNOWN_ARGUMENTS = {
    *("--host", "--port", "--model", "--max-num-seqs", "--speculative-config"),
    *("--compilation-config", "--dtype", "--max-model-len", "--load-format"),
    "--tensor_parallel_size",
}
KV_GIB = os.environ.get("FAKE_ENGINE_KV_GIB", "")
if KV_GIB and not KV_GIB.startswith("-"):
    KNOWN_ARGUMENTS.update({"--kv-cache-memory-bytes", "--gpu-memory-utilization"})


def state() -> pathlib.Path:
    """The folder that all engines of an environment know."""
    return pathlib.Path(os.environ["FAKE_ENGINE_STATE"])


def another_is_up() -> bool:
    """Whether an engine that runs was asked for its model."""
    pids = [path.suffix[1:] for path in state().glob("asked.*")]
    return any(pathlib.Path("/proc", pid).exists() for pid in pids)


def step_time_s(batch_size: int, guesses: float) -> float:
    """T(b, K): guesses are nearly free for one request and dear for many."""
    return 0.0020 + 0.0001 * batch_size + guesses * (0.00005 + 0.00018 * batch_size)


@dataclass
class Request:
    """One open completion."""

    prompt: str
    prompt_tok: int
    max_tokens: int
    done: threading.Event = field(default_factory=threading.Event)
    emitted: int = 0
    prefilled: bool = False
    aborted: bool = False

    def token(self, number: int) -> int:
        return zlib.crc32(f"{self.prompt}/{number}".encode()) % 30_000

    def guessed_right(self, length: int) -> int:
        for hits in range(length):
            stretch = (self.emitted + hits) // STRETCH_TOK
            if random.Random(f"{self.prompt}/{stretch}").random() >= PREDICTABLE:
                return hits
        return length


class Engine:
    """Continuous batching with drafts; one thread steps while requests are open."""

    def __init__(self, max_num_seqs: int, speculative: dict[str, Any] | None) -> None:
        self.max_num_seqs, self.speculative = max_num_seqs, speculative
        self.longest = int((speculative or {}).get("num_speculative_tokens", 0))
        name = "num_speculative_tokens_per_batch_size"
        self.boot_table = (speculative or {}).get(name) or [[1, max_num_seqs, self.longest]]
        self.table, self.pinned = self.boot_table, None
        self.schedule: list[int] = []
        self.swapped = False
        self.lock = threading.Condition()
        self.open: list[Request] = []
        self.rows: list[dict[str, Any]] = []
        self.generated = self.drafts = self.draft_tok = 0
        self.accepted = [0] * self.longest
        self.slow_table = float(os.environ.get("FAKE_ENGINE_SLOW_TABLE", "1"))
        self.rejects = bool(os.environ.get("FAKE_ENGINE_REJECTS"))
        self.silent = bool(os.environ.get("FAKE_ENGINE_SILENT"))
        self._noise = random.Random(7)
        self._now_s = self._behind_s = 0.0
        self._chosen = -1

    def run(self) -> None:
        while True:
            with self.lock:
                after_idle = not self.open
                while not self.open:
                    self.lock.wait()
                if after_idle:
                    self._now_s, self._behind_s = max(self._now_s, time.monotonic()), 0.0
                    self._chosen = -1
                step = self._begin()
            ahead_s = self._now_s + step["step_time_s"] + self._behind_s - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)
            elif ahead_s < -0.02:  # the host is too busy: keep the pace, not the lost time
                self._behind_s -= ahead_s
            with self.lock:
                self._end(step, after_idle)

    def _length(self, batch_size: int) -> int:
        if not self.longest:
            return 0
        if self.schedule:
            return self.schedule.pop(0)
        if self.pinned is not None:
            return self.pinned
        return next(k for first, last, k in self.table if first <= batch_size <= last)

    def _begin(self) -> dict[str, Any]:
        batch = self.open[: self.max_num_seqs]
        verified = max(self._chosen, 0)
        drafting = 0 if self.silent else sum(r.prefilled for r in batch) * (verified > 0)
        taken_s = step_time_s(len(batch), drafting * verified / len(batch))
        taken_s *= 1 + 0.01 * self._noise.uniform(-1, 1)
        if self.swapped:
            taken_s *= self.slow_table
        return {"batch": batch, "verified": verified, "step_time_s": taken_s}

    def _end(self, step: dict[str, Any], after_idle: bool) -> None:
        batch, verified = step["batch"], step["verified"]
        self._now_s += step["step_time_s"]
        drafted, accepted = [0] * self.longest, [0] * self.longest
        prefills = prefill_tok = output = 0
        for request in batch:
            emitted = 1
            if not request.prefilled:
                request.prefilled = True
                prefills, prefill_tok = prefills + 1, prefill_tok + request.prompt_tok
            elif verified and not self.silent:
                hits = 0 if self.rejects else request.guessed_right(verified)
                for i in range(verified):
                    drafted[i] += 1
                    accepted[i] += i < hits
                emitted += hits
            emitted = min(emitted, request.max_tokens - request.emitted)
            request.emitted += emitted
            output += emitted
        decodes, guesses = len(batch) - prefills, sum(drafted)
        chosen = self._length(len(batch))
        self.rows.append(
            {
                "time_s": self._now_s,
                "step_time_s": step["step_time_s"],
                "after_idle": int(after_idle),
                "batch_size": len(batch),
                "scheduled_tokens": decodes + guesses + prefill_tok,
                "draft_length": chosen,
                "draft_length_verified": verified if decodes and self._chosen >= 0 else -1,
                "prefill_requests": prefills,
                "request_steps": decodes if verified else 0,
                "draft_tokens": guesses,
                "drafted_through": drafted,
                "accepted_through": accepted,
                "output_tokens": output,
                "graph_mode": -1,
                "padded_tokens": -1,
            }
        )
        self._chosen = chosen
        self.generated += output
        self.drafts += drafted[0] if drafted else 0
        self.draft_tok += guesses
        self.accepted = [a + b for a, b in zip(self.accepted, accepted, strict=True)]
        for request in batch:
            if request.emitted >= request.max_tokens:
                request.done.set()
        self.open = [r for r in self.open if not r.done.is_set() and not r.aborted]

    def metrics(self) -> str:
        with self.lock:
            running = min(len(self.open), self.max_num_seqs)
            values: list[tuple[str, str, float]] = [
                ("generation_tokens_total", "", self.generated),
                ("num_requests_running", "", running),
            ]
            if self.longest:
                values += [
                    ("spec_decode_num_drafts_total", "", self.drafts),
                    ("spec_decode_num_draft_tokens_total", "", self.draft_tok),
                    ("spec_decode_num_accepted_tokens_total", "", sum(self.accepted)),
                ]
                name = "spec_decode_num_accepted_tokens_per_pos_total"
                values += [(name, f',position="{i}"', n) for i, n in enumerate(self.accepted)]
        return "".join(f'vllm:{n}{{engine="0"{more}}} {v}\n' for n, more, v in values)

    def steps(self, since: int, limit: int) -> dict[str, Any]:
        with self.lock:
            first = min(since, len(self.rows))
            rows = self.rows[first : first + limit]
        names = rows[0] if rows else NO_STEPS
        columns = {name: [row[name] for row in rows] for name in names}
        return {"first": first, "next": first + len(rows), "lost": 0, "columns": columns}

    def pin(self, body: dict[str, Any]) -> None:
        with self.lock:
            self.schedule = []
            if "schedule" in body:
                once = [k for k, steps in body["schedule"] for _ in range(steps)]
                self.schedule = once * body.get("repeat", 1)
            else:
                self.pinned = body["draft_length"]

    def swap(self, body: dict[str, Any]) -> None:
        with self.lock:
            self.schedule, self.pinned = [], None
            self.swapped = body["ranges"] is not None
            self.table = body["ranges"] or self.boot_table


NO_STEPS = (
    *("time_s", "step_time_s", "after_idle", "batch_size", "scheduled_tokens", "draft_length"),
    *("draft_length_verified", "prefill_requests", "request_steps", "draft_tokens"),
    *("drafted_through", "accepted_through", "output_tokens", "graph_mode", "padded_tokens"),
)


class Handler(http.server.BaseHTTPRequestHandler):
    """The routes."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    engine: Engine
    model: str
    plugin = True
    dead = fails_to_tell = False

    def log_message(self, format: str, *arguments: object) -> None:
        """A line a request, as uvicorn writes it."""
        LOG.info('%s - "%s" %s', self.client_address[0], *arguments[:2])

    def do_GET(self) -> None:
        if Handler.dead:
            return self._fail()
        url = urllib.parse.urlsplit(self.path)
        query = {name: int(value) for name, value in urllib.parse.parse_qsl(url.query)}
        status = {"active": os.environ.get("FAKE_ENGINE_BOOT") != "plugin_off", "reason": "told so"}
        if url.path == "/health":
            self._answer({})
        elif url.path == "/v1/models":
            if Handler.fails_to_tell:
                return self._fail()
            (state() / f"asked.{os.getpid()}").touch()
            self._answer({"data": [{"id": self.model, "max_model_len": MAX_MODEL_LEN}]})
        elif url.path == "/metrics":
            self._send(200, self.engine.metrics().encode())
        elif url.path == "/tabletune/status" and self.plugin:
            self._answer(status)
        elif url.path == "/tabletune/graphs" and self.plugin:
            self._answer({"known": False, "reason": "no graphs on a CPU"})
        elif url.path == "/tabletune/steps" and self.plugin:
            self._answer(self.engine.steps(query.get("since", 0), query.get("limit", 2048)))
        else:
            self._send(404, b"{}")

    def do_POST(self) -> None:
        # Read first: what is left of a body would be taken for the connection's next request.
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        if Handler.dead:
            return self._fail()
        body = json.loads(sent)
        if self.path == "/v1/completions":
            self._complete(body)
        elif self.path == "/tokenize":
            text = " ".join(message["content"] for message in body["messages"])
            self._answer({"tokens": [zlib.crc32(w.encode()) % 30_000 for w in text.split()]})
        elif self.path == "/tabletune/pin" and self.plugin:
            self.engine.pin(body)
            self._answer({"active": True})
        elif self.path == "/tabletune/table" and self.plugin:
            self.engine.swap(body)
            self._answer({"active": True})
        else:
            self._send(404, b"{}")

    def _complete(self, body: dict[str, Any]) -> None:
        prompt = body["prompt"]
        count = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        request = Request(json.dumps(prompt), max(1, count), int(body["max_tokens"]))
        with self.engine.lock:
            self.engine.open.append(request)
            self.engine.lock.notify_all()
        while not request.done.wait(0.02):
            if Handler.dead:
                return self._fail()
            readable = select.select([self.connection], [], [], 0)[0]
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                request.aborted = self.close_connection = True
                return
        tokens = [request.token(i) for i in range(request.emitted)]
        choice = {"text": " ".join(map(str, tokens)), "token_ids": tokens}
        self._answer({"choices": [choice], "usage": {"completion_tokens": len(tokens)}})

    def _fail(self) -> None:
        if os.environ.get("FAKE_ENGINE_LINGERS") == "ignores" and "/tabletune/" in self.path:
            threading.Event().wait()
        self._send(500, b"EngineDeadError")

    def _answer(self, value: object) -> None:
        self._send(200, json.dumps(value).encode())

    def _send(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    """Quiet about clients that went away; replies without delay."""

    daemon_threads = True
    request_queue_size = 64

    def process_request(self, request: Any, client_address: Any) -> None:
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


def parse(arguments: list[str]) -> dict[str, str]:
    """``--name value`` and ``--name=value``; an unknown name ends it as vLLM does."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, _, value = rest.pop(0).partition("=")
        if name == "--enforce-eager":
            continue
        if name not in KNOWN_ARGUMENTS:
            print(f"api_server.py: error: unrecognized arguments: {name}", flush=True)
            sys.exit(2)
        found[name] = value or rest.pop(0)
    return found


def watch(core: subprocess.Popen[bytes]) -> None:
    """What vLLM's server does when its engine core has died: fail every call, or end."""
    core.wait()
    Handler.dead = True
    LOG.error("(EngineCore pid=1) ERROR [core.py:1510] EngineCore encountered a fatal error.")
    LOG.error("vllm.v1.engine.exceptions.EngineDeadError: EngineCore died unexpectedly")
    if not os.environ.get("FAKE_ENGINE_LINGERS"):
        os._exit(1)


def main() -> None:
    options = parse(sys.argv[1:])
    fault = os.environ.get("FAKE_ENGINE_BOOT", "")
    core = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with (state() / "boots.jsonl").open("a") as file:
        facts = {"pid": os.getpid(), "core_pid": core.pid, "arguments": sys.argv[1:]}
        file.write(json.dumps(facts) + "\n")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    LOG.info("Starting to load model %s …", options["--model"])
    if KV_GIB:
        LOG.info("(EngineCore pid=1) INFO Available KV cache memory: %s GiB", KV_GIB.lstrip("-"))
        LOG.info("(EngineCore pid=1) INFO GPU KV cache size: 4,000 tokens, Maximum concurrency …")
    share = "--gpu-memory-utilization" in options and "--speculative-config" in options
    share_fault = os.environ.get("FAKE_ENGINE_SHARE") if share else None
    Handler.fails_to_tell = share_fault == "fails"
    if share_fault == "dies":
        while not another_is_up():
            time.sleep(0.01)
        fault = "dies"
    if os.environ.get("FAKE_ENGINE_PLAN") and os.environ.get("VLLM_ENABLE_STARTUP_PLAN") == "1":
        LOG.info("Applying persisted startup plan (fingerprint 1): kv_cache_memory_bytes=77 (…)")
        fault = "dies"
    if fault == "prints":  # not through logging, as progress bars do
        print("Capturing CUDA graphs", flush=True)
    if fault == "dies":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", flush=True)
        sys.exit(1)
    if fault == "hangs" or (fault == "hangs_without_plugin" and not os.environ["VLLM_PLUGINS"]):
        time.sleep(600)
    threading.Thread(target=watch, args=(core,), daemon=True).start()
    speculative = options.get("--speculative-config")
    Handler.engine = Engine(
        int(options.get("--max-num-seqs", "128")), json.loads(speculative) if speculative else None
    )
    Handler.model = options["--model"]
    Handler.plugin = os.environ.get("VLLM_PLUGINS") == "tabletune"
    threading.Thread(target=Handler.engine.run, daemon=True).start()
    server = Server((options["--host"], int(options["--port"])), Handler)
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    server.serve_forever()


if __name__ == "__main__":
    main()
