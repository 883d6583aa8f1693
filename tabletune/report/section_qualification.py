"""Section 8: what was tried on a sacrificial engine, and what was excluded and why."""

from tabletune.records.plan import Envelope
from tabletune.records.qualification import Qualification
from tabletune.report.figure_table import span
from tabletune.report.markup import Html, details, join, table, tag
from tabletune.report.report_input import ReportInput
from tabletune.report.text import check_in_words, duration, plural, short_hash

_FAULTS = {
    "crash": "crash",
    "hang": "hang",
    "stall": "stall",
    "ignored": "draft length ignored",
    "output": "output differs",
    "refused": "refused",
}


def qualification_section(report: ReportInput) -> Html:
    """Attempts, failures with evidence, exclusions and the envelope."""
    found = report.qualification
    if found is None:
        text = "This engine was not qualified: nothing was tried beyond what was profiled."
        said = tag("p", text, class_="missing")
        return said if report.version is None else join([said, _envelope(report.version.envelope)])
    failed = [check for check in found.checks if not check.passed]
    lead = (
        f"{plural(len(found.checks), 'check')} in {duration(found.wall_time_s)} on an engine "
        f"started for that purpose; {len(found.checks) - len(failed)} passed, {len(failed)} failed."
    )
    return join(
        [
            tag("p", lead),
            _attempts(found),
            _excluded(found),
            _failures(found),
            _envelope(found.envelope),
            _all_checks(found),
        ]
    )


def _attempts(found: Qualification) -> Html:
    if not found.attempts:
        return Html("")
    rows = [
        [
            join([attempt.description, tag("small", tag("code", short_hash(attempt.plan)))]),
            tag("span", "passed" if attempt.passed else "failed",
                class_="ok" if attempt.passed else "bad"),
            attempt.reason or "–",
        ]
        for attempt in found.attempts
    ]  # fmt: skip
    return join([tag("h3", "Settings tried"), table(["Setting and plan", "Outcome", "Why"], rows)])


def _excluded(found: Qualification) -> Html:
    if not found.excluded:
        return join([tag("h3", "Excluded"), tag("p", "Nothing was excluded.")])
    items = tag("ul", *(tag("li", text) for text in found.excluded))
    return join([tag("h3", "Excluded"), items])


def _failures(found: Qualification) -> Html:
    rows = [
        [
            check.name,
            check_in_words(check),
            _FAULTS.get(check.fault or "", "failed"),
            check.evidence or "–",
        ]
        for check in found.checks
        if not check.passed
    ]
    if not rows:
        return Html("")
    return join([tag("h3", "Failed checks"), table(["Check", "At", "Fault", "Evidence"], rows)])


def _envelope(envelope: Envelope) -> Html:
    rows = [
        [f"K = {k}", ", ".join(span(*part) for part in ranges) or "nowhere"]
        for k, ranges in sorted(envelope.allowed.items(), key=lambda item: int(item[0]))
    ]
    if not rows:
        return tag("p", "No draft length is allowed at any batch size.", class_="warning")
    parts: list[object] = [
        tag("h3", "What a table may use"),
        table(["Draft length", "Batch sizes"], rows, class_="compact"),
    ]
    if envelope.forbidden_transitions:
        pairs = ", ".join(f"{old} → {new}" for old, new in envelope.forbidden_transitions)
        parts.append(tag("p", f"Forbidden switches of the draft length: {pairs}."))
    return join(parts)


def _all_checks(found: Qualification) -> Html:
    if not found.checks:
        return Html("")
    rows = [[c.name, check_in_words(c), "passed" if c.passed else "failed"] for c in found.checks]
    return details("All checks", table(["Check", "At", "Outcome"], rows))
