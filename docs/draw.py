"""Draw the rooms with their imports and the stages with their data: ``python docs/draw.py`` writes docs/images/*.svg.

An arrow that follows from others is left out of the pictures; the command prints how many there are in all.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
Graph = dict[str, set[str]]
"""For each box, those that its arrows point to."""
Point = tuple[float, float]
"""Pixels from the left and from the top."""

WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW = 720, 112, 34, 82  # pixels; ROW from one row's top to the next


def imports(root: Path) -> Graph:
    """Return the rooms that each room imports, ``stages`` included.

    Args:
        root: Project root.

    Returns:
        Rooms by room, itself left out.
    """
    rooms = {path.parent.name: path.parent for path in root.glob("pipeline/*/__init__.py")} | {
        "stages": root / "stages"
    }
    graph: Graph = {name: set() for name in rooms}
    for name, folder in rooms.items():
        for path in folder.rglob("*.py"):
            for module in _modules(ast.parse(path.read_text(encoding="utf-8"))):
                top, _, rest = module.partition(".")
                room = "stages" if top == "stages" else rest.split(".")[0] if top == "pipeline" else None
                if room in rooms and room != name:
                    graph[name].add(room)
    return graph


def _modules(tree: ast.Module) -> Iterable[str]:
    """Yield the names that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def levels(root: Path) -> dict[str, int]:
    """Return the level of each room, as the table of docs/design.md has it.

    Args:
        root: Project root.

    Returns:
        Levels by room; 0 imports nothing of ours.
    """
    text = (root / "docs/design.md").read_text(encoding="utf-8")
    return {name: int(level) for level, name in re.findall(r"^\| (\d+) \| `(\w+)/?` \|", text, re.MULTILINE)}


def flow(root: Path) -> Graph:
    """Return the stages that read what a stage writes, from dvc.yaml.

    Args:
        root: Project root.

    Returns:
        Readers by stage; variants of a stage count as that stage.
    """
    reads: dict[str, set[str]] = {}
    writes: dict[str, set[str]] = {}
    for name, entry in (
        YAML(typ="safe", pure=True).load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"].items()
    ):
        stage, block = name.removesuffix("_variant"), entry.get("do", entry)
        reads.setdefault(stage, set()).update(_paths(block.get("deps", [])))
        writes.setdefault(stage, set()).update(_paths(block.get("outs", [])), _paths(block.get("metrics", [])))
    return {
        stage: {
            reader
            for reader in reads
            if reader != stage and any(_overlap(out, dep) for out in writes[stage] for dep in reads[reader])
        }
        for stage in writes
    }


def _paths(entries: Iterable[str | dict[str, object]]) -> Iterable[str]:
    """Yield the paths of deps or outs up to what differs between runs."""
    for entry in entries:
        path = entry if isinstance(entry, str) else next(iter(entry))
        yield path.split("${")[0].rstrip("/")


def _overlap(one: str, other: str) -> bool:
    """Return whether one path is the other, or lies in it."""
    return all(a == b for a, b in zip(one.split("/"), other.split("/"), strict=False))


def reduced(graph: Graph) -> Graph:
    """Return a graph without the arrows that follow from others.

    Args:
        graph: A graph without cycles.

    Returns:
        The fewest arrows with the same reach.
    """

    def reach(name: str) -> set[str]:
        return graph[name].union(*(reach(other) for other in graph[name]))

    return {name: {o for o in to if not any(o in reach(other) for other in to - {o})} for name, to in graph.items()}


def ranks(graph: Graph) -> dict[str, int]:
    """Return how many arrows lie at most between a box and the first ones.

    Args:
        graph: A graph without cycles.

    Returns:
        Rows by box, 0 where no arrow comes in.
    """
    rows = dict.fromkeys(graph, 0)
    for _ in graph:
        for name, to in graph.items():
            for other in to:
                rows[other] = max(rows[other], rows[name] + 1)
    return rows


def _curve(name: str, other: str, centre: dict[str, Point]) -> list[Point]:
    """Return the four points of an arrow: of the ways round the boxes between, the straightest that touches none."""
    (x1, y1), (x2, y2) = centre[name], centre[other]
    y1, y2 = y1 + BOX_HEIGHT / 2, y2 - BOX_HEIGHT / 2 - 1
    boxes = [centre[box] for box in centre if box not in (name, other)]
    curves = [
        [(x1, y1), (x1 + bow, (y1 + y2) / 2), (x2 + bow, (y1 + y2) / 2), (x2, y2)]
        for bow in sorted(range(-3 * BOX_WIDTH, 3 * BOX_WIDTH + 1, BOX_WIDTH // 4), key=lambda bow: (abs(bow), -bow))
    ]
    return next((curve for curve in curves if not _touches(curve, boxes)), curves[0])


def _touches(curve: list[Point], boxes: list[Point]) -> bool:
    """Return whether a Bezier curve comes nearer than 6 pixels to one of the boxes."""
    for step in (number / 40 for number in range(41)):
        weights = ((1 - step) ** 3, 3 * step * (1 - step) ** 2, 3 * step**2 * (1 - step), step**3)
        x = sum(weight * point[0] for weight, point in zip(weights, curve, strict=True))
        y = sum(weight * point[1] for weight, point in zip(weights, curve, strict=True))
        if any(abs(x - left) < BOX_WIDTH / 2 + 6 and abs(y - top) < BOX_HEIGHT / 2 + 6 for left, top in boxes):
            return True
    return False


def svg(rows: dict[str, int], arrows: Graph, labels: dict[int, str]) -> str:
    """Return a picture of boxes in rows and arrows between them.

    Args:
        rows: Row of each box, from the top.
        arrows: What each box points to.
        labels: What stands at the left of a row.

    Returns:
        The SVG text.
    """
    lines = [[name for name in rows if rows[name] == row] for row in range(max(rows.values()) + 1)]
    left = 110 if labels else 10
    centre = {
        name: (left + (WIDTH - left) * (2 * place + 1) / (2 * len(line)), row * ROW + 10 + BOX_HEIGHT / 2)
        for row, line in enumerate(lines)
        for place, name in enumerate(line)
    }
    height = len(lines) * ROW - (ROW - BOX_HEIGHT) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="14">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for row, label in sorted(labels.items()):
        parts.append(f'<text x="10" y="{row * ROW + 32}" fill="#555">{label}</text>')
    for name in sorted(arrows):
        for other in sorted(arrows[name]):
            (x1, y1), *bends, (x2, y2) = _curve(name, other, centre)
            path = f"M{x1:.0f} {y1:.0f}C{' '.join(f'{x:.0f} {y:.0f}' for x, y in bends)} {x2:.0f} {y2:.0f}"
            parts.append(f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.3" marker-end="url(#head)"/>')
    for name, (x, y) in centre.items():
        parts.append(
            f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
            'rx="5" fill="#e8eef7" stroke="#4a6fa5"/>'
        )
        parts.append(f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="#111">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def pictures(root: Path) -> dict[str, str]:
    """Return the pictures of docs/design.md.

    Args:
        root: Project root.

    Returns:
        SVG texts by file name.
    """
    level = levels(root)
    top = max(level.values())
    data = flow(root)
    return {
        "rooms.svg": svg(
            {name: top - number for name, number in level.items()},
            reduced(imports(root)),
            {top - number: f"level {number}" for number in level.values()},
        ),
        "stages.svg": svg(ranks(data), reduced(data), {}),
    }


def main() -> None:
    """Write the pictures and print how many arrows there are."""
    for name, text in pictures(ROOT).items():
        (ROOT / "docs/images" / name).write_text(text, encoding="utf-8")
    print(
        f"{sum(map(len, imports(ROOT).values()))} imports between rooms, {sum(map(len, flow(ROOT).values()))} data ways"
    )


if __name__ == "__main__":
    main()
