"""tools/loss_curves_report.py, tools/training_order.py and tools/line_chart.py, on numbers that are
written here; rows of tools/bench_against_report.py: those that end at the same time, and how others
are scaled."""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import bench_against_report  # noqa: E402
import loss_curves_report  # noqa: E402
from line_chart import Chart, Line, picture, ticks_of  # noqa: E402
from report import Section  # noqa: E402
from training_order import Permutation, TrainingOrder, philox4x32  # noqa: E402

STEPS, INTERVAL = 20, 5


def temporary_folder(test):
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return pathlib.Path(folder.name)


class OrderTest(unittest.TestCase):
    """tests/train/data has the same numbers for the C++."""

    def test_philox(self):  # the vectors of Random123
        self.assertEqual(philox4x32(0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))
        ones = 2**64 - 1
        self.assertEqual(philox4x32(ones, ones, ones),
                         (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD))

    def test_shuffle(self):
        shuffle = Permutation(9667, 1337, 3)
        self.assertEqual([shuffle(i) for i in range(8)],
                         [492, 2836, 6803, 1552, 7558, 9174, 4141, 3364])

    def test_starts(self):
        order = TrainingOrder(1000, 64, 1)
        self.assertEqual([order.start_of(g) for g in range(30)],
                         [426, 874, 42, 554, 935, 298, 746, 362, 234, 810,
                          490, 170, 682, 618, 106, 421, 293, 741, 165, 357,
                          677, 805, 933, 549, 869, 101, 613, 37, 485, 229])


class ReportTest(unittest.TestCase):
    def lines(self, share=0.0, first=0.0, rate=1e-3):
        """Of a run whose losses are off by a share, and that of the first step by another."""
        for step in range(1, STEPS + 1):
            loss = (9.0 - 0.3 * step) * (1 + (first if step == 1 else share))
            val = loss + 0.1 * (1 + share) if step % INTERVAL == 0 else None
            yield {"step": step, "loss": loss, "val_loss": val, "lr": rate}

    def work(self, ours=(), pytorch=(), second=(), weights="0123", name="bf16"):
        """Each run: how its lines differ, or they themselves."""
        work = temporary_folder(self)
        (work / name).mkdir()
        train = {key: 1 for key in loss_curves_report.SHOWN} | {"max_steps": STEPS}
        (work / name / "run.json").write_text(json.dumps({"train": train}))
        log = "train: 9 documents, 900 tokens, 1 bytes\nval: 1 documents, 90 tokens, 1 bytes\n"
        for run, differs in (("first", ours), ("second", second or ours), ("pytorch", pytorch),
                             ("reversed", {"share": -0.002})):
            lines = [json.dumps(line) for line in self.lines(**dict(differs))]
            (work / name / f"{run}.jsonl").write_text("\n".join(lines) + "\n")
        for run, end in (("first", "0123"), ("second", weights)):
            log += f"run {run}: train\n77 parameters, bf16\nweights {end}, peak memory 7 MiB\n"
        (work / f"{name}.log").write_text(log + "PyTorch 2.11.0\n")
        return work

    def wrong(self, *arguments, name="bf16", **named):
        section = Section(self.work(*arguments, name=name, **named), name)
        checks, _ = loss_curves_report.loss_report().judge(section, 0)
        return [c["name"] for c in checks if not c["ok"]]

    def test_equal_losses_pass(self):
        self.assertEqual(self.wrong(), [])
        self.assertEqual(self.wrong({"share": 0.0049}), [])
        self.assertEqual(self.wrong({"share": -0.0049}), [])

    def test_losses_apart_do_not(self):
        both = ["validation losses apart, the farthest", "validation loss apart at the end"]
        for share in (0.0051, -0.0051):
            self.assertEqual(self.wrong({"share": share}), both)
        self.assertEqual(self.wrong(pytorch={"share": float("nan")}), both)
        self.assertTrue(math.isnan(loss_curves_report.farthest([0.1, float("nan"), 0.2])))

    def test_another_start_does_not(self):
        for name, first in (("bf16", 3e-4), ("tf32", 4e-5), ("f32", 4e-7)):
            wrong = ["loss of the first step apart"]
            self.assertEqual(self.wrong({"first": 1.1 * first}, name=name), wrong)
            self.assertEqual(self.wrong({"first": 0.9 * first}, name=name), [])

    def test_other_batches_in_f32_do_not(self):
        self.assertEqual(self.wrong({"share": 9e-5}, name="f32"), [])
        self.assertEqual(self.wrong({"share": 2e-4}, name="f32"),
                         ["losses of steps apart, the farthest"])

    def test_another_rate_does_not(self):
        self.assertEqual(self.wrong({"rate": 1.0001e-3}), ["learning rates apart"])

    def test_a_second_run_with_other_bits_does_not(self):
        self.assertEqual(self.wrong(weights="4567"), ["second run: different weights"])
        self.assertEqual(self.wrong(second={"share": 1e-12}),
                         ["second run: steps with another loss"])

    def test_page_and_picture(self):
        folder, report = temporary_folder(self), loss_curves_report.loss_report()
        section = Section(self.work({"share": 0.001}), "bf16")
        checks, details = report.judge(section, 0)
        entry = {"checks": checks, "details": details, "ok": True, "seconds": 1} | {
            key: "" for key in ("commit", "date", "gpu", "driver", "cuda_compiler", "cxx_compiler")}
        (folder / "loss_curves.json").write_text(json.dumps({"sections": {"bf16": entry}}))
        report.table(argparse.Namespace(folder=folder))
        page = (folder / "loss_curves.md").read_text()
        self.assertIn("| 20 | 1.00e-03 | 3.1031 | 3.1000 | +0.100% | -0.200% |", page)
        self.assertIn("PyTorch by itself ends 0.20% apart, 0.20% at the farthest", page)
        self.assertIn("(loss_curves_bf16.svg)", page)
        root = xml.etree.ElementTree.parse(folder / "loss_curves_bf16.svg").getroot()
        kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
        self.assertEqual(kinds.count("circle"), 3 * (STEPS // INTERVAL + 2))  # two in a legend


class ChartTest(unittest.TestCase):
    def test_ticks_are_round_and_inside(self):
        self.assertEqual(ticks_of(0, 300), [0, 50, 100, 150, 200, 250, 300])
        self.assertEqual(ticks_of(-0.55, 0.55), [-0.4, -0.2, 0.0, 0.2, 0.4])

    def test_points_are_in_the_panel(self):
        chart = Chart("t", [Line("a", [(0, 1.0), (10, 1.0)], "#000", 1)])
        x, y = chart.place(10, 1.0, top=100)
        self.assertEqual(x, 786)
        self.assertEqual(y, 225)
        self.assertIn('d="M64.0 153.0L786.0 153.0"', picture([chart], "x"))


class RowsTest(unittest.TestCase):
    def test_rows_that_end_together_are_all_kept(self):
        folder, work = temporary_folder(self), temporary_folder(self)
        known = json.loads((ROOT / "docs" / "performance" / "train.json").read_text())
        row = next(iter(known["rows"].values()))
        names, programs = [f"row{i}" for i in range(6)], []
        for name in names:
            for program in ("xtrain", "pytorch"):
                (work / f"{name}.{program}.1.json").write_text(json.dumps(row[program][0]))
            (work / f"{name}.commands").write_text("one\ntwo\n")
            programs.append(subprocess.Popen(
                [sys.executable, ROOT / "tools" / "bench_against_report.py", folder, "--row", name,
                 "--work", work]))
        self.assertEqual([program.wait() for program in programs], [0] * len(names))
        rows = json.loads((folder / "train.json").read_text())["rows"]
        self.assertEqual(sorted(rows), names)
        page = (folder / "train.md").read_text()
        self.assertTrue(all(f"### {name}\n" in page for name in names))

    def test_others_are_scaled_by_the_batch_they_were_measured_beside(self):
        work = temporary_folder(self)
        known = json.loads((ROOT / "docs" / "performance" / "train.json").read_text())
        row = next(iter(known["rows"].values()))
        speeds = {"xtrain": 180e3, "pytorch": 150e3}
        for program, speed in speeds.items():
            run = row[program][0]
            (run if program == "xtrain" else run[0])["tokens_per_s"] = speed
            (work / f"qwen2.5_0.5b.{program}.1.json").write_text(json.dumps(run))
        (work / "qwen2.5_0.5b.commands").write_text("one\n")

        def scaled_and_ratio():
            line = bench_against_report.speed_line(
                "qwen2.5_0.5b", bench_against_report.new_row(work, "qwen2.5_0.5b", "x"))
            return line[8:11]

        self.assertEqual(scaled_and_ratio(), ["1.200", "llmq 168.3 k", "1.069"])
        (work / "qwen2.5_0.5b.yardstick.json").write_text(json.dumps([{"tokens_per_s": 139e3}]))
        self.assertEqual(scaled_and_ratio(), ["1.200", "llmq 156.0 k", "1.154"])


if __name__ == "__main__":
    unittest.main()
