"""A parsed report page: its elements, its text by section, its references."""

import re
from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "img", "link", "input", "path", "use", "rect"}


class ParsedPage(HTMLParser):
    """Collects elements, ids, text by section, and checks that tags are balanced."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.sections: dict[str, str] = {}
        self.unbalanced: list[str] = []
        self._open: list[str] = []
        self._section = ""
        self.feed(source)
        self.close()
        self.unbalanced += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "section":
            self._section = found.get("id", "")
            self.sections[self._section] = ""
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(tag)
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("style", "script"):
            return
        self.text += data
        if self._section:
            self.sections[self._section] += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    @property
    def references(self) -> list[str]:
        """All that an element points at: href, src, and url(…) in attributes and styles."""
        found: list[str] = []
        for _, attributes in self.elements:
            for name, value in attributes.items():
                if name in ("href", "src", "xlink:href", "srcset", "action", "data"):
                    found.append(value)
                found += re.findall(r"url\(([^)]*)\)", value)
        for style in re.findall(r"<style>(.*?)</style>", self.source, re.S):
            found += re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", style)
        return found
