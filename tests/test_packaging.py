"""The declared dependencies: what the code imports, what is pinned, and what the ranges allow."""

import ast
import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {"pipeline", "stages", "tests", "benchmarks", "docs"}
TOOLS = {"mkdocs-material", "pyright", "pytest-xdist", "ruff"}
"""Declared and never imported."""
EXTRAS = ("heic", "onnx", "parquet")
"""Of the library, imported within the functions that need them."""

OPTIONAL = {"pillow_heif": ["pillow-heif"]}
"""Modules of extras, which need not be installed here -> their distributions."""
TRACKERS = {"mlflow", "wandb", "tensorboard"}
"""Packages that only who names them in the environment needs; what is printed where they are absent says so."""


def declared(*groups: str) -> dict[str, Requirement]:
    lines = PROJECT["dependencies"] + [line for group in groups for line in PROJECT["optional-dependencies"][group]]
    return {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines), "every line is a full pin"
    return dict(line.split("==") for line in lines)


def imports(folder: str) -> set[str]:
    """Distributions that a folder's code imports, anywhere in a file."""
    modules = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(str(node.module))
    tops = {module.split(".")[0] for module in modules} - sys.stdlib_module_names - OURS - TRACKERS - {"ruamel"}
    known = dict(packages_distributions()) | OPTIONAL
    found = {str(canonicalize_name(known[top][0])) for top in tops}
    return found | ({"ruamel-yaml"} if any(module.startswith("ruamel.yaml") for module in modules) else set())


@pytest.mark.parametrize(
    ("folder", "groups"),
    [("pipeline", EXTRAS), ("stages", ()), ("tests", ("dev", *EXTRAS)), ("docs", ("docs",))],
)
def test_what_is_imported_is_declared(folder: str, groups: tuple[str, ...]) -> None:
    assert imports(folder) <= set(declared(*groups))


def test_what_is_declared_is_used() -> None:
    used = imports("pipeline") | imports("stages") | imports("tests") | imports("docs")
    assert set(declared("dev", "docs", *EXTRAS)) - used == TOOLS


def test_pins_meet_the_ranges() -> None:
    pinned = pins()
    wanted = declared("dev", "docs", *EXTRAS)
    for name, requirement in wanted.items():
        assert requirement.specifier.contains(pinned[name]), f"{requirement} is pinned to {pinned[name]}"
    assert (pinned["torch"], pinned["torchvision"]) == ("2.14.1", "0.29.1")


def test_torch_without_cuda_is_the_pinned_one_from_its_own_index() -> None:
    """A dry run: that index cannot be reached everywhere."""
    words = ["make", "-n", "-B", "env"]
    environment = os.environ | {"TORCH": "2.1"}  # as other tools mean it
    plain = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    made = subprocess.run([*words, "TORCH=cpu"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    extra = [line for line in made.splitlines() if line not in plain.splitlines() and "echo" not in line]
    (line,) = extra
    assert "pip install" in line and "--index-url https://download.pytorch.org/whl/cpu $(" in line
    assert made.index(line) < made.index("--requirement requirements.txt")
    named = subprocess.run(["bash", "-c", f"echo {line[line.index('$(') :]}"], cwd=ROOT, capture_output=True, text=True)
    assert named.stdout.split() == [f"{name}=={pins()[name]}" for name in ("torch", "torchvision")]
    other = subprocess.run([*words, "TORCH=gpu"], cwd=ROOT, capture_output=True, text=True)
    assert other.returncode and "say TORCH=cpu, or leave it out" in other.stderr


def test_accelerator_packages_are_left_to_torch() -> None:
    assert not [name for name in pins() if name.startswith(("nvidia", "cuda", "triton"))]
