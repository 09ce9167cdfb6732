import html.parser
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from ruamel.yaml import YAML

from pipeline.config.params import Params, read_params
from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError
from pipeline.labels.table import read_table
from pipeline.report import page, read
from pipeline.report.read import collect
from stages.report import report
from tests import copies
from tests.report.conftest import Maker
from tests.report.project import Plan

VOID = {"meta", "img", "link", "br"}
SMALL = {
    "linear_init": {"an": (60,), "full": (80,)},
    "finetune": {"an": (65,), "full": (90,)},
    "end_to_end": {"plc": (86,)},
    "lac": {"lac": (84,), "plc": (89,)},
}


class Reader(html.parser.HTMLParser):
    """Collects tags, attributes and the text of the page; fails on a tag that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.images: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(" ".join(data.split()))

    @property
    def words(self) -> str:
        return " ".join(part for part in self.text if part)


@pytest.fixture(scope="module")
def built(whole: tuple[Path, Params], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reader]:
    root = tmp_path_factory.mktemp("built")
    shutil.copy(whole[0] / "params.yaml", root / "params.yaml")
    page.write(root, collect(*whole))
    return root / "report", Reader((root / "report/index.html").read_text(encoding="utf-8"))


def test_a_draw_of_several_labels_is_not_called_one(
    whole: tuple[Path, Params], built: tuple[Path, Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = ("One label per image", "one positive label per image", "one of them shown", "see one label per image")
    assert all(claim in " ".join([*built[1].text, built[1].words]) for claim in claims)
    monkeypatch.setattr(read, "ONE", None)  # as if params.yaml kept two
    words = Reader(page.build(collect(*whole)).html).words
    assert not [claim for claim in claims if claim in words]
    assert "Some labels per image" in words and "some of them shown" in words
    assert "shows some of its labels" in words and "the methods that see the known labels alone" in words


def test_the_page_asks_no_network_and_runs_no_script(built: tuple[Path, Reader]) -> None:
    folder, reader = built
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert "//" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"url\(|@import", text)
    tags = {tag for tag, _, _ in reader.attributes} | set(re.findall(r"<([a-z0-9]+)", text))
    assert not tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, name, value in reader.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "srcset", "action", "poster"):
            assert value.startswith(("data:image/png;base64,", "#")), (tag, value[:60])


def test_hostile_names_are_text(built: tuple[Path, Reader]) -> None:
    folder, reader = built
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert "<script" not in text and "<img src=x" not in text
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in text
    assert "<script>alert('x')</script>" in reader.words
    assert "<img src=x onerror=y>" in reader.words


def test_every_section_is_there_in_order_and_the_menu_leads_to_it(built: tuple[Path, Reader]) -> None:
    _, reader = built
    ids = [value for tag, name, value in reader.attributes if (tag, name) == ("section", "id")]
    assert ids == ["headline", "map", "curves", "wasserstein", "landscape", "audit", "lac", "data", "rest"]
    links = [value for tag, name, value in reader.attributes if (tag, name) == ("a", "href")]
    assert links == ["#headline", *(f"#{name}" for name in ids)]
    assert "Nothing is missing" in reader.words and "Nothing to show" not in reader.words
    assert "labelled in full" not in reader.words  # as is everything here


def test_images_are_described_and_tables_can_be_scrolled_by_keyboard(built: tuple[Path, Reader]) -> None:
    folder, reader = built
    alts = [value for tag, name, value in reader.attributes if (tag, name) == ("img", "alt")]
    sources = [value for tag, name, value in reader.attributes if (tag, name) == ("img", "src")]
    assert len(alts) == len(sources) == len(list((folder / "figures").iterdir())) and all(alts)
    regions = sum((name, value) == ("role", "region") for _, name, value in reader.attributes)
    focusable = sum(tag == "div" and name == "tabindex" for tag, name, _ in reader.attributes)
    assert regions == focusable > len(sources)
    assert ("html", "lang", "en") in reader.attributes


def test_the_page_says_what_the_numbers_say(built: tuple[Path, Reader]) -> None:
    _, reader = built
    for words in (
        "for full labels, 80% of the gap from AN to full labels. EM+APL is better than AN, by 20.0 points of test mAP",
        "Fine-tuning loses to the linear head that it started from, in test mAP, for 1 of 5 methods: IUN (-1.0 ± 0.0).",
        "These draws do not tell LAC and PLC trained on apart: +1.2 points of test mAP (95% interval ",
        "Plus-minus is the sample standard deviation over label draws. There is one training seed, so the spread",
        "bars one standard deviation and ticks single label draws",
        "Minus the highest",
        "-4.0 [-6.5 to -1.5]",
        "+16.0 [+16.0 to +16.0]",
        "0 of 3",
        "In brackets: the 95% interval of Student's t over draws",
        "40 training runs on digits, 3 label draws, 1 training seed:",
        "with at least 10 positives in both official lists: <script>alert('x')</script>, cat & dog",
        "queue_size = 0",
        "The epoch was chosen by val mAP with full labels",
        "Versions: torch 9.9.",
        "Warning while reading: test has no positive of absent in test",
        "Labels are drawn. There are 3 draws of digits; training seeds do not change them.",
        "draw 0 33.2%, draw 1 34.2%, draw 2 35.2%.",
        "one positive label per image",
    ):
        assert words in reader.words, words
    assert "85.0 ± 1.0" in reader.words and "70.8 ± 0.8" in reader.words


def test_the_data_say_what_is_believed_beside_what_is_true(
    whole: tuple[Path, Params], built: tuple[Path, Reader]
) -> None:
    (text,) = [each for each in built[1].text if each.startswith("Labels of a training image on average")]
    table = read_table(whole[0] / "data/prepare/digits/table.h5")
    labels = table.truth[table.rows("train")].sum() / len(table.rows("train"))
    said = [
        f"draw {draw} {2.5 + draw:.2f} (95 % interval {2.25 + draw:.2f} to {2.75 + draw:.2f}), "
        "the classes' shares off by 12.5 % of the images on average, with 5 of 6 true ones inside their interval"
        for draw in (0, 1, 2)
    ]
    start = "Labels of a training image on average, estimated from features and shown labels alone: "
    known = f"{'; '.join(said)}. In truth there are {labels:.2f}, in images that have a label."
    assert text.startswith(f"{start}{known} Of the labels that hidden.tsv names, ") and text.endswith(" are present.")


def test_figures_and_their_numbers_are_files(built: tuple[Path, Reader]) -> None:
    folder, _ = built
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert names <= {path.stem for path in (folder / "tables").iterdir()}
    assert {
        "digits-map",
        "digits-finetune-val_map",
        "digits-finetune-loss",
        "digits-landscape_2d",
        "digits-classes",
    } <= names
    for path in (folder / "figures").iterdir():
        assert Image.open(io.BytesIO(path.read_bytes())).format == "PNG"
    for path in (folder / "tables").iterdir():
        assert files.read_tsv(path), path


def test_curves_hold_a_column_a_method_for_dvc_plots(built: tuple[Path, Reader]) -> None:
    rows = files.read_tsv(built[0] / "tables/digits-finetune-val_map.tsv")
    assert list(rows[0]) == ["epoch", *(n for m in ("an", "em", "em_apl", "iun", "full") for n in (m, f"{m}_std"))]
    assert [row["epoch"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert float(rows[1]["an"]) == pytest.approx(66) and float(rows[5]["an"]) == pytest.approx(63)
    assert float(rows[5]["an_std"]) == pytest.approx(1)
    lac = files.read_tsv(built[0] / "tables/digits-lac-val_map.tsv")
    assert list(lac[0]) == ["epoch", "lac", "lac_std", "plc", "plc_std", "lac-no_queue"]


def test_summary_and_markdown(built: tuple[Path, Reader]) -> None:
    folder, _ = built
    record = json.loads((folder / "summary.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert record["digits"]["finetune"]["em_apl"]["gap_share"] == 80.0
    text = (folder / "summary.md").read_text(encoding="utf-8")
    assert "| digits | finetune | em_apl | 85.0 | 70.8 | 84.7 | 1.0 | – | 80 % | 3 | 3 | linear |" in text
    assert "| digits | lac | lac-no_queue | 88.5 |" in text
    assert "80% of the gap" in text and "- nothing" in text


def test_what_dvc_compares_is_a_few_numbers(whole: tuple[Path, Params], built: tuple[Path, Reader]) -> None:
    folder, _ = built
    record = json.loads((folder / "metrics.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    finetune = record["digits"]["finetune"]
    assert finetune["an"] == {"gap_share": 0.0, "std_draws": 1.0}  # it labels nothing
    assert finetune["full"] == {"gap_share": 100.0, "std_draws": 1.0, "minus_an": 25.0}
    assert finetune["em_apl"]["gap_share"] == 80.0
    audits = [json.loads(path.read_text()) for path in sorted((whole[0] / "analyses/audit").glob("*/audit.json"))]
    found = [run for audit in audits for run in audit["runs"] if run["stage"] == "finetune"]
    coverage = [run["chosen"]["coverage"] for run in found if run["method"] == "em_apl"]
    assert len(coverage) > 1 and finetune["em_apl"]["coverage"] == round(100 * sum(coverage) / len(coverage), 2)
    assert not any("gap_share" in numbers for numbers in record["digits"]["lac"].values())  # no AN there


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def small(project: Maker, tmp_path: Path) -> Path:
    root = tmp_path / "small"
    root.mkdir()
    project(root, Plan(draws=(0,), scores=SMALL))  # type: ignore
    return root


def test_the_stage_writes_the_same_bytes_in_another_process_and_removes_old_figures(
    small: Path, repository: Path
) -> None:
    report(small)
    first = _content(small / "report")
    files.write_bytes(small / "report/figures/digits-removed.png", b"old")
    files.write_tsv(small / "report/tables/digits-removed.tsv", [{"a": 1}])
    environment = os.environ | {"PYTHONPATH": str(repository), "PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1"}
    code = (
        "import runpy, sys; runpy.run_module('stages.report', run_name='__main__'); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=small, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert _content(small / "report") == first
    text = (small / "report/index.html").read_text(encoding="utf-8")
    assert (
        "LAC ends 5.0 points of test mAP below PLC trained on, measured on one label draw, which decides nothing"
        in text
    )
    assert str(small) not in text


def test_a_partial_page_names_what_is_missing(small: Path) -> None:
    for path in ("runs/finetune/digits-an-0-0", "analyses/landscape", "analyses/audit"):
        shutil.rmtree(small / path)
    with pytest.raises(FileError, match="runs/finetune/digits-an-0-0/metrics.json"):
        report(small)
    assert not (small / "report").exists()
    report(small, partial=True)
    reader = Reader((small / "report/index.html").read_text(encoding="utf-8"))
    assert "Partial page" in reader.words
    for words in (
        "runs/finetune/digits-an-0-0/epochs.tsv",
        "analyses/audit/digits-0-0/audit.json",
        "no run of an at this stage",
    ):
        assert words in reader.words
    assert reader.words.count("Nothing to show") == 2  # landscapes and audit
    assert not (small / "report/summary.json").exists()
    record = json.loads((small / "report/summary.partial.json").read_text())
    assert set(record["digits"]["finetune"]) == {"full"}
    assert record["digits"]["finetune"]["full"]["gap_share"] is None
    assert "`runs/finetune/digits-an-0-0/metrics.json`" in (small / "report/summary.md").read_text()


def test_a_partial_page_of_nothing(repository: Path, tmp_path: Path) -> None:
    shutil.copy(repository / "params.yaml", tmp_path / "params.yaml")
    report(tmp_path, partial=True)
    reader = Reader((tmp_path / "report/index.html").read_text(encoding="utf-8"))
    assert "Partial page" in reader.words
    assert (tmp_path / "report/figures").is_dir() and (tmp_path / "report/tables").is_dir()
    assert json.loads((tmp_path / "report/summary.partial.json").read_text()) == {}


def test_a_partial_page_leaves_the_summary_that_git_keeps(small: Path, repository: Path) -> None:
    report(small)
    before = (small / "report/summary.json").read_bytes()
    shutil.rmtree(small / "runs/finetune/digits-an-0-0")
    report(small, partial=True)
    assert (small / "report/summary.json").read_bytes() == before
    assert (small / "report/summary.partial.json").read_bytes() != before
    command = ["git", "check-ignore", "-q", "report/summary.partial.json"]
    assert subprocess.run(command, cwd=repository).returncode == 0


def test_the_page_says_where_the_average_was_chosen(small: Path) -> None:
    path = small / "runs/finetune/digits-full-0-0/metrics.json"
    files.write_json(path, files.read_json(path) | {"weights": "average"})
    rows = files.read_tsv(small / "runs/finetune/digits-full-0-0/epochs.tsv")
    kinds = [{"weights": "average" if row["epoch"] == "2" else "raw"} for row in rows]
    both = [row | kind for row, kind in zip(rows, kinds, strict=True)]
    files.write_tsv(small / "runs/finetune/digits-full-0-0/epochs.tsv", both)
    copies.sign(small)
    report(small)
    words = Reader((small / "report/index.html").read_text(encoding="utf-8")).words
    assert words.count("moving average of the weights was chosen, not the weights, for Full labels (1 of 1 run).") == 1
    assert words.count("moving average of the weights was chosen") == 1


def test_plots_are_files_that_the_report_stage_makes(built: tuple[Path, Reader], repository: Path) -> None:
    content = YAML(typ="safe", pure=True).load((repository / "dvc.yaml").read_text())
    outs = content["stages"]["report"]["outs"]
    paths = [item for item in content["plots"] if isinstance(item, str)]
    curves = {path: y for item in content["plots"] if isinstance(item, dict) for plot in item.values()
              for path, y in plot["y"].items()}  # fmt: skip
    assert paths and curves
    for path in [*paths, *curves]:
        assert any(path.startswith(f"{out}/") for out in outs), path
        assert (built[0].parent / path).is_file(), path
    grid = read_params(built[0].parent / "params.yaml").grid
    for path, y in curves.items():
        wanted = getattr(grid, y.removeprefix("${grid.").removesuffix("}"))
        assert {"epoch", *wanted} <= set(files.read_tsv(built[0].parent / path)[0]), path


def test_two_datasets_stand_under_their_names(project: Maker, tmp_path: Path) -> None:
    classes = tuple(f"class {n}" for n in range(40))
    scores: dict[str, Any] = {
        "linear_init": {"an": (60, 61), "full": (80, 81)},
        "finetune": {},
        "end_to_end": {},
        "lac": {},
    }
    plan = Plan(draws=(0,), seeds=(0, 1), scores=scores, variants={}, datasets=("digits", "voc"), classes=classes)
    made = page.build(collect(tmp_path, project(tmp_path, plan), partial=True))
    reader = Reader(made.html)
    assert set(made.summary) == {"digits", "voc"}
    assert {"digits-map", "voc-map"} <= set(made.files.figures)
    assert "named below" in reader.words and "class 39" in reader.words
    assert "Nothing to show" in reader.words  # the second stage was not run


def test_a_wrong_params_file_stops_the_stage(small: Path) -> None:
    text = (small / "params.yaml").read_text()
    (small / "params.yaml").write_text(text.replace("min_support", "least_support"))
    with pytest.raises(ConfigError, match="min_support"):
        report(small)
