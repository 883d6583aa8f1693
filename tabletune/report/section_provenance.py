"""Section 9: the fingerprint, and where every number came from."""

from tabletune.records.base import Record
from tabletune.records.fingerprint import Fingerprint, ModelFacts
from tabletune.report.markup import Html, code, definitions, join, table, tag
from tabletune.report.report_input import ReportInput
from tabletune.report.text import device_words, duration, gigabytes, mismatches, plural, short_hash


def provenance_section(report: ReportInput) -> Html:
    """Two lists and the table of records."""
    return join(
        [
            tag("h3", "Fingerprint"),
            tag("p", "The table holds for exactly this; any difference calls for a new profile."),
            definitions(_facts(report.fingerprint)),
            tag("h3", "Engine settings"),
            _settings(report.fingerprint),
            tag("h3", "Records"),
            _records(report),
            _belonging(report),
            tag("h3", "Measurement"),
            definitions(_measurement(report)),
        ]
    )


def _facts(found: Fingerprint) -> list[tuple[object, object]]:
    device, engine = found.device, found.engine
    each = " each" if device.count > 1 else ""
    memory = f", {gigabytes(device.memory_bytes)}{each}" if device.memory_bytes else ""
    capability = "CUDA capability" if device.platform == "cuda" else "extensions"
    runs_on = f"{device_words(device)}{memory}, {capability} {device.capability}"
    if device.driver:
        runs_on += f", driver {device.driver}"
    pairs: list[tuple[object, object]] = [
        ("Device", runs_on),
        ("Engine", f"{engine.distribution} {engine.version}, {engine.runner} model runner"),
        ("Runtime", f"PyTorch {engine.torch}, Python {engine.python}"),
        ("Model", _model(found.model)),
        ("Drafting method", found.method),
        ("Drafter", _model(found.drafter) if found.drafter else "none: the method has no weights"),
        ("Fingerprint", code(found.identity)),
    ]  # fmt: skip
    return pairs


def _model(model: ModelFacts) -> Html:
    text = f"{model.label}, {model.architecture}, vocabulary {model.vocabulary_size:,}, "
    return join([text, code(model.content)])


def _settings(found: Fingerprint) -> Html:
    if not found.settings:
        return tag("p", "No engine settings were recorded.", class_="missing")
    return definitions([(name, code(value)) for name, value in sorted(found.settings.items())])


def _records(report: ReportInput) -> Html:
    version, verdict = report.version, report.verdict
    qualification, profile, prior = report.qualification, report.profile, report.prior
    parts: list[tuple[str, Record | None, str]] = [
        ("Capture plan", report.plan, "–"),
        ("Qualification", qualification, qualification.qualified_at if qualification else ""),
        ("Profile", profile, profile.measured_at if profile else ""),
        ("Acceptance prior", prior, prior.measured_at if prior else ""),
        ("Table version", version, version.created_at if version else ""),
        ("Verdict", verdict, verdict.validated_at if verdict else ""),
    ]  # fmt: skip
    rows = [
        [
            name,
            "missing" if part is None else code(part.content_hash[:16], part.content_hash),
            when or "–",
        ]
        for name, part, when in parts
    ]
    if version and version.parents.previous_version:
        old = version.parents.previous_version
        rows.append(["Previous version", code(old[:16], old), "–"])
    return table(["Record", "Content hash", "Made"], rows)


def _belonging(report: ReportInput) -> Html:
    found = mismatches(report)
    if not found:
        return tag("p", "All records name this fingerprint.", class_="note")
    return tag("ul", *(tag("li", text) for text in found), class_="warning")


def _measurement(report: ReportInput) -> list[tuple[object, object]]:
    profile, prior = report.profile, report.prior
    pairs: list[tuple[object, object]] = []
    if profile is not None:
        contexts = [c.context_tok for c in profile.cells if c.status == "measured"]
        pairs.append(("Prompts of the profile", plural(profile.prompt_tok, "token")))
        if contexts:
            low, high = min(contexts), max(contexts)
            span = f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f} to {high:,.0f}"
            pairs.append(("Context length", f"{span} tokens on average per cell"))
    if prior is not None:
        words = f"{plural(prior.prompt_count, 'prompt')}, "
        pairs.append(
            (
                "Prompts of acceptance",
                join([words, code(short_hash(prior.prompts_hash), prior.prompts_hash)]),
            )
        )
        pairs.append(("Acceptance", prior.source))
    load_format = report.fingerprint.settings.get("load_format")
    if load_format:
        pairs.append(("Weights", "dummy" if load_format == "dummy" else f"loaded as {load_format}"))
    times = {
        "qualification": report.qualification, "profile": profile, "acceptance": prior,
        "validation": report.verdict,
    }  # fmt: skip
    spent = [
        f"{name} {duration(part.wall_time_s)}" for name, part in times.items() if part is not None
    ]
    pairs.append(("Wall time", ", ".join(spent) if spent else "nothing was measured"))
    return pairs
