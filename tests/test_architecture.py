"""What the layout promises: imports run downward from room to room, one reader and writer of files."""

import ast
import graphlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.methods.shared import base

LEVELS = (
    {"core"},
    {"labels", "networks"},
    {"data", "methods", "audits"},
    {"sources", "training"},
    {"config"},
    {"report", "bundles", "review"},
    {"cli"},
    {"stages"},
)
"""Rooms by level: a room imports from lower levels only."""
EXCEPTIONS = {("methods", "pipeline.networks.interface")}  # what a network answers, all that a method sees of it
MOST_ARROWS = 56  # 50 before there were bundles and review

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for folder in ("pipeline", "stages") for path in (ROOT / folder).rglob("*.py"))


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def room(name: str) -> str:
    """Return the room of a module."""
    parts = name.split(".")
    return parts[1] if parts[0] == "pipeline" and len(parts) > 1 else parts[0]


def level(name: str) -> int:
    """Return the number of a module's level."""
    return next(number for number, rooms in enumerate(LEVELS) if room(name) in rooms)


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of ours that a module imports anywhere, also within functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the module in full"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES or node.module in MODULES:
                    yield full if full in MODULES else str(node.module)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield calls with the dotted name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def is_package(name: str) -> bool:
    return MODULES[name].name == "__init__.py"


def test_the_library_is_rooms_and_nothing_else() -> None:
    loose = [path.name for path in (ROOT / "pipeline").glob("*.py")]
    assert loose == ["__init__.py"]
    assert {room(name) for name in MODULES} - {"pipeline"} == set().union(*LEVELS)


@pytest.mark.parametrize("name", [name for name in MODULES if not is_package(name)])
def test_imports_run_strictly_downward(name: str) -> None:
    for other in set(imported(TREES[name])) - {"pipeline"}:
        if room(other) == room(name):
            continue
        assert level(other) < level(name) or (room(name), other) in EXCEPTIONS, f"{name} imports {other}, not below it"


def test_few_rooms_know_each_other() -> None:
    arrows = {(room(name), room(other)) for name, tree in TREES.items() for other in imported(tree)}
    assert (
        len({(one, other) for one, other in arrows if one != other and "pipeline" not in (one, other)}) <= MOST_ARROWS
    )


@pytest.mark.parametrize("inside", sorted(set().union(*LEVELS)))
def test_no_room_has_a_cycle(inside: str) -> None:
    parts = [name for name in MODULES if room(name) == inside and not is_package(name)]
    graph = {name: {other for other in imported(TREES[name]) if other in parts} for name in parts}
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the cycle


def test_methods_and_sources_do_not_import_each_other() -> None:
    for name, tree in TREES.items():
        if name.startswith("pipeline.methods.") and not name.startswith("pipeline.methods.shared"):
            of_methods = {other for other in imported(tree) if room(other) == "methods"}
            assert all(other.startswith("pipeline.methods.shared") for other in of_methods), name


def test_a_package_holds_one_sentence() -> None:
    for name, path in MODULES.items():
        if is_package(name):
            (door,) = TREES[name].body  # whatever it imports would be in every stage's closure
            assert isinstance(door, ast.Expr) and len(str(ast.get_docstring(TREES[name])).splitlines()) == 1, path


def test_only_methods_and_sources_are_imported_by_computed_name() -> None:
    for name, tree in TREES.items():
        for called, node in calls(tree):
            assert called not in ("__import__", "runpy.run_module"), name
            if called.split(".")[-1] == "import_module":
                assert re.fullmatch(r"f'pipeline\.(methods|sources)\.\{name\}'", ast.unparse(node.args[0])), name


@pytest.mark.parametrize("name", [n for n in MODULES if room(n) in ("stages", "training")])
def test_no_method_is_known_by_name(name: str) -> None:
    stages = {path.stem for path in (ROOT / "stages").glob("*.py")}
    methods = set(base.names()) - stages - {"draw"}  # `lac` names a stage too, `draw` an axis of the grid
    tree = TREES[name]
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & methods
    assert not strings, f"{name} has a case for {', '.join(map(str, strings))}"
    modules = {other for other in imported(tree) if re.fullmatch(r"pipeline\.methods\.(?!shared)\w+", other)}
    assert not modules, f"{name} imports {', '.join(modules)}"


@pytest.mark.parametrize("name", MODULES)
def test_files_between_stages_go_through_core(name: str) -> None:
    if name in ("pipeline.core.files", "pipeline.core.hdf5"):
        return
    for called, _ in calls(TREES[name]):
        assert called not in ("h5py.File", "File", "torch.save", "torch.load", "np.save", "np.load"), (
            f"{name}: {called}"
        )


@pytest.mark.parametrize("name", MODULES)
def test_what_is_forbidden(name: str) -> None:
    tree = TREES[name]
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for top in (each.split(".")[0] for each in modules):
            assert top != "yaml", "PyYAML reads 1e-5 as text and no as False; DVC does not"
            assert top not in ("dill", "joblib", "cloudpickle"), "pickles run code when they are read"
            assert top != "pickle" or name == "pipeline.core.files", "files only names pickle's error"
    for called, node in calls(tree):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        words = [ast.unparse(argument) for argument in node.args] + list(keywords.values())
        last = called.split(".")[-1]
        assert not called.startswith("pickle."), "pickles run code when they are read"
        assert last != "binary_cross_entropy", "unsafe under autocast, and it loses the gradient far out"
        assert last != "squeeze" or words, "squeeze() drops the batch axis of one image; name the axis"
        assert last != "File" or not {"'a'", "'r+'"} & set(words), "a changed HDF5 file may be a linked cache object"
        assert called != "torch.load" or keywords.get("weights_only") == "True"
        assert keywords.get("allow_pickle") != "True"
        assert last != "extractall" or "filter" in keywords, "an archive may name files outside its folder"


FAULTS = {
    "upward": ("pipeline.core.seeds", "from pipeline.training.loop import Trainer"),
    "sideways": ("pipeline.networks.linear", "def f():\n    from pipeline.labels import table"),
    "methods": ("pipeline.methods.an", "def f():\n    from pipeline.methods import em"),
    "method": ("pipeline.training.loop", "if name == 'em_apl': pass"),
    "writer": ("stages.audit", "import h5py\nh5py.File('x', 'w')"),
    "yaml": ("stages.audit", "import yaml\nyaml.safe_load('')"),
    "load": ("pipeline.core.files", "torch.load(path)"),
    "pickle": ("pipeline.core.files", "pickle.loads(data)"),
    "bce": ("pipeline.methods.shared.cells", "F.binary_cross_entropy(p, y)"),
    "squeeze": ("pipeline.methods.shared.cells", "x.squeeze()"),
    "append": ("pipeline.core.hdf5", "h5py.File(path, mode='r+')"),
    "dynamic": ("pipeline.training.search", "importlib.import_module(name)"),
    "cycle": ("pipeline.core.errors", "from pipeline.core import files"),
    "door": ("pipeline.core", "from pipeline.core import files"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_of_these_tests_can_fail(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = FAULTS[fault]
    monkeypatch.setitem(TREES, name, ast.parse(text))
    tests = {
        "upward": lambda: test_imports_run_strictly_downward(name),
        "sideways": lambda: test_imports_run_strictly_downward(name),
        "methods": test_methods_and_sources_do_not_import_each_other,
        "method": lambda: test_no_method_is_known_by_name(name),
        "writer": lambda: test_files_between_stages_go_through_core(name),
        "dynamic": test_only_methods_and_sources_are_imported_by_computed_name,
        "cycle": lambda: test_no_room_has_a_cycle("core"),
        "door": test_a_package_holds_one_sentence,
    }
    with pytest.raises((AssertionError, ValueError, graphlib.CycleError)):
        tests.get(fault, lambda: test_what_is_forbidden(name))()


LONGEST, MOST_ARGUMENTS = 60, 7
WIDE = {("pipeline.networks.label_transformer", "__init__")}  # the sizes of a published layer, by keyword


def too_large(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield functions that are longer, or take more arguments, than a person reads at once."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len([argument for argument in arguments if argument.arg not in ("self", "cls")])
            if lines > LONGEST or (count > MOST_ARGUMENTS and (name, node.name) not in WIDE):
                yield f"{name}.{node.name}: {lines} lines, {count} arguments"


def test_functions_are_short() -> None:
    assert [line for name, tree in TREES.items() for line in too_large(name, tree)] == []
    long = ast.parse("def f(a, b, c, d, e, g, h, i):\n    pass\ndef g():\n" + "    x = 1\n" * LONGEST)
    assert len(list(too_large("x", long))) == 2


def test_every_template_is_package_data() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    files = [path for folder in ("pipeline", "stages") for path in (ROOT / folder).rglob("*.j2")]
    packages = {path.parent for path in FILES if path.name == "__init__.py"}
    assert len(files) > 20
    for path in files:
        owner = next(parent for parent in path.parents if parent in packages)
        assert any(path.relative_to(owner).match(pattern) for pattern in patterns), path
