"""ONNX files score as torch does, for each kind of head and backbone, any number of pictures at a time."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from pipeline.bundles.export import compare
from pipeline.bundles.read import read_model
from pipeline.core.errors import ConfigError, FileError
from tests import tiny
from tests.bundles import made

TIMM = {"source": "timm", "model": "test_resnet", "options": {}, "width": 96, "own_pool": False}
CASES: dict[str, dict[str, Any]] = {
    **{kind: {"backbone": made.SMALL, "pools": ["mean"], "head": head} for kind, head in made.HEADS.items()},
    "pools": {"backbone": made.SMALL, "pools": ["mean", "sqrt", "top4"], "head": made.HEADS["places"]},
    "timm": {"backbone": TIMM, "pools": ["mean"], "head": made.HEADS["label_embedding"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("linear", "places")])
def test_onnx_scores_as_torch_does(case: str, tmp_path: Path) -> None:
    folder = made.bundle(tmp_path / "m", onnx=True, network=CASES[case])
    model, pictures = read_model(folder), tiny.pixels(7, seed=5)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    for count in (1, 3, 7):
        found = session.run(["probabilities", "logits"], {"images": pictures[:count]})
        probabilities, logits = map(np.asarray, found)
        with torch.inference_mode():
            wanted = model.scorer(torch.from_numpy(pictures[:count]))
        np.testing.assert_allclose(probabilities, wanted.probabilities.numpy(), atol=1e-4, rtol=0)
        np.testing.assert_allclose(logits, wanted.logits.numpy(), atol=1e-4, rtol=1e-4)
    (given,) = session.get_inputs()
    assert given.type == "tensor(uint8)" and given.shape[1:] == [tiny.SIDE, tiny.SIDE, 3]
    assert str(Path(torch.__file__).parent).encode() not in (folder / "model.onnx").read_bytes()
    assert str(Path(__file__).parents[2]).encode() not in (folder / "model.onnx").read_bytes()
    other = read_model(made.bundle(tmp_path / "other", network=CASES[case]))
    for parameter in other.scorer.network.head.parameters():
        torch.nn.init.normal_(parameter)
    assert (
        compare(folder / "model.onnx", other.scorer, pictures)
        > 1e-4
        > compare(folder / "model.onnx", model.scorer, pictures)
    )


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"--onnx: needs onnx; pip install 'spml\[onnx\]'"):
        made.bundle(tmp_path / "m", onnx=True)


def test_a_file_that_scores_otherwise_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.bundles import export

    class Program:
        class model_proto:  # noqa: N801
            @staticmethod
            def SerializeToString(**_: object) -> bytes:
                return b"made"

    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: Program)
    monkeypatch.setattr(export, "_forget_places", lambda _: None)
    monkeypatch.setattr("onnx.checker.check_model", lambda _: None)
    monkeypatch.setattr(export, "compare", lambda *_: 0.01)
    with pytest.raises(
        FileError, match="onnxruntime's probabilities differ from torch's by 0.01, so it is not written"
    ):
        made.bundle(tmp_path / "m", onnx=True)
    assert not (tmp_path / "m" / "model.onnx").exists()
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: 1 / 0)
    with pytest.raises(FileError, match=r"model.onnx: the network cannot be exported \(division by zero\)"):
        made.bundle(tmp_path / "n", onnx=True)
