"""HTML from text: the only place that writes tags around values, all of them escaped."""

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is HTML already. Everything else gets escaped."""

    __slots__ = ()


def escape(value: object) -> Html:
    """`value` as HTML: left alone when it is `Html`, escaped otherwise."""
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def tag(name: str, *children: object, **attributes: str) -> Html:
    """An element; attribute names lose a trailing underscore, inner ones become hyphens."""
    inside = "".join(escape(child) for child in children)
    return Html(f"<{name}{_attributes(attributes)}>{inside}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """The parts one after the other, each on its own line."""
    return Html("\n".join(escape(part) for part in parts if part != ""))


def table(
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    numeric: Sequence[int] = (),
    class_: str = "",
) -> Html:
    """A table in a scrolling frame; the columns in `numeric` are set right."""

    def cells(name: str, values: Sequence[object]) -> Html:
        return Html(
            "".join(
                tag(name, value, class_="n") if i in numeric else tag(name, value)
                for i, value in enumerate(values)
            )
        )

    head = tag("thead", tag("tr", cells("th", heads)))
    body = tag("tbody", Html("\n".join(tag("tr", cells("td", row)) for row in rows)))
    return tag("div", tag("table", head, body, class_=class_), class_="scroll")


def definitions(pairs: Iterable[tuple[object, object]]) -> Html:
    """Names and values as a definition list."""
    return tag("dl", Html("\n".join(tag("div", tag("dt", k), tag("dd", v)) for k, v in pairs)))


def details(summary: str, *children: object) -> Html:
    """Content that opens on demand."""
    return tag("details", tag("summary", summary), *children)


def code(value: object, title: str = "") -> Html:
    """Inline code, with the full value as its tooltip when it was cut."""
    return tag("code", value, title=title) if title else tag("code", value)


def _attributes(attributes: dict[str, str]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value, quote=True)}"'
        for name, value in attributes.items()
        if value
    )
