"""Line charts as SVG, from numbers alone.

A Chart is a panel with axes, a title and a legend; `picture` puts panels below each other.
"""

import math

WIDTH, PANEL_HEIGHT, GAP = 800, 250, 46
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 28, 44
LEGEND_WIDTH = 156  # of a name with its line
MOST_TICKS = 7

STYLE = ("text{font:12px sans-serif;fill:#222}.m{text-anchor:middle}.e{text-anchor:end}"
         ".page{fill:#fff}.grid{stroke:#ddd;stroke-width:1}.frame{fill:none;stroke:#667}"
         ".band{fill:#e8f3e4}.line{fill:none;stroke-linejoin:round}")


def text_of(number):
    return f"{number:g}"


def ticks_of(low, high):
    """Round numbers that lie in low..high."""
    rough = (high - low) / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


class Line:
    """points: pairs (x, y). marks: a circle at each."""

    def __init__(self, name, points, colour, width, marks=False):
        self.name, self.points, self.colour = name, points, colour
        self.width, self.marks = width, marks

    def drawn(self, places):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield (f'<path class="line" stroke="{self.colour}" stroke-width="{self.width}" '
               f'd="M{path}"/>')
        if self.marks:
            for x, y in places:
                yield (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{self.width + 1.5}" '
                       f'fill="{self.colour}"/>')


class Chart:
    """band: (low, high), drawn behind the lines. All of it and all points are in view."""

    def __init__(self, title, lines, band=None):
        self.title, self.lines, self.band = title, lines, band
        xs, ys = zip(*(point for line in lines for point in line.points))
        self.x_range = (min(0, *xs), max(xs))
        low, high = min(ys + (band or ())), max(ys + (band or ()))
        room = 0.06 * (high - low or 1.0)
        self.y_range = (low - room, high + room)

    def place(self, x, y, top):
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        return (LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT),
                top + (y1 - y) / (y1 - y0) * PANEL_HEIGHT)

    def grid(self, top):
        right, bottom = WIDTH - RIGHT, top + PANEL_HEIGHT
        for tick in ticks_of(*self.y_range):
            _, y = self.place(0, tick, top)
            yield f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>'
            yield f'<text class="e" x="{LEFT - 6}" y="{y + 4:.1f}">{text_of(tick)}</text>'
        for tick in ticks_of(*self.x_range):
            x, _ = self.place(tick, 0, top)
            yield f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>'
            yield f'<text class="m" x="{x:.1f}" y="{bottom + 16}">{text_of(tick)}</text>'

    def legend(self, y):
        for i, line in enumerate(self.lines):
            x = WIDTH - RIGHT - (len(self.lines) - i) * LEGEND_WIDTH
            yield from line.drawn([(x + 8, y - 4), (x + 26, y - 4)])
            yield f'<text x="{x + 36}" y="{y}">{line.name}</text>'

    def drawn(self, top):
        width = WIDTH - LEFT - RIGHT
        yield f'<text x="{LEFT}" y="{top - 8}">{self.title}</text>'
        yield from self.legend(top - 8)
        if self.band:
            (_, y0), (_, y1) = (self.place(0, y, top) for y in reversed(self.band))
            yield (f'<rect class="band" x="{LEFT}" y="{y0:.1f}" width="{width}" '
                   f'height="{y1 - y0:.1f}"/>')
        yield from self.grid(top)
        for line in self.lines:
            yield from line.drawn([self.place(x, y, top) for x, y in line.points])
        yield (f'<rect class="frame" x="{LEFT}" y="{top}" width="{width}" '
               f'height="{PANEL_HEIGHT}"/>')


def picture(charts, x_title):
    height = TOP + len(charts) * (PANEL_HEIGHT + GAP) - GAP + BOTTOM
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             f'viewBox="0 0 {WIDTH} {height}">', f"<style>{STYLE}</style>",
             f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    for i, chart in enumerate(charts):
        lines += chart.drawn(TOP + i * (PANEL_HEIGHT + GAP))
    lines.append(f'<text class="m" x="{WIDTH / 2:.0f}" y="{height - 8}">{x_title}</text>')
    return "\n".join(lines) + "\n</svg>\n"
