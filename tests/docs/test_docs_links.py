"""What the README and its neighbours link to is there; the site's own build checks docs/."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
#: [text](target), not of an image's or a link's text inside code.
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: pathlib.Path) -> set[str]:
    """The anchors of a page's headings, as the site and its host make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[\s]+", "-", word) for word in words}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in LINK.findall((ROOT / name).read_text("utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        assert (ROOT / path).exists(), target
        assert not anchor or anchor in anchors(ROOT / path), target


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name)
def test_the_site_lists_every_page(path: pathlib.Path) -> None:
    """So that it is told here, and not only where the site is built."""
    site = (ROOT / "infra" / "docs" / "mkdocs.yml").read_text("utf-8")
    assert path.relative_to(ROOT / "docs").as_posix() in site
