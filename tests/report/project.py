"""A whole synthetic project: every file that the report reads, written through storage and by the analysis stages."""

from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from pipeline.config.params import Params, read_params
from pipeline.core import files, hdf5
from pipeline.labels.beliefs import beliefs_file
from pipeline.labels.observed import observed_file
from pipeline.labels.table import Table, write_table
from stages.audit import audit
from stages.wasserstein import wasserstein
from tests import copies

CLASSES = ("<script>alert('x')</script>", "cat & dog", "a $x^2$ b", "rare", "absent in test", "zebra")
EPOCHS = 6

# Test mAP by method on label draws 0, 1, 2, and how far val mAP falls after epoch 2.
LINEAR = {"an": (60, 61, 62), "em": (70, 70, 70), "em_apl": (71, 73, 72), "iun": (75, 75, 75), "full": (80, 81, 82)}
TUNED = {"an": (64, 65, 66), "em": (80, 81, 82), "em_apl": (85, 84, 86), "iun": (74, 74, 74), "full": (89, 90, 91)}
FALL = {"an": 3.0, "em": 0.25}
FIRST = {"plc": (86, 87, 88)}
SECOND = {"lac": (90, 91, 92), "plc": (89, 90.5, 90)}

LABELLING = ("em_apl", "lac", "plc", "ll_cp", "splc", "mime", "lasd", "en")  # methods that give pseudo-labels
ESTIMATED = "en"  # of them, the one that was given an estimate
KNOWING = ("epr", "role", "lasd", "en", "cl", "scl")  # methods that know the label density
HEADS = {"plc": "label_embedding", "lac": "label_embedding", "mime": "bottleneck"}  # in end_to_end and lac; else linear

# A page of nearly thirty methods, some of whose scores lie within a tenth of a point.
ZOO = (
    "an", "wan", "dw", "ls", "n_ls", "focal", "asl", "hill", "splc", "epr", "role", "em", "em_apl", "entmin", "l1r",
    "l2r", "ll_r", "ll_ct", "ll_cp", "gr", "framework", "en", "cl", "iun", "full",
)  # fmt: skip


def many(seeds: tuple[int, ...] = (0, 1, 2)) -> "Plan":
    """Return a plan of nearly thirty methods in one grid, with other heads, starts and recipes."""
    generator = np.random.default_rng(3)
    rank = {method: place / (len(ZOO) - 3) for place, method in enumerate(ZOO[:-2])} | {"iun": 0.8, "full": 1.2}
    noise = generator.normal(scale=0.4, size=(2, len(ZOO), len(seeds))).round(2)
    scores = {
        stage: {
            method: tuple((low + span * rank[method] ** 0.5 + noise[row, place]).tolist())
            for place, method in enumerate(ZOO)
        }
        for row, (stage, low, span) in enumerate((("linear_init", 60, 14), ("finetune", 65, 17)))
    }
    scores["finetune"]["entmin"] = tuple(41.0 + seed for seed in seeds)
    first = {"plc": 77.0, "mime": 84.0, "scl": 79.0, "an": 74.0}
    scores["end_to_end"] = {method: tuple(score + seed / 2 for seed in seeds) for method, score in first.items()}
    scores["lac"] = {"lac": tuple(85.0 + seed for seed in seeds), "plc": tuple(84.0 + seed / 2 for seed in seeds)}
    started = {f"digits-{method}-0-{seed}-from_an": 78.0 + seed for method in ("plc", "lasd") for seed in seeds}
    recipe = {f"digits-gr-0-{seed}-recipe": 81.0 + seed for seed in seeds}
    variants = {"finetune": started | recipe, "lac": {"digits-lac-0-0-no_queue": 84.0}}
    return Plan(draws=(0,), seeds=seeds, scores=scores, variants=variants, published=("gr-recipe",))


@dataclass
class Plan:
    """What the synthetic runs score."""

    draws: tuple[int, ...] = (0, 1, 2)
    seeds: tuple[int, ...] = (0,)
    scores: dict[str, dict[str, tuple[float, ...]]] = field(
        default_factory=lambda: {"linear_init": LINEAR, "finetune": TUNED, "end_to_end": FIRST, "lac": SECOND}
    )
    """By stage and method: of the first draw at each seed, then of the second."""
    variants: dict[str, dict[str, float]] = field(default_factory=lambda: {"lac": {"digits-lac-0-0-no_queue": 88.5}})
    """By stage and run key; one of finetune whose ``<what>`` is from_<method> starts from that method's head."""
    published: tuple[str, ...] = ()
    """Names, as ``<method>`` or ``<method>-<what>``, of what was trained by its source's recipe."""
    datasets: tuple[str, ...] = ("digits",)
    given: tuple[str, ...] = ()
    """Datasets whose labels are not exhaustive."""
    classes: tuple[str, ...] = CLASSES
    searches: tuple[str, ...] = ()
    """Datasets whose settings were searched."""


def params_text(source: Path, target: Path, plan: Plan) -> None:
    """Write the repository's params.yaml with the plan's grid and variants."""
    yaml = YAML(typ="safe", pure=True)
    content: dict[str, Any] = yaml.load(source.read_text(encoding="utf-8"))
    for section in ("prepare", "backbone"):
        content[section] = {name: content[section]["digits"] for name in plan.datasets}
    content["grid"] = {
        "datasets": list(plan.datasets),
        "draws": list(plan.draws),
        "seeds": list(plan.seeds),
        **{stage: list(methods) for stage, methods in plan.scores.items()},
        "lac_start": "plc",
        "search": list(plan.searches),
        "landscape_stage": "finetune",
        "landscape": ["an", "em_apl"],
    }
    content["variants"] = {
        stage: {key: _variant(stage, key) for key in plan.variants.get(stage, {})} for stage in plan.scores
    }
    with open(target, "w", encoding="utf-8") as file:
        YAML().dump(content, file)


def _variant(stage: str, key: str) -> dict[str, Any]:
    dataset, method, draw, seed, what = key.split("-")
    method_settings = {"queue_size": 0} if what == "no_queue" else {}
    change = {"stage": {"protocol": "published"} if what == "recipe" else {}, "method": method_settings}
    variant = {"dataset": dataset, "method": method, "draw": int(draw), "seed": int(seed), "set": change}
    return variant | (
        {"start": what.removeprefix("from_") if "from_" in what else method} if stage == "finetune" else {}
    )


def make_table(classes: tuple[str, ...]) -> Table:
    """40 train, 12 val, 20 test rows; the fourth class is rare, the fifth is absent in test, one cell is not scored."""
    generator = np.random.default_rng(5)
    split = np.repeat(np.array([0, 1, 2], np.uint8), (40, 12, 20))
    truth = (generator.random((72, len(classes))) < 0.5).astype(np.int8)
    truth[:, 3] = 0
    truth[[0, 45, 60], 3] = 1
    truth[split == 2, 4] = 0
    truth[~truth.any(axis=1), 0] = 1
    scored = np.ones(truth.shape, bool)
    scored[1, 2], truth[1, 2] = False, 0
    truth[1, 0] = 1
    official = (split == 2).astype(np.uint8)
    return Table(classes, tuple(f"images/{row:03}.png" for row in range(72)), truth, scored, split, official)


def given_table(table: Table) -> Table:
    """Of each row the first positive is given, and every fifth cell that is absent; the rest is unknown."""
    cells = np.arange(table.truth.size).reshape(table.truth.shape)
    known = (observe(table.truth) == 1) | ((cells % 5 == 0) & (table.truth == 0))
    return replace(table, truth=(table.truth * known).astype(np.int8), scored=known, exhaustive=False)


def observe(truth: np.ndarray) -> np.ndarray:
    """The first positive of each row."""
    single = np.zeros_like(truth)
    single[np.arange(len(truth)), truth.argmax(axis=1)] = 1
    return single


def write_data(root: Path, dataset: str, table: Table, draws: tuple[int, ...]) -> np.ndarray:
    """Write what prepare, simulate and backbone leave; return the single positives, which all draws share."""
    single = observe(table.truth)
    folder = root / "data" / "prepare" / dataset
    write_table(folder / "table.h5", table)
    files.write_json(
        folder / "report.json",
        {
            "dataset": dataset, "source": "synthetic", "size": 48,
            "read": {"skipped": ["broken.jpg", "<img src=x onerror=y>"]}, "splits": {}, "classes": [],
            "warnings": ["test has no positive of absent in test"],
        },
    )  # fmt: skip
    train = table.rows("train")
    truth, known, scored = table.truth[train], single[train], table.scored[train]
    rows = []
    for column, name in enumerate(table.classes if table.exhaustive else ()):
        unknown = (known[:, column] == 0) & scored[:, column]
        rows.append({
            "name": name, "truth_positive": int(truth[:, column].sum()),
            "observed_positive": int((known[:, column] == 1).sum()), "unknown": int(unknown.sum()),
            "false_negative_rate": float(truth[unknown, column].mean()),
        })  # fmt: skip
    for column, name in enumerate(() if table.exhaustive else table.classes):
        positives, unknown = int(truth[:, column].sum()), int((~scored[:, column]).sum())
        rows.append({
            "name": name, "truth_positive": positives, "observed_positive": positives, "unknown": unknown,
            "hidden_positive": None, "false_negative_rate": None, "expected_false_negative_rate": None,
        })  # fmt: skip
    for draw in draws:
        _write_draw(observed_file(root, dataset, draw).parent, draw, table, single, rows)
    files.write_json(
        root / "weights" / dataset / "provenance.json", {"origin": "synthetic", "versions": {"torch": "0"}}
    )
    return observed_labels(table, single)["single"]


def observed_labels(table: Table, single: np.ndarray) -> dict[str, np.ndarray]:
    """The label sets of a draw."""
    everything = np.where(table.scored, np.where(table.truth == 1, 1, -1), 0).astype(np.int8)
    if not table.exhaustive:
        return dict.fromkeys(("single", "all", "negatives"), everything)
    negatives = np.where(single == 1, 1, np.where((table.truth == 0) & table.scored, -1, 0)).astype(np.int8)
    return {"single": single, "all": everything, "negatives": negatives}


def _write_draw(folder: Path, draw: int, table: Table, single: np.ndarray, rows: list[dict[str, Any]]) -> None:
    train = table.rows("train")
    unknown = (single[train] == 0) & table.scored[train]
    files.write_json(
        folder / "report.json",
        {
            "how": "Labels are drawn.", "protocol": "seeded", "draw": draw, "seed": None, "rows": {}, "classes": rows,
            "positives": {"kind": "count", "value": 1}, "negatives": {"kind": "count", "value": 0},
            "bias": {"kind": "uniform"}, "from_unbiased": {"distance": 0.02, "by_chance": 0.01},
            "false_negative_rate": float(table.truth[train][unknown].mean()) + draw / 100,
            "expected_false_negative_rate": 0.25, "labels_per_image": 2.5,
        }
        if table.exhaustive
        else {
            "how": "Nothing is drawn: given.", "protocol": "given", "draw": None, "seed": None, "rows": {},
            "positives": None, "negatives": None, "bias": None, "from_unbiased": None, "classes": rows,
            "false_negative_rate": None,
            "expected_false_negative_rate": None, "labels_per_image": 1.0,
        },
    )  # fmt: skip
    believed = {"value": 2.5 + draw, "low": 2.25 + draw, "high": 2.75 + draw}
    shares = table.truth[train].mean(axis=0) + 0.125  # each is off by an eighth
    files.write_json(
        beliefs_file(folder.parents[2], folder.name.rpartition("-")[0], draw).with_name("report.json"),
        {
            "kind": "fits",
            "shown_as": "count",
            "labels_per_image": believed,
            "shares": {
                name: {
                    "value": share,
                    "low": share - 0.125 - (name == "zebra"),
                    "high": share + (name != "zebra") - 0.25,
                }
                for name, share in zip(table.classes, shares.tolist(), strict=True)
            },  # an interval begins at the truth, but that of the last class ends below it
        },
    )
    cells = [(row, column) for row in (1, 2, 41) for column in range(len(table.classes)) if not single[row, column]]
    hidden = [
        {"path": table.paths[row], "split": "train" if row < 40 else "val", "class": table.classes[column],
         "belief": 0.95 - 0.4 * place / len(cells)}
        for place, (row, column) in enumerate(cells)
    ]  # fmt: skip
    believed_in = beliefs_file(folder.parents[2], folder.name.rpartition("-")[0], draw)
    files.write_tsv(believed_in.with_name("hidden.tsv"), hidden, ["path", "split", "class", "belief"])
    with hdf5.create(folder / "observed.h5") as file:
        for name, labels in observed_labels(table, single).items():
            hdf5.write_array(file, name, labels, axes="image, class", units="label")


def write_run(
    root: Path, stage: str, key: str, score: float, table: Table, single: np.ndarray, protocol: str = "common"
) -> None:
    """Write a run whose test mAP over the present classes is ``score`` percent."""
    folder, (dataset, method, *numbers) = root / "runs" / stage / key, key.split("-")
    draw, seed = map(int, numbers[:2])
    generator = np.random.default_rng([draw, seed, *map(ord, stage + method)])
    rows = {name: table.rows(name) for name in ("train", "val", "test")}
    logits, per_epoch = {}, {}
    strength = score / 30
    for name, index in rows.items():
        noise = generator.normal(size=(EPOCHS, *table.truth[index].shape))
        fade = np.linspace(0.5, 1, EPOCHS)[:, None, None]
        per_epoch[name] = (strength * fade * (2.0 * table.truth[index] - 1) + 1.5 * noise - 1).astype(np.float32)
        logits[name] = per_epoch[name][1]
    with hdf5.create(folder / "logits.h5") as file:
        for name, values in logits.items():
            hdf5.write_array(file, name, values, axes="image, class", units="logit")
        for name in ("val", "train"):
            hdf5.write_array(file, f"epochs_{name}", per_epoch[name], axes="epoch, image, class", units="logit")
        file.attrs["epoch"] = 2
        file.attrs["classes"] = "[]"
    labels = {"full": "all", "iun": "negatives"}.get(method, "single")
    with hdf5.read(observed_file(root, dataset, draw)) as file:
        observed = file[labels][()][rows["train"]]  # pyright: ignore
    with hdf5.create(folder / "labels.h5") as file:
        probability = 1 / (1 + np.exp(-logits["train"]))
        belief = np.zeros_like(probability) if method in ("an", "full", "iun") else probability
        hdf5.write_array(file, "belief", belief, axes="image, class", units="of an unknown cell")
        hdf5.write_array(file, "weight", np.ones_like(belief), axes="image, class", units="of an unknown cell")
        file.attrs["labels"] = labels
        rounds = np.zeros((0, *observed.shape), np.int8)
        if method in LABELLING:
            guesses = [np.where(values < -2 + 0.2 * epoch, -1, 0) for epoch, values in enumerate(per_epoch["train"])]
            rounds = np.stack([np.where(observed == 0, guess, 0) for guess in guesses]).astype(np.int8)
        else:
            file.attrs["reason"] = "the method labels no unknown cell"
        hdf5.write_array(file, "pseudo_label", rounds, axes="round, image, class", units="label")
        hdf5.write_array(file, "round_epoch", np.arange(1, len(rounds) + 1), axes="round", units="epoch")

    present = [column for column in range(len(table.classes)) if table.truth[rows["test"], column].any()]
    shift = {column: 0.01 * (place - (len(present) - 1) / 2) for place, column in enumerate(present)}  # sums to 0
    files.write_tsv(
        folder / "per_class.tsv",
        [
            {
                "class": name,
                **{f"support_{split}": int(table.truth[index, column].sum()) for split, index in rows.items()},
                "ap_val": score / 100,
                "ap_test": score / 100 + shift[column] if column in shift else None,
            }
            for column, name in enumerate(table.classes)
        ],
    )
    fall = FALL.get(method, 0.0)
    curve = [score - 6, score + 1, *(score + 1 - fall * step / (EPOCHS - 2) for step in range(1, EPOCHS - 1))]
    files.write_tsv(
        folder / "epochs.tsv",
        [
            {
                "epoch": epoch, "learning_rate": 0.001, "loss": round(0.5 / epoch - 0.1 * (method == "em"), 6),
                "risk": 0.1, "val_map": value, "val_map_absent_zero": value, "train_map": None,
                "selected": int(epoch == 2),
            }
            for epoch, value in enumerate(curve, start=1)
        ],
    )  # fmt: skip
    rate = 0.001 if draw or seed else 0.01
    files.write_tsv(
        folder / "search.tsv",
        [
            {
                "learning_rate": tried,
                "weight_decay": 0.0,
                "scale": "none",
                "epoch": 2,
                "score": score + (tried == rate),
                "chosen": int(tried == rate),
            }
            for tried in (0.0001, 0.001, 0.01)
        ],
    )
    part = {"map": score, "map_absent_zero": score * len(present) / len(table.classes), "classes_present": len(present)}
    files.write_json(
        folder / "metrics.json",
        {
            "labels": dict.fromkeys(("val", "test"), "clean" if table.exhaustive else "given"),
            "epoch": 2,
            "epochs": EPOCHS,
            "learning_rate": rate,
            "rate_at_edge": rate == 0.01,
            "shown_labels": {"score": 100 - score / 2, "images": "train"},  # turns the order of scores around
            "test": part,
            "val": part | {"map": score + 1},
        },
    )
    ends = {"value": 0.5, "low": 0.25, "high": 1.0}
    classes = {
        name: {
            "share": ends, "matching": ends, "shown": 12, "conformal": {"0.8": 0.125, "0.9": -1.5, "0.95": None},
            "clean": None, "reason": "12 held-out images show it: too few to find 95 % of it",
        }
        for name in table.classes
    }  # fmt: skip
    worth = {
        rule: {"macro": score - place, "micro": score - place + 0.5, "found": 90.0, "classes": len(table.classes)}
        for place, rule in enumerate(("matching", "0.8", "0.9", "zero", "clean"))
    }
    content = {"rule": "", "images": {}, "classes": classes, "test": worth if table.exhaustive else None}
    files.write_json(folder / "thresholds.json", content)
    head = HEADS.get(method, "linear") if stage in ("end_to_end", "lac") else "linear"
    files.write_json(
        folder / "provenance.json",
        {
            "settings": {
                "select": "clean" if table.exhaustive else "auto",
                "seed": seed,
                "protocol": protocol,
                "head": {"kind": head},
            },
            "needs": ["expected_positives"] if method in KNOWING else [],
            "expected_positives": {"value": 2.5, "estimated": method == ESTIMATED} if method in KNOWING else None,
            "versions": {"torch": "9.9"},
        },
    )


def write_landscape(root: Path, key: str) -> None:
    """Write a bowl."""
    line, plane = np.linspace(-1, 1, 9), np.linspace(-1, 1, 5)
    method = key.split("-")[1]
    depth = 0.2 if method == "an" else -0.05
    with hdf5.create(root / "analyses" / "landscape" / key / "landscape.h5") as file:
        hdf5.write_array(file, "offsets_1d", line, axes="point", units="offset")
        hdf5.write_array(file, "loss_1d", depth + line**2 + 0.1 * line, axes="point", units="loss")
        hdf5.write_array(file, "offsets_2d", plane, axes="point", units="offset")
        hdf5.write_array(file, "loss_2d", depth + plane[:, None] ** 2 + 2 * plane[None] ** 2, axes="x, y", units="loss")
        file.attrs.update(
            {"centre_loss": depth, "direction_seed": 123, "images": 40, "method": method, "stage": "finetune"}
        )


def make_project(root: Path, params: Path, plan: Plan | None = None) -> Params:
    """Write a whole project below ``root``."""
    plan = plan or Plan()
    params_text(params, root / "params.yaml", plan)
    for dataset in plan.datasets:
        table = make_table(plan.classes)
        table = given_table(table) if dataset in plan.given else table
        single = write_data(root, dataset, table, plan.draws)
        for stage, methods in plan.scores.items():
            runs = {
                f"{dataset}-{method}-{draw}-{seed}": value
                for method, values in methods.items()
                for (draw, seed), value in zip(product(plan.draws, plan.seeds), values, strict=False)
            }
            mine = {key: value for key, value in plan.variants.get(stage, {}).items() if key.startswith(f"{dataset}-")}
            for key, value in (runs | mine).items():
                _, method, _, _, *what = key.split("-")
                protocol = "published" if "-".join([method, *what]) in plan.published else "common"
                write_run(root, stage, key, float(value), table, single, protocol)
        for draw, seed in product(plan.draws, plan.seeds):
            audit(root, dataset, draw, seed)
            wasserstein(root, dataset, draw, seed)
            for method in ("an", "em_apl"):
                write_landscape(root, f"{dataset}-{method}-{draw}-{seed}")
    copies.sign(root)
    return read_params(root / "params.yaml")
