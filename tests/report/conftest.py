"""Fixtures: synthetic projects."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config.params import Params
from pipeline.report.read import Collected, collect
from tests.report.project import make_project, many

Maker = Callable[..., Params]


@pytest.fixture
def project(repository: Path) -> Maker:
    """Return a function (root, plan=None) that writes a project and returns its parameters."""
    return lambda root, plan=None: make_project(root, repository / "params.yaml", plan)


@pytest.fixture(scope="session")
def whole(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Params]:
    """A project of one dataset and three seeds that tests only read."""
    root = tmp_path_factory.mktemp("whole")
    return root, make_project(root, repository / "params.yaml")


@pytest.fixture(scope="session")
def zoo(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """What is collected of a project of nearly thirty methods, two seeds, three heads and two protocols."""
    root = tmp_path_factory.mktemp("zoo")
    return collect(root, make_project(root, repository / "params.yaml", many(seeds=(0, 1))))
