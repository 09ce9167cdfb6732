"""Copies of the project for tests that alter or run it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PARTS = (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore", "dvc.yaml", "pipeline", "stages", "profiles")

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


def run(root: Path, *words: str, **variables: str) -> str:
    """Run a command in ``root``; fail with what it printed unless it exits with 0."""
    done = subprocess.run(words, cwd=root, env=ENVIRONMENT | variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def project(repository: Path, root: Path, profile: str = "default") -> None:
    """Copy what Git tracks of the pipeline into ``root``, with a profile as its params, and commit it."""
    for part in PARTS:
        source, target = repository / part, root / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    shutil.copy(root / "profiles/default.yaml", root / "params.yaml")
    run(root, "git", "init", "-q")
    if profile != "default":
        run(root, sys.executable, "-m", "pipeline.cli", "profile", profile, "--force")
    run(root, "git", "add", ".")
    run(root, "git", "commit", "-qm", "copy")
