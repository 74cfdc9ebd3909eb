#!/usr/bin/env python3
"""The report of tools/loss_curves.sh: loss_curves.json, and what is made from it, loss_curves.md
and a loss_curves_SECTION.svg for each section.

    python3 tools/loss_curves_report.py add FOLDER --section bf16 --work build-gpu/loss_curves ...
    python3 tools/loss_curves_report.py table FOLDER
"""

import functools
import json
import math
import pathlib
import statistics
import sys

from line_chart import Chart, Line, picture
from report import Report, check, rows_of

# Validation losses must agree as closely: the share of PyTorch's by which they may differ.
VALIDATION_APART = 0.005
# Before the first update both compute the same, each with its own rounding: twice what
# compare_pytorch.py grants a loss against float64. TF32 rounds eight times as finely as bf16.
FIRST_LOSS_APART = {"f32": 4e-7, "tf32": 3e-4 / 8, "bf16": 3e-4}
SECTIONS = list(FIRST_LOSS_APART)
# In f32 runs part so slowly that other batches would show.
STEPS_APART = 1e-4
# Rates are the same formula in double.
RATE_APART = 1e-12

SHOWN = ("batch_size", "seq_len", "max_steps", "learning_rate", "warmup_steps", "lr_schedule",
         "min_lr_ratio", "beta1", "beta2", "adam_eps", "weight_decay", "grad_clip", "dtype", "gemm")


def apart(ours, theirs):
    """Of each pair the difference as a share of the second."""
    return [a / b - 1 for a, b in zip(ours, theirs, strict=True)]


def farthest(shares):
    """NaN where one is."""
    return max(map(abs, shares), key=lambda share: math.inf if math.isnan(share) else share)


# --- the section ----------------------------------------------------------------------------------


def repeated(section):
    """Whether the second run had the bits of the first."""
    weights = [section.after_run(run, r"^weights (\w+), ")[0] for run in ("first", "second")]
    losses = [section.steps_of(run, "loss") for run in ("first", "second")]
    return [check("second run: different weights", weights[0] != weights[1], at_most=0),
            check("second run: steps with another loss",
                  sum(a != b for a, b in zip(*losses, strict=True)), at_most=0)], weights[0]


def steps(section, run):
    return {key: section.steps_of(run, key) for key in ("step", "loss", "val_loss", "lr")}


def judge(section):
    run = json.loads((section.work / section.name / "run.json").read_text())
    ours, theirs = steps(section, "first"), steps(section, "pytorch")
    other = steps(section, "reversed")
    validated = [i for i, loss in enumerate(ours["val_loss"]) if loss is not None]
    rows = [{"step": ours["step"][i], "lr": ours["lr"][i], "xtrain": ours["val_loss"][i],
             "pytorch": theirs["val_loss"][i],
             "apart": ours["val_loss"][i] / theirs["val_loss"][i] - 1,
             "rounding": other["val_loss"][i] / theirs["val_loss"][i] - 1} for i in validated]
    training = apart(ours["loss"], theirs["loss"])
    repeats, weights = repeated(section)
    checks = [
        check("steps compared", len(training), at_least=run["train"]["max_steps"]),
        check("learning rates apart", farthest(apart(ours["lr"], theirs["lr"])),
              at_most=RATE_APART),
        check("loss of the first step apart", abs(training[0]),
              at_most=FIRST_LOSS_APART[section.name]),
        check("validation losses apart, the farthest", farthest(row["apart"] for row in rows),
              at_most=VALIDATION_APART),
        check("validation loss apart at the end", abs(rows[-1]["apart"]),
              at_most=VALIDATION_APART), *repeats]
    if section.name == "f32":
        checks.append(check("losses of steps apart, the farthest", farthest(training),
                            at_most=STEPS_APART))
    return checks, {
        "rows": rows, "training": {"xtrain": ours["loss"], "pytorch": theirs["loss"]},
        "mean_training_apart": statistics.mean(map(abs, training)), "weights": weights,
        "pytorch": section.find(r"^PyTorch (\S+)$")[0],
        "tokens": section.find(r"^(train|val): \d+ documents, (\d+) tokens"),
        "parameters": int(section.find(r"^(\d+) parameters, ")[0]), "run": run}


# --- the page and the picture ---------------------------------------------------------------------


def picture_of(section):
    return f"loss_curves_{section}.svg"


def section_table(section, details):
    train, rows = details["run"]["train"], details["rows"]
    tokens = {split: int(count) for split, count in details["tokens"]}
    end = rows[-1]
    settings = ", ".join(f"{key} {train[key]}" for key in SHOWN)
    return [
        f"A model of {details['parameters']:,} parameters on {tokens['train']:,} tokens of the "
        f"built-in stories, and {tokens['val']:,} held out; xtrain with flash attention, PyTorch "
        f"{details['pytorch']} not compiled. Both start from the same weights, drawn by PyTorch, "
        "and see the same batches in the same order.", "", f"{settings}.", "",
        f"At the end the validation losses are {end['xtrain']:.4f} and {end['pytorch']:.4f}, "
        f"{abs(end['apart']):.2%} apart; the farthest apart were "
        f"{farthest(row['apart'] for row in rows):.2%}. Losses of single training steps are "
        f"{details['mean_training_apart']:.2%} apart in the mean. xtrain ran twice, and ended with "
        f"the weights {details['weights']}. PyTorch by itself ends {abs(end['rounding']):.2%} "
        f"apart, {farthest(row['rounding'] for row in rows):.2%} at the farthest, when the "
        "sequences of each batch come in reverse order: the same sums, rounded otherwise.", "",
        "![Losses of training and validation by xtrain and PyTorch, and how far apart they are]"
        f"({picture_of(section)})", "",
        *rows_of(["step", "learning rate", "validation loss, xtrain", "PyTorch", "apart",
                  "PyTorch reversed"],
                 [(row["step"], f"{row['lr']:.2e}", f"{row['xtrain']:.4f}",
                   f"{row['pytorch']:.4f}", f"{row['apart']:+.3%}", f"{row['rounding']:+.3%}")
                  for row in rows])]


def losses_chart(details):
    """xtrain's lines are thin and lie on PyTorch's."""
    def training(program):
        return list(enumerate(details["training"][program], start=1))

    def validation(program):
        return [(row["step"], row[program]) for row in details["rows"]]

    return Chart("nats a token", [
        Line("PyTorch, training", training("pytorch"), "#a8c5ee", 3.5),
        Line("xtrain, training", training("xtrain"), "#1f4e9c", 1),
        Line("PyTorch, validation", validation("pytorch"), "#f6bd8f", 4.5, marks=True),
        Line("xtrain, validation", validation("xtrain"), "#b3261e", 1.5, marks=True)])


def apart_chart(details):
    training = apart(details["training"]["xtrain"], details["training"]["pytorch"])
    limit = 100 * VALIDATION_APART
    return Chart("xtrain's loss less PyTorch's, % of it, and the limit", [
        Line("training", [(i, 100 * x) for i, x in enumerate(training, start=1)], "#9aa5b5", 1),
        Line("validation", [(row["step"], 100 * row["apart"]) for row in details["rows"]],
             "#2a7a2a", 2, marks=True)], (-limit, limit))


class LossReport(Report):
    def table(self, o):
        super().table(o)
        folder = pathlib.Path(o.folder)
        for name, section in self.read(folder)["sections"].items():
            details = section["details"]
            if "rows" in details:
                charts = [losses_chart(details), apart_chart(details)]
                (folder / picture_of(name)).write_text(picture(charts, "optimizer steps"))
        return 0


def loss_report():
    return LossReport("loss_curves", "Losses beside PyTorch's",
                      {name: judge for name in SECTIONS},
                      {name: functools.partial(section_table, name) for name in SECTIONS})


if __name__ == "__main__":
    sys.exit(loss_report().main(__doc__.split("\n")[0]))
