"""Reports of scripts that check and measure in sections: NAME.json, and NAME.md made from it.

A section leaves what it has printed in NAME.log, what it has written beside it, and is judged by a
function that returns checks, each a value with its limit, and details, numbers for tables.
"""

import argparse
import datetime
import fcntl
import json
import pathlib
import re
import subprocess


def check(name, value, at_most=None, at_least=None):
    ok = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    limit = f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}"
    return {"name": name, "value": value, "limit": limit, "ok": ok}


class Section:
    def __init__(self, work, name):
        self.name = name
        self.work = work
        self.log = (work / f"{name}.log").read_text(errors="replace")
        self.json_path = work / f"{name}.json"

    def json(self):
        return json.loads(self.json_path.read_text())

    def find(self, pattern):
        return re.findall(pattern, self.log, re.MULTILINE)

    def steps_of(self, run, quantity):
        """Of the steps of a run in several processes."""
        lines = (self.work / self.name / f"{run}.jsonl").read_text().splitlines()
        return [json.loads(line)[quantity] for line in lines]

    def after_run(self, run, pattern):
        """What the pattern finds first in the output of such a run."""
        after = ("\n" + self.log).partition(f"\nrun {run}: ")[2]
        own = re.split(r"^run \S+: ", after, maxsplit=1, flags=re.MULTILINE)[0]
        return re.search(pattern, own, re.MULTILINE).groups()


def killed_rank(section, ranks):
    """What kill_a_rank of sections.sh has printed."""
    number = lambda pattern: float(section.find(pattern)[-1])  # noqa: E731
    weights = dict(section.find(r"^(unbroken|broken) weights (\w+)"))
    return [check("killed rank: named by the others", len(section.find(
                r"^train_ddp: rank \d was lost: connection closed$")), at_least=ranks - 1),
            check("killed rank: ms until all were gone",
                  number(r"^all ranks gone after (\d+) ms$"), at_most=25000),
            check("killed rank: exit code of the restarted run",
                  number(r"^restarted run ended with exit code (\d+)$"), at_most=0),
            check("killed rank: different weights than unbroken",
                  weights["broken"] != weights["unbroken"], at_most=0),
            check("processes left", number(r"^processes left: (\d+)$"), at_most=0)]


# --- the machine ----------------------------------------------------------------------------------


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    names = re.findall(r"^model name\s*: (.*)$", text, re.MULTILINE) or ["unknown"]
    return f"{len(names)} x {names[0]}"


def machine(build, device):
    cache = (build / "CMakeCache.txt").read_text()

    def compiler(language):
        found = re.search(rf"^CMAKE_{language}_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
        return found.group(1) if found else ""

    cxx = output_of(compiler("CXX"), "--version").split("\n")[0]
    if device == "cpu":
        return {"gpu": f"none; {processor()}", "driver": "-", "cuda_compiler": "no CUDA",
                "cxx_compiler": cxx}
    gpu, _, driver = output_of("nvidia-smi", "--query-gpu=name,driver_version",
                               "--format=csv,noheader", "--id=0").partition(", ")
    nvcc = re.search(r"release [\d.]+, V([\d.]+)", output_of(compiler("CUDA"), "--version"))
    return {"gpu": gpu, "driver": driver, "cuda_compiler": f"nvcc {nvcc.group(1) if nvcc else '?'}",
            "cxx_compiler": cxx}


# --- tables ---------------------------------------------------------------------------------------


def rows_of(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def number(x, form="{:.0f}"):
    return form.format(x) if x is not None else "-"


# --- the report -----------------------------------------------------------------------------------


class Report:
    """name: of the script and the files; sections: name -> function that judges; tables: name ->
    function that makes lines from details; summary: lines from all sections."""

    def __init__(self, name, title, sections, tables, summary=lambda sections: []):
        self.name, self.title, self.sections = name, title, sections
        self.tables, self.summary = tables, summary

    def read(self, folder):
        path = folder / f"{self.name}.json"
        return json.loads(path.read_text()) if path.exists() else {"sections": {}}

    def judge(self, section, status):
        """Checks and details; output that cannot be read is a failed check."""
        try:
            checks, details = self.sections[section.name](section)
        except (OSError, ValueError, KeyError, IndexError, AttributeError, TypeError,
                ZeroDivisionError) as error:
            checks, details = [check("outputs that could not be read", 1, at_most=0)], {
                "unreadable": repr(error)}
        checks.append(check("exit code (124: stopped at the time limit)", status, at_most=0))
        if not all(c["ok"] for c in checks):
            details["end_of_log"] = section.log.splitlines()[-20:]
        return checks, details

    def add(self, o):
        work, folder = pathlib.Path(o.work), pathlib.Path(o.folder)
        section = Section(work, o.section)
        checks, details = self.judge(section, o.status)
        ok = all(c["ok"] for c in checks)
        entry = {
            "commit": o.commit, "ok": ok, "seconds": o.seconds,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            **machine(pathlib.Path(o.build), o.device), "checks": checks, "details": details}
        with open(work / "report.lock", "w") as lock:  # other sections may end at the same time
            fcntl.flock(lock, fcntl.LOCK_EX)
            report = self.read(folder)
            report["sections"][o.section] = entry
            report["ok"] = all(s["ok"] for s in report["sections"].values())
            (folder / f"{self.name}.json").write_text(json.dumps(report, indent=1) + "\n")
        print(f"{'ok  ' if ok else 'FAIL'} {o.section} in {o.seconds} s")
        for c in checks:
            if not c["ok"]:
                print(f"     {c['name']}: {c['value']:g}, must be {c['limit']}")
        return 0 if ok else 1

    def details_of(self, name, details):
        if name in self.tables and "rows" in details:
            return self.tables[name](details) + [""]
        lines = (details.get("closing_lines") or details.get("table") or details.get("end_of_log")
                 or [])
        return ["```", *lines, "```", ""] if lines else []

    def table(self, o):
        folder = pathlib.Path(o.folder)
        report = self.read(folder)
        lines = [f"# {self.title}", "", f"Made by `bash tools/{self.name}.sh COMMIT SECTION...`; "
                 f"the numbers are in {self.name}.json.", ""]
        lines += self.summary(report["sections"])
        lines += rows_of(["section", "commit", "verdict", "seconds", "date", "GPU", "driver",
                          "compilers"],
                         [(name, s["commit"], "ok" if s["ok"] else "FAIL", s["seconds"], s["date"],
                           s["gpu"], s["driver"], f"{s['cuda_compiler']}, {s['cxx_compiler']}")
                          for name, s in report["sections"].items()])
        for name, s in report["sections"].items():
            lines += ["", f"## {name}", ""]
            lines += self.details_of(name, s["details"])
            lines += rows_of(["check", "value", "must be", "verdict"],
                             [(c["name"], f"{c['value']:.4g}", c["limit"],
                               "ok" if c["ok"] else "FAIL") for c in s["checks"]])
        (folder / f"{self.name}.md").write_text("\n".join(lines) + "\n")
        return 0

    def main(self, description):
        parser = argparse.ArgumentParser(description=description)
        commands = parser.add_subparsers(required=True)
        adding = commands.add_parser("add", help="judge a section and put it into the report")
        adding.add_argument("folder")
        adding.add_argument("--section", required=True, choices=list(self.sections))
        for name in ("work", "build", "commit"):
            adding.add_argument("--" + name, required=True)
        adding.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
        adding.add_argument("--status", type=int, required=True, help="exit code of the section")
        adding.add_argument("--seconds", type=int, required=True)
        adding.set_defaults(run=self.add)
        making = commands.add_parser("table", help=f"write {self.name}.md")
        making.add_argument("folder")
        making.set_defaults(run=self.table)
        o = parser.parse_args()
        return o.run(o)
