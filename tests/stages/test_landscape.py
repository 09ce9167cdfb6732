from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.audits.settings import Landscape
from pipeline.config.params import KnownDensity, read_project
from pipeline.config.runs import read_run
from pipeline.core import files, hdf5, seeds
from pipeline.core.errors import FileError, LandscapeError
from pipeline.methods.an import AssumeNegative
from pipeline.methods.an import Settings as AnSettings
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem, describe
from pipeline.networks.interface import Outputs
from pipeline.networks.network import Network
from pipeline.training.landscape import (
    Curves,
    compute_curves,
    make_loss,
    read_point,
    sample_images,
    summarise_curves,
)
from stages.landscape import landscape
from tests import copies
from tests.stages import finished_runs as finished

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
SETTINGS = {"images": 9, "points_1d": 5, "points_2d": 3, "radius": 0.8, "direction_seed": 123, "batch_size": 4}
EMBEDDING = {"kind": "label_embedding", "dim": 8, "heads": 2, "feedforward": 8, "encoder_layers": 1}
STRONG = {"crop": 1.0, "cutout": 0.5, "operations": 2, "magnitude": 9, "jitter": 0.8, "grayscale": 0.2}
EMBEDDING |= {"decoder_layers": 1, "dropout": 0.1, "embedding": 6}


class Project:
    """A root with data, and trained networks on demand."""

    def __init__(self, root: Path, repository: Path, **finetune: Any) -> None:
        sections = {"finetune": {"default": finished.shipped(repository)["finetune"]["default"] | finetune}}
        sections["landscape"] = {"default": SETTINGS}
        finished.write_params(root, repository, variants=finished.no_variants(), **sections)
        self.root = root
        self.params = read_project(root)
        self.table, self.observed = finished.write_data(root)
        self.pixels = np.random.default_rng(5).integers(0, 256, (len(self.table.paths), 16, 16, 3), dtype=np.uint8)
        with hdf5.create(root / "data" / "prepare" / "digits" / "images.h5") as file:
            hdf5.write_array(file, "pixels", self.pixels, axes="image, height, width, channel (RGB)", units="0 to 255")

    def images(self, rows: np.ndarray) -> torch.Tensor:
        """Normalised images, one value after the other as the formula says."""
        scaled = (self.pixels[rows] / 255 - np.array(MEAN)) / np.array(STD)
        return torch.from_numpy(scaled.astype(np.float32)).permute(0, 3, 1, 2)

    def method(self, name: str) -> base.Method:
        labels = self.observed[base.load(name).labels][self.table.rows("train")]
        density = self.params.density("digits")
        assert isinstance(density, KnownDensity)
        known = describe(self.table.classes, labels, density.value, 8)
        return base.build(name, self.params.method(name, "digits"), known).eval()

    def train(self, method: base.Method, name: str, seed: int, head: dict[str, Any] | None = None) -> Network:
        """Write the folder of a run whose network has random weights and moved running statistics."""
        torch.manual_seed(seed)
        backbone = {"source": "small", "width": 8, "mean": MEAN, "std": STD}
        classes = len(finished.CLASSES)
        network = Network(
            {"backbone": backbone, "width": 8, "classes": classes, "head": head or {"kind": "linear", "scale": "none"}}
        )
        train = self.images(self.table.rows("train"))
        network.train()(train)
        network.eval()
        folder = self.root / "runs" / "finetune" / f"digits-{name}-0-0"
        files.write_torch(folder / "weights.pt", network.content())
        files.write_torch(folder / "method.pt", dict(method.state_dict()))
        with torch.no_grad(), hdf5.create(folder / "logits.h5") as file:
            hdf5.write_array(file, "train", network(train)["logits"].numpy(), axes="image, class", units="logit")
        return network

    def loss(self, network: Network, method: base.Method, index: np.ndarray) -> float:
        """The method's loss on unaugmented images of the training split."""
        rows = self.table.rows("train")[index]
        observed = torch.from_numpy(self.observed[method.labels][rows])
        views = len(method.views)
        with torch.no_grad():
            answer = network(self.images(rows))
            given: dict[str, Any] = {name: torch.stack([value] * views) for name, value in answer.items()}
            return float(sum(method(Outputs(**given), observed, torch.from_numpy(index)).values()))

    def result(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, Any], str]:
        folder = self.root / "analyses" / "landscape" / f"digits-{name}-0-0"
        with hdf5.read(folder / "landscape.h5") as file:
            arrays = {key: dataset[()] for key, dataset in file.items()}
            attrs = dict(file.attrs)
        return arrays, attrs, files.read_json(folder / "metrics.json"), (folder / "summary.md").read_text()


def moved(network: Network, x: float, y: float) -> Network:
    """The network moved by hand along the two directions of the seed."""
    other = Network(network.architecture)
    other.load_state_dict(network.state_dict())
    generators = {axis: seeds.torch_generator(123, "landscape", "direction", axis) for axis in ("x", "y")}
    with torch.no_grad():
        for parameter in other.parameters():
            draws = {axis: torch.randn(parameter.shape, generator=generators[axis]) for axis in ("x", "y")}
            if parameter.ndim < 2:
                continue
            for weight, *slices in zip(parameter, draws["x"], draws["y"], strict=True):
                norm = weight.norm().clone()
                for offset, draw in zip((x, y), slices, strict=True):
                    weight += offset * draw * norm / draw.norm()
    return other.eval()


def label_some_cells(project: Project) -> base.Method:
    """EM+APL in a state in which a fifth of the unknown cells carries a stored label."""
    method = project.method("em_apl")
    unknown = torch.from_numpy(project.observed["single"][project.table.rows("train")] == 0)
    generator = torch.Generator().manual_seed(0)
    chosen = unknown & (torch.rand(unknown.shape, generator=generator) < 0.2)
    state = method.state_dict()
    state["since"][chosen] = 2
    state["soft"][chosen] = torch.rand(int(chosen.sum()), generator=generator) * 0.3
    return method


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Project:
    return Project(tmp_path_factory.mktemp("landscape"), repository)


@pytest.fixture(scope="module")
def stored(project: Project) -> tuple[base.Method, Network]:
    method = label_some_cells(project)
    network = project.train(method, "em_apl", seed=1)
    landscape(project.root, "digits", "em_apl", 0, 0)
    return method, network


def test_every_point_is_the_own_loss_of_a_network_moved_by_hand(project: Project, stored: tuple[base.Method, Network]):
    method, network = stored
    arrays, attrs, _, _ = project.result("em_apl")
    index = arrays["image_index"]
    assert arrays["offsets_1d"] == pytest.approx([-0.8, -0.4, 0, 0.4, 0.8])
    assert arrays["offsets_2d"] == pytest.approx([-0.8, 0, 0.8])
    line = [project.loss(moved(network, a, 0), method, index) for a in arrays["offsets_1d"]]
    assert arrays["loss_1d"] == pytest.approx(line, rel=1e-4)
    plane = [[project.loss(moved(network, a, b), method, index) for b in (-0.8, 0, 0.8)] for a in (-0.8, 0, 0.8)]
    assert arrays["loss_2d"] == pytest.approx(np.array(plane), rel=1e-4)
    assert abs(plane[0][2] - plane[2][0]) > 1e-3  # else the test could not tell the axes apart
    assert attrs["centre_loss"] == arrays["loss_1d"][2] == arrays["loss_2d"][1, 1]
    assert attrs["centre_loss"] == pytest.approx(project.loss(network, method, index), rel=1e-6)


def test_stored_labels_enter_the_loss(project: Project, stored: tuple[base.Method, Network]):
    """By the formula, cell by cell: beta and the stored target where labelled, -alpha H elsewhere."""
    method, network = stored
    arrays, attrs, _, summary = project.result("em_apl")
    index = arrays["image_index"]
    rows = project.table.rows("train")[index]
    with torch.no_grad():
        p = torch.sigmoid(network(project.images(rows))["logits"].double()).numpy()
    own, state = project.params.method("em_apl", "digits"), method.state_dict()
    total = 0.0
    for i, row in enumerate(rows):
        for c in range(len(finished.CLASSES)):
            q, s = p[i, c], float(state["soft"][index[i], c])
            if project.observed["single"][row, c] == 1:
                total += -np.log(q)
            elif state["since"][index[i], c] > 0:
                total += own["beta"] * (-s * np.log(q) - (1 - s) * np.log(1 - q))
            else:
                total += own["alpha"] * (q * np.log(q) + (1 - q) * np.log(1 - q))
    assert attrs["centre_loss"] == pytest.approx(total / p.size, rel=1e-5)
    assert "`soft`" in summary and "`since`" in summary
    fresh = project.loss(network, project.method("em_apl"), index)
    assert abs(fresh - attrs["centre_loss"]) > 1e-3


def test_metrics_are_those_of_the_arrays(project: Project, stored: tuple[base.Method, Network]):
    arrays, attrs, metrics, summary = project.result("em_apl")
    line, plane, centre = arrays["loss_1d"], arrays["loss_2d"], attrs["centre_loss"]
    assert metrics["centre_loss"] == centre
    assert (metrics["min_1d"], metrics["max_1d"]) == (line.min(), line.max())
    assert (metrics["min_2d"], metrics["max_2d"]) == (plane.min(), plane.max())
    assert metrics["below_centre_1d"] == (line < centre).sum()
    assert metrics["rise_at_radius_1d"] == pytest.approx((line[0] + line[-1]) / 2 - centre)
    assert (metrics["points_1d"], metrics["points_2d"], metrics["images"]) == (5, 9, 9)
    assert (metrics["not_finite_1d"], metrics["reason"]) == (0, None)
    assert metrics["stored_logits_difference"] < 1e-4
    assert f"{centre:.6f}" in summary and "seed 123" in summary
    assert (attrs["method"], attrs["stage"], attrs["images"], attrs["direction_seed"]) == ("em_apl", "finetune", 9, 123)


def test_methods_share_images_and_raw_draws_but_not_directions(project: Project, stored: tuple[base.Method, Network]):
    network = project.train(project.method("an"), "an", seed=2)
    landscape(project.root, "digits", "an", 0, 0)
    an, an_attrs, _, _ = project.result("an")
    em_apl, attrs, _, _ = project.result("em_apl")
    assert (an["image_index"] == em_apl["image_index"]).all()
    for axis in ("x", "y"):
        assert an_attrs[f"raw_direction_{axis}_sha256"] == attrs[f"raw_direction_{axis}_sha256"]
    assert attrs["raw_direction_x_sha256"] != attrs["raw_direction_y_sha256"]
    index = an["image_index"]
    assert an["loss_1d"][4] == pytest.approx(
        project.loss(moved(network, 0.8, 0), project.method("an"), index), rel=1e-4
    )


def test_an_oracle_is_charged_with_its_own_labels(project: Project):
    method = project.method("full")
    network = project.train(method, "full", seed=3)
    landscape(project.root, "digits", "full", 0, 0)
    arrays, attrs, _, summary = project.result("full")
    index = arrays["image_index"]
    rows = project.table.rows("train")[index]
    with torch.no_grad():
        logits = network(project.images(rows))["logits"].double()
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, torch.from_numpy(project.table.truth[rows]).double(), reduction="none"
    )
    losses[torch.from_numpy(~project.table.scored[rows])] = 0  # unknown to the oracle, which leaves them out
    assert attrs["centre_loss"] == pytest.approx(float(losses.mean()), rel=1e-5)
    assert "`all`" in summary


def test_a_method_of_two_views_gets_the_picture_twice_and_forgets_nothing(tmp_path: Path, repository: Path):
    project = Project(tmp_path, repository, head=EMBEDDING, strong=STRONG)
    method = project.method("lac")
    network = project.train(method, "lac", seed=4, head=EMBEDDING)
    index = sample_images(finished.TRAIN, 9, 123, "digits")
    method.train()
    project.loss(network, method, np.arange(5))  # fills the queue
    method.eval()
    assert method.state_dict()["queue_labels"].any()
    state = {name: value.clone() for name, value in method.state_dict().items()}
    files.write_torch(tmp_path / "runs/finetune/digits-lac-0-0/method.pt", state)
    landscape(tmp_path, "digits", "lac", 0, 0)
    arrays, attrs, _, summary = project.result("lac")
    assert attrs["centre_loss"] == pytest.approx(project.loss(network, method, index), rel=1e-5)
    assert arrays["loss_1d"][0] == pytest.approx(project.loss(moved(network, -0.8, 0), method, index), rel=1e-3)
    assert "compares 2 views" in summary and "not a mean over cells" in summary
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())


def test_every_view_is_the_whole_image_and_only_weights_are_handed_on():
    class Probe(AssumeNegative):
        views = ("weak", "strong")
        needs = {"maps", "geometry", "parameters"}

        def forward(self, outputs: Outputs, observed: torch.Tensor, index: torch.Tensor) -> dict[str, torch.Tensor]:
            seen.append(outputs)
            return super().forward(outputs, observed, index)

    seen: list[Outputs] = []
    observed, logits = torch.zeros(3, 2, dtype=torch.int8), torch.randn(3, 2)
    problem = Problem(5, ("a", "b"), torch.tensor([0, 0]), None)
    loss = make_loss(Probe(AnSettings(floor=0.0), problem).eval(), observed, torch.tensor([4, 0, 2]), ["head.weight"])
    maps, weight = torch.randn(3, 2, 4, 4), torch.randn(2, 7)
    others = {"head.bias": torch.zeros(2), "layer1.weight": torch.randn(3, 3)}
    value = loss({"logits": logits, "maps": maps}, {"head.weight": weight, **others})
    assert value == pytest.approx(float(torch.nn.functional.softplus(logits).mean()))
    (outputs,) = seen
    assert outputs.geometry is not None and outputs.maps is not None and outputs.parameters is not None
    assert outputs.geometry.shape == (2, 3, 5)
    assert (outputs.geometry == torch.tensor([0.0, 0, 1, 1, 0])).all()  # not cropped, not mirrored; see `Outputs`
    assert torch.equal(outputs.maps, torch.stack([maps, maps]))
    assert [each.shape for each in outputs.parameters] == [(2, 7)]


@pytest.mark.parametrize(("name", "power"), [("l1r", 1), ("l2r", 2)])
def test_a_norm_is_of_the_weights_that_the_run_trained(tmp_path: Path, repository: Path, name: str, power: int):
    project = Project(tmp_path, repository)
    content = copies.read_params(tmp_path)
    content["finetune"]["default"]["freeze"] = ["layers.0", "layers.3"]
    content["methods"][name] = {"default": {"weight": 0.5}}
    finished.write_params(tmp_path, repository, **content)
    project.params = read_project(tmp_path)
    network = project.train(project.method(name), name, seed=8)
    landscape(tmp_path, "digits", name, 0, 0)
    arrays, attrs, _, _ = project.result(name)
    index = arrays["image_index"]
    rows = project.table.rows("train")[index]
    frozen = {"backbone.layers.0.0.weight", "backbone.layers.3.0.weight"}
    for offset, found in ((0.0, attrs["centre_loss"]), (0.8, arrays["loss_1d"][4])):
        at = moved(network, offset, 0)
        with torch.no_grad():
            logits = at(project.images(rows))["logits"].double()
        sign = 1 - 2 * torch.from_numpy(project.observed["single"][rows])
        norms = {
            key: float((each.double().abs() ** power).sum()) for key, each in at.state_dict().items() if each.ndim > 1
        }
        assert frozen < set(norms) and sum(norms[key] for key in frozen) > 1
        trained = sum(value for key, value in norms.items() if key not in frozen)
        expected = float(torch.nn.functional.softplus(sign * logits).mean()) + 0.5 * trained
        assert found == pytest.approx(expected, rel=1e-5)


def test_same_inputs_same_bytes_and_the_run_stays_as_it_is(project: Project, stored: tuple[base.Method, Network]):
    folders = [project.root / "analyses/landscape/digits-em_apl-0-0", project.root / "runs/finetune/digits-em_apl-0-0"]
    before = {path: path.read_bytes() for folder in folders for path in folder.iterdir()}
    assert {path.name for path in folders[0].iterdir()} == {
        "landscape.h5",
        "manifest.json",
        "metrics.json",
        "summary.md",
    }
    landscape(project.root, "digits", "em_apl", 0, 0)
    assert {path: path.read_bytes() for folder in folders for path in folder.iterdir()} == before


def test_weights_that_are_not_those_of_the_logits_are_an_error(tmp_path: Path, repository: Path):
    project = Project(tmp_path, repository)
    method = project.method("an")
    network = project.train(method, "an", seed=6)
    logits = tmp_path / "runs/finetune/digits-an-0-0/logits.h5"
    with torch.no_grad(), hdf5.create(logits) as file:
        dark = torch.zeros_like(project.images(project.table.rows("train")))  # as if normalised in another way
        hdf5.write_array(file, "train", network(dark)["logits"].numpy() + 1, axes="image, class", units="logit")
    with pytest.raises(LandscapeError, match=r"digits-an-0-0/logits\.h5: stored logits"):
        landscape(tmp_path, "digits", "an", 0, 0)
    assert not (tmp_path / "analyses").exists()


def test_an_overflowing_loss_is_null_in_the_metrics():
    line, plane = np.array([np.inf, 0.5, 0.3, 0.4, np.nan]), np.array([[np.inf] * 3, [1, 0.3, 2], [1, 1, 0.2]])
    metrics = summarise_curves(Curves(np.arange(-2.0, 3), line, np.arange(-1.0, 2), plane, {}))
    assert metrics["rise_at_radius_1d"] is None and "not finite" in metrics["reason"]
    assert (metrics["not_finite_1d"], metrics["min_1d"], metrics["max_1d"]) == (2, 0.3, 0.5)
    assert (metrics["not_finite_2d"], metrics["below_centre_2d"], metrics["centre_loss"]) == (3, 1, 0.3)


def test_a_radius_at_which_all_overflows_is_refused(tmp_path: Path, repository: Path):
    project = Project(tmp_path, repository)
    project.train(project.method("an"), "an", seed=7)
    run = read_run(tmp_path, "finetune", "digits", "an", 0, 0, None)
    settings = Landscape.model_construct(None, **SETTINGS | {"radius": 1e30})  # more than params.yaml may ask for
    point = read_point(run, settings, torch.device("cpu"))
    with pytest.raises(LandscapeError, match=r"^landscape\.radius: 1e\+30: the loss overflows everywhere but at"):
        compute_curves(point, settings)


@pytest.mark.parametrize("stage", ["end_to_end", "lac", "linear_init"])
def test_a_landscape_is_of_the_stage_that_the_grid_names(tmp_path: Path, repository: Path, stage: str):
    """The loss at the centre is that of the run's network on its inputs: images, or cached features for a head."""
    project = Project(tmp_path, repository)
    grid = finished.shipped(repository)["grid"] | {"landscape_stage": stage}
    sections = {"variants": finished.no_variants(), "grid": grid, "landscape": {"default": SETTINGS}}
    finished.write_params(tmp_path, repository, **sections)
    method, train = project.method("an"), project.table.rows("train")
    network = project.train(method, "an", seed=7)
    inputs = project.images(train)
    folder = tmp_path / "runs" / stage / "digits-an-0-0"
    if stage == "linear_init":
        features = np.random.default_rng(0).normal(size=(len(project.table.paths), 8)).astype(np.float32)
        with hdf5.create(tmp_path / "data/features/digits/features.h5") as file:
            hdf5.write_array(file, "features", features, axes="image, feature", units="pooled activation")
            file.attrs["pools"] = '["mean"]'
        network = Network(
            {
                "backbone": None,
                "width": 8,
                "classes": len(finished.CLASSES),
                "head": {"kind": "linear", "scale": "none"},
            }
        )
        inputs = torch.from_numpy(features[train])
        network.eval()
    files.write_torch(folder / "weights.pt", network.content())
    files.write_torch(folder / "method.pt", dict(method.state_dict()))
    with torch.no_grad(), hdf5.create(folder / "logits.h5") as file:
        hdf5.write_array(file, "train", network(inputs)["logits"].numpy(), axes="image, class", units="logit")
    landscape(tmp_path, "digits", "an", 0, 0)
    arrays, attrs, _, summary = project.result("an")
    assert attrs["stage"] == stage and f"{stage}/digits-an-0-0" in summary
    observed = torch.from_numpy(project.observed["single"][train][arrays["image_index"]])
    with torch.no_grad():
        logits = network(inputs[arrays["image_index"]])["logits"].double()
    assumed = torch.nn.functional.binary_cross_entropy_with_logits(logits, (observed == 1).double())
    assert attrs["centre_loss"] == pytest.approx(float(assumed), rel=1e-5)


def test_the_sample_is_fixed_and_never_larger_than_the_split():
    chosen = sample_images(100, 10, 123, "digits")
    assert len(set(chosen.tolist())) == 10 and (np.diff(chosen) > 0).all() and chosen.dtype == np.int64
    assert (chosen == sample_images(100, 10, 123, "digits")).all()
    assert (chosen != sample_images(100, 10, 124, "digits")).any()
    assert sample_images(4, 10, 123, "digits").tolist() == [0, 1, 2, 3]


def test_a_missing_run_is_an_error_that_names_it(tmp_path: Path, repository: Path):
    Project(tmp_path, repository)
    with pytest.raises(FileError, match="runs/finetune/digits-an-0-0/weights.pt"):
        landscape(tmp_path, "digits", "an", 0, 0)
