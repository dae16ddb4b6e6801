"""The page's scripts agree with the types in their comments, as TypeScript reads them; nothing of it is shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "drumlin" / "ui" / "static"
TYPESCRIPT = "typescript@5.9.3"
INSTALLED = ROOT / ".venv-types"
"""Kept between runs, as other environments are."""
INSTALL_S_MAX = 120.0
CHECK_S_MAX = 240.0

OPTIONS = {
    "noEmit": True,
    "allowJs": True,
    "checkJs": True,
    "strict": True,
    "noUnusedLocals": True,
    "target": "es2022",
    "module": "es2022",
    "moduleResolution": "bundler",
    "lib": ["es2022", "dom", "dom.iterable"],
    "types": [],
}
# If types were not checked, the comment that expects an error would be one itself.
PROOF = """import {{ count }} from "{scripts}/format.js";
// @ts-expect-error a number is wanted
count("many");
"""


@pytest.fixture(scope="module")
def tsc() -> Path:
    """TypeScript's compiler, installed by npm the first time."""
    compiler = INSTALLED / "node_modules" / ".bin" / "tsc"
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("the page's types are checked where node and npm are: apt-get install nodejs npm")
    if not compiler.exists():
        command = [npm, "install", "--prefix", str(INSTALLED), "--no-audit", "--no-fund", "--no-save", TYPESCRIPT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot install {TYPESCRIPT}: {(done.stderr or done.stdout).strip()[:300]}")
    return compiler


def test_the_scripts_of_the_page_keep_their_types(tsc: Path, tmp_path: Path) -> None:
    (tmp_path / "proof.js").write_text(PROOF.format(scripts=SCRIPTS))
    included = [str(SCRIPTS / "**" / "*.js"), str(tmp_path / "proof.js")]
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "include": included}))
    command = [str(tsc), "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
    assert (done.stdout, done.returncode) == ("", 0)
