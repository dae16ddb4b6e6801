"""The pages that people read name files, links and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drumlin import __version__

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# A file of ours in backticks: `drumlin/clock.py`, or shorter, `node/keeping/archive.py` and `test_doors.py`.
FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)*\.(?:py|lua|md|sh))`")
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# Names of files that a reader is asked to make, or that a command makes.
EXAMPLES = {"drumlin/cli/VERB.py", "RELEASE-NOTES.md"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def exists(name: str) -> bool:
    """Whether we have a file of this name: from the root, from the package, or, if it names no folder, anywhere."""
    if "/" in name:
        return any((folder / name).exists() for folder in (ROOT, ROOT / "drumlin"))
    folders = (ROOT / folder for folder in ("drumlin", "tests", "bench", "docs"))
    return (ROOT / name).exists() or any(any(folder.rglob(name)) for folder in folders)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub makes anchors of them."""
    headings = HEADING.findall(CODE_BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_names_only_files_that_exist(page: Path) -> None:
    text = CODE_BLOCK.sub("", page.read_text())
    assert [name for name in FILE.findall(text) if name not in EXAMPLES and not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_links_only_to_pages_and_headings_that_exist(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(CODE_BLOCK.sub("", page.read_text())):
        place = (page.parent / target).resolve() if target else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_the_checker_sees_a_missing_file_and_a_missing_heading() -> None:
    assert FILE.findall("see `drumlin/nowhere.py` and `x.y`") == ["drumlin/nowhere.py"]
    assert not exists("drumlin/nowhere.py")
    assert exists("node/keeping/archive.py")
    assert "who-attacks-what" in anchors(ROOT / "docs/explanation/threat-model.md")


def test_the_changelog_begins_with_what_is_unreleased_or_with_this_version() -> None:
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert re.fullmatch(rf"Unreleased|{re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)", newest[1])
