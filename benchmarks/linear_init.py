"""How near linear_init's loop is to its limit: ``python -m benchmarks.linear_init``.

The limit is a bare loop over the same tensors: same head, loss, optimiser and batch size, no methods, views, checks
or logs. A per-sample DataLoader over the same features is the usual alternative. The three alternate, so that a busy
machine slows all of them; the medians' ratios are printed.
"""

import statistics
import time
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from pipeline.config.params import read_params
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.network import Network
from pipeline.training.inputs import FeatureInputs, batches
from pipeline.training.loop import Data, Plan, Trainer

N, D, C, ROUNDS = 6000, 512, 20, 5


def main() -> None:
    """Print seconds an epoch of the three loops, and their ratios."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    features = generator.standard_normal((N, D), dtype=np.float32)
    observed = np.zeros((N, C), np.int8)
    observed[np.arange(N), generator.integers(0, C, N)] = 1
    settings = (
        read_params().settings("linear_init", "default").model_copy(update={"epochs": 1, "keep_epoch_logits": False})
    )
    inputs, few = FeatureInputs(features, None, False), FeatureInputs(features[:2], None, False)
    known = Problem(N, tuple(map(str, range(C))), torch.from_numpy((observed == 1).sum(0)), None)

    def ours() -> None:
        network = Network({"backbone": None, "width": D, "classes": C, "head": {"kind": "linear", "scale": "none"}})
        method = base.build("an", {"floor": 0.0}, known)
        plan = Plan("benchmark", settings, 1e-3, settings.epochs, 0, torch.device("cpu"))
        Trainer(network, method, Data(inputs, torch.from_numpy(observed), few, None), plan).fit()

    x, y = torch.from_numpy(features), torch.from_numpy(observed).float()

    def steps(pairs: Iterable[Sequence[torch.Tensor]]) -> None:
        head = torch.nn.Linear(D, C)
        optimizer = torch.optim.Adam(head.parameters(), 1e-3)
        for part, labels in pairs:
            loss = F.binary_cross_entropy_with_logits(head(part), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def limit() -> None:
        order = torch.randperm(N)
        steps((x[order[i]], y[order[i]]) for i in map(torch.from_numpy, batches(N, settings.batch_size)))

    def loader() -> None:
        steps(DataLoader(TensorDataset(x, y), settings.batch_size, shuffle=True))

    seconds: dict[str, list[float]] = {"ours": [], "limit": [], "loader": []}
    for _ in range(ROUNDS):
        for name, loop in (("ours", ours), ("limit", limit), ("loader", loader)):
            started = time.perf_counter()
            loop()
            seconds[name].append(time.perf_counter() - started)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{N} x {D} features, {C} classes, batches of {settings.batch_size}, one thread; seconds an epoch:")
    for name, value in median.items():
        print(f"{name:7} {value:.3f}   {value / median['limit']:.2f} x the limit")


if __name__ == "__main__":
    main()
