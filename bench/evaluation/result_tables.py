"""The tables of docs/results.md, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench.evaluation.claims import NOT_RUN, percent, with_interval
from bench.evaluation.result_set import File


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def shares_table(file: File, key: str, best: str) -> str:
    """Policies by loads."""
    loads = file["loads"]
    policies = dict.fromkeys(policy for load in loads for policy in load["policies"])
    rows = [
        (
            policy,
            *(
                with_interval(load["policies"][policy][key])
                if key in load["policies"].get(policy, {})
                else "–"
                for load in loads
            ),
        )
        for policy in policies
    ]
    head = (f"{load['load']} (best: {load.get(best, '–')})" for load in loads)
    return table(("policy", *head), rows)


def lengths_table(file: File) -> str:
    """Draft lengths by loads, and what prompts cost there."""
    loads = file["loads"]
    lengths = sorted({k for load in loads for k in load.get("by_length", {})}, key=int)
    rows: list[tuple[str, ...]] = []
    for length in lengths:
        found = [load.get("by_length", {}).get(length) for load in loads]
        cells = (
            "–" if f is None else f"{with_interval(f['of_best'])}, {f['windows']} windows"
            for f in found
        )
        rows.append((f"K = {length}", *cells))
    facts = [load.get("prompt_steps") for load in loads]
    extra = ("–" if f is None else f"+{f['extra_ms']:.1f} ms" for f in facts)
    rows.append(("a step with a prompt", *extra))
    return table(("", *(load["load"] for load in loads)), rows)


def none() -> str:
    return f"*{NOT_RUN}*\n"


def about(name: str, file: File) -> str:
    parts = [f"File `{name}`"]
    if not file.get("simulated"):
        parts.append(_machine(file.get("machine", {})))
        parts.append(f"synthetic: {file.get('synthetic', 'not said')}")
    parts.append(f"of {file.get('measured', 'an unknown day')}")
    return "; ".join(part for part in parts if part) + "."


def _machine(machine: File) -> str:
    if "device" in machine:
        device, engine = machine["device"], machine["engine"]
        version = f"{engine['distribution']} {engine['version']}, torch {engine['torch']}"
        return f"{device['name']}, {version}"
    gpus = machine.get("gpus") or []
    names = ", ".join(sorted({str(g.get("name")) for g in gpus if isinstance(g, dict)}))
    engine = machine.get("vllm")
    version = engine.get("version", engine) if isinstance(engine, dict) else engine
    count = f"{len(gpus)} × " if len(gpus) > 1 else ""
    return f"{count}{names or 'CPU'}, vLLM {version}, torch {machine.get('torch_version', '?')}"


def costs(file: File) -> list[str]:
    costs = {k: v for k, v in file.get("policy_cost", {}).items() if isinstance(v, dict)}
    if not costs:
        return []
    text = "; ".join(
        f"{name} {cost['choose_us']:.0f} + {cost['observe_us']:.0f} µs"
        for name, cost in costs.items()
    )
    return [f"Time to choose and to learn, per step on the engine's thread, in Python: {text}.\n"]


def crossings_table(file: File) -> str:
    def errors(pair: Sequence[float | None]) -> str:
        low, high = ("beyond" if e is None else f"{100 * e:+.0f} %" for e in pair)
        return f"{low} / {high}"

    limits = [f"{limit:g}" for limit in file["limits"]]
    names = {
        "survival": "conditional acceptance",
        "drafting_time": "time added by drafting",
        "cell_noise": "each cell at random (standard deviation, only up)",
    }
    rows = [
        (kind, title, *(errors(file[kind][key]["crossed"][limit]) for limit in limits))
        for kind in file["survivals"]
        for key, title in names.items()
    ]
    return table(("traffic", "wrong", *(f"loses {100 * float(x):g} %" for x in limits)), rows)


def capture_worth_table(file: File) -> str:
    """Settings by load: the table's tokens per second, in windows from low to high."""
    measured = {name: s for name, s in file["settings"].items() if s["loads"]}
    loads = [load["concurrency"] for s in measured.values() for load in s["loads"]]
    loads = list(dict.fromkeys(loads))
    rows: list[tuple[str, ...]] = []
    for name, setting in file["settings"].items():
        if name not in measured:
            why = str(setting["failed"]).partition("\n")[0][:200].replace("|", "/")
            rows.append((name, f"failed: {why}", *[""] * (2 + len(loads))))
            continue
        by_load = {load["concurrency"]: load for load in setting["loads"]}
        left = setting["left_for_kv_cache_bytes"]
        rows.append(
            (
                name,
                f"{setting['boot_s']:.0f} s",
                str(len(setting["capture_sizes"])),
                "–" if left is None else f"{left / 2**30:.1f} GiB",
                *(_worth(by_load[c]) if c in by_load else "–" for c in loads),
            )
        )
    head = ("setting", "boot", "sizes", "left for the KV cache", *(f"closed {c}" for c in loads))
    reading = (
        "Tokens per second of the table, mean and range of its windows; then those of no drafts; "
        "the slowest step without a prompt over the middle one; the table's and the other's steps "
        "that ran without a graph."
    )
    return f"{reading}\n\n{table(head, rows)}"


def _worth(load: File) -> str:
    rates, off = load["table"]["tok_s"], load["no drafts"]["tok_s"]
    ms = load["table"]["step_ms"]
    slowest = f", slowest step {ms['p100'] / ms['p50']:.1f} ×" if ms else ""
    mean = sum(rates) / len(rates)
    spread = f"({min(rates):.0f} to {max(rates):.0f})"
    bare = "".join(
        f", {side}: {one['ungraphed_steps']} of {one['steps']} steps without a graph"
        for side, one in load.items()
        if side != "concurrency" and one["ungraphed_steps"]
    )
    return f"{mean:.0f} {spread}, without drafts {sum(off) / len(off):.0f}{slowest}{bare}"


def efforts_table(file: File, key: str) -> str:
    counts = {"grid": "batch_sizes", "samples": "samples", "prompts": "request_steps"}
    kinds = list(file["survivals"])
    first = file[kinds[0]][key]
    rows: Iterator[tuple[str, ...]] = (
        (
            str(row[counts[key]]),
            *(
                f"{percent(file[k][key][i]['worst'])} / {percent(file[k][key][i]['worst_p95'])}"
                for k in kinds
            ),
        )
        for i, row in enumerate(first)
    )
    return table(
        (counts[key].replace("_", " "), *(f"{k}: worst loss, mean / p95" for k in kinds)), rows
    )


def cheapest_table(file: File) -> str:
    rows: list[tuple[str, ...]] = []
    for kind in file["survivals"]:
        best = file[kind]["cheapest"]
        if best is None:
            rows.append((kind, "none of those tried", "–", "–", "–"))
        else:
            values = (best["batch_sizes"], best["samples"], best["request_steps"])
            rows.append((kind, *map(str, values), f"{best['step_time_s']:.1f} s"))
    head = ("traffic", "batch sizes", "samples a cell", "request-steps", "pure step time")
    return table(head, rows)
