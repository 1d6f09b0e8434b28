#!/usr/bin/env python3
"""Shows that each rule of tools/tidy.py can fail: a small repository that breaks it, and the finding that results."""

import pathlib
import tempfile
import unittest

import tidy

OPENING = "// Thing: a thing.\n//\n// Thread: any. Memory: none. Cost: none. Not here: else.\n#pragma once\n"


class Rules(unittest.TestCase):
    def findings(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {"tools/floors.txt": "F0 base  include: ids\nF1 alloc include:\nF1 device include:\n",
                     "docs/GLOSSARY.md": "", "docs/INVARIANTS.md": "- **I1 conservation.** Pages.\n",
                     "src/base/nothing.cc": "", **files}
            (root / "include/stemma").mkdir(parents=True)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return [f.split(": ", 1)[1] for f in tidy.Repository(root).check_all()]

    def expect(self, files, *beginnings):
        found = self.findings(files)
        self.assertEqual(len(found), len(beginnings), found)
        for finding, beginning in zip(found, beginnings):
            self.assertTrue(finding.startswith(beginning), finding)

    def test_a_clean_repository_has_no_findings(self):
        self.expect({"src/alloc/x.cc": '#include "base/y.h"\nint f() {\n  return 1;\n}\n'})

    def test_floors(self):
        self.expect({"src/base/x.cc": '#include "alloc/y.h"\n'}, "floors")
        self.expect({"src/alloc/x.cc": '#include "device/y.h"\n'}, "floors")
        self.expect({"src/cellar/x.cc": ""}, "floors")
        self.expect({"include/stemma/lost.h": OPENING}, "floors")

    def test_lengths(self):
        body = "  g();\n" * 69
        self.expect({"src/base/x.cc": f"void f() {{\n{body}}}\n"}, "function length")
        self.expect({"src/base/x.cc": f"void f() {{\n{body[:-7]}}}\n"})
        self.expect({"src/base/x.cc": "\n" * 501}, "file length")
        self.expect({"src/base/x.h": OPENING + "\n" * 297}, "file length")
        self.expect({"src/base/x.cc": "//" + "x" * 99}, "line width")

    def test_member_functions_and_constructors_are_measured(self):
        body = "  g();\n" * 70
        self.expect({"src/base/x.cc": f"A::A(int a)\n    : a_(a), b_{{}} {{\n{body}}}\n"}, "function length")
        self.expect({"src/base/x.cc": f"int A::f() const noexcept {{\n{body}}}\n"}, "function length")

    def test_banned_words(self):
        for name in ("PageManager", "page_helper", "DoubleBuffer req_id", "kBlockTokens", "tmp_page", "do_match", "PoolBase"):
            self.expect({"src/base/x.cc": f"int {name};\n"}, "banned word")
        self.expect({"src/base/x.cc": "int unblocked; // a block manager\nint base;\n"})

    def test_banned_calls(self):
        for call in ("throw 1;", "auto p = new int;", "delete p;", "free(p);", "std::shared_ptr<int> p;",
                     "sleep_for(d);", 'getenv("A");', "srand(1);", "assert(x);", 'std::printf("");', "t.detach();"):
            self.expect({"src/base/x.cc": call + "\n"}, "banned call")
        self.expect({"src/base/x.cc": "X(const X&) = delete;\n// throw new\nint renew;\n"})

    def test_left_overs(self):
        self.expect({"src/base/x.cc": "// TO" + "DO: later\n"}, "left-over")
        self.expect({"src/base/x.cc": "// TO" + "DO: with issue 3\n"})

    def test_glossary(self):
        row = "| x | `PageThing` | y | z |\n"
        self.expect({"docs/GLOSSARY.md": row}, "glossary")
        self.expect({"docs/GLOSSARY.md": row, "src/base/x.cc": "struct PageThing;\n"})

    def test_invariants(self):
        self.expect({"src/base/x.cc": "// keeps I2\n"}, "invariant")
        self.expect({"src/base/x.cc": "// keeps I1\n"})

    def test_public_headers(self):
        self.expect({"include/stemma/ids.h": OPENING + "int a;\n" * 20}, "comments")
        self.expect({"src/base/x.h": "#pragma once\n"}, *["header opening"] * 4)

    def test_readme(self):
        self.expect({"README.md": "int main() {}\n", "examples/embed.cc": "int main() {}\n"})
        self.expect({"README.md": "int main();\n", "examples/embed.cc": "int main() {}\n"}, "readme")

    def test_names(self):
        self.expect({"src/base/CamelCase.cc": ""}, "file name")
        self.expect({"src/base/deep/x.cc": ""}, "folder depth")


if __name__ == "__main__":
    unittest.main()
