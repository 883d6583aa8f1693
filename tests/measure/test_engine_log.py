"""The log tells phases, causes and hints."""

import pathlib

import pytest

from tabletune.measure.engine_log import LogFollower, cause_of, hint_for, phase_of, read_tail

LINES = [
    ("INFO 11-29 [core.py:134] Initializing a V1 LLM engine (v0.32.0)", "starting the engine core"),
    ("INFO [cpu_model_runner.py:68] Starting to load model /m...", "loading weights"),
    ("Loading safetensors checkpoint shards:  50% Completed", "loading weights"),
    ("INFO [cpu_model_runner.py:87] Warming up model for the compilation...", "compiling"),
    ("Capturing CUDA graphs (decode, FULL):  10%|█", "capturing graphs"),
    ("INFO [kv_cache_utils.py] GPU KV cache size: 1,024 tokens, Maximum", "preparing the KV cache"),
    ("INFO:     Application startup complete.", "serving"),
    ("something else", None),
]


@pytest.mark.parametrize(("line", "phase"), LINES)
def test_phases(line: str, phase: str | None) -> None:
    assert phase_of(line) == phase


@pytest.mark.parametrize(
    ("text", "status", "mark"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", 1, "--gpu-memory-utilization"),
        ("ERROR: [Errno 98] Address already in use", 1, "--port"),
        ("api_server.py: error: unrecognized arguments: --x", 2, "--help"),
        ("Target and draft model should have the same vocabulary size.", 1, "another vocabulary"),
        ("OSError: /m is not a local folder and is not a valid model identifier", 1, "not found"),
        ("ModuleNotFoundError: No module named 'torch'", 1, "engine create"),
        ("RuntimeError: operator torchvision::nms does not exist", 1, "torchvision"),
        ("ValueError: No available memory for the cache blocks.", 1, "VLLM_CPU_KVCACHE_SPACE"),
        ("OSError: [Errno 28] No space left on device", 1, "disk is full"),
        ("InvalidCxxCompiler: No working C++ compiler", 1, "g++"),
        ("", -9, "SIGKILL"),
        ("", 1, ""),
    ],
)
def test_hints(text: str, status: int, mark: str) -> None:
    hint = hint_for(text, status)
    assert mark in hint
    assert bool(hint) is bool(mark)


def test_the_cause_is_the_first_reported_exception() -> None:
    prefix = "(Worker pid=7) ERROR 11-29 19:44:42 [multiproc_executor.py:1063]"
    text = (
        f"{prefix} Traceback (most recent call last):\n"
        f"{prefix}   File 'x', line 1\n"
        f"{prefix} torch._inductor.exc.InductorError: InvalidCxxCompiler: none\n"
        f"{prefix} RuntimeError: Worker failed\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert cause_of(text) == "torch._inductor.exc.InductorError: InvalidCxxCompiler: none"
    assert cause_of("Traceback\nValueError: bad\n") == "ValueError: bad"
    assert cause_of("all is well\n") == ""


def test_following_takes_pieces_and_progress_bars(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    path.write_text("old Application startup complete\n")
    follower = LogFollower(path, path.stat().st_size)
    follower.read()
    assert follower.last_line == ""
    with path.open("a") as file:
        file.write("Starting to load")
        file.flush()
        follower.read()
        assert follower.last_line == ""
        file.write(" model\rCapturing CUDA graphs 10%\rCapturing CUDA graphs 20%\r\n")
        file.flush()
    follower.read()
    assert follower.phase == "capturing graphs"
    assert follower.last_line.endswith("20%")
    assert not follower.fatal


def test_requests_do_not_push_out_what_an_engine_died_of(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    request = '(APIServer pid=7) INFO:     127.0.0.1:5066 - "{} /v1/{} HTTP/1.1" 500 Internal …\n'
    requests = request.format("POST", "completions") + request.format("GET", "models?x=1")
    path.write_text("RuntimeError: the cause\n" + 20 * requests + 'said "GET it"\n' + requests)
    assert read_tail(path, 8) == ["RuntimeError: the cause", 'said "GET it"']
    path.write_text("RuntimeError: the cause\n" + 2000 * requests)
    assert read_tail(path, 8) == ["RuntimeError: the cause"]
    path.write_text(3 * requests)
    assert len(read_tail(path, 8)) == 6


def test_tail_skips_blank_lines_and_bad_bytes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\n\n\xff\xfe\n" + b"b\n" * 3)
    assert read_tail(path, 2) == ["b", "b"]
    assert len(read_tail(path)) == 5
    assert read_tail(tmp_path / "none") == []
