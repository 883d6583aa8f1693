"""Reads what a vLLM engine writes into its log: the phase of its start, and why it died."""

import errno
import os
import pathlib
import re
import tempfile
from typing import Final

#: Text in a log line -> the phase that begins there, in words. Checked in this order.
PHASES: Final[tuple[tuple[str, str], ...]] = (
    ("Application startup complete", "serving"),
    ("Starting vLLM server", "starting the server"),
    ("Starting vLLM API server", "starting the server"),
    ("Graph capturing finished", "finishing the start"),
    ("Capturing CUDA graph", "capturing graphs"),
    ("Capturing model for", "capturing graphs"),
    ("Profiling CUDA graph memory", "sizing the graphs"),
    ("KV cache size:", "preparing the KV cache"),
    ("Available KV cache memory", "preparing the KV cache"),
    ("Warming up done", "preparing the KV cache"),
    ("Warming up model for the compilation", "compiling"),
    ("Compile and warming up model", "compiling"),
    ("Compiling a graph", "compiling"),
    ("Dynamo bytecode transform time", "compiling"),
    ("torch.compile takes", "compiling"),
    ("Model loading took", "compiling"),
    ("Loading drafter model", "loading the drafter's weights"),
    ("Loading safetensors checkpoint shards", "loading weights"),
    ("Loading weights took", "loading weights"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "starting the engine core"),
    ("Resolved architecture", "reading the model's config"),
)
FIRST_PHASE: Final = "importing vLLM"

#: So much of a log's end is read at least, and at most where it is all requests.
LEAST_TAIL_BYTES: Final = 64 * 1024
MOST_TAIL_BYTES: Final = 16 * 1024 * 1024

#: A request as uvicorn writes it.
_REQUEST: Final = re.compile(r'"[A-Z]+ /\S* HTTP/[\d.]+" \d{3}')

#: After one of these the engine is lost, even if its server process stays.
FATAL_MARKS: Final = (
    "EngineCore failed to start",
    "EngineCore encountered a fatal error",
    "Engine core initialization failed",
    "WorkerProc failed to start",
    "EngineDeadError",
)
KV_CACHE_PATTERN: Final = re.compile(r"Available KV cache memory: (\d+(?:\.\d+)?) GiB")
KV_CACHE_TOK_PATTERN: Final = re.compile(r"KV cache size: ([\d,]+) tokens")
#: What an engine says that takes its size from an earlier boot (vllm/v1/worker/startup_plan.py).
STARTUP_PLAN_PATTERN: Final = re.compile(
    r"Applying persisted startup plan .*kv_cache_memory_bytes=(\d+)"
)
#: What vLLM puts before each line of a process.
PREFIX_PATTERN: Final = re.compile(r"^(\([^)]*\) )?((ERROR|CRITICAL) [-\d]+ [:\d]+ \[[^\]]*\] )?")
EXCEPTION_PATTERN: Final = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b: \S")

#: Marks (all in lower case, all needed) -> what to do. The first that fits is given.
HINTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("unrecognized arguments",),
        "vLLM does not know an engine argument: compare the --engine-arg values with this "
        "version's --help; arguments come and go between versions.",
    ),
    (
        ("api_server.py: error:",),
        "vLLM refused an engine argument: see the line 'error:' above and correct --engine-arg.",
    ),
    (
        ("address already in use",),
        "Another program took the port: choose another with --port, or leave it out to get a "
        "free one.",
    ),
    (
        ("same vocabulary size",),
        "The drafter was made for another vocabulary: choose a drafter that belongs to this model.",
    ),
    (
        ("no space left on device",),
        "The disk is full: free some space (vLLM keeps compiled code in ~/.cache/vllm).",
    ),
    (
        ("free memory on device", "desired gpu memory utilization"),
        "Another process holds memory of this GPU: end it, or lower --gpu-memory-utilization.",
    ),
    (
        ("no available memory for the cache blocks",),
        "The weights leave no room for the KV cache: raise --gpu-memory-utilization (CPU: "
        "VLLM_CPU_KVCACHE_SPACE, in GiB) or use more GPUs.",
    ),
    (
        ("kv cache", "max seq len"),
        "The KV cache is too small for one request of the full length: lower --max-model-len or "
        "give it more memory (CPU: VLLM_CPU_KVCACHE_SPACE, in GiB).",
    ),
    (
        ("out of memory",),
        "Out of GPU memory: lower --gpu-memory-utilization, --max-num-seqs or --max-model-len, "
        "or end other processes on this GPU.",
    ),
    (
        ("cannot allocate memory",),
        "Out of main memory: lower VLLM_CPU_KVCACHE_SPACE (GiB) or free some memory.",
    ),
    (
        ("memoryerror",),
        "Out of main memory: lower VLLM_CPU_KVCACHE_SPACE (GiB) or free some memory.",
    ),
    (
        ("is not a valid model identifier",),
        "The model was not found: give a folder that exists, or the id of a model that is in the "
        "local Hugging Face cache (or can be downloaded).",
    ),
    (
        ("repo id must",),
        "The model was not found: the path given is no folder and cannot be a hub id.",
    ),
    (
        ("invalid repository id or local directory",),
        "The model was not found: give a folder with a config.json, or a hub id.",
    ),
    (
        ("localentrynotfounderror",),
        "The model is not in the local Hugging Face cache and the hub was not asked or not "
        "reached: download it first.",
    ),
    (
        ("no such file or directory", "config.json"),
        "The model's folder has no config.json: check the path.",
    ),
    (
        ("operator torchvision::nms does not exist",),
        "torchvision does not match this torch: uninstall torchvision, torchaudio and torchcodec "
        "from the engine environment, or make one with 'tabletune engine create'.",
    ),
    (
        ("no module named",),
        "A Python package is missing in the engine environment: make it again with 'tabletune "
        "engine create', or install what the message names.",
    ),
    (
        ("importerror",),
        "A Python package of the engine environment does not load: make the environment again "
        "with 'tabletune engine create'.",
    ),
    (
        ("invalidcxxcompiler",),
        "vLLM compiles code when it starts and found no C++ compiler: install one (Debian: "
        "apt-get install g++), or start the engine with --enforce-eager.",
    ),
    (
        ("illegal memory access",),
        "A CUDA kernel failed: with a draft-length table and vLLM's default graph mode this is a "
        "known fault; use the graph mode FULL_DECODE_ONLY.",
    ),
)


#: What must be free for an engine's log: a boot writes about 50 kB, a request about 100 bytes.
ROOM_BYTES: Final = 1 << 20
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def no_room(log_path: pathlib.Path) -> str:
    """Why the folder of this log takes no more, or "" where it has `ROOM_BYTES` left.

    An engine that serves goes on without its log: Python's logging drops what it cannot write.
    What it prints in other ways, such as the progress bars of its start, ends it instead.
    """
    try:
        with tempfile.TemporaryFile(dir=log_path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)  # quotas and limits count, too
    except OSError as error:
        if error.errno in _NO_ROOM:
            return error.strerror or str(error)
    return ""


def kv_cache_bytes(log_path: pathlib.Path) -> int | None:
    """What an engine found free for its KV cache when it started (vllm/v1/worker/gpu_worker.py),
    rounded down, or took over from an earlier start. Of several workers only one says so. None
    where its log does not.
    """
    planned = _first(log_path, STARTUP_PLAN_PATTERN)
    if planned is not None:
        return int(planned)
    found = float(_first(log_path, KV_CACHE_PATTERN) or 0.0)
    least = int((found - 0.01) * 2**30)  # printed to 0.01 GiB
    return least if least > 0 else None


def kv_cache_tok(log_path: pathlib.Path) -> int | None:
    """How many tokens an engine's KV cache holds (vllm/v1/core/kv_cache_utils.py); None where its
    log does not say so."""
    found = _first(log_path, KV_CACHE_TOK_PATTERN)
    return None if found is None else int(found.replace(",", ""))


def took_startup_plan(log_path: pathlib.Path) -> bool:
    """Whether an engine took the size of its KV cache from an earlier boot."""
    return _first(log_path, STARTUP_PLAN_PATTERN) is not None


def _first(log_path: pathlib.Path, pattern: re.Pattern[str]) -> str | None:
    """The first group where the pattern is first found in a log; None where it is not, or where
    there is no log."""
    try:
        with log_path.open(errors="replace") as log:
            matches = (pattern.search(line) for line in log)
            return next((match[1] for match in matches if match), None)
    except OSError:
        return None


def phase_of(line: str) -> str | None:
    """The phase that this log line begins, or None if it begins none."""
    return next((phase for mark, phase in PHASES if mark in line), None)


def hint_for(log_text: str, exit_status: int | None = None) -> str:
    """What to do about an engine that died with this log, or "" if nothing is known."""
    lower = log_text.lower()
    for marks, hint in HINTS:
        if all(mark in lower for mark in marks):
            return hint
    if exit_status == -9:
        return (
            "It was killed (SIGKILL), most often because main memory ran out: lower "
            "VLLM_CPU_KVCACHE_SPACE (GiB) or --max-num-seqs, or free some memory."
        )
    return ""


def hint_without_room(reason: str) -> str:
    """What to do where the log's disk is full; `reason` is what `no_room` says."""
    return (
        f"The disk of the engine's log is full ({reason}): what ended the engine may be missing "
        "from the log, and may be that it could not write it. Free some space, then run the same "
        "command again: what was measured is kept."
    )


def is_fatal(line: str) -> bool:
    """Whether the engine is lost after this log line."""
    return any(mark in line for mark in FATAL_MARKS)


def cause_of(log_text: str) -> str:
    """The exception that the engine reported first, or the last one anywhere, or ""."""
    anywhere = ""
    for raw in log_text.splitlines():
        prefix = PREFIX_PATTERN.match(raw)
        line = raw[prefix.end() :].strip() if prefix else raw.strip()
        if EXCEPTION_PATTERN.match(line):
            if prefix and prefix[3]:
                return line
            anywhere = line
    return anywhere


def read_tail(path: pathlib.Path, lines: int = 25) -> list[str]:
    """The last lines of a log file, without blank ones; [] if there is none to read.

    Without lines of requests, too, if there are others: clients that go on asking an engine that
    has died would push out what it died of.
    """
    read_bytes = LEAST_TAIL_BYTES
    while True:
        try:
            with path.open("rb") as file:
                size_bytes = file.seek(0, os.SEEK_END)
                file.seek(max(0, size_bytes - read_bytes))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        found = [line.rstrip() for line in text.replace("\r", "\n").splitlines()]
        if size_bytes > read_bytes:
            found = found[1:]  # cut
        kept = [line for line in found if line]
        telling = [line for line in kept if not _REQUEST.search(line)]
        if len(telling) >= lines or read_bytes >= min(size_bytes, MOST_TAIL_BYTES):
            return (telling or kept)[-lines:]
        read_bytes *= 4


class LogFollower:
    """Reads a growing log piece by piece; keeps the last line and the present phase."""

    def __init__(self, path: pathlib.Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._rest = ""
        self.phase = FIRST_PHASE
        self.last_line = ""
        self.fatal = False

    def read(self) -> None:
        """Take in what has been written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(1 << 20)
        except OSError:
            return
        self._offset += len(data)
        # Progress bars end their lines with a carriage return.
        text = (self._rest + data.decode("utf-8", "replace")).replace("\r", "\n")
        *lines, self._rest = text.split("\n")
        for line in lines:
            if line.strip():
                self.last_line = line.strip()
                self.phase = phase_of(line) or self.phase
                self.fatal = self.fatal or is_fatal(line)
