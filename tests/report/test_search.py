"""The report's section on searched settings: what the stage's own choice says, and nothing without a search."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.config.params import read_params
from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.core.manifest import write_manifest
from pipeline.report import page
from pipeline.report.read import collect
from pipeline.training.settings_search import choose_best
from tests.report.project import Plan, make_project
from tests.report.test_page import Reader

SCORES: dict[str, dict[str, tuple[float, ...]]] = {"linear_init": {"an": (60.0,)}}
SCORES |= {"finetune": {}, "end_to_end": {}, "lac": {}}


def rows() -> list[dict[str, Any]]:
    """EM ahead of GR on each of three draws by 1, 2 and 3 points; AN far behind, of two draws alone."""
    values = {("em", '{"alpha": 0.2}'): [71.0, 75.0, 82.0], ("gr", "{}"): [70.0, 73.0, 79.0]}
    about = {"learning_rate": 0.01, "weight_decay": 0.001, "scale": "unit", "seed": 0}
    return [
        about | {"method": method, "settings": settings, "draw": 100 + draw}
        | {"clean_score": value, "clean_epoch": 3, "clean_test_map": value - 5}
        for (method, settings), own in values.items()
        for draw, value in enumerate(own)
    ]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, repository: Path) -> Path:
    plan = Plan(draws=(0,), scores=SCORES, variants={}, searches=("digits",))
    make_project(tmp_path, repository / "params.yaml", plan)
    return tmp_path


def put_choice(root: Path, choice: dict[str, Any]) -> None:
    folder = root / "analyses" / "search" / "digits"
    files.write_json(folder / "choice.json", choice)
    write_manifest(folder, [])


def test_the_section_says_what_was_chosen_and_by_how_much(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [section for section in page.SECTIONS if section[0] in ("headline", "search", "data")]
    monkeypatch.setattr(page, "SECTIONS", few)  # the others take seconds
    choice = {"draws": [100, 101, 102], "seeds": [0], "clean": choose_best(rows(), "clean")}
    put_choice(root, choice)
    built = page.build(collect(root, read_params(root / "params.yaml"), partial=True))
    reader = Reader(built.html)
    ids = [value for tag, name, value in reader.attributes if (tag, name) == ("section", "id")]
    assert "search" in ids and ids.index("search") < ids.index("data")
    assert "Search of settings" in reader.words and "Chosen by val mAP by full labels" in reader.words
    # mean difference 2, standard deviation 1, t(2) at 97.5 %: 4.303; 4.303 / sqrt(3) = 2.48
    assert "76.00" in reader.words and "2.00 (-0.48 to 4.48, not told apart)" in reader.words
    assert "{alpha: 0.2}" in reader.words
    table = built.files.tables["digits-search"]
    assert table["method"].tolist() == ["em", "gr"] and table["behind_mean"].tolist()[1] == pytest.approx(2.0)


def test_a_search_that_is_not_there_or_damaged_is_named(root: Path) -> None:
    params = read_params(root / "params.yaml")
    with pytest.raises(FileError, match=r"analyses/search/digits/choice.json: no such file"):
        collect(root, params)
    put_choice(root, {"draws": [1], "seeds": [0], "clean": {}})
    with pytest.raises(FileError, match=r"choice.json: .*clean.best"):
        collect(root, params)
