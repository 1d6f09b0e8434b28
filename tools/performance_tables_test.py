#!/usr/bin/env python3
"""Shows what tools/performance_tables.py makes of the lines of benchmarks, and what it refuses."""

import json
import pathlib
import unittest

import performance_tables as tables

GOALS = {"measured_params": ["two_core_ratio", "allowed_ns", "fall", "share"],
         "goals": [{"bench": "a", "params": {"rows": "1"}, "ratio_min": 0.8, "says": "80%"},
                   {"bench": "a", "params": {"rows": "*"}, "ratio_max": 0.5, "says": "at most half"},
                   {"bench": "b", "params": {}, "value_max_param": "allowed_ns", "says": "what is allowed"},
                   {"bench": "c", "params": {}, "param_max": "fall", "of_param": "share", "plus": 0.1, "says": "share"}]}


def line(bench, params, value=2.0, bound=2.5, ratio=0.8):
    return {"bench": bench, "params": params, "value": value, "unit": "gb/s", "bound": bound, "bound_name": "limit",
            "ratio": ratio, "repeats": 5, "spread": 0.1}


class Tables(unittest.TestCase):
    def rows(self, *runs):
        return tables.tables(runs, GOALS, "a machine").splitlines()[4:]

    def state(self, one):
        return self.rows([one])[0].split(" | ")[-1].removesuffix(" |")

    def test_a_case_is_a_row_with_its_bound_and_goal(self):
        self.assertEqual(self.rows([line("a", {"rows": "1"})]),
                         ["| a | rows 1 | 2 gb/s | limit 2.5 | 0.800 |  | 80% | met |"])

    def test_several_runs_are_medians_with_their_range(self):
        runs = [[line("a", {"rows": "1"}, value=v, ratio=r)] for v, r in ((1, 0.7), (3, 0.9), (2, 0.6))]
        self.assertEqual(self.rows(*runs),
                         ["| a | rows 1 | 2 gb/s | limit 2.5 | 0.700 (0.600–0.900) |  | 80% | **missed** |"])

    def test_what_is_measured_beside_is_no_part_of_the_case(self):
        runs = [[line("b", {"page": "4", "allowed_ns": ns}, value=150)] for ns in ("100", "300", "200")]
        self.assertEqual(self.rows(*runs), ["| b | page 4 | 150 gb/s | limit 2.5 | 0.800 (0.800–0.800) "
                                            "| allowed_ns 200 | what is allowed | met |"])

    def test_the_first_goal_that_fits_counts(self):
        self.assertEqual(self.state(line("a", {"rows": "1"}, ratio=0.79)), "**missed**")
        self.assertEqual(self.state(line("a", {"rows": "32"}, ratio=0.5)), "met")
        self.assertEqual(self.state(line("a", {"rows": "32"}, ratio=0.51)), "**missed**")
        self.assertEqual(self.state(line("d", {"rows": "1"})), "")

    def test_a_measured_param_may_be_what_is_judged(self):
        self.assertEqual(self.state(line("c", {"fall": "0.34", "share": "0.25"})), "met")
        self.assertEqual(self.state(line("c", {"fall": "0.36", "share": "0.25"})), "**missed**")

    def test_two_threads_on_one_core_are_not_judged(self):
        self.assertEqual(self.state(line("a", {"rows": "1", "two_core_ratio": "1.9"})), "met")
        self.assertEqual(self.state(line("a", {"rows": "1", "two_core_ratio": "1.03"})),
                         "not judged: two cores gave 1.03 of one")

    def test_figures_are_short(self):
        self.assertEqual([tables.short(x) for x in (0, 0.012345, 1.005, 99.96, 1234.5, 1e6)],
                         ["0", "0.0123", "1", "100", "1,234", "1,000,000"])

    def test_only_what_lies_between_the_markers_changes(self):
        document = f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n"
        self.assertEqual(tables.between_markers(document, "new\n"),
                         f"before\n{tables.BEGIN}\nnew\n{tables.END}\nafter\n")
        for wrong in ("", tables.BEGIN, f"{tables.END}{tables.BEGIN}", f"{document}{document}"):
            with self.assertRaises(tables.BadInput):
                tables.between_markers(wrong, "new\n")

    def test_a_wrong_line_is_named(self):
        with self.assertRaisesRegex(tables.BadInput, "run:2"):
            tables.read_lines(json.dumps(line("a", {})) + "\n{}\n", "run")
        with self.assertRaisesRegex(tables.BadInput, "run:1"):
            tables.read_lines("not json", "run")

    def test_the_goals_of_the_repository_can_be_judged(self):
        goals = json.loads(tables.GOALS.read_text())
        for goal in goals["goals"]:
            params = {name: "1" if value == "*" else value for name, value in goal["params"].items()}
            params.update({name: "1" for name in goals["measured_params"]})
            case = tables.Case([line(goal["bench"], params)], set(goals["measured_params"]))
            self.assertTrue(case.fits(goal), goal)
            case.reaches(goal)
            self.assertTrue(goal["says"])

    def test_the_document_has_the_markers(self):
        document = pathlib.Path(__file__).parent.parent / "docs/PERFORMANCE.md"
        tables.between_markers(document.read_text(), "")


if __name__ == "__main__":
    unittest.main()
