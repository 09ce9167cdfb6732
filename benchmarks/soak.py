"""Kill stages and ``dvc repro`` at random moments, run them again, compare every byte: ``python -m benchmarks.soak``.

The tiny profile is reproduced once, undisturbed. Then a stage's outputs are deleted, it is started by itself and killed
(SIGKILL) after a random time, and run to its end; what it leaves must be the bytes of the undisturbed run, with nothing
beside them. The same for ``dvc repro`` of the whole graph after an edit is made and taken back.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import copies

REPOSITORY = Path(__file__).resolve().parents[1]
STAGES = {
    "prepare digits": "data/prepare/digits",
    "simulate digits 0": "data/simulate/digits-0",
    "backbone digits": "weights/digits",
    "features digits": "data/features/digits",
    "linear_init digits em_apl 0 0": "runs/linear_init/digits-em_apl-0-0",
    "finetune digits em_apl 0 0": "runs/finetune/digits-em_apl-0-0",
    "end_to_end digits plc 0 0": "runs/end_to_end/digits-plc-0-0",
    "lac digits lac 0 0": "runs/lac/digits-lac-0-0",
    "audit digits 0 0": "analyses/audit/digits-0-0",
    "wasserstein digits 0 0": "analyses/wasserstein/digits-0-0",
    "report": "report",
}
OUTPUTS = ("data", "weights", "runs", "analyses", "report")


def content(root: Path) -> dict[str, bytes]:
    """Return the bytes of all outputs by path."""
    files = [file for top in OUTPUTS for file in (root / top).rglob("*") if file.is_file()]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files}


def run(root: Path, words: list[str], kill_after: float | None = None) -> tuple[float, bool]:
    """Run a command to its end, or kill it and all that it started.

    Args:
        root: Project root.
        words: The command.
        kill_after: Seconds until SIGKILL; None: never.

    Returns:
        Seconds that it ran, and whether it was killed.

    Raises:
        RuntimeError: It ended with an error of its own.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        words,
        cwd=root,
        env=copies.ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return time.monotonic() - started, True
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}:\n{printed.decode()}")
    return time.monotonic() - started, False


def compare(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Return the paths that differ, are missing or are too many."""
    return sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))


def is_json(path: Path) -> bool:
    """Return whether a file is sound JSON."""
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def kill_stages(root: Path, kills: int, chance: random.Random) -> tuple[int, list[str]]:
    """Kill single stages.

    Args:
        root: A project that was reproduced.
        kills: How often.
        chance: The random stream.

    Returns:
        How many starts were killed in time, and what differed in the end.
    """
    expected, seconds, killed, faults = content(root), dict[str, float](), 0, []
    for number in range(kills):
        stage, folder = chance.choice(list(STAGES.items()))
        words = [sys.executable, "-m", *f"stages.{stage}".split()]
        if stage not in seconds:
            seconds[stage], _ = run(root, words)
        shutil.rmtree(root / folder)
        killed += run(root, words, chance.uniform(0, seconds[stage]))[1]
        run(root, words)
        faults += [f"{number}: {stage}: {path}" for path in compare(content(root), expected)]
        if number % 20 == 19:
            print(f"{number + 1} of {kills} stages, {killed} killed, {len(faults)} files differ", flush=True)
    return killed, faults


def kill_dvc(root: Path, kills: int, chance: random.Random) -> tuple[int, list[str]]:
    """Kill ``dvc repro`` after an edit that makes most stages run.

    Args:
        root: A project that was reproduced.
        kills: How often.
        chance: The random stream.

    Returns:
        How many were killed in time, and what differed in the end.
    """
    params, lock, killed, faults = root / "params.yaml", root / ".dvc" / "tmp" / "rwlock", 0, []
    text = params.read_text()
    original, whole = content(root), 0.0
    for number in range(kills):
        edited = text.replace("  default: {bins: 100}", f"  default: {{bins: {101 + number}}}")
        edited = edited.replace("seed: 1200", f"seed: {1201 + number}")
        params.write_text(edited)
        seconds, was = run(root, ["dvc", "repro"], chance.uniform(0, whole) if whole else None)
        whole, killed = whole or seconds, killed + was
        if lock.is_file() and not is_json(lock):  # as docs/recovery.md says
            lock.unlink()
        run(root, ["dvc", "repro"])
        undisturbed = content(root)
        run(root, [sys.executable, "-m", "pipeline.cli", "verify"])
        params.write_text(text)
        run(root, ["dvc", "repro"])
        faults += [f"{number}: dvc repro: {path}" for path in compare(content(root), original)]
        faults += [] if undisturbed.keys() == original.keys() else [f"{number}: dvc repro left other files"]
    return killed, faults


def main() -> None:
    """Run both, print what was found, and exit with 1 where anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of single stages (default: %(default)s)")
    parser.add_argument("--dvc", type=int, default=10, help="of dvc repro (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="spml-soak-") as folder:
        root = Path(folder)
        copies.project(REPOSITORY, root, "tiny")
        run(root, ["dvc", "repro"])
        differ = 0
        for name, kill, times in (("stages", kill_stages, options.kills), ("dvc repro", kill_dvc, options.dvc)):
            killed, faults = kill(root, times, chance)
            print(f"{name}: {killed} killed before their end, {len(faults)} files differ after the next run")
            print(*faults, sep="\n", end="\n" if faults else "", flush=True)
            differ += len(faults)
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
