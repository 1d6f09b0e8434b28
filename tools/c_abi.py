#!/usr/bin/env python3
"""The C ABI as text, compared with what it was: tests/golden/c_abi_<STEMMA_ABI_VERSION>.txt.

  tools/c_abi.py BUILD_FOLDER           fails if functions, constants, types, structs (sizes, offsets) of stemma/c.h
                                        and the headers beside it or the exported symbols of the shared libraries are not those of the
                                        golden file; where there is no CUDA, those of libstemma_cuda.so are what they were
  tools/c_abi.py BUILD_FOLDER --write   writes the golden file; refuses what programs that are built already would notice,
                                        unless STEMMA_ABI_VERSION was raised

Names of parameters are no part of it. tools/c_abi_test.py shows that it can fail.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ("c.h", "c_loans.h", "c_tenants.h", "c_events.h", "c_windows.h", "c_cuda.h")
LIBRARIES = ("libstemma.so", "libstemma_tiers.so")
CUDA_LIBRARY = "libstemma_cuda.so"  # not in every build


def one_line(text):
    return re.sub(r"\s+", " ", text).strip()


def declarations(text):
    """A header without comments and preprocessor lines."""
    return re.sub(r"^\s*#.*$", "", re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S), flags=re.M)


def version_of(header):
    return int(re.search(r"#define STEMMA_ABI_VERSION (\d+)", header).group(1))


def without_name(parameter):
    """A parameter's type: "const uint8_t digest[32]" is "const uint8_t[32]"."""
    parameter = one_line(parameter)
    if parameter == "void":
        return parameter
    return one_line(re.sub(r"\b\w+(\s*(?:\[\w*\])?)$", r"\1", parameter)).replace(" [", "[")


def functions(code):
    for result, name, parameters in re.findall(r"STEMMA_API ([\w* ]+?)(\w+)\(([^;]*)\);", code):
        types = ", ".join(without_name(parameter) for parameter in parameters.split(","))
        yield f"function {name}", f"{one_line(result)} ({types})"


def types(code):
    for declaration in re.findall(r"typedef (?!struct|enum)([^;{]+);", code):
        name = re.search(r"\(\*(\w+)\)|(\w+)$", one_line(declaration))
        yield f"type {name.group(1) or name.group(2)}", one_line(declaration)


def structs(code):
    """(name, [(member, type)]) of each struct that is not opaque."""
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", code, re.S):
        members = []
        for member in filter(None, (one_line(part) for part in body.split(";"))):
            found = re.search(r"\(\*(\w+)\)|(\w+)$", member)
            members.append((found.group(1) or found.group(2), member))
        yield name, members


def constants(code):
    for body in re.findall(r"enum \{(.*?)\}", code, re.S):
        yield from (re.match(r"\w+", part.strip()).group(0) for part in body.split(",") if part.strip())


def layout_program(code):
    lines = ['#include <stdio.h>', '#include "c.h"', "int main(void) {"]
    for name in constants(code):
        lines.append(f'  printf("constant {name}\\t%d\\n", (int){name});')
    for name, members in structs(code):
        lines.append(f'  printf("struct {name}\\t%zu bytes\\n", sizeof({name}));')
        for member, text in members:
            where = f'offsetof({name}, {member}), sizeof((({name}*)0)->{member})'
            lines.append(f'  printf("member {name}.{member}\\tat %zu, %zu bytes: {text}\\n", {where});')
    return "\n".join(lines + ["  return 0;", "}"]) + "\n"


def layout(header, code):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "c.h").write_text(header)
        (root / "layout.c").write_text(layout_program(code))
        subprocess.run(["cc", "-std=c99", "layout.c", "-o", "layout"], cwd=root, check=True)
        return dict(line.split("\t") for line in subprocess.run([root / "layout"], check=True, capture_output=True,
                                                                text=True).stdout.splitlines())


def exports(build, libraries):
    for name in libraries:
        listed = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", build / name], check=True,
                                capture_output=True, text=True).stdout
        for symbol in sorted(re.findall(r" T (stemma_\S+)", listed)):
            bare, _, version = symbol.partition("@")
            yield f"export {bare}", f"{name} {version.lstrip('@')}"


def whole_header(folder):
    """All headers of the C ABI as one."""
    return "".join((folder / name).read_text().replace('#include "stemma/c.h"', "") for name in HEADERS)


def of_library(golden_folder, version, library):
    """What the golden file says that a library exports."""
    path = golden_folder / f"c_abi_{version}.txt"
    facts = from_text(path.read_text()) if path.exists() else {}
    return {key: text for key, text in facts.items() if text.startswith(library + " ")}


def describe(header):
    """What the headers declare: key to text."""
    code = declarations(header)
    return {**dict(functions(code)), **dict(types(code)), **layout(header, code)}


def differences(was, now):
    """(what programs notice, what they do not: additions)."""
    broken, added = [], []
    for key in was:
        if key not in now:
            broken.append(f"{key} is gone")
        elif was[key] != now[key]:
            grew = key.startswith("struct ") and int(now[key].split()[0]) > int(was[key].split()[0])
            (added if grew else broken).append(f"{key} was {was[key]}, is {now[key]}")
    added += [f"{key} is new" for key in now if key not in was]
    return broken, added


def unexported(facts):
    """Functions that are declared, and in no library."""
    declared = (key.split()[1] for key in facts if key.startswith("function "))
    return [f"{name} is declared and not exported" for name in declared if f"export {name}" not in facts]


def to_text(facts):
    return "".join(f"{key}\t{facts[key]}\n" for key in facts)


def from_text(text):
    return dict(line.split("\t") for line in text.splitlines())


def compare(golden_folder, version, now, write):
    """What is wrong, line by line; writes the golden file if it may."""
    path = golden_folder / f"c_abi_{version}.txt"
    if not path.exists() and not write:
        return [f"{path.name} is not there: tools/c_abi.py BUILD_FOLDER --write"]
    broken, added = differences(from_text(path.read_text()), now) if path.exists() else ([], [])
    if broken:
        return broken + ["programs that are built already would notice: raise STEMMA_ABI_VERSION"]
    if write:
        path.write_text(to_text(now))
        return []
    return added + ["additions: tools/c_abi.py BUILD_FOLDER --write"] if added else []


def main():
    header = whole_header(SOURCE / "include/stemma")
    build = pathlib.Path(sys.argv[1])
    golden = SOURCE / "tests/golden"
    if (build / CUDA_LIBRARY).exists():
        cuda = dict(exports(build, (CUDA_LIBRARY,)))
    else:
        cuda = of_library(golden, version_of(header), CUDA_LIBRARY)
    now = {**describe(header), **dict(exports(build, LIBRARIES)), **cuda}
    wrong = unexported(now) or compare(golden, version_of(header), now, "--write" in sys.argv[2:])
    print("\n".join(wrong or [f"c_abi: {len(now)} facts, as they were"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
