"""The section ddp of tools/gpu_report.py, on outputs that are written here."""

import unittest

from scaling_report_test import Work, wrong

import gpu_report


class DdpSpeedTest(unittest.TestCase):
    def judged(self, **milliseconds):
        """Of a step by kind of run; one GPU takes 100, two have twice the tokens."""
        work = Work(self, "ddp")
        for kind in gpu_report.SPEEDS:
            ms = 100.0 if kind == "one" else milliseconds.get(kind, 102.0) / 2
            for number in (1,) if kind == "zero_bf16" else (1, 2):
                slow = 5.0 if number == 1 else 0.0  # the better of the rounds counts
                work.run(f"speed_{kind}_{number}", [(3.0, 900.0)] * 10 + [(2.0, ms + slow)] * 10,
                         collectives=None if kind == "one" else (0.04, 0.01, 75))
        return gpu_report.ddp_speed(work.section())

    def test_numbers(self):
        checks, rows = self.judged()
        self.assertEqual(wrong(checks), [])
        self.assertEqual([row["optimizer"] for row in rows], list(gpu_report.SPEEDS))
        two = rows[2]
        self.assertAlmostEqual(two["scaling"], 100.0 / 102.0)
        self.assertEqual((two["gpus"], two["hidden"]), (2, "75"))
        self.assertAlmostEqual(two["collectives_ms"], 2.0)
        self.assertAlmostEqual(two["waits_ms"], 0.5)

    def test_slow_runs_are_seen(self):
        self.assertEqual(wrong(self.judged(zero=104.0)[0]),
                         ["train_ddp as it comes: two GPUs / twice one", "ZeRO / plain"])
        self.assertEqual(wrong(self.judged(plain=104.0)[0]), ["plain: two GPUs / twice one"])
        self.assertEqual(wrong(self.judged(plain_beside=104.0, zero_beside=104.0)[0]), [])

    def test_the_table_names_the_options(self):
        table = gpu_report.ddp_table({"rows": self.judged()[1]})
        self.assertIn("| 2 | as it comes | 19608 | 0.9804 | 75 % |", table)
        self.assertIn("| 2 | --no-zero --overlap | 19608 | 0.9804 | 75 % |", table)


if __name__ == "__main__":
    unittest.main()
