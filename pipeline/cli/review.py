"""``spml review``: ask a person about the labels that are most likely hidden, and take the answers."""

import argparse
import getpass
import hashlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from pipeline.cli.verbs import Verbs
from pipeline.config.params import Params, read_params
from pipeline.core import files
from pipeline.core.arguments import whole_number
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.faults import pluralize
from pipeline.core.text import to_printable
from pipeline.labels.beliefs import beliefs_file, read_beliefs
from pipeline.labels.corrections import corrections_file
from pipeline.labels.observed import observed_file, read_observed
from pipeline.labels.table import Table, read_table
from pipeline.review import formats
from pipeline.review.answers import Answers, merge_answers, now
from pipeline.review.page import ORDERS, Review, make_thumbnails, render_page
from pipeline.review.questions import Question, believe_run, choose_questions
from pipeline.review.server import ReviewServer
from pipeline.sources import base

FOLDER = Path("review")
"""Where pages and tasks go: no stage reads them, and Git keeps none."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "review",
        help="ask a person about labels that may be hidden, as a page, a server, or another tool's tasks",
        description="Choose the unknown labels whose answers are expected to teach most, and write a page with their "
        "pictures, which asks for nothing from any server. What a person answers becomes corrections/DATASET.csv, "
        "which the stage prepare reads as known labels.",
    )
    parser.add_argument("dataset", nargs="?", help="name of the dataset (default: the one of params.yaml's grid)")
    parser.add_argument(
        "--draw", type=whole_number(0), default=0, metavar="N", help="number of the label draw (default: 0)"
    )
    parser.add_argument(
        "--run",
        dest="of_run",
        metavar="STAGE/RUN",
        help="go by a run's scores, as finetune/pets-gr-0-0, not by the stage beliefs",
    )
    parser.add_argument(
        "--order",
        choices=tuple(ORDERS),
        default="gain",
        help="gain: what answers are expected to teach (default); score: the likeliest first; random",
    )
    parser.add_argument(
        "--count", type=whole_number(1, 100_000), default=100, metavar="N", help="questions at most (default: 100)"
    )
    parser.add_argument("--val", action="store_true", help="ask about val images too")
    parser.add_argument("--who", help="name of who answers (default: the login's, and the output says so)")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--serve", action="store_true", help="serve the page on this machine, and store each answer")
    way.add_argument("--export", choices=tuple(formats.WRITERS), help="write tasks for another tool")
    way.add_argument(
        "--import", dest="answers", type=Path, metavar="FILE", help="take answers from a saved page or another tool"
    )
    parser.add_argument(
        "--port", type=whole_number(0, 65_535), default=0, help="port of --serve (default: any that is free)"
    )
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Write a page or tasks, serve the page, or take answers.

    Args:
        options: What the parser read.

    Yields:
        What was done, and what to do next.

    Raises:
        ConfigError: No dataset is named where there are several, or the port is in use.
        FileError: What the stages write is not there.
    """  # noqa: DOC502  some raised by the functions below
    root, params = Path(), read_params(Path("params.yaml"))
    dataset = options.dataset or _only(params)
    if dataset not in params.prepare:
        raise ConfigError(f"{dataset}: no such dataset; params.yaml holds {', '.join(params.prepare)}")
    table, who = read_table(root / "data" / "prepare" / dataset / "table.h5"), options.who or _user()
    if to_printable(who) != who or not who.strip():
        raise ConfigError(f"--who: {who!r} is no name")
    answers = Answers(corrections_file(root, dataset), who)
    if options.answers is not None:
        yield from _take(options.answers, answers, table, dataset)
        if options.who is None:
            nameless = sum(not each.who for each in formats.read_tasks(options.answers, "", ""))
            if nameless:
                yield _tell_login(f"  {pluralize(nameless, 'answer')} without a name", who)
        return
    questions = _choose(root, dataset, table, answers, options)
    yield _describe(questions, options.order)
    review = Review(dataset, _digest(table), questions, options.order, who if options.who or options.serve else "")
    picture = _find_pictures(root, params, dataset, table)
    if options.export:
        yield from _export(options.export, review, table, picture)
    elif options.serve:
        if options.who is None:
            yield _tell_login("answers", who)
        yield from _serve(review, answers, picture, options.port)
    else:
        file = FOLDER / f"{dataset}.html"
        files.write_text(file, render_page(review, make_thumbnails(questions, picture)))
        yield f"{file}: open it in a browser, answer with the keys Y, N and U, and press Save; then"
        yield f"  spml review {dataset} --import {dataset}.csv"


def _only(params: Params) -> str:
    """Return the one dataset of the grid.

    Raises:
        ConfigError: There are several.
    """
    if len(params.grid.datasets) > 1:
        raise ConfigError(f"which dataset? spml review {params.grid.datasets[0]}, or {params.grid.datasets[1]}")
    return params.grid.datasets[0]


def _user() -> str:
    """Return the name of the user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without an entry
        return "somebody"


def _tell_login(what: str, who: str) -> str:
    """Return a line on answers whose giver nobody named."""
    return f"{what}: stored as {to_printable(who)}'s, the login's name; --who NAME says who answers"


def _choose(root: Path, dataset: str, table: Table, answers: Answers, options: argparse.Namespace) -> list[Question]:
    """Return the questions that nobody has answered."""
    observed = read_observed(observed_file(root, dataset, options.draw), table, ["single"])["single"]
    if options.of_run is None:
        belief = read_beliefs(beliefs_file(root, dataset, options.draw), table).belief
    else:
        belief = believe_run(root / "runs" / options.of_run, table, observed)
    splits = ("train", "val") if options.val else ("train",)
    asked = (options.order, options.count, splits)
    return choose_questions(table, belief, observed, asked, {(answer.path, answer.label) for answer in answers.read()})


def _digest(table: Table) -> str:
    """Return what tells images and classes from others'."""
    return hashlib.sha256("\n".join([*table.paths, "", *table.classes]).encode()).hexdigest()[:12]


def _describe(questions: list[Question], order: str) -> str:
    """Return a line on the questions."""
    pictures, classes = ({getattr(question, key) for question in questions} for key in ("row", "label"))
    expected = sum(question.belief for question in questions)
    return (
        f"{pluralize(len(questions), 'question')} about {pluralize(len(pictures), 'picture')} and "
        f"{pluralize(len(classes), 'class', 'classes')}, in the order `{order}`; about {expected:.0f} are expected to "
        "be hidden labels"
    )


def _find_pictures(root: Path, params: Params, dataset: str, table: Table) -> Callable[[int], np.ndarray]:
    """Return the function that gives the pixels of a row of the table, (h, w, 3) uint8."""
    from pipeline.data import images  # loads torch

    source, settings = base.load(params.settings("prepare", dataset), f"prepare.{dataset}")
    inside = None
    if hasattr(settings, "root"):  # others draw their pictures
        settings = settings.model_copy(update={"bad_images": "drop"})  # of a picture that is gone its question tells
        inside = None if settings.links == "follow" else (root / Path(settings.root).expanduser()).resolve()
    data = base.read(source, settings, root, dataset)
    rows = {path: row for row, path in enumerate(data.table.paths)}

    @lru_cache(maxsize=64)  # of a page and its enlarged pictures
    def picture(row: int) -> np.ndarray:
        name = table.paths[row]
        if name not in rows:
            raise FileError(f"{name}: is in no list any more; run prepare again")
        found = data.image(rows[name])
        if not isinstance(found, Path):
            return found
        if inside is not None and not found.resolve().is_relative_to(inside):
            raise FileError(f"{name}: is a link that leads out of the folder of pictures (prepare: links)")
        return images.decode(found, settings.max_pixels, name)

    return picture


def _export(kind: str, review: Review, table: Table, picture: Callable[[int], np.ndarray]) -> Iterator[str]:
    """Write tasks for another tool."""
    texts = formats.format_tasks(kind, review.questions, table.classes, lambda row: picture(row).shape[:2])
    for ending, text in texts.items():
        file = FOLDER / f"{review.dataset}-{kind}{ending}"
        files.write_text(file, text)
        yield f"{file}: written"
    yield f"  spml review {review.dataset} --import FILE takes the answers"


def _serve(review: Review, answers: Answers, picture: Callable[[int], np.ndarray], port: int) -> Iterator[str]:
    """Serve the page until an interrupt.

    Raises:
        ConfigError: The port is in use, or none.
    """
    before = len(answers.read())
    try:
        server = ReviewServer(review, answers, picture, port)
    except OSError as error:
        raise ConfigError(f"--port {port}: cannot be listened on ({error})") from error
    with server:
        yield f"open {server.address} - answers go to {answers.file} at once; Ctrl-C ends"
        sys.stdout.flush()  # whoever pipes this waits for the address
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background leaves interrupts ignored
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    yield f"{answers.file}: {pluralize(len(answers.read()) - before, 'answer')} more than before"


def _take(file: Path, answers: Answers, table: Table, dataset: str) -> Iterator[str]:
    """Add the answers of a file to the corrections."""
    found = formats.read_tasks(file, answers.who, now())
    counts = merge_answers(answers.file, formats.place_answers(found, table.paths, table.classes, file.name))
    told = f"{counts['added']} added, {counts['replaced']} replaced, {counts['before']} there before"
    if counts["older"]:
        told += f", {counts['older']} left out: the same person has answered otherwise since"
    yield f"{answers.file}: {pluralize(len(found), 'answer')} of {file}: {told}; it holds {len(answers.read())} now"
    yield f"  git add {answers.file} keeps them; make repro, or spml train, trains with them"
