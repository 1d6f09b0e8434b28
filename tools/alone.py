#!/usr/bin/env python3
"""Compiles headers and tests by themselves, as no build with STEMMA_UNITED does: what one of them does not include is missed.

  tools/alone.py BUILD_FOLDER < FILES    FILES: paths in the repository, a line each; of those it takes headers that stand for
                                         themselves (no *-inl.h) and what tests consist of, fails if one does not compile, and names it

BUILD_FOLDER is one without STEMMA_UNITED (build/tidy), configured: its flags are used, its precompiled headers are not.
Sources that are no tests clang-tidy compiles so. tools/alone_test.py shows that it can fail.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def is_ours(path):
    """Those that stand for themselves, and that another check does not compile."""
    if path.endswith(".h"):
        return path.startswith(("include/stemma/", "src/", "tests/")) and not path.endswith("-inl.h")
    return path.endswith("_test.cc") and path.startswith("src/") or path.endswith(".cc") and path.startswith("tests/")


def flags_of(command):
    """Of a command that compiles: without what it compiles, what it writes, and headers that are precompiled."""
    flags = []
    words = iter(shlex.split(command))
    for word in words:
        if word in ("-o", "-c", "-include-pch", "-include"):
            next(words)
        elif word == "-Xclang":
            if next(words) not in ("-include-pch", "-include") or next(words) != "-Xclang":
                raise ValueError("an option of clang's own that is not known here: " + command)
            next(words)
        elif word != "-Winvalid-pch" and not word.endswith("ccache"):
            flags.append(word)
    return flags


def command_for(path, commands):
    """What compiles `path` by itself; None where the build has nothing like it.

    A header is compiled as what includes it in its folder is, a test if there is one, or as another source there; public ones as
    the bindings' are."""
    if path.endswith(".cc"):
        return flags_of(commands[path]) + ["-fsyntax-only", path] if path in commands else None
    folder = "src/bindings" if path.startswith("include/") else os.path.dirname(path)
    included = re.sub("^(include|src|tests)/", "", path)
    beside = [name for name in commands if os.path.dirname(name) == folder]
    if not beside:
        return None
    best = min(beside, key=lambda name: (not includes(name, included), not name.endswith("_test.cc"), "_cuda_" in name, name))
    return flags_of(commands[best]) + ["-fsyntax-only", "-include", included, "-include", included, "-x", "c++", "/dev/null"]


def includes(path, header):
    source = SOURCE / path
    names = (header, os.path.basename(header))  # the latter in tests/
    return source.exists() and any(f'#include "{name}"' in source.read_text() for name in names)


def compile_alone(path, commands):
    """What the compiler says against it."""
    command = command_for(path, commands)
    if command is None:
        return ""
    ended = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else f"{path} does not compile by itself:\n{ended.stderr}"


def read_commands(folder):
    commands = {}
    for entry in json.loads((pathlib.Path(folder) / "compile_commands.json").read_text()):
        path = os.path.relpath(entry["file"], SOURCE)
        commands.setdefault(path, entry["command"])
    return commands


def main():
    commands = read_commands(sys.argv[1])
    paths = sorted({line.strip() for line in sys.stdin if is_ours(line.strip())})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(lambda path: compile_alone(path, commands), paths) if fault]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(paths)} headers and tests by themselves, {len(faults)} of which do not compile")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
