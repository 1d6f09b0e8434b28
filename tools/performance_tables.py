#!/usr/bin/env python3
"""The tables of docs/PERFORMANCE.md from the lines of `stemma bench --json`.

  performance_tables.py RUN.jsonl ...                      prints the tables, medians over the runs
  performance_tables.py --run build/release/stemma --out build/release/bench RUN_NAMES ...
                                                           runs the benchmarks first (--runs times) and keeps their lines
  ... --write docs/PERFORMANCE.md                          also writes the tables between the markers there

What is wanted of a figure stands in tools/performance_goals.json; what bounds it is prose, written by hand.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys

BEGIN = "<!-- figures: made by tools/performance_tables.py; edits are lost -->"
END = "<!-- figures: end -->"
TWO_CORES_MIN = 1.8  # below that, two virtual cores were one for a while: a figure of two threads says little
GOALS = pathlib.Path(__file__).with_name("performance_goals.json")


class BadInput(Exception):
    """Something in the runs or the goals that no table can be made of."""


def read_lines(text, name):
    """The cases of one run, in order."""
    lines = []
    for number, row in enumerate(text.splitlines(), 1):
        if not row.strip():
            continue
        try:
            line = json.loads(row)
            for key in ("bench", "params", "value", "unit", "bound", "bound_name", "ratio"):
                line[key]
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{name}:{number}: not a line of `stemma bench --json`: {error}") from error
        lines.append(line)
    return lines


def short(number):
    """Three significant digits, without an exponent."""
    if number == 0:
        return "0"
    digits = max(0, 2 - int(f"{abs(number):e}".split("e")[1]))
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class Case:
    """One case, over all runs that have it."""

    def __init__(self, lines, measured_params):
        self.bench = lines[0]["bench"]
        self.unit = lines[0]["unit"]
        self.bound_name = lines[0]["bound_name"]
        self.params = {k: v for k, v in lines[0]["params"].items() if k not in measured_params}
        self.measured = {}
        for name in lines[0]["params"]:
            if name in measured_params:
                self.measured[name] = statistics.median(float(line["params"][name]) for line in lines)
        self.value = statistics.median(line["value"] for line in lines)
        self.bound = statistics.median(line["bound"] for line in lines)
        self.ratios = sorted(line["ratio"] for line in lines)
        self.ratio = statistics.median(self.ratios)

    def fits(self, goal):
        return goal["bench"] == self.bench and all(
            name in self.params and wanted in ("*", self.params[name]) for name, wanted in goal["params"].items())

    def reaches(self, goal):
        if "ratio_min" in goal:
            return self.ratio >= goal["ratio_min"]
        if "ratio_max" in goal:
            return self.ratio <= goal["ratio_max"]
        if "value_max" in goal:
            return self.value <= goal["value_max"]
        if "value_max_of_bound" in goal:
            return self.value <= goal["value_max_of_bound"] * self.bound
        if "value_max_param" in goal:
            return self.value <= self.measured[goal["value_max_param"]]
        if "param_max" in goal:
            allowed = goal["plus"] + (self.measured[goal["of_param"]] if "of_param" in goal else 0)
            return self.measured[goal["param_max"]] <= allowed
        raise BadInput(f"{GOALS.name}: a goal of {self.bench} says nothing that can be judged")

    def state(self, goal):
        if goal is None:
            return ""
        if self.measured.get("two_core_ratio", TWO_CORES_MIN) < TWO_CORES_MIN:
            return f"not judged: two cores gave {short(self.measured['two_core_ratio'])} of one"
        return "met" if self.reaches(goal) else "**missed**"

    def row(self, goals):
        goal = next((goal for goal in goals if self.fits(goal)), None)
        ratio = f"{self.ratio:.3f}"
        if len(self.ratios) > 1:
            ratio += f" ({self.ratios[0]:.3f}–{self.ratios[-1]:.3f})"
        beside = [f"{name} {short(value)}" for name, value in self.measured.items()]
        cells = [self.bench, ", ".join(f"{name} {value}" for name, value in self.params.items()),
                 f"{short(self.value)} {self.unit}", f"{self.bound_name} {short(self.bound)}", ratio, ", ".join(beside),
                 goal["says"] if goal else "", self.state(goal)]
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def cases_of(runs, measured_params):
    """Cases in the order of the first run that has each."""
    found = {}
    for run in runs:
        for line in run:
            stable = sorted((k, v) for k, v in line["params"].items() if k not in measured_params)
            found.setdefault((line["bench"], tuple(stable)), []).append(line)
    return [Case(lines, measured_params) for lines in found.values()]


def machine_line(cases, runs):
    """What the figures were taken on."""
    model = platform.machine()
    try:
        for row in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if row.startswith("model name"):
                model = row.split(":", 1)[1].strip()
                break
        cpus = len([row for row in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                    if row.startswith("processor")])
    except OSError:
        cpus = 0
    simd = sorted({case.params["simd"] for case in cases if "simd" in case.params})
    text = f"{model}, {cpus} CPUs" + (f", {' '.join(simd)}" if simd else "")
    return text + f"; medians of {runs} {'run' if runs == 1 else 'runs'}"


def tables(runs, goals, machine=None):
    cases = cases_of(runs, set(goals["measured_params"]))
    if not cases:
        raise BadInput("no figures")
    rows = [machine or machine_line(cases, len(runs)), "",
            "| bench | case | figure | bound | ratio | beside it | goal | state |", "|---|---|---|---|---|---|---|---|"]
    return "\n".join(rows + [case.row(goals["goals"]) for case in cases]) + "\n"


def between_markers(document, text):
    """`document` with `text` between the markers."""
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        raise BadInput("the document needs both markers, once each")
    return document[:document.index(BEGIN) + len(BEGIN)] + "\n" + text + document[document.index(END):]


def run_benches(program, names, path):
    """The lines of one run, which are kept in `path`; what has come so far is told on the way."""
    with subprocess.Popen([program, "bench", "--json", *names], stdout=subprocess.PIPE, text=True) as process, \
            open(path, "w", encoding="utf-8") as kept:
        for row in process.stdout:
            kept.write(row)
            kept.flush()
            line = read_lines(row, path)[0]
            case = " ".join(f"{name}={value}" for name, value in line["params"].items())
            print(f"{line['bench']:<10} {short(line['value']):>10} {line['unit']:<9} {line['ratio']:7.3f} of "
                  f"{line['bound_name']} {case}", file=sys.stderr)
        if process.wait() != 0:
            raise BadInput(f"{program} bench failed")
    return path


def main(arguments):
    parser = argparse.ArgumentParser(description="Tables of docs/PERFORMANCE.md from `stemma bench --json`.")
    parser.add_argument("files", nargs="*", help="lines of runs; with --run, names of benchmarks (none: all)")
    parser.add_argument("--run", metavar="PROGRAM", help="run the benchmarks of this stemma")
    parser.add_argument("--runs", type=int, default=1, help="how many times")
    parser.add_argument("--out", default="bench", help="where lines of runs are kept: OUT.1.jsonl, ...")
    parser.add_argument("--machine", help="what the figures were taken on, instead of what this machine says")
    parser.add_argument("--write", metavar="DOCUMENT", help="put the tables between the markers there")
    options = parser.parse_args(arguments)
    try:
        files = options.files
        if options.run:
            files = [run_benches(options.run, options.files, f"{options.out}.{i + 1}.jsonl") for i in range(options.runs)]
        runs = [read_lines(pathlib.Path(name).read_text(encoding="utf-8"), name) for name in files]
        text = tables(runs, json.loads(GOALS.read_text(encoding="utf-8")), options.machine)
        if options.write:
            document = pathlib.Path(options.write)
            document.write_text(between_markers(document.read_text(encoding="utf-8"), text), encoding="utf-8")
        print(text, end="")
    except (BadInput, OSError) as error:
        print(f"performance_tables.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
