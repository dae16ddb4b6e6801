"""How the documentation becomes a site: `make docs-site`. Sphinx reads the pages where they are, so a link between two
files is the same here and in a file browser of the repository."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = "docs/index"
# What stands in the menu, in this order. Pages of a folder that are not named here come last.
MENU = {
    "Tutorials": ("docs/tutorial", ("first-crawl", "sql", "fleet", "curl")),
    "How to": (
        "docs/how-to",
        (
            *("politeness", "scope", "budgets", "resume", "change-settings", "large-crawls", "dashboard", "ask-why"),
            *("replay", "run-a-fleet", "redis-cluster", "upgrade", "monitor", "runbook", "read-logs", "simulate"),
        ),
    ),
    "Reference": (
        "docs/reference",
        (
            *("cli", "configuration", "exit-codes", "failures", "robots", "store", "tables", "sql", "http-api"),
            *("http-calls", "metrics"),
        ),
    ),
    "Explanation": (
        "docs/explanation",
        ("politeness", "durability", "failure-model", "threat-model", "capacity"),
    ),
    "For site owners": ("docs", ("site-owners",)),
    "The project": ("", ("README", "ARCHITECTURE", "CONTRIBUTING", "bench/README", "CHANGELOG")),
}


def setup(app) -> None:  # type: ignore[no-untyped-def]  # Sphinx is in an environment of its own
    app.connect("source-read", add_menu)


def add_menu(app, name: str, source: list[str]) -> None:  # type: ignore[no-untyped-def]
    """Put the menu into the first page, which is plain Markdown in the repository."""
    if name == FIRST:
        source[0] += "".join(toctree(title, folder, pages) for title, (folder, pages) in MENU.items())


def toctree(title: str, folder: str, pages: tuple[str, ...]) -> str:
    lines = "".join(f"{Path('/', folder, page)}\n" for page in [*pages, *other_pages(folder, pages)])
    return f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}```\n"


def other_pages(folder: str, pages: tuple[str, ...]) -> list[str]:
    """The pages of a folder that the menu does not name. (Those of the root and of docs itself are all named.)"""
    found = sorted(path.stem for path in (ROOT / folder).glob("*.md")) if "/" in folder else []
    return [page for page in found if page not in pages]


project = "drumlin"
author = "the drumlin authors"
release = version = re.search(r'"(.+)"', (ROOT / "drumlin" / "__init__.py").read_text())[1]  # type: ignore[index]

root_doc = FIRST
extensions = ["myst_parser"]
include_patterns = ["docs/**.md", "*.md", "bench/README.md"]
exclude_patterns = [".*", "build", "dist", "drumlin", "tests", "crawl*", "**/__pycache__"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = "drumlin"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#2f6b4f", "color-brand-content": "#2f6b4f"},
    "dark_css_variables": {"color-brand-primary": "#7fc8a4", "color-brand-content": "#7fc8a4"},
}
