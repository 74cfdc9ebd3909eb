"""tools/scaling_report.py and tools/scaling_model.py, on outputs that are written here."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import scaling_model  # noqa: E402
import scaling_report  # noqa: E402
from report import Section  # noqa: E402


class Work:
    """A folder like the one that tools/scaling.sh leaves."""

    def __init__(self, test, section):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.path, self.name, self.log = pathlib.Path(folder.name), section, ""
        (self.path / section).mkdir()

    def run(self, name, steps, weights="0123", collectives=None):
        self.log += (f"run {name}: train_on\n2 parameters, bf16 on cuda:0, GPU with 2 threads\n"
                     f"weights {weights}, peak memory 77 MiB\n")
        if collectives:
            self.log += "collectives took {:.3f} s, waits for them {:.3f} s: {} % hidden\n".format(
                *collectives)
        lines = [json.dumps({"loss": loss, "step_ms": ms, "tokens_per_s": 1e6 / ms})
                 for loss, ms in steps]
        (self.path / self.name / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def section(self):
        (self.path / f"{self.name}.log").write_text(self.log)
        return Section(self.path, self.name)

    def judged(self):
        report = scaling_report.Report("scaling", "", scaling_report.SECTIONS, {})
        return report.judge(self.section(), 0)


def wrong(checks):
    return [c["name"] for c in checks if not c["ok"]]


class SpeedTest(unittest.TestCase):
    def work(self, two_ms=103.0, other="0123"):
        work = Work(self, "gpt2")
        for number in (1, 2):
            slow = [(3.0, 900.0)] * 3  # the first third does not count
            work.run(f"1_plain_{number}", slow + [(2.0, 100.0 + number)] * 6)
            work.run(f"2_plain_{number}", slow + [(2.0, two_ms / 2)] * 6,
                     "0123" if number == 1 else other, (0.9, 0.225, 75))
            work.run(f"2_beside_{number}", slow + [(2.0, 60.0)] * 6, "0123", (0.9, 0.09, 90))
        return work

    def test_numbers(self):
        checks, details = self.work().judged()
        one, two, beside = details["rows"]
        self.assertEqual(wrong(checks), [])
        self.assertAlmostEqual(one["tokens_per_s"], 1e6 / 101.0)  # the better round
        self.assertAlmostEqual(two["efficiency"], 101.0 / 103.0)
        self.assertEqual((two["hidden"], two["peak_mib"]), (0.75, 77))
        self.assertAlmostEqual(two["collectives_ms"], 100.0)
        self.assertAlmostEqual(two["waits_ms"], 25.0)
        self.assertEqual((beside["optimizer"], beside["step_ms"]), ("beside", 60.0))
        self.assertAlmostEqual(beside["efficiency"], 101.0 / 120.0)  # and no check of it is wrong

    def test_slow_runs_and_other_bits_are_seen(self):
        self.assertEqual(wrong(self.work(two_ms=105.0).judged()[0]), ["ranks 2, plain: efficiency"])
        self.assertEqual(wrong(self.work(other="4567").judged()[0]),
                         ["ranks 2, plain: different weights of 2 runs"])

    def test_a_run_that_failed_is_seen(self):
        work = self.work()
        (work.path / "gpt2" / "2_plain_2.jsonl").unlink()
        self.assertEqual(wrong(work.judged()[0]), ["outputs that could not be read"])


class LossesTest(unittest.TestCase):
    def judged(self, two=1.0, again=1.0, weights="0123"):
        work = Work(self, "losses")
        work.run("f32_1_plain", [(1.0, 1.0)] * 20)
        work.run("f32_2_plain", [(1.0, 1.0)] * 19 + [(two, 1.0)])
        work.run("f32_2_zero", [(1.0, 1.0)] * 20)
        work.run("f32_2_again", [(1.0, 1.0)] * 19 + [(two * again, 1.0)], weights)
        return wrong(work.judged()[0])

    def test_limits(self):
        self.assertEqual(self.judged(), [])
        self.assertEqual(self.judged(two=1.0 + 9e-6), [])
        self.assertEqual(self.judged(two=1.0 + 2e-5),
                         ["f32, ranks 2, plain: losses from those of one"])
        self.assertEqual(self.judged(again=1.0 + 1e-15),
                         ["f32, ranks 2: steps that differ in a second run"])
        self.assertEqual(self.judged(weights="4567"),
                         ["f32, ranks 2: different weights of two runs"])


class ModelTest(unittest.TestCase):
    """A machine made up by hand: 100 GB/s and a network as fast, no latencies."""

    sizes = scaling_model.Sizes(blocks=75_000_000, embedding=25_000_000)

    def test_sizes_are_those_of_the_models(self):
        for name, parameters in (("gpt2", 124_439_808), ("qwen3", 596_049_920)):
            config = json.loads((ROOT / "configs" / scaling_model.MODELS[name][1]).read_text())
            sizes = scaling_model.Sizes.of(config["model"])
            self.assertAlmostEqual(sizes.all / parameters, 1.0, delta=1e-3)

    def test_bytes_over_bandwidth(self):
        machine = scaling_model.Machine(100e9)
        ring = machine.ring(4, 1e9, 2)
        self.assertAlmostEqual(ring.nvlink, 1.5 * 1e9 / 100e9)  # an all-reduce: 2 (N - 1) / N
        self.assertEqual(ring.network, 0.0)
        slow = scaling_model.Machine(100e9, links=1).all_reduce(16, 1e9)
        self.assertAlmostEqual(slow.takes(), slow.start + 2 * 15 / 16 * 1e9 / 45e9)

    def test_what_is_fitted_comes_out(self):
        machine = scaling_model.Machine(100e9)
        fit = scaling_model.fit_to(machine, self.sizes, 0.1, 0.105, 0.010, 0.003)
        step = scaling_model.step_beside(machine, self.sizes, 0.1, 2, fit)
        self.assertAlmostEqual(step.seconds, 0.105, places=6)
        self.assertAlmostEqual(step.waits, 0.003, places=6)
        self.assertAlmostEqual(step.collectives, 0.010, places=6)

    def test_ranks_do_not_spread_more_than_their_steps(self):
        machine = scaling_model.Machine(100e9)
        fit = scaling_model.fit_to(machine, self.sizes, 0.1, 0.105, 0.010, 0.003, 0.001)
        self.assertEqual(fit.spread, 0.001)
        step = scaling_model.step_beside(machine, self.sizes, 0.1, 2, fit)
        self.assertAlmostEqual(step.seconds, 0.105, places=6)

    def test_behind_backward_collectives_are_waited_for(self):
        machine, small = scaling_model.Machine(100e9), scaling_model.Machine(100e9).small_gather(2)
        others = 1.01 * 0.1 + 0.3e-3 - 4e8 / 3.75e12 / 2  # half of the squares are another's
        plain = scaling_model.step_behind(machine, self.sizes, 0.1, 2)
        self.assertAlmostEqual(plain.waits, 3 * 10e-6 + 4e8 / 324e9 + small)  # three buckets
        self.assertAlmostEqual(plain.seconds, others + plain.waits)
        self.assertEqual(plain.hidden, 0.0)
        zero = scaling_model.step_behind(machine, self.sizes, 0.1, 2, zero=True)
        scattered = 3 * 10e-6 + 2e8 / 269e9
        update = 28e8 / 3.75e12 / 2
        first = update * (4e8 - 2 * 128 * 2**20) / 4e8  # the arena's last bucket, the smallest
        gathered = 3 * 10e-6 + 1e8 / 263e9  # half of the weights, in bf16, slower than the update
        self.assertAlmostEqual(zero.waits, scattered + small + first + gathered - update)
        self.assertAlmostEqual(zero.seconds, others - update + zero.waits)
        self.assertAlmostEqual(zero.collectives, scattered + small + gathered)

    def test_more_gpus_cost_behind_backward(self):
        machine = scaling_model.Machine(100e9)
        for zero in (False, True):
            seconds = [scaling_model.step_behind(machine, self.sizes, 0.1, n, zero).seconds
                       for n in (2, 4, 8)]
            self.assertEqual(seconds, sorted(seconds))

    def test_less_network_and_more_gpus_cost(self):
        machine = scaling_model.Machine(100e9)
        fit = scaling_model.Fit(1.5, 0.5, 0.001)
        for zero in (False, True):
            seconds = [scaling_model.step_beside(machine, self.sizes, 0.1, n, fit, zero).seconds
                       for n in (8, 16, 64, 256, 1024)]
            self.assertEqual(seconds, sorted(seconds))
            one_link = scaling_model.Machine(100e9, links=1)
            slow = scaling_model.step_beside(one_link, self.sizes, 0.1, 16, fit, zero)
            self.assertGreater(slow.seconds, seconds[1])

    TWO = (("plain", 5.8e5), ("zero", 5.95e5), ("beside", 5.9e5))

    def reported(self, gpu, two=TWO):
        """The model's page from a report on one and two GPUs, beside the one of gpu_check."""
        rows = [{"ranks": n, "optimizer": o, "tokens_per_s": rate, "hidden": 0.75,
                 "collectives_ms": 4.0, "waits_ms": 1.0}
                for n, o, rate in ((1, "plain", 3e5), *((2, *run) for run in two))]
        buses = [{"ranks": 2, "operation": "all_reduce", "bytes": 1e8, "bus_gb_per_s": 300.0}]
        sections = {name: {"gpu": gpu, "details": {"rows": found}}
                    for name, found in (("gpt2", rows), ("bandwidth", buses))}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "scaling.json").write_text(json.dumps({"sections": sections}))
            (folder / "gpu_check.json").write_text(
                (ROOT / "docs" / "performance" / "gpu_check.json").read_text())
            return "\n".join(scaling_model.page(folder))

    def test_measured_points_are_read(self):
        page = self.reported("NVIDIA H200")
        self.assertIn("those of docs/performance/scaling.json", page)
        self.assertIn("300 GB/s (measured on 2 GPUs)", page)
        self.assertIn("| 2 | plain, beside backward | 0.9833 | 0.9833 | 75% | 75% | fitted to it |",
                      page)
        self.assertIn("| 2 | plain | 0.9667 |", page)
        self.assertIn("| 2 | ZeRO-1 | 0.9917 |", page)
        for gpus, hosts, way in ((2, 1, "behind"), (8, 1, "behind"), (16, 2, "beside")):
            self.assertIn(f"\n| {gpus} | {hosts} | {way} | ", page)

    def test_points_of_the_check_are_read(self):
        rows = [{"gpus": 2, "optimizer": kind, "tokens_per_s": 5.9e5, "hidden": "75",
                 "collectives_ms": 4.0, "waits_ms": 1.5}
                for kind in ("plain", "zero", "plain_beside", "zero_beside", "zero_bf16")]
        rows.insert(0, {"gpus": 1, "optimizer": "one", "tokens_per_s": 3e5, "hidden": None})
        report = {"sections": {"ddp": {"details": {"rows": rows}}}}
        points, _ = scaling_model.points_of_check(report)
        self.assertEqual([(row["ranks"], row["optimizer"]) for row in points["gpt2"]],
                         [(1, "plain"), (2, "plain"), (2, "zero"), (2, "beside"),
                          (2, "zero_beside")])
        beside = scaling_model.find(points["gpt2"], 2, "beside")
        self.assertEqual((beside["collectives_ms"], beside["waits_ms"]), (4.0, 1.5))

    def test_points_of_cpus_are_not(self):
        page = self.reported("none; 2 x CPU")
        self.assertIn("those of docs/performance/gpu_check.json", page)

    def test_the_page_is_up_to_date(self):
        page = ROOT / "docs" / "scaling.md"
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "scaling.md"
            copy.write_text(page.read_text())
            done = subprocess.run([sys.executable, ROOT / "tools" / "scaling_model.py", "--write",
                                   copy])
            self.assertEqual(done.returncode, 0)
            self.assertEqual(copy.read_text(), page.read_text(),
                             "run python3 tools/scaling_model.py --write docs/scaling.md")


if __name__ == "__main__":
    unittest.main()
