"""How the files of a directory are replaced by others, all of them or none, whatever is killed.

The new files are written beside the old ones, under names that end in `SUFFIX`. Then the plan is written, as a whole:
which of them get which names, and which files go. From then on the change happens: it is carried out in the order of
the plan, and whoever finds a plan carries it out again from its beginning, which changes nothing where it was done.
Files that end so without a plan are of a removal that was killed before, and are useless.

A new WARC file has a name of its own, and stands beside the old one until every row that leads there was replaced. So
at any moment rows lead to records that are there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drumlin.disk import below, remove, replace, sync_directory, sync_file, write_whole
from drumlin.errors import BusyError
from drumlin.store.warc.cdxj import INDEX_NAME, merge

SUFFIX: Final = ".removing"
PLAN_NAME: Final = "removal.plan"


class Plan(msgspec.Struct):
    """What is to be done, by paths that are relative to the directory."""

    renames: list[tuple[str, str]] = []
    deletes: list[str] = []


def is_pending(root: Path) -> bool:
    return (root / PLAN_NAME).exists()


def check_none_pending(root: Path) -> None:
    """Refuse to crawl on what a removal has only half replaced."""
    if is_pending(root):
        hint = "Run the same `drumlin remove` command again: it ends what was begun."
        raise BusyError(f"A removal from {root} was broken off.", hint)


def discard_leftovers(root: Path) -> None:
    """Delete what a removal that was killed has written, if it had no plan yet."""
    if not is_pending(root):
        for path in root.rglob("*" + SUFFIX):
            remove(path)


def carry_out(root: Path, plan: Plan) -> None:
    """Begin the change, and end it."""
    folders = set[Path]()
    for source, _ in plan.renames:
        sync_file(root / source)
        folders.add((root / source).parent)
    for folder in folders:
        sync_directory(folder)
    write_whole(root / PLAN_NAME, msgspec.json.encode(plan), sync=True)
    finish(root)


def finish(root: Path) -> bool:
    """End a change that was begun; False if there is none."""
    if not is_pending(root):
        return False
    plan = msgspec.json.decode((root / PLAN_NAME).read_bytes(), type=Plan)
    renames = [(below(root, source), below(root, target)) for source, target in plan.renames]
    deletes = [below(root, path) for path in plan.deletes]
    for source, target in renames:
        if source.exists():
            replace(source, target, sync=True)
    for path in deletes:
        remove(path)
    if (root / "warc" / INDEX_NAME).exists():
        merge(root / "warc")
    remove(root / PLAN_NAME)
    return True
