"""The table of docs/backbones.md: facts of the recommended backbones, and how fast they are here.

``python -m benchmarks.backbones --write docs/backbones.md`` puts it between two lines of the page, and into a file of
tabs beside it, which `spml backbones` prints. Speed is measured with random weights, since weights do not change it:
images by the second of processor time, on one thread, in batches of four, the better of two; models of more than 100
million parameters are left out.
"""

import argparse
import time
from pathlib import Path

import torch
from tabulate import tabulate

from pipeline.cli.backbones import RECOMMENDED, Facts, make_row, read_facts
from pipeline.core.files import write_text, write_tsv
from pipeline.networks.timm_backbone import TimmBackbone

START, END = "<!-- backbones -->", "<!-- /backbones -->"
SPEED = "images/s"
BATCH, TRIES, MOST = 4, 2, 100_000_000


def measure(facts: Facts) -> str:
    """Return images a second of processor time, empty of models that are too large or not read."""
    read = facts.read
    if isinstance(read, str) or facts.parameters > MOST:
        return ""
    module = TimmBackbone(read["model"], read["options"], read["width"], read["own_pool"]).eval()
    images = torch.rand(BATCH, 3, facts.size, facts.size)
    seconds = []
    with torch.no_grad():
        module(images[:1])
        for _ in range(TRIES):
            began = time.process_time()
            module.pool(module(images))
            seconds.append(time.process_time() - began)
    return f"{BATCH / min(seconds):.2g}"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description="Tabulate the recommended backbones.")
    parser.add_argument("--write", metavar="FILE", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in RECOMMENDED:
        facts = read_facts(name)
        rows.append(make_row(facts) | {SPEED: measure(facts)})
        print(*rows[-1].values(), sep="  ", flush=True)
    if options.write is None:
        return
    table = tabulate([list(row.values()) for row in rows], list(rows[0]), tablefmt="pipe", disable_numparse=True)
    before, _, rest = options.write.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    write_text(options.write, f"{before}{START}\n\n{table}\n\n{END}{after}")
    write_tsv(options.write.with_suffix(".tsv"), rows)


if __name__ == "__main__":
    main()
