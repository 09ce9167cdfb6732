"""``spml verify [--fix]``: compare every output, and every object of DVC's cache, with the hash that DVC recorded.

DVC itself looks at a file's time and size: a turned bit stays unseen, and a damaged cache object is put back as is.
"""

import argparse
import hashlib
import shutil
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.cli.verbs import Failed, Verbs
from pipeline.core import files, manifest, seal
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.faults import pluralize
from pipeline.core.progress import track


@dataclass(frozen=True)
class Recorded:
    """A file that dvc.lock records.

    Args:
        path: The file.
        md5: What DVC calls its content.
        stage: The target that makes it.
        cached: Whether DVC keeps it in its cache.
    """

    path: Path
    md5: str
    stage: str
    cached: bool


@dataclass
class Findings:
    """What differs from the record."""

    objects: dict[str, Path]
    """Damaged cache objects by MD5."""
    damaged: list[Recorded]
    """Outputs whose content is not what their stage wrote."""
    other: list[Recorded]
    """Outputs that are not those that dvc.lock records, and that nothing says are damaged."""
    absent: list[Recorded]
    lost: list[str]
    """Targets whose list of files is damaged or absent in the cache."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "verify",
        help="compare all outputs, and DVC's cache, with their recorded hashes",
        description="Read every output that dvc.lock records and every object of DVC's cache, and compare it with the "
        "hash that DVC recorded. Exit status 1: something is damaged.",
    )
    parser.add_argument("--fix", action="store_true", help="remove what is damaged, and say how it comes back")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Verify the project in the current folder.

    Args:
        options: What the parser read.

    Yields:
        What differs, what was removed, and how it comes back.

    Raises:
        ConfigError: There is no dvc.lock.
        Failed: Something is damaged, and was not to be removed.
    """
    from dvc.repo import Repo  # slow to import: the other verbs do without

    root = Path()
    if not (root / "dvc.lock").is_file():
        raise ConfigError("dvc.lock: no such file; nothing has run here yet")
    with Repo(str(root)) as repo:
        cache = Path(repo.cache.local.path)
        objects = find_damaged_objects(cache)
        recorded, lost = list_recorded(repo, root.absolute(), objects)
    findings = compare(recorded, objects, lost)
    yield from describe(findings, recorded)
    if not (findings.objects or findings.damaged):
        return
    if not options.fix:
        yield "`spml verify --fix` removes what is damaged, and says how it comes back"
        raise Failed
    yield from fix(findings, recorded, cache)


def list_recorded(repo: Any, root: Path, damaged: Container[str]) -> tuple[list[Recorded], list[str]]:
    """Return the files that dvc.lock records, and the targets whose list of files DVC cannot read.

    Args:
        repo: DVC's view of the project.
        root: Project root.
        damaged: MD5 of damaged cache objects.
    """
    recorded, lost = [], []
    for stage in repo.index.stages:
        for out in stage.outs:
            if not out.hash_info:  # it has not run
                continue
            path, target = Path(out.fs_path).relative_to(root), stage.addressing
            if not out.hash_info.isdir:
                recorded.append(Recorded(path, out.hash_info.value, target, out.use_cache))
                continue
            try:
                tree = [] if out.hash_info.value in damaged else list(out.get_obj())
            except Exception:  # DVC raises nearly anything where the list is gone
                tree = []
            lost += [] if tree else [target]
            recorded += [Recorded(path.joinpath(*key), info.value, target, True) for key, _, info in tree]
    return recorded, lost


def digest(path: Path) -> str:
    """Return the MD5 of a file, as DVC computes it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def find_damaged_objects(cache: Path) -> dict[str, Path]:
    """Return the objects of DVC's cache whose content has not the MD5 that is their name.

    Args:
        cache: Folder of objects, ``<first two digits>/<the others>``.
    """
    objects = [path for path in sorted(cache.glob("[0-9a-f][0-9a-f]/*")) if path.is_file()]
    names = {path.parent.name + path.name: path for path in objects}
    return {
        name: path
        for name, path in track(names.items(), "cache", len(names), "object")
        if digest(path) != name.removesuffix(".dir")
    }


def compare(recorded: list[Recorded], objects: dict[str, Path], lost: list[str]) -> Findings:
    """Return what differs from the record.

    Args:
        recorded: The files that dvc.lock records.
        objects: Damaged cache objects by MD5.
        lost: Targets whose list of files cannot be read.
    """
    findings = Findings(objects, [], [], [], lost)
    for item in track(recorded, "outputs", len(recorded), "file"):
        if not item.path.exists():
            findings.absent.append(item)
        elif digest(item.path) != item.md5:
            (findings.damaged if is_damaged(item.path) else findings.other).append(item)
    return findings


def is_damaged(path: Path) -> bool:
    """Return whether an output is not what any run of its stage wrote, by its seal or its folder's manifest.

    Of the report's files, and of the small one beside a run's folder, nothing is known: they are never called damaged.
    """
    try:
        if path.suffix in (".h5", ".pt"):
            seal.verify(path)
        elif path.with_name(manifest.NAME).exists():
            digests = files.read_json(path.parent / manifest.NAME)["files"]
            covered = digests if path.name == manifest.NAME else [path.name]
            for name in covered:
                manifest.raise_if_changed(path.with_name(name), digests)
    except (FileError, KeyError, TypeError):
        return True
    return False


def describe(findings: Findings, recorded: list[Recorded]) -> Iterator[str]:
    """Yield a line for each file that differs, and one that counts.

    Args:
        findings: What differs.
        recorded: The files that dvc.lock records.
    """
    names = {item.md5: item.path for item in recorded}
    for item in findings.damaged:
        yield f"damaged: {item.path}"
    for md5 in findings.objects:
        yield f"damaged in the cache: {md5} ({names.get(md5, 'a list of files, or of an earlier commit')})"
    for target in findings.lost:
        yield f"not in the cache: the list of files of {target}"
    for item in findings.other:
        yield f"not the recorded one: {item.path} (`dvc commit {item.stage}` records it, `dvc repro` makes it anew)"
    for item in findings.absent:
        yield f"absent: {item.path}"
    bad = len(findings.damaged) + len(findings.objects)
    yield f"{pluralize(len(recorded), 'output file')} checked; {bad or 'none'} damaged"


def fix(findings: Findings, recorded: list[Recorded], cache: Path) -> Iterator[str]:
    """Remove what is damaged, put sound outputs back into the cache, and yield how the rest comes back.

    Args:
        findings: What differs.
        recorded: The files that dvc.lock records.
        cache: Folder of DVC's objects.
    """
    for path in [*findings.objects.values(), *(item.path for item in findings.damaged)]:
        path.unlink()
        yield f"removed {path}"
    gone = {item.path for item in [*findings.damaged, *findings.absent, *findings.other]}
    kept = {item.md5: item.path for item in recorded if item.path not in gone}
    for md5, path in findings.objects.items():
        if md5 in kept:
            with files.replacing(path) as temporary:  # a copy: a link would change with the output
                shutil.copyfile(kept[md5], temporary)
            yield f"put {kept[md5]} back into the cache"
    missing = [item for item in [*findings.damaged, *findings.absent] if item.cached]
    held = [item for item in missing if (cache / item.md5[:2] / item.md5[2:]).is_file()]
    if held:
        yield f"`dvc checkout` brings back {', '.join(sorted({str(item.path) for item in held}))}"
    if findings.lost:
        yield f"`dvc commit --force {' '.join(sorted(findings.lost))}` records what lies there"
    again = {item.stage for item in [*findings.damaged, *findings.absent] if item not in held}
    if again:
        yield f"`dvc repro` computes again: {', '.join(sorted(again))}"
