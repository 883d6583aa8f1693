"""Numbers and sentences in plain words. Nothing here is HTML."""

import math

from tabletune.records.fingerprint import DeviceFacts
from tabletune.records.qualification import Check
from tabletune.records.verdict import Ratio, Verdict
from tabletune.report.policies import best_fixed, limit, read_policy, too_noisy
from tabletune.report.report_input import ReportInput


def number(value: float) -> str:
    """Three significant digits with thousands separators: 18,900; 42.1; 0.312."""
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.{max(digits, 0)}f}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with three significant digits and no unit."""
    return number(seconds * 1e3)


def duration(seconds: float) -> str:
    """``48 s``, ``3 min 20 s`` or ``1 h 5 min``."""
    whole = round(seconds)
    if whole < 1:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def device_words(device: DeviceFacts) -> str:
    """``1 × NVIDIA H200``, or for a processor ``2 cores of …``."""
    if device.platform == "cpu":
        return f"{plural(device.count, 'core')} of {device.name}"
    return f"{device.count} × {device.name}"


def gigabytes(count: int) -> str:
    """Bytes as GiB."""
    return f"{count / 2**30:,.0f} GiB"


def plural(count: int, singular: str, many: str = "") -> str:
    """``1 window``, ``2 windows``."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def listed(items: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def percent(ratio: float) -> str:
    """A ratio as a signed change: 1.034 → +3.4%."""
    change = 100 * (ratio - 1)
    sign = "−" if change < -0.05 else "+" if change >= 0.05 else "±"
    return f"{sign}{abs(change):.1f}%"


def state(report: ReportInput) -> str:
    """``passed``, ``failed``, ``unvalidated`` or ``no_table``."""
    if report.table is None:
        return "no_table"
    if report.verdict is None:
        return "unvalidated"
    return "passed" if report.verdict.passed else "failed"


def verdict_sentence(report: ReportInput) -> str:
    """The outcome in one sentence."""
    verdict = report.verdict
    if report.table is None:
        excluded = report.qualification.excluded if report.qualification else ()
        why = (
            f" What was excluded: {'; '.join(e.rstrip('.') for e in excluded)}." if excluded else ""
        )
        return "This run ended without a table." + why
    if verdict is None:
        return "The table has not been validated; it must not be promoted on predictions alone."
    return outcome_sentence(verdict)


def outcome_sentence(verdict: Verdict) -> str:
    """What a verdict says, in one sentence; of one that fails, where it falls short most."""
    return _passed_sentence(verdict) if verdict.passed else _failed_sentence(verdict)


def _failed_sentence(verdict: Verdict) -> str:
    below = [(r, least) for r in verdict.ratios if (least := limit(verdict.margins, r)) is not None]
    short = [(r, least) for r, least in below if r.ratio < least]
    start = "The table must not be promoted: "
    if verdict.stock is not None and not verdict.stock.passed:
        return start + "a stock engine without the plugin does not follow it."
    if not short:
        noisy = [least for r, least in below if too_noisy(verdict.margins, r)]
        if noisy:
            loss = 1 - min(noisy) + verdict.margins.slack
            return f"{start}the measurement is too noisy to exclude a loss beyond {loss:.0%}."
        return start + "; ".join(reason.rstrip(".") for reason in verdict.reasons) + "."
    worst, least = min(short, key=lambda pair: (pair[0].ratio / pair[1], pair[0].concurrency))
    more = (
        f" It falls short in {plural(len(short) - 1, 'other comparison')}."
        if len(short) > 1
        else ""
    )
    return (
        f"{start}at concurrency {worst.concurrency} it reaches {worst.ratio:.1%} of the throughput "
        f"of {read_policy(worst.policy).label}, and {least:.0%} are required.{more}"
    )


def _passed_sentence(verdict: Verdict) -> str:
    worst = worst_gate(verdict)
    if worst is None:
        return (
            "The table passed: "
            + ("; ".join(r.rstrip(".") for r in verdict.reasons) or "no reasons were recorded")
            + "."
        )
    loads = sorted({r.concurrency for r in verdict.ratios})
    where = (
        f"at {plural(len(loads), 'concurrency', 'concurrencies')} from {loads[0]} to {loads[-1]}"
    )
    if len(loads) == 1:
        where = f"at concurrency {loads[0]}"
    least = 1 - verdict.margins.best_fixed
    return (
        f"Measured {where}, the table holds at least {worst.ratio:.1%} of the throughput of the "
        f"best fixed draft length; {least:.0%} were required."
    )


def worst_gate(verdict: Verdict) -> Ratio | None:
    """The lowest ratio against the best fixed length over all concurrencies."""
    loads = {r.concurrency for r in verdict.ratios}
    gates = [gate for load in loads if (gate := best_fixed(verdict, load)) is not None]
    return min(gates, key=lambda r: (r.ratio, r.concurrency), default=None)


def best_gain(verdict: Verdict, kind: str) -> Ratio | None:
    """The highest ratio against policies of `kind`."""
    found = [r for r in verdict.ratios if read_policy(r.policy).kind == kind]
    return max(found, key=lambda r: (r.ratio, -r.concurrency), default=None)


def check_in_words(check: Check) -> str:
    """What was tried: ``b = 64, K = 0 → 3``."""
    switch = "" if check.previous_length is None else f"{check.previous_length} → "
    text = f"b = {check.batch_size}, K = {switch}{check.draft_length}"
    return text.replace(" = ", "\u00a0=\u00a0").replace(" → ", "\u00a0→\u00a0")


def cautions(report: ReportInput) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found: list[str] = []
    load_format = report.fingerprint.settings.get("load_format", "")
    if load_format == "dummy":
        found.append(
            "The weights are dummy weights (load_format dummy): step times are real, output is "
            "not, and acceptance on real traffic is not known from this run."
        )
    if report.prior is not None and report.prior.source == "synthetic":
        found.append(
            "Acceptance is synthetic: the engine was told to accept at given rates. Survival and "
            "goodput follow those rates, not real prompts."
        )
    if report.verdict is not None and report.verdict.stock is None:
        found.append("The table was not checked in a stock engine without the plugin.")
    return found + list(report.remarks) + mismatches(report)


def mismatches(report: ReportInput) -> list[str]:
    """Parts that do not belong together by their hashes."""
    names = {report.fingerprint.identity, report.fingerprint.content_hash}
    parts = {
        "qualification": report.qualification, "profile": report.profile,
        "acceptance prior": report.prior, "table version": report.version,
        "verdict": report.verdict,
    }  # fmt: skip
    found = [
        f"The {name} was made under another fingerprint ({short_hash(part.fingerprint)})."
        for name, part in parts.items()
        if part is not None and part.fingerprint not in names
    ]
    version, verdict = report.version, report.verdict
    if version and verdict and verdict.table_version != version.content_hash:
        found.append(
            f"The verdict is about another table version ({short_hash(verdict.table_version)})."
        )
    return found


def short_hash(value: str) -> str:
    """The first twelve digits of a hash, its scheme left out."""
    bare = value.rpartition(":")[2]
    return bare[:12] if len(bare) > 16 else bare
