#!/usr/bin/env python3
"""Where a kernel's time goes, of what Nsight Compute said of one launch.

    tools/gpu_profile.py SOURCE.csv RAW.txt    `ncu --page source --print-source sass --csv` and `ncu --page raw`

Prints how long the launch took and what its warps waited for; stretches of instructions that were executed as often as each
other, a loop being one or several of them, with their share of all samples; and the instructions with most samples, each
with what was waited for there. An instruction's samples count the cycles in which a warp was at it, in proportion.
"""

import csv
import re
import sys

LAUNCH = {
    "gpu__time_duration.sum": "duration",
    "sm__cycles_active.avg": "cycles of a multiprocessor",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "% of cycles in which a scheduler issued",
    "launch__registers_per_thread": "registers a thread",
}
WAITED = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$")
# Executed as often as the one before, but for what few warps skip.
ALIKE = 0.02


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


class Instructions:
    """Rows of the table behind the line that names the kernel."""

    def __init__(self, lines):
        rows = list(csv.reader(lines))
        head = next(i for i, row in enumerate(rows) if "Source" in row)
        self.kernel = rows[0][1] if head > 0 else ""
        names = rows[head]
        at = {name: names.index(name) for name in names}
        waits = [name for name in names if name.startswith("stall_") and "(" not in name]
        self.source = [row[at["Source"]].strip() for row in rows[head + 1 :]]
        self.samples = [number(row[at["# Samples"]]) for row in rows[head + 1 :]]
        self.executed = [number(row[at["Instructions Executed"]]) for row in rows[head + 1 :]]
        self.waits = [{name[6:]: number(row[at[name]]) for name in waits} for row in rows[head + 1 :]]

    def stretches(self):
        """(first, last, executed, samples) of instructions that follow each other and ran as often."""
        found = []
        for i, (executed, samples) in enumerate(zip(self.executed, self.samples, strict=True)):
            if found and abs(found[-1][2] - executed) <= ALIKE * max(found[-1][2], 1):
                found[-1][1] = i
                found[-1][3] += samples
            else:
                found.append([i, i, executed, samples])
        return [tuple(stretch) for stretch in found]


def launch_lines(raw):
    """What the launch was as a whole, and its waits, the longest first."""
    waits = []
    for line in raw:
        words = line.split()
        if len(words) < 2:
            continue
        if words[0] in LAUNCH:
            yield f"{LAUNCH[words[0]]}: {' '.join(words[1:])}"
        waited = WAITED.match(words[0])
        if waited:
            waits.append((number(words[-1]), waited[1]))
    waits = [f"{name} {value:.2f}" for value, name in sorted(waits, reverse=True) if value >= 0.05]
    yield "cycles a warp was at an instruction, by what it waited for: " + ", ".join(waits)


def source_lines(instructions, most=24):
    total = sum(instructions.samples) or 1.0
    yield "stretches: first to last instruction, times executed, share of samples"
    for first, last, executed, samples in instructions.stretches():
        if samples >= 0.01 * total:
            yield f"  {first} to {last}: {executed:.0f} times, {100 * samples / total:.1f}%"
    yield "instructions with most samples"
    hottest = sorted(range(len(instructions.samples)), key=lambda i: -instructions.samples[i])[:most]
    for i in sorted(hottest):
        waits = sorted(instructions.waits[i].items(), key=lambda wait: -wait[1])[:2]
        waited = ", ".join(name for name, samples in waits if samples > 0)
        yield f"  {i}: {100 * instructions.samples[i] / total:.1f}% {instructions.source[i][:60]} ({waited})"


def main(source, raw):
    with open(source, encoding="utf-8") as lines:
        instructions = Instructions(lines)
    print(instructions.kernel)
    with open(raw, encoding="utf-8") as lines:
        for line in launch_lines(lines):
            print(line)
    for line in source_lines(instructions):
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:3])
