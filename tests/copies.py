"""Copies of the project for tests that alter or run it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.config import profiles
from pipeline.config.params import METHODS, PARAMS, method_file
from pipeline.core.manifest import write_manifest

PARTS = (
    ".dvc/config",
    ".dvc/.gitignore",
    ".dvcignore",
    ".gitignore",
    "corrections",
    "dvc.yaml",
    "params.yaml",
    "params",
    "pipeline",
    "stages",
    "profiles",
)

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "DVC_", "PYTEST_", "COV_"))
} | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # `python` of the stages
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.org",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.org",
    "DVC_NO_ANALYTICS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def read_params(root: Path) -> dict[str, Any]:
    """Content of params.yaml, with that of the methods' files under ``methods``."""
    read = YAML(typ="safe", pure=True).load
    return read(root / PARAMS) | {"methods": {path.stem: read(path) for path in (root / METHODS).glob("*.yaml")}}


def write_params(root: Path, content: dict[str, Any]) -> None:
    """Write params.yaml and the methods' files, of what `read_params` returns."""
    write = YAML(typ="safe", pure=True).dump
    (root / METHODS).mkdir(parents=True, exist_ok=True)
    for path in (root / METHODS).glob("*.yaml"):
        path.unlink()
    for method, section in content["methods"].items():
        write(section, root / method_file(method))
    write({key: value for key, value in content.items() if key != "methods"}, root / PARAMS)


def sign(root: Path) -> None:
    """Write the manifest of each output folder anew, as if its stage had written the texts that lie there."""
    folders = [*root.glob("data/*/*"), *root.glob("runs/*/*"), *root.glob("analyses/*/*"), *root.glob("weights/*")]
    for folder in filter(Path.is_dir, folders):
        write_manifest(folder, [])


def run(root: Path, *words: str, **variables: str) -> str:
    """Run a command in ``root``; fail with what it printed unless it exits with 0."""
    done = subprocess.run(words, cwd=root, env=ENVIRONMENT | variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def project(repository: Path, root: Path, profile: str = "default") -> None:
    """Copy the pipeline into ``root`` with the default's params and commit it; then apply and commit a profile."""
    for part in PARTS:
        source, target = repository / part, root / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for file, text in profiles.default_texts(repository).items():
        (root / file).write_text(text)
    run(root, "git", "init", "-q")
    run(root, "git", "add", ".")
    run(root, "git", "commit", "-qm", "copy")
    if profile != "default":
        run(root, sys.executable, "-m", "pipeline.cli", "profile", profile)
        run(root, "git", "commit", "-qam", f"profile {profile}")
