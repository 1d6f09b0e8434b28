#!/usr/bin/env python3
"""Shows that tools/c_abi.py can fail: each change that a program which is built already would notice, and some that none
would."""

import pathlib
import tempfile
import unittest

import c_abi

HEADER = """
#include <stddef.h>
#include <stdint.h>
#define STEMMA_API
#define STEMMA_ABI_VERSION 1
typedef int32_t stemma_status;
enum { STEMMA_OK = 0, STEMMA_IO = -5 };
typedef void (*stemma_sink)(void* context, int64_t value);
typedef struct stemma_stats {
  size_t struct_size;
  int64_t pages;  // in all
  int32_t rows;
  int32_t steps;
} stemma_stats;
STEMMA_API stemma_status stemma_count(const stemma_stats* stats, const uint8_t digest[32]);
STEMMA_API void stemma_end(void);
"""


class Changes(unittest.TestCase):
    def changed(self, *edits):
        text = HEADER
        for old, new in edits:
            self.assertIn(old, text)
            text = text.replace(old, new)
        return c_abi.differences(c_abi.describe(HEADER), c_abi.describe(text))

    def breaks(self, *edits):
        broken, _ = self.changed(*edits)
        self.assertTrue(broken, edits)

    def adds(self, count, *edits):
        broken, added = self.changed(*edits)
        self.assertEqual((broken, len(added)), ([], count))

    def test_the_same_header_is_the_same(self):
        self.adds(0)

    def test_members_of_structs(self):
        self.breaks(("int32_t rows;\n  int32_t steps;", "int32_t steps;\n  int32_t rows;"))
        self.breaks(("int64_t pages;", "double pages;"))
        self.breaks(("int64_t pages;", "int64_t all_pages;"))
        self.breaks(("  int32_t steps;\n", ""))
        self.breaks(("  int64_t pages;", "  int64_t more;\n  int64_t pages;"))

    def test_functions(self):
        self.breaks(("STEMMA_API void stemma_end(void);\n", ""))
        self.breaks(("void stemma_end(void)", "int32_t stemma_end(void)"))
        self.breaks(("const uint8_t digest[32]", "const uint8_t digest[16]"))
        self.breaks(("(const stemma_stats* stats,", "(const stemma_stats* stats, int32_t more,"))

    def test_constants_and_types(self):
        self.breaks(("STEMMA_IO = -5", "STEMMA_IO = -6"))
        self.breaks((", STEMMA_IO = -5", ""))
        self.breaks(("typedef int32_t stemma_status", "typedef int64_t stemma_status"))
        self.breaks(("int64_t value);", "int32_t value);"))

    def test_what_nobody_notices(self):
        self.adds(0, ("// in all", "// of everything"))
        self.adds(0, ("* stats,", "* numbers,"))
        self.adds(1, ("STEMMA_IO = -5", "STEMMA_IO = -5, STEMMA_NEW = 3"))
        self.adds(1, ("STEMMA_API void stemma_end", "STEMMA_API void stemma_more(void);\nSTEMMA_API void stemma_end"))
        self.adds(2, ("int32_t steps;\n", "int32_t steps;\n  int64_t last;\n"))  # it, and the size


class Golden(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.now = c_abi.describe(HEADER)
        self.assertEqual(c_abi.compare(self.root, 1, self.now, write=True), [])

    def tearDown(self):
        self.folder.cleanup()

    def test_what_was_written_is_accepted(self):
        self.assertEqual(c_abi.compare(self.root, 1, self.now, write=False), [])

    def test_a_change_is_refused_until_the_version_is_raised(self):
        moved = {**self.now, "constant STEMMA_IO": "-6"}
        self.assertIn("constant STEMMA_IO was -5, is -6", c_abi.compare(self.root, 1, moved, write=False))
        self.assertTrue(c_abi.compare(self.root, 1, moved, write=True))
        self.assertEqual(c_abi.compare(self.root, 1, self.now, write=False), [])  # nothing was written
        self.assertTrue(c_abi.compare(self.root, 2, moved, write=False))
        self.assertEqual(c_abi.compare(self.root, 2, moved, write=True), [])
        self.assertEqual(c_abi.compare(self.root, 2, moved, write=False), [])

    def test_an_exported_symbol_that_is_gone_is_refused(self):
        exported = {**self.now, "export stemma_end": "libstemma.so STEMMA_1"}
        c_abi.compare(self.root, 1, exported, write=True)
        self.assertIn("export stemma_end is gone", c_abi.compare(self.root, 1, self.now, write=False))

    def test_a_function_that_no_library_has_is_found(self):
        exported = {"function stemma_end": "void (void)", "export stemma_end": "libstemma.so STEMMA_1"}
        self.assertEqual(c_abi.unexported(exported), [])
        self.assertEqual(len(c_abi.unexported({"function stemma_end": "void (void)"})), 1)

    def test_an_addition_is_written_down_under_the_same_version(self):
        more = {**self.now, "function stemma_more": "void (void)"}
        self.assertTrue(c_abi.compare(self.root, 1, more, write=False))
        self.assertEqual(c_abi.compare(self.root, 1, more, write=True), [])
        self.assertEqual(c_abi.compare(self.root, 1, more, write=False), [])


if __name__ == "__main__":
    unittest.main()
