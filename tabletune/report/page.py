"""The page: head, sections in the order a serving engineer wants them, nothing external."""

import base64
import hashlib
from collections.abc import Iterable
from importlib import resources

from tabletune.report.markup import Html, escape, join, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.report_input import ReportInput
from tabletune.report.section_acceptance import acceptance_section
from tabletune.report.section_capture import capture_section
from tabletune.report.section_difference import difference_section
from tabletune.report.section_headline import masthead, serve_section, table_section
from tabletune.report.section_prediction import goodput_section, step_time_section
from tabletune.report.section_provenance import provenance_section
from tabletune.report.section_qualification import qualification_section
from tabletune.report.section_validation import validation_section
from tabletune.report.theme import Theme


def page(report: ReportInput, plots: DrawnPlots) -> str:
    """The whole HTML document."""
    sections = [
        ("table", "The table", table_section(report, plots)),
        ("serve", "Serve with it", serve_section(report)),
        ("validation", "Validation", validation_section(report, plots)),
        ("goodput", "Predicted goodput", goodput_section(report, plots)),
        ("step-time", "Step times", step_time_section(report, plots)),
        ("survival", "Acceptance", acceptance_section(report, plots)),
        ("difference", "Against the incumbent", difference_section(report, plots)),
        ("capture", "Capture plan", capture_section(report, plots)),
        ("qualification", "Qualification", qualification_section(report)),
        ("provenance", "Fingerprint and provenance", provenance_section(report)),
    ]
    body = join(
        [
            masthead(report),
            _contents((name, heading) for name, heading, _ in sections),
            tag(
                "main",
                join(
                    tag("section", tag("h2", heading), content, id=name)
                    for name, heading, content in sections
                ),
            ),
        ]
    )
    script = _resource("page.js")
    style = _style(report)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The page may run its own script and nothing else, should anything untrusted slip through.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="color-scheme" content="light dark">',
            str(tag("title", report.title)),
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            str(body),
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _contents(sections: Iterable[tuple[str, str]]) -> Html:
    links = (tag("a", heading, href=f"#{name}") for name, heading in sections)
    return tag("nav", join(links), aria_label="Contents")


def _style(report: ReportInput) -> str:
    theme = Theme(report.max_draft_length)
    light, dark = theme.css_variables(dark=False), theme.css_variables(dark=True)
    return (
        f":root {{\n{light}\n}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{\n:root {{\n{dark}\n}}\n}}\n"
        + _resource("page.css")
    )


def _resource(name: str) -> str:
    return (resources.files("tabletune.report") / name).read_text(encoding="utf-8")
