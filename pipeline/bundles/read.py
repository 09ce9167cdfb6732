"""Bundles read: from a folder, wherever it lies, to a model that scores pictures."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from pipeline.bundles.layout import FILES, MODEL, SUMS, WEIGHTS, Description, read_description
from pipeline.bundles.scorer import Scorer
from pipeline.core.device import choose_device
from pipeline.core.errors import ConfigError, FileError
from pipeline.networks.network import Network


@dataclass(frozen=True)
class Model:
    """A model that scores pictures."""

    folder: Path
    about: Description
    scorer: Scorer
    device: torch.device

    @torch.inference_mode()
    def logits(self, pictures: np.ndarray) -> np.ndarray:
        """Return the (B, C) float32 logits of (B, size, size, 3) uint8 RGB pictures, as `size` of the input says."""
        return self.scorer(torch.from_numpy(pictures).to(self.device)).logits.cpu().numpy()

    def thresholds(self, wanted: str | float | None = None) -> np.ndarray:
        """Return the (C,) logits from which classes count as present, +inf where never.

        Args:
            wanted: Name of a stored rule, a probability between 0 and 1, or None: the chosen rule.

        Raises:
            ConfigError: There is no such rule, or it is no such probability.
        """
        if isinstance(wanted, float):
            if not 0 < wanted < 1:
                raise ConfigError(f"--threshold: {wanted:g} is no probability between 0 and 1")
            return np.full(len(self.about.classes), np.log(wanted / (1 - wanted)))
        rules = self.about.thresholds.rules
        name = self.about.thresholds.chosen if wanted is None else wanted
        if name not in rules:
            raise ConfigError(f"--threshold: {self.folder} has none called {name!r}; it has {', '.join(rules)}")
        cuts = [rules[name].logits[each] for each in self.about.classes]
        return np.array([np.inf if cut is None else cut for cut in cuts])


def read_model(folder: str | Path) -> Model:
    """Read a bundle.

    Args:
        folder: Its folder.

    Returns:
        The model, on the device that the environment names.

    Raises:
        FileError: It is no bundle, of another format, lacks a file, or a file is damaged or another model's.
    """
    folder = Path(folder)
    sums = read_sums(folder)
    _read(folder, MODEL, sums)
    about = read_description(folder / MODEL)
    content = _read(folder, WEIGHTS, sums)
    try:
        state = safetensors.torch.load(content)
    except Exception as error:  # its reader raises its own error, and others, on bytes that are none
        raise FileError(f"{folder / WEIGHTS}: no safetensors file ({error}); bundle the run again") from error
    try:
        with torch.random.fork_rng(devices=[]):  # building draws weights that are overwritten at once
            network = Network(about.architecture())
    except Exception as error:  # each family of timm refuses in its own way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(f"{folder / MODEL}: its network cannot be built here ({reason})") from error
    _raise_if_other(folder, network.state_dict(), state, len(about.classes))
    network.load_state_dict(state)
    device = choose_device()
    return Model(folder, about, Scorer(network).to(device), device)


def read_sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of a bundle's files, as they were written, by name.

    Args:
        folder: The bundle.

    Returns:
        Digests by name.

    Raises:
        FileError: The folder is no bundle.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="ascii").splitlines()
        sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    except (OSError, ValueError) as error:
        raise FileError(f"{folder}: no bundle of a model ({_what_it_is(folder)})") from error
    if not sums.keys() <= set(FILES) or MODEL not in sums or WEIGHTS not in sums:
        raise FileError(f"{folder / SUMS}: names other files than a bundle has; bundle the run again with `spml model`")
    return sums


def _what_it_is(folder: Path) -> str:
    """Return what lies where a bundle was looked for, and what to do."""
    if (folder / "weights.pt").is_file():
        return f"it is a run: spml model {'/'.join(folder.absolute().parts[-2:])} bundles it"
    if folder.is_file():
        return "a file; name the folder that `spml model` wrote"
    if not folder.is_dir():
        return "there is no such folder; `spml model` writes one"
    return f"it has no {SUMS}; `spml model` writes one"


def _read(folder: Path, name: str, sums: dict[str, str]) -> bytes:
    """Return the content of a bundle's file.

    Raises:
        FileError: It is absent, or not what was written.
    """
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise FileError(
            f"{folder / name}: cannot be read ({reason}); copy the bundle again, or bundle the run again"
        ) from error
    if hashlib.sha256(content).hexdigest() != sums[name]:
        raise FileError(
            f"{folder / name}: damaged, edited or another bundle's ({SUMS} names another content); copy the bundle "
            "again, or bundle the run again with `spml model`"
        )
    return content


def _raise_if_other(
    folder: Path, wanted: dict[str, torch.Tensor], state: dict[str, torch.Tensor], classes: int
) -> None:
    """Raise where weights are not those of the network that model.json describes; the first difference is named.

    Raises:
        FileError: As said.
    """
    for name in [*wanted, *state]:
        shapes = [str(tuple(each[name].shape)) if name in each else "absent" for each in (wanted, state)]
        if shapes[0] != shapes[1]:
            raise FileError(
                f"{folder / WEIGHTS}: {name} is {shapes[1]}, and the network of {MODEL}, of {classes} classes, has "
                f"{shapes[0]}: the two are of different models; bundle the run again with `spml model`"
            )
