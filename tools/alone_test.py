#!/usr/bin/env python3
"""Shows that tools/alone.py can fail, and which flags it takes from a build."""

import pathlib
import tempfile
import unittest
from unittest import mock

import alone

COMMAND = ("/usr/bin/ccache /usr/bin/c++ -DX=1 -I{root}/src -std=c++20 -Winvalid-pch -Xclang -include-pch -Xclang a.pch"
           " -Xclang -include -Xclang a.hxx -include-pch b.pch -include b.hxx -o CMakeFiles/x.o -c {root}/src/tier/x_test.cc")


class Alone(unittest.TestCase):
    def test_takes_headers_and_tests(self):
        for path in ("include/stemma/a.h", "src/tier/a.h", "src/tier/a_test.cc", "tests/gpu/a.h", "tests/cli/a_test.cc",
                     "tests/cli/a.cc"):
            self.assertTrue(alone.is_ours(path), path)
        for path in ("src/tier/a.cc", "src/tier/a-inl.h", "src/tier/a_test.cu", "docs/a.h", "fuzz/a_fuzz.cc"):
            self.assertFalse(alone.is_ours(path), path)

    def test_flags_are_without_precompiled_headers_and_files(self):
        self.assertEqual(alone.flags_of(COMMAND.format(root="/r")), ["/usr/bin/c++", "-DX=1", "-I/r/src", "-std=c++20"])

    def test_an_option_of_clang_that_is_not_known_is_an_error(self):
        with self.assertRaises(ValueError):
            alone.flags_of("clang++ -Xclang -load -Xclang x.so -c a.cc")

    def fault_of(self, path, text, beside=""):
        """Of a file of src/tier with this text, compiled as a test beside it is."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            (source.parent / "y.h").write_text(beside)
            with mock.patch.object(alone, "SOURCE", pathlib.Path(folder)):
                return alone.compile_alone(path, {"src/tier/x_test.cc": COMMAND.format(root=folder)})

    def test_a_header_that_does_not_include_what_it_uses_is_a_fault(self):
        self.assertIn("does not compile by itself", self.fault_of("src/tier/x.h", "#pragma once\nstd::string name();\n"))
        self.assertEqual("", self.fault_of("src/tier/x.h", "#pragma once\n#include <string>\nstd::string name();\n"))

    def test_a_header_that_may_be_included_once_alone_is_a_fault(self):
        self.assertIn("redefinition", self.fault_of("src/tier/x.h", "struct Name {};\n"))

    def test_a_test_that_does_not_include_what_it_uses_is_a_fault(self):
        self.assertIn("does not compile by itself", self.fault_of("src/tier/x_test.cc", '#include "tier/y.h"\nName name;\n'))
        self.assertEqual("", self.fault_of("src/tier/x_test.cc", '#include "tier/y.h"\nName name;\n', "struct Name {};\n"))

    def test_a_header_is_compiled_as_what_includes_it(self):
        commands = {f"src/tier/{name}": f"c++ -DNAME={name} -c {name}" for name in ("a_test.cc", "y.cc", "z.cc")}
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "src/tier").mkdir(parents=True)
            (pathlib.Path(folder) / "src/tier/y.cc").write_text('#include "tier/y.h"\n')
            with mock.patch.object(alone, "SOURCE", pathlib.Path(folder)):
                self.assertIn("-DNAME=y.cc", alone.command_for("src/tier/y.h", commands))
                self.assertIn("-DNAME=a_test.cc", alone.command_for("src/tier/z.h", commands))

    def test_what_the_build_does_not_know_is_left_out(self):
        self.assertEqual("", self.fault_of("src/store/x.h", "std::string name();\n"))


if __name__ == "__main__":
    unittest.main()
