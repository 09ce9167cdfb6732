"""The frozen starting weights: what is stored beside them, so that a change of their file is noticed."""

import hashlib
from pathlib import Path

import timm
import torch
from ruamel.yaml import YAML

from pipeline.core import files
from stages.backbone import backbone


def test_a_file_is_known_by_its_hash_and_name_not_by_its_place(tmp_path: Path, repository: Path) -> None:
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load((repository / "params.yaml").read_text())
    weights = tmp_path / "somewhere" / "test_resnet.pt"
    torch.manual_seed(0)
    files.write_torch(weights, timm.create_model("test_resnet", pretrained=False, num_classes=0).state_dict())
    block = {"source": "timm", "model": "test_resnet", "weights": "file", "file": str(weights)}
    params["backbone"]["digits"] = block | {"mean": None, "std": None}
    with open(tmp_path / "params.yaml", "w") as file:
        yaml.dump(params, file)
    backbone(tmp_path, "digits")
    folder = tmp_path / "weights" / "digits"
    facts = files.read_json(folder / "provenance.json")
    assert facts["file_sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert facts["origin"] == "timm test_resnet, weights from test_resnet.pt"
    for path in ("provenance.json", "summary.md"):
        assert str(tmp_path) not in (folder / path).read_text()
