"""Adds to the wheel and sdist in a folder what else belongs to a release; `make dist` runs it.

- `RELEASE-NOTES.md`: what CHANGELOG.md says of this version, and of nothing else.
- `drumlin-VERSION.cdx.json`: the bill of materials, in CycloneDX's format: every library of every extra, by version
  and hash, as requirements/extras.lock pins it.
- `SHA256SUMS`: the checksums of all of them, as `sha256sum --check` reads them.

Nothing in them depends on when or where they are made.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "extras.lock"
UNRELEASED = "Unreleased"
TIMEOUT_S = 120
SUMS = "SHA256SUMS"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "drumlin" / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None, "drumlin/__init__.py has no version"  # noqa: S101
    return found[1]


def notes(changelog: str, wanted: str) -> str:
    """What a changelog says of a version; of what is unreleased, if it does not know the version. ValueError if it has
    neither."""
    headings = list(_HEADING.finditer(changelog))
    for name in (wanted, UNRELEASED):
        for number, heading in enumerate(headings):
            if heading[1].split()[0] == name:
                end = headings[number + 1].start() if number + 1 < len(headings) else len(changelog)
                return f"# drumlin {heading[1]}\n\n{changelog[heading.end() : end].strip()}\n"
    raise ValueError(f"CHANGELOG.md has neither a heading for {wanted} nor one for what is unreleased.")


def materials(of: str) -> dict[str, Any]:
    """The bill of materials. What differs from run to run (its serial number, the time, the tool) is left out."""
    tool = Path(sys.executable).parent / "cyclonedx-py"
    command = [str(tool), "requirements", "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    command += ["--output-reproducible", "--of", "JSON", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    bill: dict[str, Any] = json.loads(done.stdout)
    bill["metadata"].setdefault("component", {"type": "application", "name": "drumlin"})["version"] = of
    return bill


def sums(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main(folder: Path) -> None:
    of = version()
    (folder / "RELEASE-NOTES.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), of))
    (folder / f"drumlin-{of}.cdx.json").write_text(json.dumps(materials(of), indent=1, sort_keys=True) + "\n")
    (folder / SUMS).write_text(sums(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
