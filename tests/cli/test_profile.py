"""profiles/ -> params.yaml and params/methods: what is composed, and that no edit is lost."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.events import AliasEvent

from pipeline.cli import profile
from pipeline.cli.main import main
from pipeline.config import profiles
from pipeline.config.params import KnownDensity, read_params, read_project
from pipeline.core.errors import ConfigError

PHOTOS = """\
grid:
  datasets: [photos]
  linear_init: [an]
  finetune: []
  end_to_end: []
  lac: []
  landscape: []
prepare:
  photos: {source: voc, root: null_device, size: 64}
linear_init:
  default: {epochs: 3}
variants: {lac: {}}
"""


def git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Path:
    """A committed project with two profiles, the files of three methods and a folder of raw data."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "params/methods").mkdir(parents=True)
    for file, text in profiles.default_texts(repository).items():
        if Path(file).stem in ("params", "an", "em", "lac", "plc"):
            (tmp_path / file).write_text(text)
    digits = re.search(r"^backbone:\n  digits: (.+)$", (tmp_path / "params.yaml").read_text(), re.MULTILINE)
    assert digits
    (tmp_path / "profiles/photos.yaml").write_text(f"{PHOTOS}backbone:\n  photos: {digits[1]}\n")
    (tmp_path / "raw").mkdir()
    (tmp_path / "null_device").mkdir()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "params.yaml", "params", "profiles")
    git(tmp_path, "commit", "-qm", "start")
    return tmp_path


def another(text: str) -> str:
    """The text with another number of epochs."""
    changed = re.sub(r"^    epochs: \d+", "    epochs: 77", text, count=1, flags=re.MULTILINE)
    assert changed != text
    return changed


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def committed(project: Path, file: str = "params.yaml") -> str:
    """A file as it was committed first."""
    words = ["git", "log", "--format=%H", "--reverse"]
    first = subprocess.run(words, cwd=project, check=True, capture_output=True, text=True).stdout.split()[0]
    return profiles.committed(project, file, first) or ""


def test_params_say_which_profile_they_are_of(project: Path) -> None:
    assert profiles.in_force((project / "params.yaml").read_text()) == "default"
    profile.apply(project, "photos")
    assert read_params(project / "params.yaml").profile == "photos"
    assert profiles.in_force("a: 1\nprofile: two_words # why\n") == "two_words"
    assert profiles.in_force("a:\n  profile: x\n") is None


def test_every_profile_composes(repository: Path) -> None:
    names = profiles.names(repository)
    assert names[0] == "default"
    for name in names:
        profiles.compose(repository, name)


def test_overlay_changes_what_it_names_and_keeps_the_rest(project: Path) -> None:
    before = read_project(project)
    profile.apply(project, "photos")
    after = read_project(project)
    assert after.grid.datasets == ["photos"]
    assert after.grid.linear_init == ["an"]  # lists are replaced, not joined
    assert after.variants.lac == {}  # {} empties
    block = after.settings("linear_init", "photos")
    assert block.epochs == 3
    assert block.batch_size == before.settings("linear_init", "digits").batch_size
    assert after.prepare["digits"] == before.prepare["digits"]
    assert after.methods == before.methods


def test_comments_and_number_formats_survive(project: Path) -> None:
    profile.apply(project, "photos")
    changed = lines(project / "params.yaml")
    comments = [line.split("#", 1)[1] for line in committed(project).splitlines() if line.startswith("#")]
    assert comments and all(any(comment in line for line in changed) for comment in comments)
    assert "    learning_rate: 1.0e-3" in changed
    assert "    ema: null" in changed


def test_root_replaces_the_folder_of_the_raw_data(project: Path) -> None:
    profile.apply(project, "photos", "raw")
    assert read_params(project / "params.yaml").prepare["photos"]["root"] == "raw"


def test_root_replaces_the_one_folder_that_several_datasets_read(project: Path) -> None:
    mine = project / "profiles/photos.yaml"
    text = mine.read_text().replace("  datasets: [photos]", "  datasets: [photos, prints]")
    digits = re.search(r"^  photos: (\{source: digits.+)$", text, re.MULTILINE)
    assert digits
    text = text.replace(
        "  photos: {source: voc,", "  prints: {source: voc, root: ELSE, size: 64}\n  photos: {source: voc,"
    )
    mine.write_text(f"{text}  prints: {digits[1]}\n")
    with pytest.raises(ConfigError, match="must name one folder .*; has photos null_device, prints ELSE$"):
        profile.apply(project, "photos", "raw")
    mine.write_text(mine.read_text().replace("root: ELSE", "root: null_device"))
    profile.apply(project, "photos", "raw")
    prepare = read_params(project / "params.yaml").prepare
    assert [prepare[name]["root"] for name in ("photos", "prints")] == ["raw", "raw"]


def test_the_defaults_variants_of_other_datasets_are_left_out(project: Path) -> None:
    mine = project / "profiles/photos.yaml"
    text = mine.read_text().replace("variants: {lac: {}}\n", "")
    mine.write_text(text)
    profile.apply(project, "photos", "raw")
    assert read_params(project / "params.yaml").variants.lac == {}
    run = "{dataset: photos, method: lac, draw: 0, seed: 0, set: {stage: {}, method: {queue_size: 0}}}"
    mine.write_text(f"{text}variants: {{lac: {{photos-lac-0-0-no_queue: {run}}}}}\n")
    profile.apply(project, "photos", "raw")
    assert set(read_params(project / "params.yaml").variants.lac) == {"photos-lac-0-0-no_queue"}
    (project / "profiles/more.yaml").write_text("grid: {seeds: [0, 1]}\n")
    profile.apply(project, "more")
    kept = read_params(project / "params.yaml").variants
    assert kept.lac
    profile.apply(project, "default")
    assert kept == read_params(project / "params.yaml").variants
    digits = run.replace("photos", "digits")  # its own are its own fault
    mine.write_text(f"{text}variants: {{lac: {{digits-lac-0-0-x: {digits}}}}}\n")
    profile.apply(project, "photos", "raw")
    assert set(read_params(project / "params.yaml").variants.lac) == {"digits-lac-0-0-x"}
    for broken in ("variants: null", "variants: {lac: [1]}", "variants: {lac: {digits-lac-0-0-x: 3}}", "grid: 3"):
        mine.write_text(f"{text}{broken}\n" if "grid" not in broken else broken)
        with pytest.raises(ConfigError, match=broken.partition(":")[0]):
            profile.apply(project, "photos")


SHARED = """\
a: {one: &x {n: 1, deep: {m: 1, k: 2}}, two: &y {<<: *x, n: 2}}
b: {one: *x, two: {<<: *x}, three: {<<: *y, n: 3}}
"""


@pytest.mark.parametrize("names", ["", "a.one", "a.two", "b.one", "b.two", "b.three", "a.one b.three", "b.one b.two"])
def test_what_is_shared_by_an_anchor_stays_for_others(names: str) -> None:
    """Changing one place of a file with anchors is changing one place of the file written out."""
    change: dict[str, Any] = {"a": {}, "b": {}}
    plain = YAML(typ="safe", pure=True)
    expected = plain.load(SHARED)
    expected = json.loads(json.dumps(expected))  # no mapping twice
    for top, name in (path.split(".") for path in names.split()):
        change[top][name] = {"n": 7, "deep": {"m": 8}}
        expected[top][name]["n"] = 7
        expected[top][name]["deep"]["m"] = 8
    content = profiles._parse(SHARED, "shared")
    profiles.overlay(content, {top: change[top] for top in change if change[top]})
    text = profiles._dump(content)
    assert plain.load(text) == expected and not set("&*") & set(text)


def test_sections_stand_apart_whatever_is_added_to_them(project: Path) -> None:
    mine = project / "profiles/photos.yaml"
    mine.write_text(f"{mine.read_text()}simulate:\n  photos: {{seed: 1}}\nfeatures:\n  photos: {{batch_size: 9}}\n")
    profile.apply(project, "photos")
    found = lines(project / "params.yaml")
    gaps = [number for number, line in enumerate(found) if not line]
    sections = [number for number, line in enumerate(found) if re.match(r"\w", line)]
    assert len(sections) > 10
    for number in sections[1:]:
        first = next(above for above in range(number, 0, -1) if not found[above - 1].startswith("#"))
        assert first - 1 in gaps and first - 2 not in gaps, found[number]
    assert all(found[number + 1].lstrip().startswith("#") or number + 1 in sections for number in gaps)
    text = mine.read_text() + "expected_positives:\n  photos:\n    value: 2.0\n    source: |\n      a\n\n\n      b\n"
    mine.write_text(text)
    profile.apply(project, "photos")
    density = read_params(project / "params.yaml").expected_positives["photos"]
    assert isinstance(density, KnownDensity) and density.source == "a\n\n\nb\n"  # blank lines that say something stay


def test_no_file_of_a_profile_shares_a_mapping(repository: Path) -> None:
    """Of a mapping that two keys share, ``dvc exp run -S`` alters both, or neither, without a word."""
    for name in profiles.names(repository):
        for file, text in profiles.compose(repository, name).items():
            shared = [event for event in YAML().parse(text) if isinstance(event, AliasEvent)]
            assert not shared, f"profile {name}: {file}"


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("photo", None, r"no file profiles/photo\.yaml; there are: default, photos"),
        ("default", "raw", r"must name one folder as prepare\.<dataset>\.root; has none"),
        ("photos", "gone", "gone is not a folder"),
    ],
)
def test_a_wrong_request_changes_nothing(project: Path, name: str, raw: str | None, message: str) -> None:
    before = (project / "params.yaml").read_bytes()
    with pytest.raises(ConfigError, match=message):
        profile.apply(project, name, raw)
    assert (project / "params.yaml").read_bytes() == before


def test_a_folder_that_is_not_there_is_refused_before_anything_is_written(project: Path) -> None:
    (project / "null_device").rmdir()
    before = (project / "params.yaml").read_bytes()
    with pytest.raises(ConfigError, match=r"prepare\.photos\.root: null_device is not a folder; .*ROOT=<folder>"):
        profile.apply(project, "photos")
    assert (project / "params.yaml").read_bytes() == before


def test_an_unknown_key_is_refused_by_its_name(project: Path) -> None:
    (project / "profiles/typo.yaml").write_text("linear_init: {default: {epoch: 3}}\n")
    before = (project / "params.yaml").read_bytes()
    with pytest.raises(ConfigError, match=r"linear_init\.\w+\.epoch\b"):
        profile.apply(project, "typo")
    assert (project / "params.yaml").read_bytes() == before


def test_an_edit_of_ones_own_is_not_overwritten(project: Path) -> None:
    path = project / "params.yaml"
    edited = another(path.read_text())
    path.write_text(edited)
    with pytest.raises(ConfigError, match="--force"):
        profile.apply(project, "photos", "raw")
    assert path.read_text() == edited
    assert not (project / "params.yaml.bak").exists()


def test_an_edited_profile_can_be_applied_again(project: Path) -> None:
    profile.apply(project, "photos", "raw")
    mine = project / "profiles/photos.yaml"
    mine.write_text(mine.read_text().replace("epochs: 3", "epochs: 4"))
    profile.apply(project, "photos", "raw")
    assert read_params(project / "params.yaml").settings("linear_init", "photos").epochs == 4
    assert not (project / "params.yaml.bak").exists()
    (project / "params.yaml").write_text(another((project / "params.yaml").read_text()))
    mine.write_text(mine.read_text().replace("epochs: 4", "epochs: 5"))
    with pytest.raises(ConfigError, match="--force"):
        profile.apply(project, "photos", "raw")


def test_a_comment_of_ones_own_is_an_edit_too(project: Path) -> None:
    path = project / "params.yaml"
    path.write_text(path.read_text() + "# tried 26 epochs: worse\n")
    with pytest.raises(ConfigError, match="--force"):
        profile.apply(project, "photos")


def test_force_keeps_a_copy(project: Path) -> None:
    path = project / "params.yaml"
    edited = another(path.read_text())
    path.write_text(edited)
    profile.apply(project, "photos", force=True)
    assert (project / "params.yaml.bak").read_text() == edited
    assert read_params(path).grid.datasets == ["photos"]
    second = another(path.read_text())
    path.write_text(second)
    profile.apply(project, "photos", force=True)
    assert [path.read_text() for path in sorted(project.glob("params.yaml.bak*"))] == [edited, second]


def test_profiles_can_be_switched_back_and_forth(project: Path) -> None:
    (project / "other").mkdir()
    for name, raw in [("photos", "raw"), ("photos", "other"), ("photos", None), ("default", None), ("photos", "raw")]:
        profile.apply(project, name, raw)
        prepare = read_params(project / "params.yaml").prepare
        assert name == "default" or prepare["photos"]["root"] == (raw or "null_device")
    profile.apply(project, "default")
    assert (project / "params.yaml").read_text() == committed(project)
    assert not (project / "params.yaml.bak").exists()


def test_a_committed_edit_may_be_overwritten(project: Path) -> None:
    path = project / "params.yaml"
    path.write_text(another(path.read_text()))
    git(project, "commit", "-qam", "77 epochs")
    profile.apply(project, "photos")
    assert read_params(path).grid.datasets == ["photos"]


# ---------------------------------------------------------------------------------------------- methods' files
METHODS = "methods: {em: {default: {alpha: 0.7}}, lac: {default: {queue_size: 7}}}\n"


@pytest.fixture
def small(project: Path) -> Path:
    """The project, with a profile that changes two methods."""
    (project / "profiles/small.yaml").write_text(METHODS)
    return project


def status(project: Path) -> list[str]:
    """Files that Git tracks and that differ from the last commit."""
    words = ["git", "diff", "--name-only", "HEAD"]
    return subprocess.run(words, cwd=project, check=True, capture_output=True, text=True).stdout.split()


def test_a_profile_is_laid_over_the_files_of_its_methods_and_the_default_restores_them(small: Path) -> None:
    before = read_project(small)
    profile.apply(small, "small")
    after = read_project(small)
    assert status(small) == ["params.yaml", "params/methods/em.yaml", "params/methods/lac.yaml"]
    assert after.method("em", "digits") == before.method("em", "digits") | {"alpha": 0.7}
    assert after.method("em", "cub") == before.method("em", "cub")  # which has an alpha of its own
    assert after.method("lac", "digits") == before.method("lac", "digits") | {"queue_size": 7}
    profile.apply(small, "photos")  # which changes no method
    assert status(small) == ["params.yaml"]
    profile.apply(small, "small")
    profile.apply(small, "default")
    assert status(small) == [] and read_project(small) == before
    assert not list(small.rglob("*.bak"))


def test_a_committed_profile_is_no_base_of_another(small: Path) -> None:
    before = read_project(small)
    profile.apply(small, "small")
    git(small, "commit", "-qam", "small runs here")
    shutil.rmtree(small / ".pipeline")  # as in a clone
    for name in ("photos", "small", "default"):
        profile.apply(small, name)
        own = before.methods["em"]["default"]["alpha"]
        assert read_project(small).methods["em"]["default"]["alpha"] == (0.7 if name == "small" else own)
    assert read_project(small) == before
    git(small, "commit", "-qam", "back")
    (small / "params/methods/em.yaml").write_text("default: {alpha: 0.3, floor: 0.0}\n")
    git(small, "commit", "-qam", "another alpha by default")
    profile.apply(small, "small")
    git(small, "commit", "-qam", "small again")
    profile.apply(small, "default")
    assert read_project(small).methods["em"] == {"default": {"alpha": 0.3, "floor": 0.0}}  # the newest, not the first


def test_a_file_of_a_method_that_no_profile_changes_is_left_as_it_is(small: Path) -> None:
    path = small / "params/methods/an.yaml"
    path.write_text(f"{path.read_text()}# mine\n")
    edited = path.read_text()
    for name in ("small", "photos", "default"):
        profile.apply(small, name)
        assert path.read_text() == edited


def test_an_edit_of_a_method_is_not_overwritten(small: Path) -> None:
    path = small / "params/methods/em.yaml"
    edited = path.read_text() + "# tried 0.2: worse\n"
    path.write_text(edited)
    before = (small / "params.yaml").read_text()
    with pytest.raises(
        ConfigError, match=r"^params/methods/em\.yaml holds edits .* copies each to <file>.bak first: params/methods/em"
    ):
        profile.apply(small, "small")
    assert (path.read_text(), (small / "params.yaml").read_text()) == (edited, before)
    profile.apply(small, "small", force=True)
    assert path.with_name("em.yaml.bak").read_text() == edited and "0.7" in path.read_text()
    path.write_text(path.read_text() + "# 0.7 is better\n")
    with pytest.raises(ConfigError, match=r"^params/methods/em\.yaml holds edits"):
        profile.apply(small, "default")


def test_an_edit_of_a_file_that_the_profile_in_force_leaves_alone_is_not_overwritten(small: Path) -> None:
    """Switching on would restore the file from the commit."""
    profile.apply(small, "photos")  # which changes no method
    path = small / "params/methods/em.yaml"
    path.write_text(f"{path.read_text()}# mine\n")
    edited = path.read_text()
    with pytest.raises(ConfigError, match=r"^params/methods/em\.yaml holds edits"):
        profile.apply(small, "small")
    assert path.read_text() == edited
    profile.apply(small, "default")
    assert path.read_text() == edited


def test_what_a_profile_wrote_is_known_when_params_were_restored_by_git(small: Path) -> None:
    before = read_project(small)
    profile.apply(small, "small")
    git(small, "checkout", "params.yaml")
    profile.apply(small, "default")
    assert status(small) == [] and read_project(small) == before


def test_a_profile_that_was_edited_since_is_known_by_what_it_wrote(small: Path) -> None:
    before = read_project(small)
    profile.apply(small, "small")
    (small / "profiles/small.yaml").unlink()
    profile.apply(small, "default")
    assert status(small) == [] and read_project(small) == before


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("{new: {default: {alpha: 1.0}}}", r"profiles/small\.yaml: methods\.new: there is no params/methods/new\.yaml"),
        ("{em: {vocc: {alpha: 1.0}}}", r"^params/methods/em\.yaml:vocc: no dataset of that name"),
        ("{em: 3}", r"^profiles/small\.yaml: methods\.em: must be a mapping"),
        ("[em]", r"^profiles/small\.yaml: methods: must be a mapping"),
    ],
)
def test_a_wrong_block_of_a_method_is_refused_by_its_name(small: Path, methods: str, message: str) -> None:
    (small / "profiles/small.yaml").write_text(f"methods: {methods}\n")
    with pytest.raises(ConfigError, match=message):
        profile.apply(small, "small")
    assert status(small) == []


# ---------------------------------------------------------------------------------------------- where the default is
def test_the_default_is_looked_for_in_the_history(project: Path) -> None:
    for name in ("photos", "default", "photos"):
        profile.apply(project, name)
        git(project, "commit", "-qam", name)
    (project / "raw/picture").write_text("")
    git(project, "add", "raw")
    git(project, "commit", "-qm", "another file")
    profile.apply(project, "default")
    assert (project / "params.yaml").read_text() == committed(project)


def test_a_project_below_the_repositorys_root(project: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    for part in ("params.yaml", "params", "profiles", "null_device"):
        (project / part).rename(inner / part)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "moved")
    profile.apply(inner, "photos")
    profile.apply(inner, "default")
    assert status(project) == []


@pytest.mark.parametrize("how", ["shallow", "no git"])
def test_without_the_default_in_the_history_the_remedy_is_named(project: Path, tmp_path: Path, how: str) -> None:
    profile.apply(project, "photos")
    if how == "no git":
        shutil.rmtree(project / ".git")
        root = project
    else:
        git(project, "commit", "-qam", "photos")
        root = project / "clone"
        git(project, "clone", "-q", "--depth", "1", project.as_uri(), str(root))
    before = (root / "params.yaml").read_text()
    with pytest.raises(ConfigError, match=r"no commit has a params\.yaml that says `profile: default`.*--unshallow"):
        profile.apply(root, "default")
    assert (root / "params.yaml").read_text() == before


def test_without_git_the_default_is_left_only_by_force(project: Path) -> None:
    shutil.rmtree(project / ".git")
    before = (project / "params.yaml").read_text()
    profile.apply(project, "default")
    with pytest.raises(ConfigError, match="--force"):
        profile.apply(project, "photos")
    profile.apply(project, "photos", force=True)
    assert (project / "params.yaml.bak").read_text() == before


@pytest.mark.parametrize("gone", ["params.yaml", "params/methods/lac.yaml"])
def test_a_file_that_is_gone_is_made_anew(small: Path, gone: str) -> None:
    before = read_project(small)
    profile.apply(small, "small")
    (small / gone).unlink()
    profile.apply(small, "default")
    assert status(small) == [] and read_project(small) == before


def test_params_that_were_kept_as_a_profile_bear_its_name(project: Path) -> None:
    """As the message about edits that would be lost advises."""
    path = project / "params.yaml"
    (project / "profiles/my.v2.yaml").write_text(another(path.read_text()))
    profile.apply(project, "my.v2")
    assert profiles.in_force(path.read_text()) == "my.v2"
    profile.apply(project, "photos", "raw")
    profile.apply(project, "my.v2")
    profile.apply(project, "default")
    assert status(project) == []


def test_a_profile_of_the_defaults_name_is_refused(project: Path) -> None:
    (project / "profiles/default.yaml").write_text("grid: {seeds: [1]}\n")
    with pytest.raises(ConfigError, match=r"^profiles/default\.yaml: the default is params\.yaml as committed"):
        profile.apply(project, "default")
    with pytest.raises(ConfigError, match="there are: default, photos$"):
        profile.apply(project, "nope")


def test_a_fault_of_a_method_that_a_profile_brought_names_the_profile(project: Path) -> None:
    (project / "profiles/w.yaml").write_text("methods: {em: {foo: {alpha: 1.0}}}\n")
    words = r"^params/methods/em\.yaml:foo: no dataset of that name; .* \(profiles/w\.yaml lies over it\)$"
    with pytest.raises(ConfigError, match=words):
        profile.apply(project, "w")


def test_command_line(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(project)
    assert main(["profile", "photos", "--root", "raw"]) == 0
    assert capsys.readouterr().out == "profile photos, raw data in raw: wrote params.yaml\n"
    assert main(["profile", "photos", "--root", "raw"]) == 0
    assert capsys.readouterr().out == "profile photos, raw data in raw: already in force\n"
    Path("params.yaml").write_text("grid: [\n")  # not even YAML: still an edit
    assert main(["profile", "photos"]) == 1
    assert capsys.readouterr().err.startswith("error: params.yaml holds edits")


def test_a_method_newer_than_the_default_comes_back_only_as_a_commit_has_it(small: Path) -> None:
    own = small / "params/methods/em.yaml"
    before = own.read_text()
    git(small, "rm", "-q", "--cached", "params/methods/em.yaml")
    git(small, "commit", "-qm", "em is not there yet", "--amend")
    git(small, "commit", "-qm", "default", "--allow-empty")
    (small / "profiles/laid.yaml").write_text("methods: {em: {default: {alpha: 0.75}}}\n")
    profile.apply(small, "laid", force=True)
    laid = own.read_text()
    with pytest.raises(ConfigError, match=r"em\.yaml: a profile is laid over it .* put it back from .*em\.yaml\.bak"):
        profile.apply(small, "default")
    assert laid != before and own.read_text() == laid
    own.write_text(before)
    git(small, "add", "params/methods/em.yaml")
    git(small, "commit", "-qm", "em as it was")
    profile.apply(small, "default")
    assert own.read_text() == before


def test_a_methods_file_that_is_not_yaml_is_named(project: Path) -> None:
    path = project / "params/methods/lac.yaml"
    path.write_text(path.read_text() + "[\n")
    with pytest.raises(ConfigError, match=r"^params/methods/lac\.yaml: not YAML 1\.2: "):
        profile.apply(project, "photos", "raw")
