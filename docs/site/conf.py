"""How the documentation becomes a site: `make docs-site`. Sphinx reads the pages where they are, so a link between two
files is the same here and in a file browser of the repository."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = "docs/index"
CODE = shutil.ignore_patterns("*.py", "__pycache__")
# What stands in the menu, in this order. Pages of a folder that are not named here come last.
MENU = {
    "Tutorials": ("docs/tutorial", ("first-crawl", "sql", "fleet", "curl")),
    "How to": (
        "docs/how-to",
        (
            *("politeness", "scope", "budgets", "resume", "change-settings", "large-crawls", "dashboard", "ask-why"),
            *("replay", "run-a-fleet", "deploy", "redis-cluster", "object-storage", "keep-and-expire"),
            *("remove-a-site", "move-a-frontier", "kafka"),
            *("upgrade", "monitor", "runbook", "trace", "read-logs", "simulate", "release"),
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
    app.connect("build-finished", copy_pictures)


def copy_pictures(app, failure: Exception | None) -> None:  # type: ignore[no-untyped-def]
    """Sphinx copies the images of Markdown, but not those of HTML, by which README shows one for light and for dark."""
    if failure is None:
        shutil.copytree(
            ROOT / "docs" / "pictures", Path(app.outdir, "docs", "pictures"), dirs_exist_ok=True, ignore=CODE
        )


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
html_extra_path = ["extra"]
html_copy_source = False
html_use_index = False
# Summaries of what was found would be loaded page by page, which browsers refuse for files on a disk.
html_show_search_summary = False
html_show_sphinx = False
html_logo = html_favicon = str(ROOT / "drumlin" / "ui" / "static" / "icon.svg")
# The colours of the dashboard, drumlin/ui/static/style.css.
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0f6e66",
        "color-brand-content": "#0f6e66",
        "color-brand-visited": "#0f6e66",
        "color-background-primary": "#ffffff",
        "color-background-secondary": "#faf9f7",
        "color-foreground-primary": "#1d2126",
        "color-sidebar-link-text": "#565a62",
        "font-stack": 'Inter, "Segoe UI", system-ui, -apple-system, "Helvetica Neue", "Liberation Sans", sans-serif',
    },
    "dark_css_variables": {
        "color-brand-primary": "#58c4b6",
        "color-brand-content": "#58c4b6",
        "color-brand-visited": "#58c4b6",
        "color-background-primary": "#131518",
        "color-background-secondary": "#1a1d21",
        "color-foreground-primary": "#e9e7e4",
        "color-sidebar-link-text": "#abaeb5",
    },
}
