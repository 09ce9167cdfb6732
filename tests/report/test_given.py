"""The page of data whose labels are not exhaustive."""

import base64
import io
import json
import re
import statistics
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.config.params import Params
from pipeline.core import files, hdf5
from pipeline.core.errors import FileError
from pipeline.labels.implications import Rules
from pipeline.labels.table import Table, read_table
from pipeline.report import analyses, counts, figures, findings, frames, page, record, text
from pipeline.report.frames import Results
from pipeline.report.read import Collected, collect
from tests.report.project import Plan, make_project
from tests.report.test_page import Reader
from tests.review.webdriver import BROWSER, DRIVER, Browser

MARK = "against the given labels; unknown counted absent"
SCORES: dict[str, Any] = {
    "linear_init": {"an": (60, 61), "em_apl": (58, 58), "full": (62, 62)},
    "finetune": {"an": (64, 65), "em_apl": (57, 56), "full": (61, 62)},
    "end_to_end": {"plc": (55, 56)},
    "lac": {"lac": (58, 59), "plc": (57, 57)},
}


@pytest.fixture(scope="module")
def project(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Params]:
    root = tmp_path_factory.mktemp("given")
    plan = Plan(draws=(0,), seeds=(0, 1), scores=SCORES, variants={}, given=("digits",))
    return root, make_project(root, repository / "params.yaml", plan)


@pytest.fixture(scope="module")
def collected(project: tuple[Path, Params]) -> Collected:
    return collect(*project)


@pytest.fixture(scope="module")
def result(collected: Collected) -> Results:
    return frames.measure(collected)["digits"]


@pytest.fixture(scope="module")
def table(project: tuple[Path, Params]) -> Table:
    return read_table(project[0] / "data/prepare/digits/table.h5")


@pytest.fixture(scope="module")
def built(collected: Collected) -> tuple[page.Report, Reader]:
    made = page.build(collected)
    return made, Reader(made.html)


def _sections(html: str) -> dict[str, str]:
    """The words of each section by its anchor."""
    parts = html.split('<section id="')[1:]
    return {part[: part.index('"')]: Reader(f'<section id="{part.partition("</section>")[0]}</section>').words
            for part in parts}  # fmt: skip


def test_every_table_of_scores_and_every_sentence_about_them_is_marked(built: tuple[page.Report, Reader]) -> None:
    made, reader = built
    sections = _sections(made.html)
    assert f"Scores of digits are {MARK}." in reader.words.partition("1 What was run")[0]
    for caption in (
        "Test mAP of both stages, digits",
        "Linear head, backbone frozen, digits",
        "Fine-tuned from that head, digits",
        "Second stage, digits",
    ):
        assert f"{caption} ({MARK})" in sections["map"], caption
    titles = [line for line in made.html.splitlines() if line.startswith("<caption") and MARK in line]
    assert len(titles) == 6 and not any("aloud" in line for line in titles)
    assert f"LAC against its rivals on digits, points of mAP ({MARK})" in sections["lac"]
    alts = [value for tag, name, value in reader.attributes if (tag, name) == ("img", "alt")]
    scores = [alt for alt in alts if "mAP" in alt]
    assert len(scores) == 5 and all(MARK in alt for alt in scores)
    for section in ("headline", "map", "lac"):
        for sentence in sections[section].replace(f"({MARK})", f"[{MARK}]").split(". "):
            if "test mAP" in sentence:
                assert MARK in sentence, sentence
    captions = [line for line in re.findall("<figcaption>.*?</figcaption>", made.html, re.DOTALL) if "mAP" in line]
    assert captions and all(MARK in line for line in captions)


def test_the_summaries_are_marked_and_no_gap_is_invented(built: tuple[page.Report, Reader]) -> None:
    made, _ = built
    record = json.loads(json.dumps(made.summary, allow_nan=False))["digits"]
    for stage, methods in SCORES.items():
        for method, values in methods.items():
            entry = record[stage][method]
            assert entry["scores"] == {"val": MARK, "test": MARK} and entry["test_map"]["mean"] == pytest.approx(
                statistics.mean(values)
            )
            assert entry["gap_share"] is None
            assert entry["gap_share_reason"] == "the labels of digits are not exhaustive, so no method saw full labels"
    rows = [line for line in made.markdown.splitlines() if line.startswith("| digits")]
    assert len(rows) == 9 and all(line.startswith(f"| digits ({MARK}) |") for line in rows)


def test_what_needs_truth_says_what_was_not_measured_and_what_to_do(built: tuple[page.Report, Reader]) -> None:
    sections = _sections(built[0].html)
    for name in ("headline", "audit", "rest"):
        assert "Not measured on digits: " in sections[name], name
        assert "nobody knows which of its unknown training labels are present" in sections[name]
    words = built[1].words
    advice = "Label a small sample of the images in full and make it val and test"
    assert advice in sections["headline"] and words.count(advice) == 1
    assert words.count("“How to get true scores” in section 1") == 3  # the head of the page, mAP and curves
    assert "with “exhaustive: false”" in sections["headline"] and "exhaustive: true" not in words
    assert sum(advice in line for line in built[0].markdown.splitlines()) == 1
    made = {*built[0].files.figures, *built[0].files.tables}
    assert not [name for name in made if "wasserstein" in name or "calibration" in name]
    assert "digits-landscape_1d" in made and "digits-landscape_2d" in made
    reason = "the labels of digits are not exhaustive: what is hidden is not known"
    assert f"No Wasserstein distance of any class: {reason}." in sections["rest"]
    assert f"(second stage): {reason}." in sections["rest"].partition("No pseudo-label audit of AN (linear head)")[2]


def test_nothing_on_the_page_claims_what_only_truth_could_show(built: tuple[page.Report, Reader]) -> None:
    words = built[1].words
    for claim in (
        *("of the gap", "is best of the methods", "Full labels", "full labels teach", "Base rate", "in truth present"),
        *("false negatives", "one of them shown", "one positive of each image", "sees all labels", "fitting its"),
    ):
        assert claim not in words, claim
    assert "All given labels" in words and "Nothing is drawn: given." in words
    assert 'class="best"' not in built[0].html


def test_no_band_is_drawn_up_to_a_ceiling_that_is_none(collected: Collected, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = [], figures.scores
    monkeypatch.setattr(
        figures, "scores", lambda frame, looks, **more: drawn.append(more) or draw(frame, looks, **more)
    )
    page.build(collected)
    assert [more["truth"] for more in drawn] == [False]


def test_cards_count_given_and_unknown_labels(built: tuple[page.Report, Reader], table: Table) -> None:
    train = table.rows("train")
    unknown = sum(not table.scored[row, c] for row in train for c in range(len(table.classes)))
    words = _sections(built[0].html)["headline"]
    assert f"{100 * unknown / (len(train) * len(table.classes)):.1f}%" in words
    assert "of the training labels are unknown; how many are present was not measured" in words
    assert "present labels given per training image" in words


def test_what_rules_make_known_is_told_apart_from_what_was_given(collected: Collected, table: Table) -> None:
    first = table.classes[0]
    implied = {"made_present": 3, "made_absent": 2, "classes": {first: {"made_present": 3, "made_absent": 2}}}
    (about,) = collected.datasets
    simulate = {draw: report | {"implied": implied} for draw, report in about.simulate.items()}
    ruled = replace(table, rules=Rules({first: (table.classes[1],)}, ()), implied=np.zeros(table.truth.shape, bool))
    changed = replace(about, table=ruled, simulate=simulate)
    made = page.build(replace(collected, datasets=(changed,)))
    assert "present labels given or implied by rules per training image" in _sections(made.html)["headline"]
    assert "Of these known by rules" in made.html
    assert dict(counts.classes(changed)[["class", "by_rules"]].to_numpy())[first] == 5
    assert "by_rules" not in counts.classes(about)


def test_pseudo_labels_and_beliefs_are_counted_over_unknown_cells(
    project: tuple[Path, Params], result: Results, table: Table
) -> None:
    unknown, values = ~table.scored[table.rows("train")], {"absent": [], "believed": []}
    for seed in (0, 1):
        with hdf5.read(project[0] / f"runs/finetune/digits-em_apl-0-{seed}/labels.h5") as file:
            labels, belief = file["pseudo_label"][1], file["belief"][()]  # pyright: ignore  the chosen epoch is 2
        values["absent"].append((labels[unknown] == -1).sum() / unknown.sum())
        values["believed"].append((belief[unknown] > 0.5).sum() / unknown.sum())
    rows = {(row["stage"], row["method"]): row for row in frames.records(analyses.without_truth(result))}
    row = rows["finetune", "em_apl"]
    for name, each in values.items():
        assert row[name] == pytest.approx(np.mean(each)) and row[name] > 0, name
    assert row["present"] == 0 and row["unknown"] == unknown.sum()
    assert rows["finetune", "an"]["absent"] is None and rows["finetune", "an"]["believed"] == 0
    classes = analyses.pseudo_classes(result)
    classes = classes[(classes["stage"] == "finetune") & (classes["method"] == "em_apl")]
    for c, found in enumerate(frames.records(classes)):
        assert found["unknown"] == 2 * unknown[:, c].sum()
        assert (found["accuracy"], found["base"], found["hidden_positives"], found["found"]) == (None,) * 4


def test_the_likeliest_missed_labels_of_the_first_seed_are_shown(
    built: tuple[page.Report, Reader], project: tuple[Path, Params], result: Results
) -> None:
    rows = files.read_tsv(project[0] / "analyses/audit/digits-0-0/missed_by_run.tsv")
    mine = [row for row in rows if (row["stage"], row["key"]) == ("finetune", "digits-em_apl-0-0")]
    found = dict(frames.by_arm(analyses.missed(result)))["finetune", "em_apl", ""]
    assert list(zip(found["path"], found["class"], strict=True)) == [(row["path"], row["class"]) for row in mine]
    words = _sections(built[0].html)["missed"]

    def belief(row: dict[str, str]) -> str:
        """Outside of training the method has none, and the network's probability stands alone."""
        return f"{float(row['belief'] or row['probability']):.3f}"

    after = words.partition("EM+APL, fine-tuned Image Class Belief Probability ")[2]
    expected = [f"{row['path']} {row['class']} {belief(row)}" for row in mine[:10]]
    place = 0
    for line in expected:
        place = after.index(line, place) + 1
    following = f"{mine[10]['path']} {mine[10]['class']} {belief(mine[10])}"
    assert following not in after.partition("Image Class Belief")[0]


def test_missed_labels_stand_open_near_the_top_with_what_is_given(
    built: tuple[page.Report, Reader], result: Results, table: Table
) -> None:
    html = built[0].html
    assert list(_sections(html))[:3] == ["headline", "missed", "map"]
    part = html[html.index('<section id="missed"') :].partition("<details>")[0]
    rows = analyses.agreed(analyses.missed(result)).to_dict("records")
    assert len(rows) > 12 and part.count('<th scope="row"') == 12
    place = 0
    for row in rows[:12]:
        labels = table.truth[table.paths.index(row["path"])]
        (given,) = (name for name, value in zip(table.classes, labels, strict=True) if value)
        quoted = escape(given, quote=False).replace("'", "&#39;").replace('"', "&#34;")  # as Jinja writes them
        text = f"{row['path']} <small>labelled {quoted}</small>"
        place = part.index(text, place) + 1
    assert len(built[0].files.tables["digits-missed_agreed"]) == len(rows)


def _pictures(root: Path, count: int) -> None:
    """Row n is one grey of its own: 3 * n."""
    pixels = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None] * 3, (count, 8, 8, 3))
    with hdf5.create(root / "data/prepare/digits/images.h5") as file:
        hdf5.write_array(file, "pixels", pixels, axes="image, height, width, channel (RGB)", units="0 to 255")


def test_packed_pictures_are_shown_small_beside_missed_labels(
    project: tuple[Path, Params], table: Table, built: tuple[page.Report, Reader]
) -> None:
    root, params = project
    packed = root / "data/prepare/digits/images.h5"
    try:
        _pictures(root, 72)
        html = page.build(collect(root, params)).html
        _pictures(root, 71)
        (lost,) = collect(root, params, partial=True).missing
        packed.write_bytes(b"no HDF5")
        with pytest.raises(FileError, match="data/prepare/digits/images.h5"):
            collect(root, params)
    finally:
        packed.unlink()
    assert lost.path.endswith("digits/images.h5") and "71 pictures for 72 rows" in lost.reason
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)" width="72" height="72" alt="">([^ ]+) <small>', html)
    assert len(found) == 36
    for data, path in found:
        image = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
        assert image.shape == (72, 72, 3) and abs(image.mean() - 3 * table.paths.index(path)) < 2
    assert "image/jpeg" not in built[0].html and len(html) - len(built[0].html) < 200_000


def test_sections_without_content_are_lines_of_the_last(collected: Collected) -> None:
    few = replace(collected, landscapes=(), runs=tuple(run for run in collected.runs if run.stage != "lac"))
    sections = _sections(page.build(few).html)
    assert list(sections) == ["headline", "missed", "map", "curves", "audit", "data", "rest"]
    for line in (
        "Separation: Not measured on digits: ",
        "Landscapes: Nothing to show: params.yaml asks for no such runs.",
        "Second stage: Nothing to show: params.yaml asks for no such runs.",
    ):
        assert line in sections["rest"], line


def test_without_runs_nothing_is_said_of_scores(collected: Collected) -> None:
    words = Reader(page.build(replace(collected, runs=(), audits=(), wasserstein=())).html).words
    assert "labelled in full" not in words and MARK not in words and "How to get true scores" not in words


def test_data_of_ones_own_have_no_official_lists(
    project: tuple[Path, Params], built: tuple[page.Report, Reader]
) -> None:
    root, params = project
    block = params.prepare["digits"]
    for source, own in (("voc", False), ("json", True), ("folder", True), ("csv", True)):
        found = collect(root, params.model_copy(update={"prepare": {"digits": block | {"source": source}}}))
        assert found.datasets[0].own == own, source
    assert "fficial" not in Reader(page.build(found).html).words
    assert "in both official lists" in built[1].words and "Official test list" in built[1].words


def test_beside_other_data_only_these_scores_are_marked(repository: Path, tmp_path: Path) -> None:
    scores = {"linear_init": SCORES["linear_init"], "finetune": {}, "end_to_end": {}, "lac": {}}
    plan = Plan(draws=(0,), scores=scores, variants={}, datasets=("digits", "voc"), given=("digits",))
    params = make_project(tmp_path, repository / "params.yaml", plan)
    made = page.build(collect(tmp_path, params))
    assert made.summary["digits"]["linear_init"]["an"]["scores"] == {"val": MARK, "test": MARK}
    assert "scores" not in made.summary["voc"]["linear_init"]["an"]
    assert made.summary["voc"]["linear_init"]["em_apl"]["gap_share"] == -100.0  # (58 - 60) / (62 - 60)
    rows = [line for line in made.markdown.splitlines() if line.startswith(("| digits", "| voc"))]
    assert {line[: line.index("|", 2)] for line in rows} == {f"| digits ({MARK}) ", "| voc "}
    assert "voc-linear_init-wasserstein" in made.files.figures
    assert "digits-linear_init-wasserstein" not in made.files.figures
    sections = _sections(made.html)
    assert "Not measured on digits" in sections["wasserstein"] and "curve of each" not in sections["wasserstein"]
    assert "digits" in sections["missed"] and "voc" not in sections["missed"]
    words = Reader(made.html).words
    assert "Full labels" in words and "All given labels" in words and f"Scores of voc are {MARK}" not in words


def scored_by(collected: Collected, val: str, test: str) -> Collected:
    """The same runs, as if each split had been scored by these labels."""
    given = tuple(split for split, labels in (("val", val), ("test", test)) if labels == "given")
    return replace(collected, runs=tuple(replace(run, given=given) for run in collected.runs))


def test_scores_against_full_labels_need_no_mark(collected: Collected) -> None:
    """As where val and test were labelled fully."""
    full = scored_by(collected, "clean", "clean")
    result = frames.measure(full)["digits"]
    assert not result.given and "scores" not in record.summary([result])["digits"]["finetune"]["an"]
    said = "\n".join(findings.findings(result))
    assert MARK not in said and "Not measured on digits" in said
    # of AN 60.5
    assert (
        "With a linear head, on one label draw, no method that sees the same labels scores above AN in test mAP: 58.0"
        in said
    )
    made = page.build(full)
    sections, words = _sections(made.html), Reader(made.html).words
    said = "Val and test of digits are labelled in full: these scores are true ones."
    assert words.count(said) == 3 and said in sections["headline"] and said in sections["map"]
    for claim in ("Label a small sample", "How to get true scores", "as far as they can say it", MARK, "full labels"):
        assert claim not in words, claim
    for name in ("headline", "audit", "rest"):  # of train nobody knows
        assert "Not measured on digits: " in sections[name], name


def test_each_split_is_marked_by_itself(collected: Collected) -> None:
    """As where test was labelled fully, and val was not."""
    made = page.build(scored_by(collected, "given", "clean"))
    sections, reader = _sections(made.html), Reader(made.html)
    assert made.summary["digits"]["finetune"]["an"]["scores"] == {"val": MARK}
    said = f"Val scores of digits are {MARK}"
    assert (
        said in reader.words.partition("1 What was run")[0] and said in sections["headline"] and said in sections["map"]
    )
    assert f"Scores of digits are {MARK}" not in reader.words
    # a table that has both splits says which; what is of one alone is marked where that is the one
    assert f"Linear head, backbone frozen, digits (val {MARK})" in sections["map"]
    assert f"LAC against its rivals on digits, points of mAP (val {MARK})" in sections["lac"]
    assert "Test mAP of both stages, digits Method" in sections["map"]
    assert all(line.startswith("| digits |") for line in made.markdown.splitlines() if line.startswith("| digits"))
    alts = [value for tag, name, value in reader.attributes if (tag, name) == ("img", "alt")]
    marked = {alt.startswith("Val"): f"({MARK})" in alt for alt in alts if "mAP" in alt}
    assert marked == {True: True, False: False}
    assert 'class="best"' in made.html
    assert "Test of digits is labelled in full: its scores are true ones." in sections["map"]
    assert "Label a small sample" in sections["headline"]


def test_where_val_alone_was_labelled_fully_test_scores_are_marked(collected: Collected) -> None:
    result = frames.measure(scored_by(collected, "clean", "given"))["digits"]
    assert record.summary([result])["digits"]["finetune"]["an"]["scores"] == {"test": MARK}
    full, first, *others = findings.findings(result)
    assert full == "Val of digits is labelled in full: its scores are true ones."
    assert first.startswith(f"Test scores of digits are {MARK}: ")
    assert others and not any("mAP" in words for words in others)  # given labels say of no network that it is better


@pytest.mark.slow
@pytest.mark.skipif(not (BROWSER and DRIVER), reason="no Chromium with its driver here")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_list_of_missed_labels_fits_a_phone(built: tuple[page.Report, Reader], tmp_path: Path, width: int) -> None:
    """Also with long names of files, and all boxes open."""
    long = r"\1summer_holiday/IMG_20250704_123456_\2"
    html = re.sub(r'(scope="row" class="words">(?:<img[^>]*>)?)([^<]+ <small>)', long, built[0].html)
    assert html.count("IMG_20250704_") > 10
    file = tmp_path / "report.html"
    file.write_text(html.replace("<body>", '<body data-ready="yes">').replace("<details>", "<details open>"))
    with Browser(tmp_path) as browser:
        browser.open(file.as_uri(), width)
        cut = "Array.from(document.querySelectorAll('#missed .scroll'), box => box.scrollWidth - box.clientWidth)"
        assert set(browser.run(f"return {cut}")) == {0}
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


# ---------------------------------------------------------------------------------------------- what orders the rows
def names_of(html: str, caption: str) -> list[str]:
    """The names of the rows of a table."""
    table = re.split(f"<caption[^>]*>{escape(caption)}", html)[1].partition("</table>")[0]
    return [name.strip() for name in re.findall(r'<th scope="row" class="words">([^<]*)', table)]


def test_rows_stand_in_the_order_in_which_they_rank_shown_labels(collected: Collected, result: Results) -> None:
    assert result.order("finetune") == "shown_score"  # which turns that of the scores around
    assert result.ranked("finetune")["method"].tolist() == ["em_apl", "full", "an"]
    built = page.build(collected)
    assert names_of(built.html, "Fine-tuned from that head, digits") == ["EM+APL", "All given labels", "AN"]
    assert names_of(built.html, "Test mAP of both stages, digits") == ["EM+APL", "All given labels", "AN"]
    sections = _sections(built.html)
    assert (
        "Rows stand in the order of “Shown labels”" in sections["map"] and "highest mean first" not in sections["map"]
    )
    for claim in ("is better than", "ends below", "scores highest", "worse"):
        assert claim not in sections["headline"] + sections["lac"], claim
    assert record.summary([result])["digits"]["finetune"]["an"]["paired"] == {}
    full = page.build(scored_by(collected, "clean", "clean"))
    assert names_of(full.html, "Fine-tuned from that head, digits") == ["AN", "All given labels", "EM+APL"]
    assert "Rows stand" not in full.html


def test_what_dvc_compares_is_how_well_shown_labels_are_ranked(collected: Collected, result: Results) -> None:
    runs = [run for run in collected.runs if (run.stage, run.method) == ("finetune", "em_apl")]
    mean = sum(run.shown_score or 0 for run in runs) / len(runs)
    numbers = record.compared([result])["digits"]["finetune"]["em_apl"]
    assert numbers["train_score_by_shown_labels"] == round(mean, 2)
    assert "gap_share" not in numbers and "minus_an" not in numbers
    mixed = tuple(replace(run, shown_images="val" if run.seed else "train") for run in collected.runs)
    uneven = record.compared([frames.measure(replace(collected, runs=mixed))["digits"]])
    assert "score_by_shown_labels" not in str(uneven) or len({run.seed for run in collected.runs}) == 1
    full = record.compared([frames.measure(scored_by(collected, "clean", "clean"))["digits"]])
    assert "score_by_shown_labels" not in str(full)


@pytest.mark.parametrize("change", [{"shown_images": "val"}, {"shown_score": None}])
def test_rows_stand_by_name_where_nothing_compares_them(collected: Collected, change: dict[str, Any]) -> None:
    runs = tuple(replace(run, **change) if run.method == "em_apl" else run for run in collected.runs)
    result = frames.measure(replace(collected, runs=runs))["digits"]
    assert result.order("finetune") == "name"
    assert result.ranked("finetune")["method"].tolist() == ["an", "em_apl", "full"]
    sections = _sections(page.build(replace(collected, runs=runs)).html)
    assert "Rows stand by name" in sections["map"]


def test_the_list_of_hidden_labels_is_linked_and_said_to_be_unsure(built: tuple[page.Report, Reader]) -> None:
    made, reader = built
    links = [value for tag, name, value in reader.attributes if (tag, name) == ("a", "href")]
    assert "../data/beliefs/digits-0/hidden.tsv" in links
    missed = _sections(made.html)["missed"]
    assert "How often such beliefs are right was not measured here: nobody knows the truth." in missed


OF_FITS = ("closed-form fits", "a head that has seen what each image shows", "right in a third of all cases")
"""What is true of the beliefs that the stage fits, and of nobody else's."""


@pytest.mark.parametrize("named", [0, 3])
@pytest.mark.parametrize(
    "report", [{"kind": "fits"}, {"kind": "file", "file": "theirs.csv"}], ids=lambda it: it["kind"]
)
def test_the_list_of_hidden_labels_says_whose_it_is(report: dict[str, str], named: int) -> None:
    words, theirs = text.say("hidden_list", named, report), report["kind"] == "file"
    wanted = [not theirs and (named > 0 or each == OF_FITS[-1]) for each in OF_FITS]
    assert [each in words for each in OF_FITS] == wanted
    by_them = "the 3 labels that are present rather than absent by theirs.csv and what is shown"
    assert words.startswith(by_them) == (theirs and named > 0)
    assert "nobody knows the truth" in words and words.endswith("in which order to look, not how sure to be.")


def test_nothing_on_the_page_calls_somebodys_beliefs_fits(collected: Collected) -> None:
    about = collected.datasets[0]
    report = {**about.beliefs[0], "kind": "file", "file": "their <i>.csv"}
    made = page.build(replace(collected, datasets=(replace(about, beliefs={0: report}),)))
    words = Reader(made.html).words
    assert not [each for each in (*OF_FITS, "estimated from features") if each in words] and "<i>" not in made.html
    assert "estimated from their <i>.csv and shown labels alone" in words
    assert "rather than absent by their <i>.csv and what is shown" in words


def test_thresholds_are_shown_without_a_score(built: tuple[page.Report, Reader]) -> None:
    made, _ = built
    assert "digits-f1" not in made.files.tables and "F1 on test by threshold" not in made.html
    rows = made.files.tables["digits-thresholds"]
    assert len(rows) == 9 * 2 * 6  # arms, seeds and classes
    assert "12 held-out images show it: too few to find 95 % of it" in _sections(made.html)["audit"]


def test_words_are_marked_before_their_full_stop() -> None:
    assert text.marked("A is above B.", ["test"]) == f"A is above B ({MARK})."
    assert text.marked("mAP", ["val", "test"]) == f"mAP ({MARK})" and text.marked("mAP.", []) == "mAP."
    assert text.marked("mAP.", ["val"]) == "mAP." and text.marked("mAP", ["val"], ["val"]) == f"mAP ({MARK})"
    assert text.marked("mAP.", ["val"], ["val", "test"]) == f"mAP (val {MARK})."
