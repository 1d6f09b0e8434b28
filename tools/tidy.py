#!/usr/bin/env python3
"""The rules of the repository, as a test. Prints one line a finding (file:line: rule: what) and fails if there is one.

  tools/tidy.py            checks the repository it lies in
  tools/tidy.py --stats    also prints counts: lines, tests per line of code, assertions, median function

Rules: floors (tools/floors.txt), file and function lengths, line width, banned words in identifiers, banned calls,
glossary names exist, cited invariants exist, share of comments in public headers, number of public headers, folder
depth, file names, left-over notes. tools/tidy_test.py shows that each of them can fail. Header self-containment is
tools/alone.py's.
"""

import pathlib
import re
import statistics
import sys

LINE_COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = {"header": 300, "source": 500, "test": 600}
PUBLIC_HEADERS_MAX = 30
PUBLIC_COMMENT_SHARE_MIN = 0.35

BANNED_WORDS = {"manager", "helper", "util", "utils", "info", "handler", "controller", "impl", "processor", "req",
                "idx", "tmp", "block"}
BANNED_CAMEL_WORDS = BANNED_WORDS | {"data", "base"}
# Names of other people's interfaces, and the one level of the log that is called so.
ALLOWED_IDENTIFIERS = {"kInfo", "info", "addinfo", "getaddrinfo", "TestInfo", "UnitTest", "test_info",
                       "param_info", "current_test_info", "do_sample", "error_handler_t"}
# What CUDA calls its own.
ALLOWED_IDENTIFIERS |= {"multiProcessorCount", "sharedMemPerBlockOptin", "cudaDevAttrMaxSharedMemoryPerBlockOptin",
                        "threadIdx", "blockDim", "blockIdx"}
# What Boost.Beast's parser calls.
ALLOWED_IDENTIFIERS |= {f"on_{part}_impl" for part in ("request", "response", "field", "header", "body_init", "body",
                                                       "chunk_header", "chunk_body", "finish")}

BANNED_CALLS = [  # pattern, why, path prefixes where it is allowed
    (r"\bthrow\b", "errors are values (Result)", ("src/bindings/python/",)),  # where they become exceptions
    (r"\bnew\b(?!\s*\()", "ownership lives in types (unique_ptr, slabs)", ("tests/", "src/base/heap_counter.h")),
    (r"(?<!= )\bdelete\b", "ownership lives in types", ("tests/", "src/base/heap_counter.h")),
    (r"\b(malloc|calloc|realloc|free)\s*\(", "ownership lives in types",
     ("tests/", "src/base/heap_counter.h", "src/device/buffer.cc")),
    (r"\bshared_ptr\b|\bmake_shared\b", "one owner each (unique_ptr)", ()),
    # MPI has no wait that leaves the core to others.
    (r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(", "nothing sleeps", ("src/device/mpi_ranks.cc",)),
    (r"\bgetenv\s*\(", "options come from the command line", ("tests/", "src/cli/")),
    (r"\b(rand|srand)\s*\(", "base/prng.h is seedable and the same everywhere", ()),
    (r"\bsystem_clock\b|\btime\s*\(\s*(nullptr|NULL|0)", "only monotonic time", ("src/base/wall_clock.cc",)),
    (r"\b(strcpy|strcat|sprintf|gets|atoi|atol|atof)\s*\(", "unchecked C string call", ()),
    (r"\bmmap\s*\(", "nothing is read through mmap",
     ("src/device/huge_mapping.cc",)),
    (r"\bassert\s*\(", "STEMMA_CHECK is always on", ()),
    (r"\bstd::cout\b|\bprintf\s*\(", "only the command line prints", ("src/cli/", "tests/")),
    (r"\.detach\s*\(", "every thread has an owner that joins it", ()),
    (r"\bcatch\s*\(\s*\.\.\.\s*\)", "catch what the library throws, by name", 
     ("src/cli/main.cc", "src/bindings/c_handles.h")),
]


def strip_code(text):
    """The text with comments, string and character literals blanked out, line breaks kept."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)

    def blank(match):
        piece = match.group(0)
        quote = '""' if piece[0] in '"R' else ""
        return quote + re.sub(r"[^\n]", " ", piece[len(quote):])

    return pattern.sub(blank, text)


def functions(code):
    """(name, first line, lines) of each outermost function body in stripped code."""
    # Braces that initialise (b_{x} in a constructor's list) are not blocks.
    code = re.sub(r"(?<=[\w>])\{[^{};]*\}", lambda m: "(" + m.group(0)[1:-1] + ")", code)
    found, start, depth, inside = [], 0, 0, None
    for match in re.finditer(r"[{};]", code):
        char, at = match.group(0), match.start()
        if char == "{":
            head = code[start:at].strip()
            if inside is None and looks_like_function(head):
                first = code.count("\n", 0, start + len(code[start:at]) - len(code[start:at].lstrip())) + 1
                inside = (function_name(head), first, depth)
            depth += 1
        elif char == "}":
            depth -= 1
            if inside is not None and depth == inside[2]:
                found.append((inside[0], inside[1], code.count("\n", 0, at) + 2 - inside[1]))
                inside = None
        start = at + 1
    return found


def looks_like_function(head):
    head = re.sub(r"^#.*$", "", head, flags=re.M).strip()
    head = re.sub(r"^(public|private|protected)\s*:", "", head).strip()
    if not head or "(" not in head:
        return False
    if re.match(r"(namespace|class|struct|enum|union|extern\s*$|if|for|while|switch|catch|do|else|return)\b", head):
        return False
    after = r"(\s*(const|noexcept|override|final|mutable|&&?|try|->[^{};]+|:[^:].*|[A-Z_]+\(.*\)))*\s*$"
    return re.search(r"\)" + after, head, re.S) is not None


def function_name(head):
    match = re.search(r"([~\w:]+)\s*\(", head)
    return match.group(1) if match else "?"


def words_of(identifier):
    """The words of an identifier with whether each begins with a capital: kPageTable_x -> Page, Table, x."""
    for part in identifier.split("_"):
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", part):
            yield word


def banned_word(identifier):
    if identifier in ALLOWED_IDENTIFIERS or identifier.isupper():
        return None
    for word in words_of(identifier):
        banned = BANNED_CAMEL_WORDS if word[0].isupper() else BANNED_WORDS
        if word.lower() in banned:
            return word
    return "do_" if identifier.startswith("do_") else None


class Repository:
    """The files under a root, and the findings about them."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.findings = []
        self.sources = sorted(p for folder in ("include", "src", "tests", "fuzz")
                              for p in (self.root / folder).rglob("*") if p.suffix in (".h", ".cc", ".cu"))
        self.text = {p: p.read_text(encoding="utf-8") for p in self.sources}
        self.code = {p: strip_code(t) for p, t in self.text.items()}

    def name(self, path):
        return str(path.relative_to(self.root))

    def report(self, path, line, rule, what):
        name = self.name(path) if isinstance(path, pathlib.Path) else path
        self.findings.append(f"{name}:{line}: {rule}: {what}")

    # --- floors

    def read_floors(self):
        floors, owner = {}, {}
        for line in (self.root / "tools/floors.txt").read_text().splitlines():
            match = re.match(r"F(\d+)\s+(\w+)\s+include:(.*)", line)
            if match:
                floors[match.group(2)] = int(match.group(1))
                owner.update({header: match.group(2) for header in match.group(3).split()})
        return floors, owner

    def check_floors(self):
        floors, owner = self.read_floors()
        for folder in sorted(p.name for p in (self.root / "src").iterdir() if p.is_dir() and any(p.iterdir())):
            if folder not in floors:
                self.report(f"src/{folder}", 1, "floors", "the folder has no floor in tools/floors.txt")
        for path in self.sources:
            self.check_includes(path, floors, owner)

    @staticmethod
    def room_of(name):
        """The room of a file below src/: its folder, or the one folder that lies in another."""
        return "bindings_python" if name.startswith("bindings/python/") else name.split("/")[0]

    def check_includes(self, path, floors, owner):
        parts = path.relative_to(self.root).parts
        if parts[0] == "src":
            room = self.room_of("/".join(parts[1:]))
        elif parts[0] == "include":
            room = owner.get(path.stem)
            if room is None:
                self.report(path, 1, "floors", "the public header belongs to no room in tools/floors.txt")
                return
        else:
            return
        for number, line in enumerate(self.text[path].splitlines(), 1):
            match = re.match(r'\s*#include "([^"]+)"', line)
            if not match:
                continue
            target = match.group(1)
            included = owner.get(pathlib.Path(target).stem) if target.startswith("stemma/") else self.room_of(target)
            if included == room or included is None:
                continue
            if included not in floors or floors[included] >= floors[room]:
                self.report(path, number, "floors", f"{room} may not include {target}: only lower floors")

    # --- sizes

    def check_sizes(self):
        for path in self.sources:
            lines = self.text[path].splitlines()
            kind = "test" if path.name.endswith("_test.cc") or self.name(path).startswith("tests/") else (
                "header" if path.suffix == ".h" else "source")
            if len(lines) > FILE_LINES_MAX[kind]:
                self.report(path, len(lines), "file length", f"{len(lines)} lines, at most {FILE_LINES_MAX[kind]}")
            for number, line in enumerate(lines, 1):
                if len(line) > LINE_COLUMNS_MAX and "http" not in line:
                    self.report(path, number, "line width", f"{len(line)} columns, at most {LINE_COLUMNS_MAX}")
            for name, first, length in functions(self.code[path]):
                if length > FUNCTION_LINES_MAX:
                    self.report(path, first, "function length", f"{name}: {length} lines, at most {FUNCTION_LINES_MAX}")

    # --- words

    def check_words(self):
        for path in self.sources:
            code = re.sub(r"^\s*#\s*include.*$", "", self.code[path], flags=re.M)
            for number, line in enumerate(code.splitlines(), 1):
                line = re.sub(r"\b(std|nlohmann|spdlog|CLI|testing|hwy|hn|rc|fmt|py)::[\w:]+", "", line)
                for identifier in re.findall(r"\b[A-Za-z_]\w*\b", line):
                    word = banned_word(identifier)
                    if word:
                        self.report(path, number, "banned word", f"{word!r} in {identifier}")

    def check_calls(self):
        for path in self.sources:
            name = self.name(path)
            is_test = name.endswith(("_test.cc", "_fixture.h")) or name.startswith(("tests/", "fuzz/"))
            # unique_ptr<T>(new T(…)) is how a private constructor is called.
            code = re.sub(r"(unique_ptr<\w+>(?: \w+)?\(\s*)new \w+", r"\1", self.code[path])
            for number, line in enumerate(code.splitlines(), 1):
                for pattern, why, allowed in BANNED_CALLS:
                    if name.startswith(allowed or ("\0",)) or (is_test and "tests/" in allowed):
                        continue
                    if re.search(pattern, line) and not line.lstrip().startswith("#"):
                        self.report(path, number, "banned call", f"{line.strip()[:60]}: {why}")

    def check_leftovers(self):
        for path in self.sources:
            for number, line in enumerate(self.text[path].splitlines(), 1):
                if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line) and not re.search(r"issue \d+", line):
                    self.report(path, number, "left-over", "a note without an issue number")

    # --- docs

    def check_glossary(self):
        everything = "\n".join(self.code.values())
        glossary = self.root / "docs/GLOSSARY.md"
        for number, line in enumerate(glossary.read_text().splitlines(), 1):
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) < 5 or not line.startswith("|") or cells[2] in ("Ours", "---"):
                continue
            for name in re.findall(r"`([^`]+)`", cells[2]):
                last = re.split(r"::|\.", name.rstrip("()"))[-1]
                if not re.search(rf"\b{re.escape(last)}\b", everything):
                    self.report(glossary, number, "glossary", f"{name} is nowhere in the code")

    def check_invariants(self):
        known = set(re.findall(r"^\s*[-*#]*\s*\**I(\d+)\b", (self.root / "docs/INVARIANTS.md").read_text(), re.M))
        for path in self.sources:
            for number, line in enumerate(self.text[path].splitlines(), 1):
                comment = line[line.find("//"):] if "//" in line else ""
                for cited in re.findall(r"\bI(\d{1,2})\b", comment):
                    if cited not in known and cited not in ("16", "32", "64"):  # those are integer types
                        self.report(path, number, "invariant", f"I{cited} is not in docs/INVARIANTS.md")

    def check_public_headers(self):
        headers = sorted((self.root / "include/stemma").glob("*.h"))
        if len(headers) > PUBLIC_HEADERS_MAX:
            self.report("include/stemma", 1, "public headers", f"{len(headers)}, at most {PUBLIC_HEADERS_MAX}")
        for path in headers:
            lines = [line.strip() for line in self.text[path].splitlines() if line.strip()]
            commented = sum(1 for line in lines if "//" in line)
            share = commented / max(1, len(lines))
            if share < PUBLIC_COMMENT_SHARE_MIN:
                self.report(path, 1, "comments", f"{share:.0%} of lines, at least {PUBLIC_COMMENT_SHARE_MIN:.0%}")
        for path in self.sources:
            if path.name.endswith("-inl.h") or path.suffix != ".h":
                continue
            if self.name(path).startswith(("include/", "src/")):
                self.check_header_opening(path)

    def check_header_opening(self, path):
        opening = self.text[path].split("#pragma once")[0]
        for beat in ("Thread:", "Memory:", "Cost:", "Not here:"):
            if beat not in opening:
                self.report(path, 1, "header opening", f"says nothing of {beat[:-1].lower()}")

    def check_readme(self):
        readme, example = self.root / "README.md", self.root / "examples/embed.cc"
        if readme.exists() and example.read_text() not in readme.read_text():
            self.report(readme, 1, "readme", "its example is not examples/embed.cc to the letter")

    def check_names(self):
        for path in self.sources:
            if not re.fullmatch(r"[a-z0-9_]+(-inl)?\.(h|cc|cu)", path.name):
                self.report(path, 1, "file name", "snake_case only")
            parts = path.relative_to(self.root).parts
            if len(parts) > 3 and parts[:3] != ("src", "bindings", "python"):
                self.report(path, 1, "folder depth", "one folder below src/")

    def check_all(self):
        for check in (self.check_floors, self.check_sizes, self.check_words, self.check_calls, self.check_leftovers,
                      self.check_glossary, self.check_invariants, self.check_public_headers,
                      self.check_readme, self.check_names):
            check()
        return self.findings

    def stats(self):
        tests = [p for p in self.sources if p.name.endswith("_test.cc") or self.name(p).startswith("tests/")]
        code = [p for p in self.sources if p not in tests]
        lines = {p: len(self.text[p].splitlines()) for p in self.sources}
        lengths = [length for p in code for _, _, length in functions(self.code[p])]
        checks = sum(len(re.findall(r"STEMMA_D?CHECK", self.code[p])) for p in code)
        code_lines, test_lines = sum(lines[p] for p in code), sum(lines[p] for p in tests)
        print(f"code {code_lines} lines in {len(code)} files (median {statistics.median(lines[p] for p in code):.0f}); "
              f"tests {test_lines} lines, {test_lines / max(1, code_lines):.2f} a line of code; "
              f"median function {statistics.median(lengths):.0f} lines; "
              f"{1000 * checks / max(1, code_lines):.0f} checks per 1000 lines")


def main():
    repository = Repository(pathlib.Path(__file__).resolve().parent.parent)
    findings = repository.check_all()
    for finding in findings:
        print(finding)
    if "--stats" in sys.argv[1:]:
        repository.stats()
    print(f"tidy: {len(repository.sources)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
