#!/usr/bin/env python3
"""Predicts how training scales to many hosts from what was measured on one.

    python3 tools/scaling_model.py [--report docs/performance] [--write docs/scaling.md]

Reads the measured points from scaling.json, or, where that has none of two GPUs, from the section
ddp of gpu_check.json, and prints how far the model is from each of them and what it predicts for 8
to 1024 GPUs. --write puts the same between the two marks of a page. The model and its assumptions
are described in docs/scaling.md; the numbers that it assumes stand below.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

from report import number, rows_of

ROOT = pathlib.Path(__file__).resolve().parent.parent

# --- what is assumed ------------------------------------------------------------------------------

GPUS_A_HOST = 8
NVLINK = 350e9          # bytes/s of an all-reduce on each link of a host, where none was measured
NETWORK_LINK = 400e9 / 8 * 0.9  # bytes/s of a 400 Gb/s link: a tenth is headers and pauses
MEMORY = 3.75e12        # bytes/s at which AdamW reads and writes
ADAMW_BYTES = 28        # a parameter: gradient, master, two moments, the rounded weight
SQUARES_BYTES = 4       # a parameter, of the sum of squares that gradients are clipped by
BUCKET = 25 * 2**20     # bytes of gradients in f32 that travel together beside backward
BUCKET_BEHIND = 128 * 2**20  # and behind it
NCCL_SHARE = 16 / 132   # of a GPU's multiprocessors, which hold NCCL's blocks while one works
LARGER_BUCKETS = [mib * 2**20 for mib in (50, 100, 200, 400)]

# Behind backward, with 32 blocks: how often the bytes cross a GPU's link, in the limit of many GPUs,
# and bytes/s of one, as measured on two H200s; seconds to begin.
BEHIND = {"all_reduce": (2, 324e9), "reduce_scatter": (1, 269e9), "all_gather": (1, 263e9)}
START_BEHIND = 10e-6
# What all other work of a step takes longer among several ranks: kernels, as a share, and seconds
# between them, where a lone process has recorded the whole step.
SLOWER_KERNELS, GAPS = 0.01, 0.3e-3

# Seconds before a collective moves anything, of a step between GPUs of one host and of one between
# hosts, and the share of the bandwidth it reaches. They are what NCCL's planner goes by (its
# src/graph/tuning.cc) for its protocols Simple and LL128 and for LL; a tree's share is that for
# buckets of some 25 MiB.
RING = [(8.4e-6, 3.4e-6, 14e-6, 1.0), (14e-6, 1.9e-6, 4e-6, 0.92)]
TREE = [(8.4e-6, 4e-6, 14e-6, 0.55), (14e-6, 1.25e-6, 8.5e-6, 0.5)]
SMALL = (6.6e-6, 0.6e-6, 2.7e-6)

MODELS = {"gpt2": ("GPT-2 124M, 32 x 1024 tokens a GPU", "gpt2_124m.json", 32 * 1024),
          "qwen3": ("Qwen3-0.6B, 8 x 2048 tokens a GPU", "qwen3_0.6b.json", 8 * 2048)}
# What a report calls a run: whether the optimizer's state is shared out, whether gradients travel
# beside backward, and how it is called here.
KINDS = {"plain": (False, False, "plain"), "zero": (True, False, "ZeRO-1"),
         "beside": (False, True, "plain, beside backward"),
         "zero_beside": (True, True, "ZeRO-1, beside backward")}
# The milliseconds that plain training beside backward on two GPUs waits in a step, where the report
# does not hold them.
WAITS_UNLESS_REPORTED = 1.0
PREDICTED = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


# --- the model ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Sizes:
    blocks: int      # parameters whose gradients become final during backward
    embedding: int   # those of the tied embedding, final when backward ends

    @staticmethod
    def of(config):
        """Norms and biases, less than a thousandth, are left out."""
        width, layers = config["hidden_size"], config["num_hidden_layers"]
        heads = config["num_attention_heads"]
        head = config.get("head_dim", width // heads)
        inner = config.get("intermediate_size", 4 * width)
        gpt2 = config["model_type"] == "gpt2"
        attention = (2 * heads + 2 * config.get("num_key_value_heads", heads)) * head * width
        mlp = (2 if gpt2 else 3) * inner * width
        positions = config["max_position_embeddings"] * width if gpt2 else 0
        return Sizes(layers * (attention + mlp), config["vocab_size"] * width + positions)

    @property
    def all(self):
        return self.blocks + self.embedding

    @property
    def head_share(self):
        """Of the products: backward begins with the head's."""
        return self.embedding / self.all


@dataclasses.dataclass
class Collective:
    """Seconds: before anything moves; to move it at the rate of NVLink; at that of the network."""
    start: float
    nvlink: float
    network: float

    def takes(self, slower=1.0):
        """`slower`: what the other work of a GPU does to its part; the network knows none of it."""
        return self.start + max(slower * self.nvlink, self.network)


@dataclasses.dataclass
class Machine:
    nvlink: float                   # bytes/s of an all-reduce within a host
    links: int = GPUS_A_HOST        # of 400 Gb/s, of a host

    def moving(self, start, moved, hosts):
        network = moved / (self.links * NETWORK_LINK) if hosts > 1 else 0.0
        return Collective(start, moved / self.nvlink, network)

    def ring(self, ranks, size, crossings):
        """crossings 2: all-reduce; 1: reduce-scatter or all-gather."""
        hosts = -(-ranks // GPUS_A_HOST)
        between = crossings * (hosts - 1)
        within = crossings * (ranks - 1) - between
        moved = crossings * size * (ranks - 1) / ranks
        return min((self.moving(base + within * near + between * far, moved / share, hosts)
                    for base, near, far, share in RING), key=Collective.takes)

    def tree(self, ranks, size):
        hosts = -(-ranks // GPUS_A_HOST)
        within, between = 2 * (min(ranks, GPUS_A_HOST) - 1), 2 * math.ceil(math.log2(hosts))
        return min((self.moving(base + within * near + between * far, 2 * size / share, hosts)
                    for base, near, far, share in TREE), key=Collective.takes)

    def all_reduce(self, ranks, size):
        if ranks <= GPUS_A_HOST:
            return self.ring(ranks, size, 2)
        return min(self.ring(ranks, size, 2), self.tree(ranks, size), key=Collective.takes)

    def small_gather(self, ranks):
        """Of losses, norms and stops, once a step."""
        base, near, far = SMALL
        hosts = -(-ranks // GPUS_A_HOST)
        return base + (ranks - hosts) * near + (hosts - 1) * far


@dataclasses.dataclass
class Fit:
    """What two GPUs tell about work beside collectives."""
    slower: float = 1.0  # a collective beside other work moves its bytes in so many times the time
    taken: float = 0.0   # seconds that the other work loses to a second of that
    spread: float = 0.0  # standard deviation of a rank's step, as a share

    def lost(self, collective):
        """By the work beside it: bandwidth of memory and multiprocessors while it moves bytes at
        full rate, multiprocessors alone while it waits for others or for the network."""
        moving = self.slower * collective.nvlink
        return self.taken * moving + NCCL_SHARE * (collective.takes(self.slower) - moving)


@dataclasses.dataclass
class Step:
    seconds: float = 0.0
    collectives: float = 0.0  # seconds of them
    waits: float = 0.0        # in which nothing else went on
    start: float = 0.0        # of what was hidden: seconds before anything moved
    moving: float = 0.0       # and seconds at the rate of NVLink

    @property
    def hidden(self):
        return 1 - self.waits / self.collectives

    def hide(self, collective, fit):
        self.collectives += collective.takes(fit.slower)
        self.seconds += fit.lost(collective)
        self.start += collective.start
        self.moving += collective.nvlink

    def wait(self, seconds):
        self.collectives += seconds
        self.waits += seconds
        self.seconds += seconds


def largest_of(ranks):
    """The expected largest of so many standard normal numbers, to a few hundredths."""
    known = {1: 0.0, 2: 0.564, 4: 1.029, 8: 1.424}
    if ranks in known:
        return known[ranks]
    root = math.sqrt(2 * math.log(ranks))
    return root - (math.log(math.log(ranks)) + math.log(4 * math.pi) - 2 * 0.5772) / (2 * root)


def buckets_of(sizes, bucket):
    """(bytes of the bucket, share of the blocks' gradients that must be final; above 1: all)."""
    total, out, end = 4 * sizes.all, [], 0
    while end < total:
        size = min(bucket, total - end)
        end += size
        out.append((size, end / (4 * sizes.blocks)))
    return out


def sum_gradients(step, gradients, backward, collective, fit):
    """Collectives run one behind the other, each when its gradients are final: hidden while
    backward goes on, waited for afterwards."""
    end = 0.0
    for ready, size in gradients:
        one, begin = collective(size), max(ready, end)
        if begin < backward:
            end = begin + one.takes(fit.slower)
            step.hide(one, fit)
        else:
            end = begin + one.takes()
            step.wait(one.takes())
    # Of one that had begun before, the part behind backward's end is waited for, too.
    after = max(0.0, end - backward) - step.waits
    if after > 0:
        step.waits += after
        step.seconds += after


def seconds_behind(operation, ranks, size):
    """Seconds of a collective behind backward, between GPUs of one host."""
    crossings, rate = BEHIND[operation]
    return START_BEHIND + crossings * size * (ranks - 1) / ranks / rate


def gather_updated(step, sizes, update, ranks, bucket):
    """Weights leave bucket by bucket when they are updated, within `update` seconds for all, the
    last bucket first; forward begins when all have come."""
    updated = gathered = 0.0
    for size, _ in reversed(buckets_of(sizes, bucket)):
        updated += update * size / (4 * sizes.all)
        takes = seconds_behind("all_gather", ranks, size / 2)
        gathered = max(gathered, updated) + takes
        step.collectives += takes
    step.waits += gathered - updated
    step.seconds += gathered - updated


def step_behind(machine, sizes, alone, ranks, zero=False, bucket=BUCKET_BEHIND):
    """A training step of `ranks` GPUs of one host whose step takes `alone` seconds on one, with
    gradients that travel when backward has ended."""
    adamw, squares = (b * sizes.all / MEMORY for b in (ADAMW_BYTES, SQUARES_BYTES))
    step = Step((1 + SLOWER_KERNELS) * alone + GAPS - squares * (1 - 1 / ranks))
    step.wait(sum(seconds_behind("reduce_scatter" if zero else "all_reduce", ranks, size)
                  for size, _ in buckets_of(sizes, bucket)))
    step.wait(machine.small_gather(ranks))
    if zero:
        step.seconds -= adamw * (1 - 1 / ranks)
        gather_updated(step, sizes, adamw / ranks, ranks, bucket)
    return step


def step_beside(machine, sizes, alone, ranks, fit, zero=False, bucket=BUCKET):
    """The same on any number of hosts, with gradients that travel while backward goes on."""
    adamw = ADAMW_BYTES * sizes.all / MEMORY
    forward, backward = (alone - adamw) / 3, (alone - adamw) * 2 / 3
    head = sizes.head_share * backward
    buckets = buckets_of(sizes, bucket)
    step = Step(alone)
    sum_gradients(step, [(head + (backward - head) * min(1.0, place), size)
                         for size, place in buckets], backward,
                  lambda size: machine.ring(ranks, size, 1) if zero
                  else machine.all_reduce(ranks, size), fit)
    step.wait(machine.small_gather(ranks) + largest_of(ranks) * fit.spread * alone)
    if zero:  # bf16 weights travel while the next forward pass goes on, what it needs first first
        step.seconds -= adamw * (1 - 1 / ranks)
        gathers = [(machine.ring(ranks, size / 2, 1), place) for size, place in buckets]
        step.wait(sum(one.takes() for one, place in gathers if place > 1))
        early = [one for one, place in gathers if place <= 1]
        for one in early:
            step.hide(one, fit)
        late = max(0.0, sum(one.takes(fit.slower) for one in early) - forward)
        step.waits += late
        step.seconds += late
    return step


def fit_to(machine, sizes, alone, seconds, collectives, waits, most_spread=math.inf):
    """From plain training on two GPUs, with gradients beside backward. Waits and collectives are
    means over a run, in whose first steps ranks wait longer for each other: they do not differ more
    than the later steps of one, by `most_spread`."""
    ideal = step_beside(machine, sizes, alone, 2, Fit())
    spread = min(most_spread, max(0.0, waits - ideal.waits) / largest_of(2) / alone)
    slower = max(1.0, (collectives - waits - ideal.start) / ideal.moving)
    lost = (seconds - alone - ideal.waits - largest_of(2) * spread * alone
            - NCCL_SHARE * ideal.start)
    return Fit(slower, max(0.0, lost / (slower * ideal.moving)), spread)


# --- the measured points --------------------------------------------------------------------------


def on_gpus(section):
    return section is not None and not section["gpu"].startswith("none")


def find(rows, ranks, optimizer):
    return next((r for r in rows if r["ranks"] == ranks and r["optimizer"] == optimizer), None)


def points_of_scaling(report):
    """model -> rows, and the bandwidth within a host by the number of GPUs."""
    sections = report.get("sections", {})
    points = {name: sections[name]["details"].get("rows", []) for name in MODELS
              if on_gpus(sections.get(name))}
    points = {name: rows for name, rows in points.items() if find(rows, 1, "plain")}
    if not any(find(rows, 2, "beside") for rows in points.values()):
        points = {}
    buses = {}
    if on_gpus(sections.get("bandwidth")):
        for row in sections["bandwidth"]["details"].get("rows", []):
            if row["operation"] == "all_reduce":
                buses[row["ranks"]] = max(buses.get(row["ranks"], 0), row["bus_gb_per_s"] * 1e9)
    return points, buses


def points_of_check(report):
    kinds = {"one": "plain", "plain": "plain", "zero": "zero", "plain_beside": "beside",
             "zero_beside": "zero_beside"}
    rows = []
    for row in report["sections"]["ddp"]["details"]["rows"]:
        if row["optimizer"] not in kinds:
            continue
        point = {"ranks": row["gpus"], "tokens_per_s": row["tokens_per_s"],
                 "optimizer": kinds[row["optimizer"]]}
        if row["hidden"]:
            waits, hidden = row.get("waits_ms", WAITS_UNLESS_REPORTED), int(row["hidden"]) / 100
            point.update(hidden=hidden, waits_ms=waits,
                         collectives_ms=row.get("collectives_ms", waits / max(1 - hidden, 0.01)))
        rows.append(point)
    return {"gpt2": rows}, {}


def measured_points(folder):
    scaling, source = folder / "scaling.json", "scaling.json"
    points, buses = points_of_scaling(json.loads(scaling.read_text())) if scaling.exists() \
        else ({}, {})
    if not points:
        source = "gpu_check.json"
        points, buses = points_of_check(json.loads((folder / source).read_text()))
    return points, buses, source


@dataclasses.dataclass
class Model:
    title: str
    sizes: Sizes
    alone: float  # seconds of a step on one GPU
    rows: list

    @staticmethod
    def of(name, rows):
        title, config, tokens = MODELS[name]
        sizes = Sizes.of(json.loads((ROOT / "configs" / config).read_text())["model"])
        return Model(title, sizes, tokens / find(rows, 1, "plain")["tokens_per_s"], rows)


def fit_of(models, machine):
    """From the first model that was measured on two GPUs with gradients beside backward."""
    for model in models:
        two = find(model.rows, 2, "beside")
        if two:
            tokens_a_step = 2 * find(model.rows, 1, "plain")["tokens_per_s"] * model.alone
            return model, fit_to(machine, model.sizes, model.alone,
                                 tokens_a_step / two["tokens_per_s"],
                                 two["collectives_ms"] / 1e3, two["waits_ms"] / 1e3,
                                 two.get("spread", math.inf))
    raise SystemExit("scaling_model: no model was measured on two GPUs; run tools/scaling.sh there")


# --- what is printed ------------------------------------------------------------------------------


def percent(x):
    return number(x, "{:.0%}")


def step_as_it_comes(machine, model, ranks, fit, zero, bucket=None):
    """What train_ddp does unless told otherwise."""
    if ranks <= GPUS_A_HOST:
        return step_behind(machine, model.sizes, model.alone, ranks, zero, bucket or BUCKET_BEHIND)
    return step_beside(machine, model.sizes, model.alone, ranks, fit, zero, bucket or BUCKET)


def compared(models, machine, fitted, fit):
    rows = []
    for model in models:
        for row in model.rows:
            if row["ranks"] == 1:
                continue
            zero, beside, kind = KINDS[row["optimizer"]]
            step = step_beside(machine, model.sizes, model.alone, row["ranks"], fit, zero) \
                if beside else step_as_it_comes(machine, model, row["ranks"], fit, zero)
            one = find(model.rows, 1, "plain")["tokens_per_s"]
            used = model is fitted and row["ranks"] == 2 and row["optimizer"] == "beside"
            rows.append((model.title, row["ranks"], kind,
                         f"{row['tokens_per_s'] / one / row['ranks']:.4f}",
                         f"{model.alone / step.seconds:.4f}", percent(row.get("hidden")),
                         percent(step.hidden), "fitted to it" if used else "predicted"))
    return rows_of(["model", "GPUs", "kind", "efficiency measured", "of the model",
                    "hidden measured", "of the model", "the model is"], rows)


def best_bucket(machine, model, ranks, fit, zero):
    usual = BUCKET_BEHIND if ranks <= GPUS_A_HOST else BUCKET
    steps = {bucket: step_as_it_comes(machine, model, ranks, fit, zero, bucket)
             for bucket in [usual, *LARGER_BUCKETS]}
    bucket = min(steps, key=lambda b: steps[b].seconds)
    return f"{model.alone / steps[bucket].seconds:.3f} ({bucket // 2**20} MiB)"


def predicted(model, machine, fit):
    rows = []
    for ranks in PREDICTED:
        plain, zero = (step_as_it_comes(machine, model, ranks, fit, shared)
                       for shared in (False, True))
        rows.append((ranks, -(-ranks // GPUS_A_HOST),
                     "behind" if ranks <= GPUS_A_HOST else "beside",
                     f"{1e3 * plain.collectives:.1f}", f"{1e3 * plain.waits:.1f}",
                     f"{model.alone / plain.seconds:.3f}", f"{model.alone / zero.seconds:.3f}",
                     best_bucket(machine, model, ranks, fit, False),
                     best_bucket(machine, model, ranks, fit, True)))
    return rows_of(["GPUs", "hosts", "backward, gradients travel", "collectives ms", "waits ms",
                    "efficiency, plain", "ZeRO-1", "plain, best bucket", "ZeRO-1, best bucket"],
                   rows)


def page(folder):
    points, buses, source = measured_points(folder)
    nvlink = buses[max(buses)] if buses else NVLINK
    machine = Machine(nvlink)
    models = [Model.of(name, rows) for name, rows in points.items()]
    fitted, fit = fit_of(models, machine)
    lines = [f"Measured points are those of docs/performance/{source}. Within a host an all-reduce "
             f"moves {nvlink / 1e9:.0f} GB/s "
             f"({f'measured on {max(buses)} GPUs' if buses else 'assumed'}). From {fitted.title}, "
             "plain, beside backward, on two GPUs: a collective beside other work takes "
             f"{fit.slower:.2f} times as long as alone, a second of it costs the other work "
             f"{fit.taken:.2f} s, and the ranks' steps spread by {fit.spread:.2%}.", ""]
    lines += compared(models, machine, fitted, fit)
    for model in models:
        for links in (8, 1):
            lines += ["", f"**{model.title}, {links} x 400 Gb/s a host**, {1e3 * model.alone:.1f} "
                      "ms a step on one GPU:", ""]
            lines += predicted(model, dataclasses.replace(machine, links=links), fit)
    return lines


BEGIN, END = "<!-- made by tools/scaling_model.py -->", "<!-- end -->"


def write(path, lines):
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"scaling_model: {path} must hold the lines {BEGIN} and {END} once each")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    path.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--report", type=pathlib.Path, default=ROOT / "docs" / "performance",
                        help="folder of scaling.json and gpu_check.json")
    parser.add_argument("--write", type=pathlib.Path, metavar="PAGE",
                        help="put the tables between the marks of this page")
    o = parser.parse_args()
    lines = page(o.report)
    if o.write:
        write(o.write, lines)
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
