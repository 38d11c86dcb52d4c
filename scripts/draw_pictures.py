"""Draws the pictures of README.md, docs/concepts.md and docs/internals/scheduler.md.

`python scripts/draw_pictures.py` writes docs/pictures/*.svg.

A picture has its own background and two palettes, so it is readable on a light and on a dark page. Each has a title and a description for
screen readers. tests/test_pictures.py holds the files against this script.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from kstream.scheduler.batch_steps import TABLE, End, Execution, Retry, Standing, Step

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIZE, SMALL = 15, 13
CHARACTER, BOLD = 0.56, 0.6
"""The width of a character, as a part of the font size: more than the mean of common fonts without serifs."""
LIGHT = {
    "page": "#ffffff", "ink": "#1f2328", "muted": "#57606a", "line": "#6e7781",
    "plain": "#f6f8fa", "log": "#ddf4ff", "store": "#fff8c5", "good": "#dafbe1", "bad": "#ffebe9",
    "plain-edge": "#8c959f", "log-edge": "#0969da", "store-edge": "#9a6700", "good-edge": "#1a7f37", "bad-edge": "#cf222e",
}  # fmt: skip
DARK = {
    "page": "#0d1117", "ink": "#e6edf3", "muted": "#9da7b3", "line": "#8b949e",
    "plain": "#161b22", "log": "#0b2447", "store": "#2e2000", "good": "#0b2b17", "bad": "#3d0f12",
    "plain-edge": "#6e7681", "log-edge": "#58a6ff", "store-edge": "#d29922", "good-edge": "#3fb950", "bad-edge": "#f85149",
}  # fmt: skip
LOOKS = ("plain", "log", "store", "good", "bad")


def rules(palette: dict[str, str]) -> str:
    """Return the style sheet of a palette."""
    looks = "".join(f".{look}{{fill:{palette[look]};stroke:{palette[f'{look}-edge']}}}" for look in LOOKS)
    return (
        f".page{{fill:{palette['page']}}}text{{fill:{palette['ink']}}}.muted{{fill:{palette['muted']}}}"
        f".line{{stroke:{palette['line']};fill:none}}.head{{fill:{palette['line']}}}{looks}"
    )


class Picture:
    """An SVG that is drawn from the back to the front. Lengths are pixels."""

    def __init__(self, name: str, title: str, description: str, width: int, height: int) -> None:
        self.name = name
        self._title, self._description = title, description
        self._width, self._height = width, height
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, *, anchor: str = "middle", small: bool = False, bold: bool = False) -> None:
        """Write a line whose base lies at y. ValueError if it does not fit into the picture."""
        size = SMALL if small else SIZE
        length = width_of(words, size, bold)
        left = x - {"start": 0, "middle": length / 2, "end": length}[anchor]
        if left < 0 or left + length > self._width:
            raise ValueError(f"{self.name}: {words!r} leaves the picture")
        look = ' class="muted"' if small else ""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}{look}>{escape(words)}</text>')

    def box(self, x: float, y: float, w: float, h: float, heading: str, lines: Sequence[str] = (), *, look: str = "plain") -> None:
        """Draw a box with a heading and smaller lines below it. ValueError if a line is wider than the box."""
        for words, size in [(heading, SIZE), *((line, SMALL) for line in lines)]:
            if width_of(words, size, size == SIZE) > w - 8:
                raise ValueError(f"{self.name}: {words!r} is wider than its box")
        self._parts.append(f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="7" stroke-width="1.5"/>')
        top = y + (h - SIZE - 19 * len(lines)) / 2 + 12
        self.text(x + w / 2, top, heading, bold=True)
        for i, line in enumerate(lines, 1):
            self.text(x + w / 2, top + 19 * i, line, small=True)

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """Draw a line through the points, with a head at the last one."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<polyline class="line" points="{path}" stroke-width="1.8"{dashes} marker-end="url(#head)"/>')

    def line(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """Draw a line through the points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<polyline class="line" points="{path}" stroke-width="1.5"{dashes}/>')

    def cross(self, x: float, y: float) -> None:
        """Mark where a driver dies."""
        self._parts.append(f'<path class="bad" d="M{x - 7:g},{y - 7:g} l14,14 m0,-14 l-14,14" stroke-width="3.5" fill="none"/>')

    def svg(self) -> str:
        """Return the file."""
        marker = '<marker id="head" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
        head = f'{marker}<path class="head" d="M0,0 L8,4 L0,8 z"/></marker>'
        fonts = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" width="{self._width}" '
                f'height="{self._height}" role="img" aria-labelledby="title description" font-family="{fonts}">',
                f'<title id="title">{escape(self._title)}</title>',
                f'<desc id="description">{escape(self._description)}</desc>',
                f"<style>{rules(LIGHT)}@media (prefers-color-scheme: dark){{{rules(DARK)}}}</style>",
                f"<defs>{head}</defs>",
                f'<rect class="page" width="{self._width}" height="{self._height}" rx="10"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def width_of(words: str, size: int, bold: bool = False) -> float:
    """Return about how wide a text is."""
    return len(words) * (BOLD if bold else CHARACTER) * size


def overview() -> Picture:
    p = Picture(
        "overview",
        "kstream: a batch is planned, stored, run and written",
        "The driver plans one offset range of each Kafka partition. The plan is stored in the checkpoint before the batch "
        "runs. Spark's Python workers read exactly these ranges. Your function writes the result under the batch id. After "
        "kill -9 the same plan runs again with the same ranges and the same batch id, so the write changes nothing.",
        860,
        330,
    )
    p.box(20, 60, 170, 92, "Kafka", ["orders/0: 0 1 2 3 4 …", "orders/1: 0 1 2 3 …"], look="log")
    p.box(245, 60, 170, 92, "1 plan", ["batch 12:00:01", "orders/0 [0, 3)", "orders/1 [0, 2)"])
    p.box(470, 60, 170, 92, "3 read, compute", ["Spark's Python workers", "read these ranges"])
    p.box(695, 60, 145, 92, "4 write", ["your database,", "keyed by batch_id"], look="good")
    p.box(245, 215, 170, 92, "2 checkpoint", ["the plan, as JSON,", "durable before", "the batch runs"], look="store")
    p.arrow((190, 106), (243, 106))
    p.arrow((415, 106), (468, 106))
    p.arrow((640, 106), (693, 106))
    p.arrow((330, 152), (330, 213))
    p.arrow((415, 261), (510, 261), (510, 154), dashed=True)
    p.text(522, 228, "after kill -9: the same plan again,", anchor="start", bold=True)
    p.text(522, 250, "the same ranges, the same batch_id", anchor="start")
    p.text(430, 34, "No jar, no consumer group: one offset range of each partition a batch", bold=True)
    return p


def life_of_a_batch() -> Picture:
    p = Picture(
        "life-of-a-batch",
        "The life of a batch",
        "A batch is planned, made durable, submitted, run, ended and completed. Until the completion record is stored the "
        "batch is pending. A failed batch stays pending: a retry or a restart runs it again with the same plan.",
        860,
        270,
    )
    steps = [
        ("planned", ["each input says", "what it gives"], "plain"),
        ("durable", ["the plan is in", "the checkpoint"], "store"),
        ("submitted", ["a job for", "each output"], "plain"),
        ("running", ["workers read,", "outputs write"], "plain"),
        ("completed", ["the completion", "record is stored"], "store"),
    ]
    for i, (heading, lines, look) in enumerate(steps):
        x = 20 + 170 * i
        p.box(x, 60, 130, 84, heading, lines, look=look)
        if i:
            p.arrow((x - 40, 102), (x - 2, 102))
    p.line((192, 34), (192, 26), (698, 26), (698, 34))
    p.text(445, 20, "pending: a restart runs the batch again with this plan", bold=True)
    p.box(510, 190, 170, 60, "failed", ["its plan is kept"], look="bad")
    p.arrow((595, 144), (595, 188))
    p.arrow((510, 220), (425, 220), (425, 146), dashed=True)
    p.text(415, 214, "a retry, or a restart:", anchor="end", bold=True)
    p.text(415, 236, "the same plan again", anchor="end")
    return p


def restart() -> Picture:
    p = Picture(
        "restart",
        "What a restart does",
        "Driver 1 completes batches 1 and 2 and is killed in batch 3. No driver runs at the times of batches 4 and 5. Driver 2 "
        "runs batch 3 again with its stored ranges, then plans the missed batches 4 and 5 and continues on time with batch 6. "
        "Batch 4 takes the records that waited.",
        860,
        330,
    )
    x = [150 + 115 * i for i in range(6)]
    for i, left in enumerate(x, 1):
        p.text(left + 45, 38, f"batch {i}", bold=True)
    p.text(20, 93, "driver 1", anchor="start", bold=True)
    p.text(20, 233, "driver 2", anchor="start", bold=True)
    p.box(x[0], 60, 95, 56, "done", ["[0, 10)"], look="good")
    p.box(x[1], 60, 95, 56, "done", ["[10, 20)"], look="good")
    p.box(x[2], 60, 95, 56, "planned", ["[20, 30)"], look="store")
    p.cross(x[2] + 95, 116)
    p.text(x[2] + 112, 94, "kill -9: no driver for two batches", anchor="start", bold=True)
    p.arrow((x[2] + 47, 116), (x[2] + 47, 198), dashed=True)
    p.text(x[2] + 60, 164, "the plan is in the checkpoint", anchor="start", small=True)
    p.box(x[2], 200, 95, 56, "again", ["[20, 30)"], look="store")
    p.box(x[3], 200, 95, 56, "missed", ["[30, 52)"])
    p.box(x[4], 200, 95, 56, "missed", ["[52, 52)"])
    p.box(x[5], 200, 95, 56, "on time", ["[52, 60)"], look="good")
    for left in x[2:5]:
        p.arrow((left + 95, 228), (left + 113, 228))
    p.text(x[2] + 47, 284, "1 pending:", bold=True)
    p.text(x[2] + 47, 306, "same ranges", small=True)
    p.text((x[3] + x[4] + 95) / 2, 284, "2 missed: planned now,", bold=True)
    p.text((x[3] + x[4] + 95) / 2, 306, "what waited is taken", small=True)
    p.text(x[5] + 47, 284, "3 goes on", bold=True)
    return p


def exactly_once() -> Picture:
    p = Picture(
        "exactly-once",
        "Where exactly-once ends",
        "Inside kstream every offset is in exactly one batch, and windows and state count it once. Your output function may "
        "run more than once for a batch. A write that is keyed by the batch id is there once. A write without a key, a message "
        "or an e-mail may be there twice.",
        860,
        300,
    )
    p.box(20, 105, 145, 80, "offsets", ["each one is in", "exactly one batch"], look="good")
    p.box(205, 105, 165, 80, "windows, state", ["each record", "counts once"], look="good")
    p.box(420, 105, 170, 80, "your output", ["runs once, or again", "after kill or failure"], look="store")
    p.box(650, 45, 190, 80, "keyed by batch_id", ["the second write", "changes nothing: once"], look="good")
    p.box(650, 165, 190, 80, "without a key", ["a second row, message", "or e-mail: at least once"], look="bad")
    p.arrow((165, 145), (203, 145))
    p.arrow((370, 145), (418, 145))
    p.arrow((590, 135), (648, 90))
    p.arrow((590, 155), (648, 200))
    p.line((395, 40), (395, 262), dashed=True)
    p.text(385, 58, "kstream promises exactly once", anchor="end", bold=True)
    p.text(405, 58, "your write decides", anchor="start", bold=True)
    p.text(430, 284, "The ranges and the batch_id are the same at every try. Make the write idempotent by them.", small=True)
    return p


def downtime() -> Picture:
    p = Picture(
        "downtime",
        "Downtime: catch-up and by-timestamp",
        "No driver runs for three batch times, while 10, 20 and 5 records arrive. Under catch-up the first missed batch takes "
        "all 35 records, up to the limits, and the others are empty. Under by-timestamp the three missed batches have 10, 20 "
        "and 5 records, as if the driver had never been down.",
        860,
        310,
    )
    x = [230 + 120 * i for i in range(5)]
    for left, time in zip(x, ("12:00:01", "12:00:02", "12:00:03", "12:00:04", "12:00:05"), strict=True):
        p.text(left + 50, 36, time, bold=True)
    p.text(20, 84, "records arrive", anchor="start", bold=True)
    p.text(20, 168, "catch-up (default)", anchor="start", bold=True)
    p.text(20, 188, "windows see a peak", anchor="start", small=True)
    p.text(20, 252, "by-timestamp", anchor="start", bold=True)
    p.text(20, 272, "windows as if never down", anchor="start", small=True)
    for i, left in enumerate(x):
        p.box(left, 58, 100, 42, ("8", "10", "20", "5", "9")[i], look="log")
        p.box(left, 150, 100, 42, ("8", "35", "0", "0", "9")[i], look="good" if i in (0, 4) else "store")
        p.box(left, 234, 100, 42, ("8", "10", "20", "5", "9")[i], look="good" if i in (0, 4) else "store")
    p.line((x[1], 116), (x[1], 124), (x[3] + 100, 124), (x[3] + 100, 116))
    p.text((x[1] + x[3] + 100) / 2, 142, "no driver: these batches are planned after the restart", small=True)
    return p


def one_writer() -> Picture:
    p = Picture(
        "one-writer",
        "One writer: the older driver is fenced",
        "Driver A has epoch 1 and hangs. Driver B starts and creates epoch 2 in the checkpoint, which only one driver can do. "
        "When A wakes up it may still store a plan, but it looks for a newer epoch before it submits a batch, finds epoch 2 "
        "and stops with FencedError. That plan is never run.",
        860,
        290,
    )
    p.box(335, 95, 190, 100, "checkpoint", ["epoch-1", "epoch-2", "one creator for each"], look="store")
    p.box(20, 95, 190, 100, "driver A", ["epoch 1", "hung, or cut off"], look="bad")
    p.box(650, 95, 190, 100, "driver B", ["epoch 2", "plans and runs batches"], look="good")
    p.arrow((650, 125), (527, 125))
    p.text(588, 114, "creates", small=True)
    p.arrow((210, 125), (333, 125))
    p.text(271, 114, "probes", small=True)
    p.arrow((335, 170), (212, 170), dashed=True)
    p.text(273, 160, "epoch 2!", small=True)
    p.text(430, 50, "Of two drivers on one checkpoint the older one stops before it submits a batch", bold=True)
    p.text(115, 228, "FencedError", bold=True)
    p.text(115, 250, "it submits nothing more", small=True)
    p.text(745, 228, "the only writer", bold=True)
    p.text(745, 250, "a late plan of A is never run", small=True)
    return p


def node_of(standing: Standing) -> str:
    """Return the box of `steps_of_a_batch` for where a batch stands."""
    if standing.end in (End.UNKNOWN, End.REFUSED):
        return "not stored yet"
    if standing.end is End.WRITTEN:
        return "completed"
    if standing.end is End.LEFT or standing.retry is Retry.EXHAUSTED:
        return "left"
    return "between two tries" if standing.execution is Execution.ENDED else standing.execution.value


def steps_between() -> dict[tuple[str, str], list[str]]:
    """Return the steps that lead from one box of `steps_of_a_batch` to another one, from the table of the product."""
    found: dict[tuple[str, str], list[str]] = {}
    for (step, source), targets in TABLE.items():
        for target in targets:
            way = "" if source is None else node_of(source), node_of(target)
            names = found.setdefault(("a try", way[1]) if way[0] in ENDS and step in ENDING else way, [])
            if step.value not in names:
                names.append(step.value)
    return {(before, after): names for (before, after), names in found.items() if before != after}


ENDS = (Execution.PLANNED.value, Execution.RUNNING.value)
ENDING = (Step.FAIL, Step.COMPLETE, Step.REFUSE, Step.NOT_KNOWN, Step.LEAVE, Step.FENCE)
"""Steps that end a try: of a batch that runs, or of a planned one that has no jobs or whose jobs cannot be generated."""


def steps_of_a_batch() -> Picture:
    p = Picture(
        "steps-of-a-batch",
        "Where a batch stands, and the steps between",
        "A planned batch is held or generated. Then it is submitted and runs. A lost one is planned again. A try ends in a "
        "completed batch, in one that is tried again, in one whose completion is not stored yet, or in one that is left to a restart.",
        860,
        430,
    )
    boxes = {
        "held": (20, 60, ["it waits"], "plain"), "planned": (200, 60, ["plan is durable"], "store"),
        "generated": (370, 60, ["it has jobs"], "plain"), "submitted": (540, 60, ["its jobs wait"], "plain"),
        "running": (700, 60, ["a job started"], "plain"), "lost": (540, 190, ["a state is gone"], "bad"),
        "between two tries": (20, 340, ["back-off, in turn"], "bad"), "left": (220, 340, ["to a restart"], "bad"),
        "not stored yet": (420, 340, ["unknown, refused"], "plain"), "completed": (690, 340, ["it has no record"], "good"),
    }  # fmt: skip
    routes: dict[tuple[str, str], tuple[list[tuple[float, float]], tuple[float, float]]] = {
        ("", "planned"): ([(265, 24), (265, 58)], (300, 30)),
        ("planned", "held"): ([(200, 78), (162, 78)], (170, 50)),
        ("held", "planned"): ([(160, 104), (198, 104)], (180, 138)),
        ("planned", "generated"): ([(330, 90), (368, 90)], (350, 50)),
        ("generated", "submitted"): ([(500, 90), (538, 90)], (520, 50)),
        ("submitted", "running"): ([(670, 90), (698, 90)], (684, 50)),
        ("submitted", "lost"): ([(605, 120), (605, 188)], (642, 160)),
        ("running", "lost"): ([(765, 120), (765, 220), (672, 220)], (712, 214)),
        ("lost", "planned"): ([(540, 220), (290, 220), (290, 122)], (420, 214)),
        ("planned", "between two tries"): ([(225, 120), (225, 200), (60, 200), (60, 338)], (140, 194)),
        ("between two tries", "planned"): ([(100, 340), (100, 240), (250, 240), (250, 122)], (150, 234)),
        ("planned", "left"): ([(270, 120), (270, 338)], (300, 262)),
        ("a try", "between two tries"): ([(740, 284), (140, 284), (140, 338)], (170, 310)),
        ("a try", "left"): ([(740, 284), (310, 284), (310, 338)], (362, 310)),
        ("a try", "not stored yet"): ([(740, 284), (480, 284), (480, 338)], (548, 310)),
        ("a try", "completed"): ([(740, 284), (765, 284), (765, 338)], (808, 310)),
        ("not stored yet", "completed"): ([(560, 355), (688, 355)], (624, 348)),
        ("not stored yet", "left"): ([(420, 380), (352, 380)], (386, 400)),
    }
    steps = steps_between()
    if steps.keys() != routes.keys():
        raise ValueError(f"{p.name}: the table and the routes differ in {sorted(steps.keys() ^ routes.keys())}")
    for name, (x, y, lines, look) in boxes.items():
        p.box(x, y, 170 if name == "between two tries" else 140 if y > 300 else 130, 60, name, lines, look=look)
    for way, (points, at) in routes.items():
        p.arrow(*points)
        p.text(*at, ", ".join(steps[way]), small=True)
    p.text(764, 262, "end of a try", bold=True)
    return p


PICTURES: tuple[Callable[[], Picture], ...] = (
    overview,
    life_of_a_batch,
    restart,
    exactly_once,
    downtime,
    one_writer,
    steps_of_a_batch,
)


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in PICTURES:
        picture = draw()
        (FOLDER / f"{picture.name}.svg").write_text(picture.svg())
    return 0


if __name__ == "__main__":
    sys.exit(main())
