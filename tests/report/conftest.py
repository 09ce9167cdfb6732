"""Fixtures: synthetic projects."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config import Params
from tests.report.project import make_project

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
