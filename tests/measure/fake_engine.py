"""A stand-in for the engine's server, with a fault on request (standard library only).

    python fake_engine.py PORT MODE [FILE]

Modes: serve (until /die is asked for), dies (at boot), hangs (never serves), family (serves;
a child and a grandchild in sessions of their own, their process ids in FILE; deaf to SIGINT
and SIGTERM), stuck (reports a fatal error at boot but stays), outrun (the first time, finds
its port taken; then serves; FILE remembers), fills (fills the disk of FILE, then prints).
"""

import contextlib
import http.server
import logging
import os
import pathlib
import signal
import subprocess
import sys
import time

SLEEPER = (
    "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; time.sleep(600)"
)
PARENT = (
    "import os, signal, subprocess, sys, time\n"
    "[signal.signal(n, signal.SIG_IGN) for n in (2, 15)]\n"
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def fill(path: str) -> None:
    """Write to a file until its disk is full."""
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers /health; /fill fills a disk; /die ends the process with status 7."""

    def do_GET(self) -> None:
        if self.path == "/fill":
            fill(sys.argv[3])
        if self.path != "/health":
            logging.error("GET %s %s", self.path, "." * 4096)  # what fails is dropped
        if self.path == "/die":
            logging.error("RuntimeError: CUDA error: an illegal memory access was encountered")
            os._exit(7)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def serve(port: int) -> None:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def main() -> None:
    port, mode = int(sys.argv[1]), sys.argv[2]
    print(f"Starting to load model fake, mode {mode}", flush=True)
    if mode == "dies":
        print("api_server.py: error: unrecognized arguments: --nonsense", flush=True)
        sys.exit(2)
    if mode == "fills":
        fill(sys.argv[3])
        print("Capturing CUDA graphs" + "." * 4096, flush=True)
    if mode == "outrun" and not pathlib.Path(sys.argv[3]).exists():
        pathlib.Path(sys.argv[3]).write_text("once")
        sys.exit("ERROR: [Errno 98] error while attempting to bind: address already in use")
    if mode == "stuck":
        prefix = "(EngineCore pid=1) ERROR 11-29 19:44:42 [core.py:1510]"
        print(f"{prefix} EngineCore failed to start.", flush=True)
        print(f"{prefix} torch.InductorError: InvalidCxxCompiler: none found", flush=True)
        print("RuntimeError: later", flush=True)
    if mode in ("hangs", "stuck"):
        time.sleep(600)
    if mode == "family":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        child = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        grandchild = child.stdout.readline().strip()
        pathlib.Path(sys.argv[3]).write_text(f"{os.getpid()} {child.pid} {grandchild}")
    serve(port)


if __name__ == "__main__":
    main()
