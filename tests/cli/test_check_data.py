"""``spml check-data``: every kind of fault is named in one run, equal pictures are found, nothing is written."""

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from ruamel.yaml import YAML

from pipeline.cli import check_data, inspect_data, main
from pipeline.core.errors import ConfigError
from pipeline.core.files import write_json
from tests.trees import PICTURES, write_files

CUT = {
    "size": 8,
    **PICTURES,
    "val_fraction": 0.25,
    "split_seed": 1200,
}
BLOCKS = {
    "voc": {"source": "voc", "root": "raw", "labels": "lists", "difficult": "negative", "classes": None} | CUT,
    "nus": {"source": "nus", "root": "raw", "layout": "official", "classes": None} | CUT,
    "cub": {"source": "cub", "root": "raw", "least_certainty": 1} | CUT,
    "csv": {
        **{"source": "csv", "root": "raw", "file": "labels.csv", "delimiter": "comma", "path_column": "image"},
        **{"labels": {"kind": "columns", "zero": "absent", "minus_one": "absent", "empty": "absent"}},
        **{"split_column": "split", "group_column": None, "exhaustive": True, "classes": None},
        **{
            "size": 8,
            **PICTURES,
            "val_fraction": 0.0,
            "test_fraction": 0.0,
            "split_seed": 1,
            "unlabelled": None,
        },
    },
}
TRUTH = {  # name -> cat, dog; the first four for training, of which one becomes val
    **{"a0": (1, 0), "a1": (1, 1), "a2": (0, 1), "a3": (1, 1)},
    **{"b0": (1, 0), "b1": (0, 1), "b2": (1, 1)},
}
TRAIN, TEST = [name for name in TRUTH if name[0] == "a"], [name for name in TRUTH if name[0] == "b"]


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def pixels(seed: int, height: int = 24, width: int = 30) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def write(file: Path, text: str) -> None:
    write_files(file.parent, file.name, content=text)


def voc(raw: Path) -> dict[str, Path]:
    for part, names in (("train", TRAIN), ("val", TEST)):
        write(raw / f"ImageSets/Main/{part}.txt", "".join(f"{name}\n" for name in names))
        for column, label in enumerate(("cat", "dog")):
            lines = (f"{name} {2 * TRUTH[name][column] - 1:2d}\n" for name in names)
            write(raw / f"ImageSets/Main/{label}_{part}.txt", "".join(lines))
    return {name: raw / f"JPEGImages/{name}.jpg" for name in TRUTH}


def nus(raw: Path) -> dict[str, Path]:
    for part, names in (("Train", TRAIN), ("Test", TEST)):
        write(raw / f"ImageList/{part}Imagelist.txt", "".join(f"sea\\{name}.jpg\n" for name in names))
        for column, label in enumerate(("cat", "dog")):
            lines = (f"{TRUTH[name][column]} \n" for name in names)
            write(raw / f"Groundtruth/TrainTestLabels/Labels_{label}_{part}.txt", "".join(lines))
    return {name: raw / f"Flickr/sea/{name}.jpg" for name in TRUTH}


def cub(raw: Path) -> dict[str, Path]:
    ids = {name: number for number, name in enumerate(TRUTH, start=1)}
    write(raw / "attributes.txt", "1 cat\n2 dog\n")
    write(raw / "images.txt", "".join(f"{number} 001.Bird/{name}.jpg\n" for name, number in ids.items()))
    write(raw / "train_test_split.txt", "".join(f"{number} {int(name in TRAIN)}\n" for name, number in ids.items()))
    lines = (f"{ids[name]} {c + 1} {TRUTH[name][c]} 4 1.0\n" for name in TRUTH for c in (0, 1))
    write(raw / "attributes/image_attribute_labels.txt", "".join(lines))
    return {name: raw / f"images/001.Bird/{name}.jpg" for name in TRUTH}


def csv(raw: Path) -> dict[str, Path]:
    split = {name: "test" if name in TEST else "val" if name == "a3" else "train" for name in TRUTH}
    rows = (f"{name}.jpg,{split[name]},{labels[0]},{labels[1]}\n" for name, labels in TRUTH.items())
    write(raw / "labels.csv", "image,split,cat,dog\n" + "".join(rows))
    return {name: raw / f"{name}.jpg" for name in TRUTH}


TREES: dict[str, Callable[[Path], dict[str, Path]]] = {"voc": voc, "nus": nus, "cub": cub, "csv": csv}


@pytest.fixture(scope="module")
def params(repository: Path) -> dict:
    """The repository's params.yaml with one method: a small file is read fast."""
    params = YAML(typ="safe", pure=True).load((repository / "params.yaml").read_text())
    fixed = {
        "datasets": ["digits"],
        "draws": [0],
        "seeds": [0],
        "linear_init": ["an"],
        "lac_start": "plc",
        "landscape_stage": "finetune",
    }
    params["grid"] = {key: fixed.get(key, []) for key in params["grid"]}
    params["variants"] = {key: {} for key in params["variants"]}
    return params


@pytest.fixture
def project(tmp_path: Path, params: dict, monkeypatch: pytest.MonkeyPatch):
    """A project with one dataset `pets` of a source, and its picture files by name; it is the working folder."""
    monkeypatch.chdir(tmp_path)

    def make(source: str, /, **changes) -> dict[str, Path]:
        scenes = {"source": "digits", "train": 30, "val": 20, "test": 20, "size": 48, "seed": 0}
        prepare = {"digits": scenes, "pets": BLOCKS[source] | changes}
        Path("params.yaml").write_text(json.dumps(params | {"prepare": prepare}))
        files = TREES[source](Path("raw"))
        for seed, file in enumerate(files.values()):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encoded(pixels(seed), "JPEG"))
        return files

    return make


def checked() -> dict:
    return inspect_data.inspect(Path("."), "pets", progress=False)


# ---------------------------------------------------------------------------------------------- faults
@pytest.mark.parametrize("source", TREES)
@pytest.mark.parametrize("bad_images", ["stop", "drop"])
def test_a_clean_tree_is_clean(project, source, bad_images):
    project(source, bad_images=bad_images)
    before = {path: path.stat().st_mtime_ns for path in Path(".").rglob("*")}
    report = checked()
    assert report["faults"] == [] and (report["images"], report["classes"]) == (7, 2)
    assert report["equal_pictures"] == [] and report["in_no_row"] == [] and report["notes"] == {}
    assert check_data.is_clean(report, strict=False)
    assert {path: path.stat().st_mtime_ns for path in Path(".").rglob("*")} == before  # nothing is written


@pytest.mark.parametrize("source", TREES)
@pytest.mark.parametrize("bad_images", ["stop", "drop"])
def test_every_unusable_picture_is_named_with_its_reason(project, source, bad_images):
    files = project(source, bad_images=bad_images)
    files["a0"].write_bytes(files["a0"].read_bytes()[:-200])
    files["b1"].write_text("<html>gone</html>")
    files["a2"].unlink()
    report = checked()
    assert len(report["faults"]) == 3 and report["images"] == 7
    for name, reason in (("a0", "truncated"), ("a2", "cannot be read (No such file"), ("b1", "a web page")):
        (line,) = [line for line in report["faults"] if f"{name}.jpg" in line]
        assert reason in line
    assert not check_data.is_clean(report, strict=False)


LISTS = {  # a fault of the lists: file, what becomes of it, words of the message
    "voc": ("ImageSets/Main/cat_train.txt", lambda text: text.replace("a1  1", "a1  7"), "'7'"),
    "nus": ("Groundtruth/TrainTestLabels/Labels_dog_Test.txt", lambda text: text + "0\n", "Labels_dog_Test.txt (4)"),
    "cub": ("train_test_split.txt", lambda text: text.replace("2 1\n", "2 no\n"), "'2 no'"),
    "csv": ("labels.csv", lambda text: text.replace("a1.jpg,train,1", "a1.jpg,train,yes!"), "'yes!'"),
}


@pytest.mark.parametrize("source", LISTS)
def test_faults_of_lists_and_of_pictures_are_told_in_one_run(project, source):
    files = project(source)
    file, change, words = LISTS[source]
    write(Path("raw", file), change(Path("raw", file).read_text()))
    files["a0"].write_bytes(b"")
    files["b1"].write_bytes(files["b1"].read_bytes()[:-200])
    files["a2"].unlink()
    report = checked()
    assert report["images"] == 0 and report["statistics"] == []
    left = "  counts and equal pictures were not checked, since the lists cannot be read"
    assert list(check_data.format_report(report, strict=False))[-4:-1] == ["Not checked", left, ""]
    told = [words, "a0.jpg: empty file", "b1.jpg: ", "a2"]
    assert len(report["faults"]) == len(told)
    for part in told:
        assert sum(part in line for line in report["faults"]) == 1, part
    (line,) = [line for line in report["faults"] if "a2" in line]
    assert "have no" in line and not re.search(r"\bof \d|\b\d+ images", line)  # one line, one picture: no count


def test_faults_are_told_one_by_one_however_many(project):
    files = project("csv")
    rows = "".join(f"gone_{row}.jpg,train,1,0\n" for row in range(30))
    write(Path("raw/labels.csv"), Path("raw/labels.csv").read_text() + rows + "a0.jpg,test,1,0\n")
    report = checked()
    assert "labels.csv: paths have no picture file: " in report["faults"][1]
    assert sum("gone_" in line for line in report["faults"]) == 30 and len(report["faults"]) == 31
    write(Path("raw/labels.csv"), Path("raw/labels.csv").read_text().replace("a0.jpg,test,1,0\n", ""))
    assert len([line for line in checked()["faults"] if "gone_" in line and "cannot be read" in line]) == 30
    for file in files.values():
        file.write_bytes(b"no picture")
    report = checked()
    assert len(report["faults"]) == 37 and report["notes"] == {}
    lines = list(check_data.format_report(report, strict=False))
    assert lines[0] == "pets: source csv, 37 images, 2 classes; settings: params.yaml"
    assert "  counts and equal pictures were not checked, since no picture can be used" in lines


def test_a_split_that_serves_for_nothing_is_a_fault(project):
    files = project("csv")
    for name in TEST:
        files[name].write_bytes(b"")
    assert [line for line in checked()["faults"] if "empty file" not in line] == ["test: no image can be used"]
    project("csv")
    write(Path("raw/labels.csv"), Path("raw/labels.csv").read_text().replace("a3.jpg,val,1,1", "a3.jpg,val,0,0"))
    report = checked()
    assert report["faults"] == ["val: no image has a positive label"]
    assert "val: 1 image without a positive label" in report["warnings"]
    assert "val: no positive of cat, dog" in report["warnings"]


def test_a_folder_that_is_not_there_is_a_fault(project):
    project("voc", root="nowhere")
    (fault,) = checked()["faults"]
    assert "no folder" in fault and "nowhere" in fault


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"source": "moon"}, "no file pipeline/sources/moon.py"), ({"size": "8"}, "prepare.pets.size")],
)
def test_settings_that_are_not_valid_are_an_error(project, changes, words):
    project("voc", **changes)
    with pytest.raises(ConfigError, match=words):
        checked()


# ---------------------------------------------------------------------------------------------- equal pictures
def test_equal_pictures_are_found_by_their_pixels(project):
    files = project("csv")
    files["b0"].write_bytes(files["a0"].read_bytes())  # the same file, in train and test, the same labels
    files["a1"].write_bytes(encoded(pixels(50), "PNG"))
    files["a2"].write_bytes(encoded(pixels(50), "BMP"))  # other bytes, both train, cat + dog and dog
    files["a3"].write_bytes(encoded(pixels(51), "PNG"))
    files["b2"].write_bytes(encoded(pixels(51)[:, ::-1], "PNG"))  # mirrored: not equal
    report = checked()
    first, second = report["equal_pictures"]
    assert [image["path"] for image in first["images"]] == ["a0.jpg", "b0.jpg"]
    assert [image["split"] for image in first["images"]] == ["train", "test"]
    assert first["across_splits"] and first["differing_classes"] == [] and first["same_bytes"]
    assert [image["path"] for image in second["images"]] == ["a1.jpg", "a2.jpg"]
    assert [image["labels"] for image in second["images"]] == [["cat", "dog"], ["dog"]]
    assert not second["across_splits"] and second["differing_classes"] == ["cat"] and not second["same_bytes"]
    assert report["faults"] == [] and report["warnings"] == [
        "1 group of equal pictures across splits: what is tested was seen before",
        "1 group of equal pictures with different labels",
    ]
    lines = list(check_data.format_report(report, strict=True))
    assert "  a0.jpg (train: cat) = b0.jpg (test: cat): the same file, across splits" in lines
    assert "  a1.jpg (train: cat, dog) = a2.jpg (train: dog): other bytes, labels differ in cat" in lines
    assert check_data.is_clean(report, strict=False) and not check_data.is_clean(report, strict=True)


def test_pictures_of_the_same_bytes_in_another_shape_are_not_equal(project):
    files = project("csv")
    flat = np.zeros((12, 20, 3), np.uint8)
    files["a0"].write_bytes(encoded(flat))
    files["a1"].write_bytes(encoded(flat.reshape(20, 12, 3)))
    assert checked()["equal_pictures"] == []


def test_files_of_one_size_and_time_are_the_same_only_if_their_bytes_are(project):
    files = project("csv")
    bitmap = encoded(pixels(52), "BMP")
    files["a0"].write_bytes(bitmap)
    files["a1"].write_bytes(bitmap[:6] + b"\1" + bitmap[7:])  # a reserved byte of the header
    for name in ("a0", "a1"):
        os.utime(files[name], (1e9, 1e9))
    (group,) = checked()["equal_pictures"]
    assert not group["same_bytes"]


def test_many_pictures_in_small_batches_keep_their_order(project, monkeypatch):
    files = project("csv")
    files["b2"].write_bytes(files["a0"].read_bytes())
    files["a2"].write_bytes(b"")
    once = checked()
    monkeypatch.setattr(inspect_data, "AHEAD", 3)
    assert checked() == once and [image["path"] for image in once["equal_pictures"][0]["images"]] == [
        "a0.jpg",
        "b2.jpg",
    ]


# ---------------------------------------------------------------------------------------------- what is odd
def test_odd_pictures_and_those_that_no_row_has_are_told(project):
    files = project("csv")
    files["a0"].write_bytes(encoded(pixels(60, 15, 16)))
    files["a1"].write_bytes(encoded(pixels(61, 20, 161)))
    files["a2"].write_bytes(encoded(pixels(62, 16, 128)))  # neither: the limits themselves
    Image.new("L", (20, 20), 9).save(files["a3"], "PNG")
    Path("raw/more").mkdir()
    Path("raw/more/spare.png").write_bytes(b"not looked at")
    Path("raw/more/photo.JXL").touch()
    report = checked()
    assert report["faults"] == []
    assert report["notes"] == {
        **{"extreme shape": ["a1.jpg"], "greyscale": ["a3.jpg"], "tiny": ["a0.jpg"]},
        "one colour": ["a3.jpg"],
    }
    assert report["in_no_row"] == ["more/spare.png"]
    assert report["warnings"] == [
        "1 picture of endings that are not read was left out: more/photo.JXL",
        "1 picture with a side below 16 pixels, as placeholders have: a0.jpg",
        "1 picture of one side more than 8 times the other, packed as a square all the same: a1.jpg",
        "1 picture of one colour throughout: a3.jpg",
    ]
    lines = list(check_data.format_report(report, strict=False))
    assert "  in no row of the table: 1, such as more/spare.png" in lines
    assert "  greyscale: 1, such as a3.jpg" in lines and lines[-1] == "pets: 0 faults, 4 warnings: clean"


def test_counts_and_papers_are_those_of_what_can_be_used(project):
    files = project("voc")
    files["b0"].write_bytes(b"")
    report = checked()
    found = {row["name"]: row["found"] for row in report["statistics"]}
    assert (found["classes"], found["train images"], found["val images"], found["test images"]) == ("2", "3", "1", "2")
    assert [verdict["answer"] for verdict in report["papers"]] == ["no"]
    assert report["protocol"][0] == "pictures: 8 x 8 pixels; the papers: 448 x 448"
    lines = list(check_data.format_report(report, strict=False))
    assert "  test images                     5823          2  differs" in lines
    assert lines[-1] == "pets: 1 fault, 0 warnings: not clean"


def test_of_drawn_scenes_nothing_is_published(project):
    project("csv")
    report = inspect_data.inspect(Path("."), "digits", progress=False)
    assert report["faults"] == [] and report["images"] == 70 and report["protocol"] == report["papers"] == []
    assert "  nothing is published on this dataset to compare with" in check_data.format_report(report, strict=False)


def test_labels_that_are_not_exhaustive_are_told_as_prepare_tells_them(project):
    labels = {"kind": "columns", "zero": "unknown", "minus_one": "absent", "empty": "unknown"}
    project("csv", exhaustive=False, labels=labels)
    assert checked()["warnings"] == [
        "the labels are not exhaustive: what is not given is unknown; no score is against the truth; a sample labelled "
        "in full, as val and test, would tell"
    ]
    rows = ["a0.jpg,train,1,0", "a1.jpg,train,1,0", "a2.jpg,val,-1,1", "a3.jpg,val,1,-1"]
    rows += ["b0.jpg,test,1,-1", "b1.jpg,test,-1,1", "b2.jpg,test,1,1"]
    write(Path("raw/labels.csv"), "\n".join(["image,split,cat,dog", *rows]))
    (warning,) = [line for line in checked()["warnings"] if "exhaustive" in line]
    assert warning.endswith("; val and test are labelled in full, so their scores are true ones")


# ---------------------------------------------------------------------------------------------- profiles
def profile(name: str, params: dict, **changes) -> None:
    """Write a profile that runs one dataset `pets` of a source, to lie over a params.yaml that is the default."""
    content = {"grid": {"datasets": ["pets"]}, "prepare": {"pets": BLOCKS["csv"] | {"root": "raw"} | changes}}
    write(Path(f"profiles/{name}.yaml"), json.dumps(content | {"backbone": {"pets": params["backbone"]["digits"]}}))


@pytest.mark.parametrize("name", ["pets", "animals"])
def test_a_profile_need_not_be_applied(project, params, capsys, name):
    files = project("csv")
    profile(name, params)
    once = checked()
    Path("params.yaml").write_text(json.dumps(params))
    before = {path: path.read_bytes() for path in Path(".").rglob("*") if path.is_file()}
    report = inspect_data.inspect(Path("."), name, progress=False)
    assert report == once | {"settings": f"profiles/{name}.yaml"} and report["images"] == 7
    assert main.main(["check-data", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"pets: source csv in raw, 7 images, 2 classes; settings: profiles/{name}.yaml\n")
    # a folder that is named at the prompt
    profile(name, params, root="ROOT")
    assert main.main(["check-data", name]) == 1
    words = f"profiles/{name}.yaml: prepare.pets.root: ROOT is not a folder; name that of the raw data: "
    assert capsys.readouterr().err == f"error: {words}spml check-data {name} --root FOLDER\n"
    files["a0"].write_bytes(b"")
    assert main.main(["check-data", name, "--root", "raw"]) == 1
    assert "a0.jpg: empty file" in capsys.readouterr().out
    files["a0"].write_bytes(encoded(pixels(0), "JPEG"))
    profile(name, params)
    assert {path: path.read_bytes() for path in Path(".").rglob("*") if path.is_file()} == before


def test_params_come_before_a_profile_and_a_root_before_both(project, params):
    project("csv", root="elsewhere")
    profile("pets", params)
    (fault,) = checked()["faults"]
    assert "no folder" in fault and "elsewhere" in fault
    report = inspect_data.inspect(Path("."), "pets", "raw", progress=False)
    assert report["faults"] == [] and report["settings"] == "params.yaml"
    with pytest.raises(ConfigError, match=r"prepare\.digits: its pictures are drawn and lie in no folder"):
        inspect_data.inspect(Path("."), "digits", "raw", progress=False)


def test_an_edited_profile_that_does_not_count_is_told(project, params):
    project("csv")
    profile("pets", params)
    assert checked()["warnings"] == []
    profile("pets", params, split_seed=7)
    (warning,) = checked()["warnings"]
    assert warning.startswith("profiles/pets.yaml has other settings than params.yaml, which count: spml profile pets")
    profile("pets", params, root="ROOT")  # as in a profile that is applied with a folder
    assert checked()["warnings"] == []
    Path("profiles/pets.yaml").write_bytes(b"\xff")
    assert checked()["warnings"] == []
    Path("params.yaml").write_text(json.dumps(params))
    with pytest.raises(ConfigError, match="profiles/pets.yaml: not YAML 1.2"):
        checked()


def test_a_name_that_nothing_has_is_told_with_those_there_are(project, params):
    project("csv")
    profile("animals", params)
    with pytest.raises(
        ConfigError, match=r"^no dataset 'pet': params.yaml has digits, pets, and profiles are default, ani"
    ):
        inspect_data.inspect(Path("."), "pet", progress=False)
    content = {"grid": {"datasets": ["cats", "dogs"]}, "prepare": {name: BLOCKS["csv"] for name in ("cats", "dogs")}}
    content["backbone"] = {name: params["backbone"]["digits"] for name in ("cats", "dogs")}
    write(Path("profiles/both.yaml"), json.dumps(content))
    with pytest.raises(ConfigError, match="both.yaml runs cats, dogs: spml profile both --root FOLDER"):
        inspect_data.inspect(Path("."), "both", progress=False)


# ---------------------------------------------------------------------------------------------- command line
def test_the_exit_status_says_whether_the_data_are_clean(project, capsys):
    files = project("csv")
    assert main.main(["check-data", "pets"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "pets: 0 faults, 0 warnings: clean"
    files["b0"].write_bytes(files["a0"].read_bytes())
    assert main.main(["check-data", "pets"]) == 0
    capsys.readouterr()
    assert main.main(["check-data", "pets", "--strict"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "pets: 0 faults, 1 warning: not clean"
    files["a2"].write_bytes(b"")
    assert main.main(["check-data", "pets", "--json", "found/report.json"]) == 1
    out, err = capsys.readouterr()
    assert "a2.jpg: empty file" in out and err == ""
    assert json.loads(Path("found/report.json").read_text()) == checked() | {"clean": False}
    assert main.main(["check-data", "gone"]) == 1
    assert (
        "error: no dataset 'gone': params.yaml has digits, pets, and profiles are default\n" == capsys.readouterr().err
    )
    with pytest.raises(SystemExit, match="2"):
        main.main(["check-data"])


@pytest.mark.parametrize("source", TREES)
@pytest.mark.parametrize("ending", ["jpg", "jxl"])
def test_reports_hold_names_that_are_no_utf_8(project, source, ending):
    files = project(source)
    odd = os.fsdecode(b"\xff." + ending.encode())
    (files["a0"].parent / odd).write_text("no picture")
    write_json("report.json", checked())
    assert "\\xff." + ending in Path("report.json").read_text()
    assert all(word.isprintable() for word in checked()["warnings"])


@pytest.mark.parametrize("broken", [False, True])
def test_names_that_are_no_utf_8_are_told_and_stored(project, capsys, broken):
    files = project("voc")
    odd = os.fsdecode(b"\xff.jpg")
    (files["a0"].parent / odd).write_text("no picture")
    if broken:
        write(Path("raw/ImageSets/Main/cat_val.txt"), "b0 7\n")
    assert main.main(["check-data", "pets", "--json", "report.json"]) == int(broken)
    shown = capsys.readouterr().out + Path("report.json").read_text()
    assert shown.count("\\xff.jpg") + shown.count("\\\\xff.jpg") >= 2


def test_an_interrupt_is_one_line(project, capsys, monkeypatch):
    project("voc")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check_data, "inspect", interrupted)
    assert main.main(["check-data", "pets"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
