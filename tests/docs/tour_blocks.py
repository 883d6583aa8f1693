"""The tables of docs/tour.md, made from the result files of real runs."""

import json
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tabletune.core.goodput import expected_tokens
from tabletune.pipeline.plans import choose_plans
from tabletune.records.evidence import padded_tokens, surface_of
from tabletune.records.step_profile import Profile
from tests.pipeline.evidence import h200_request
from tests.pipeline.test_golden_profile import DEVICE, ENGINE, RECORDED

ROOT: Final = pathlib.Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "tour.md"
CPU_STEM: Final = "cpu_vllm-cpu0.32.0_smollm2_ngram"
STEM: Final = "h200_vllm0.32.0_qwen3-4b_eagle3"
SIZES: Final = (1, 8, 32, 64, 96, 128)
LENGTHS: Final = range(5)
_BLOCK: Final = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- /made -->)", re.DOTALL)


def render(page: str) -> str:
    """The page with every block made anew."""
    return _BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[3], page)


def result(name: str) -> Any:
    """A result file of that run."""
    return json.loads((ROOT / "bench" / "results" / f"{STEM}_{name}.json").read_text())


def rows(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    """A table in markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def fingerprint() -> str:
    """Where the run was made."""
    device, engine = result("run")["machine"]["device"], result("run")["machine"]["engine"]
    return rows(
        ("part", "found"),
        [
            ("device", f"{device['count']} × {device['name']}, capability {device['capability']}"),
            ("driver, memory", f"{device['driver']}, {device['memory_bytes'] / 2**30:.0f} GiB"),
            ("engine", f"{engine['distribution']} {engine['version']}, runner {engine['runner']}"),
            ("PyTorch, Python", f"{engine['torch']}, {engine['python']}"),
        ],
    )


def settings() -> str:
    """What qualification said of three capture settings."""
    tried = result("qualification")["settings"]
    default, coarse, chosen = tried["default"], tried["coarse"], tried["mixed"]
    reason = default["reason"].split(";")[0]
    return rows(
        ("setting", "graph mode", "sizes", "qualification"),
        [
            (
                "vLLM's default mode, coarse sizes",
                default["graph_mode"],
                len(default["capture_sizes"]),
                f"failed after {default['wall_time_s']:.0f} s: {reason}",
            ),
            (
                "a safe mode, coarse sizes",
                coarse["graph_mode"],
                len(default["capture_sizes"]),
                "failed: stalls, such as 20.6 ms at 100 requests and K = 0",
            ),
            (
                f"the planner's, {chosen['graph_count']} graphs",
                chosen["graph_mode"],
                len(chosen["capture_sizes"]),
                f"passed in {chosen['wall_time_s']:.0f} s, nothing excluded",
            ),
        ],
    )


def acceptance() -> str:
    """Survival by position, and expected tokens."""
    counts = result("run")["acceptance_counts"]
    pairs = list(zip(counts["accepted_through"], counts["drafted_through"], strict=True))
    tokens = expected_tokens([accepted / drafted for accepted, drafted in pairs])
    return rows(
        ("position i", "drafted through i", "accepted through i", "survival S_i", "E(K = i)"),
        [
            (i, drafted, accepted, f"{accepted / drafted:.3f}", f"{tokens[i]:.2f}")
            for i, (accepted, drafted) in enumerate(pairs, start=1)
        ],
    )


def step_times() -> str:
    """Step times in milliseconds."""
    time_s = step_time()
    return rows(
        ("b", *(f"K = {k}" for k in LENGTHS)),
        [(b, *(f"{1e3 * time_s(b, k):.2f}" for k in LENGTHS)) for b in SIZES],
    )


def goodput() -> str:
    """Predicted goodput in tokens per second, the best in bold."""
    counts = result("run")["acceptance_counts"]
    pairs = zip(counts["accepted_through"], counts["drafted_through"], strict=True)
    tokens = expected_tokens([accepted / drafted for accepted, drafted in pairs])
    body: list[list[str]] = []
    time_s = step_time()
    for b in SIZES:
        values = [b * tokens[k] / time_s(b, k) for k in LENGTHS]
        shown = [f"**{v:,.0f}**" if v == max(values) else f"{v:,.0f}" for v in values]
        body.append([str(b), *shown])
    return rows(("b", *(f"K = {k}" for k in LENGTHS)), body)


def table() -> str:
    """The table of that run."""
    return rows(
        ("batch sizes", "draft length", "predicted goodput, mean, tok/s"),
        [
            (f"{r['first']}–{r['last']}", r["draft_length"], f"{r['predicted_goodput_tok_s']:,.0f}")
            for r in result("run")["table"]
        ],
    )


def validation() -> Any:
    """The result file of a validation on a processor."""
    return json.loads((ROOT / "bench" / "results" / f"{CPU_STEM}_validation.json").read_text())


def verdict() -> str:
    """Ratios of the table's throughput over each policy's."""
    ratios = validation()["verdict"]["ratios"]
    loads = sorted({r["concurrency"] for r in ratios})
    found = {
        (r["policy"], r["concurrency"]): f"{r['ratio']:.3f} ({r['low']:.3f} to {r['high']:.3f})"
        for r in ratios
    }
    return rows(
        ("the table over", *(f"{load} open" for load in loads)),
        [
            (policy.replace("_", " ").replace("fixed-", "K = "), *(found[policy, c] for c in loads))
            for policy in sorted({r["policy"] for r in ratios})
        ],
    )


def pointer() -> str:
    """The channel's pointer after that validation."""
    shown = ("sequence", "action", "table_version", "verdict", "reason", "moved_at")
    state = validation()["pointer"]
    cut = {k: v[:12] + "…" if len(str(v)) == 64 else v for k, v in state.items()}
    return rows(("field", "value"), [(name, cut[name]) for name in shown])


def log() -> str:
    """What the plugin said in the log of an engine that served with that table."""
    return "```\n" + "".join(f"{line}\n" for line in validation()["serving_log"]) + "```\n"


def promoted_bad() -> Any:
    """The scene of the controller's run in which a table without drafts was promoted."""
    (scene,) = [s for s in result("controller")["scenes"] if s["stale"] == [[1, 128, 0]]]
    return scene


def throughput() -> str:
    """Output tokens per second at 64 open requests, window by window."""
    windows = promoted_bad()["windows_tok_s"]
    names = {"stale": "K = 0 everywhere", "tuned": "the table", "controller": "the controller"}
    return rows(
        ("tables", "tok/s in each window"),
        [(name, "; ".join(f"{v:,.0f}" for v in windows[key])) for key, name in names.items()],
    )


def decisions() -> str:
    """What the controller did from the bad table on."""
    told = promoted_bad()["controller"]["last_decisions"]
    begun = told[0]["unix_s"]
    return rows(
        ("s", "decision", "reason"),
        [(f"{d['unix_s'] - begun:.1f}", d["kind"], d["reason"]) for d in told],
    )


def step_time() -> Callable[[int, int], float]:
    """The step time in seconds at a batch size and a draft length, from the kept profile."""
    profile = Profile.from_json(RECORDED.read_bytes())
    request = h200_request(max_num_seqs=128)
    plan = choose_plans(request, DEVICE, ENGINE, request.all_lengths)[0]
    made = surface_of(profile, padded_tokens(plan, ENGINE, DEVICE, "eagle3"))
    return lambda b, k: float(made.step_time_s(b, k))


BLOCKS: Final[dict[str, Callable[[], str]]] = {
    "fingerprint": fingerprint,
    "settings": settings,
    "acceptance": acceptance,
    "step_times": step_times,
    "goodput": goodput,
    "table": table,
    "throughput": throughput,
    "verdict": verdict,
    "pointer": pointer,
    "log": log,
    "decisions": decisions,
}
