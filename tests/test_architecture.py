"""What the layout promises: imports run strictly downward, one reader and writer of files, no method known by name."""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.methods import base

ORDER = """
    storage config seeds batch cells metrics single_positive
    table parts.* json_lists profiles
    complaints
    layout
    label_draws
    own_data
    images checkpoint augment sources.* methods.base networks.small networks.linear networks.label_transformer
    inputs packing networks.backbone networks.boosted networks.label_embedding networks.bottleneck
    networks.network
    features pretrain comparable methods.*
    train evaluate search
    audits.* show catalogue own_profile check_data
    report.*
    cli
    stages.entry stages.problem
    stages.training
    stages.*
"""
"""A module may import those of earlier lines only. A line is a level of the library, or a step within one."""

COMPONENT = "pipeline.report."
"""One part in several files, which may import each other without a cycle."""

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for folder in ("pipeline", "stages") for path in (ROOT / folder).rglob("*.py"))


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
ROWS = [line.split() for line in ORDER.strip().splitlines()]


def row(name: str) -> int:
    """Number of the line of ORDER that names a module, by itself or by its folder's ``*``."""
    short = name.removeprefix("pipeline.")
    for wanted in (short, short.rpartition(".")[0] + ".*"):
        for number, names in enumerate(ROWS):
            if wanted in names:
                return number
    raise AssertionError(f"{name} is on no line of ORDER: say at which level it belongs")


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules of ours that a module imports anywhere, also within functions."""
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
    """Calls with the dotted name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def is_package(name: str) -> bool:
    return MODULES[name].name == "__init__.py"


@pytest.mark.parametrize("name", [name for name in MODULES if not is_package(name)])
def test_imports_run_strictly_downward(name: str) -> None:
    for other in set(imported(TREES[name])):
        if not is_package(other) and not (name.startswith(COMPONENT) and other.startswith(COMPONENT)):
            assert row(other) < row(name), f"{name} imports {other}, which is not below it"


def test_the_component_has_no_cycle() -> None:
    parts = [name for name in MODULES if name.startswith(COMPONENT)]
    graph = {name: {other for other in imported(TREES[name]) if other in parts} for name in parts}
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the cycle


def test_every_line_of_the_order_is_a_module() -> None:
    for short in (short for names in ROWS for short in names):
        full = short if short.startswith("stages.") else f"pipeline.{short}"
        found = any(name.startswith(full[:-1]) for name in MODULES) if full.endswith("*") else full in MODULES
        assert found, f"{short} is no module"


def test_packages_import_nothing() -> None:
    for name, path in MODULES.items():
        if is_package(name):
            assert path.read_text() == "", (
                f"{path} must be empty: whatever it imports would be in every stage's closure"
            )


def test_only_methods_and_sources_are_imported_by_computed_name() -> None:
    for name, tree in TREES.items():
        for called, node in calls(tree):
            assert called not in ("__import__", "runpy.run_module"), name
            if called.split(".")[-1] == "import_module":
                assert re.fullmatch(r"f'pipeline\.(methods|sources)\.\{name\}'", ast.unparse(node.args[0])), name


@pytest.mark.parametrize(
    "name", [n for n in MODULES if n.startswith("stages.") or n.endswith((".train", ".evaluate", ".search"))]
)
def test_no_method_is_known_by_name(name: str) -> None:
    stages = {path.stem for path in (ROOT / "stages").glob("*.py")}
    methods = set(base.names()) - stages  # `lac` names a stage too
    tree = TREES[name]
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & methods
    assert not strings, f"{name} has a case for {', '.join(map(str, strings))}"
    modules = {other for other in imported(tree) if other.startswith("pipeline.methods.")} - {"pipeline.methods.base"}
    assert not modules, f"{name} imports {', '.join(modules)}"


@pytest.mark.parametrize("name", MODULES)
def test_files_between_stages_go_through_storage(name: str) -> None:
    if name == "pipeline.storage":
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
            assert top != "pickle" or name == "pipeline.storage", "storage only names pickle's error"
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
    "upward": ("pipeline.cells", "from pipeline.train import train"),
    "sideways": ("pipeline.methods.an", "def f():\n    from pipeline.methods import em"),
    "method": ("pipeline.train", "if name == 'em_apl': pass"),
    "writer": ("stages.audit", "import h5py\nh5py.File('x', 'w')"),
    "yaml": ("stages.audit", "import yaml\nyaml.safe_load('')"),
    "load": ("pipeline.storage", "torch.load(path)"),
    "pickle": ("pipeline.storage", "pickle.loads(data)"),
    "bce": ("pipeline.cells", "F.binary_cross_entropy(p, y)"),
    "squeeze": ("pipeline.cells", "x.squeeze()"),
    "append": ("pipeline.storage", "h5py.File(path, mode='r+')"),
    "dynamic": ("pipeline.search", "importlib.import_module(name)"),
    "cycle": ("pipeline.report.collect", "from pipeline.report import page"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_of_these_tests_can_fail(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = FAULTS[fault]
    monkeypatch.setitem(TREES, name, ast.parse(text))
    tests = {
        "upward": lambda: test_imports_run_strictly_downward(name),
        "sideways": lambda: test_imports_run_strictly_downward(name),
        "method": lambda: test_no_method_is_known_by_name(name),
        "writer": lambda: test_files_between_stages_go_through_storage(name),
        "dynamic": test_only_methods_and_sources_are_imported_by_computed_name,
        "cycle": test_the_component_has_no_cycle,
    }
    with pytest.raises((AssertionError, graphlib.CycleError)):
        tests.get(fault, lambda: test_what_is_forbidden(name))()
