#!/usr/bin/env python3
"""Shows what tools/gpu_check --run makes of programs, packed or built, where nvidia-smi names a GPU."""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parent / "gpu_check"
# As GoogleTest ends where it is told to be brief: what failed is named, and not counted.
BRIEF = """[  FAILED  ] Device.Fails (0 ms)
[  FAILED  ] Device.Fails/1, where GetParam() = 7 (12 ms)

[==========] 6 tests from 1 test suite ran. (12 ms total)
[  PASSED  ] 3 tests.
[  SKIPPED ] 1 test.
"""
WELL = "[==========] 2 tests from 1 test suite ran. (1 ms total)\n[  PASSED  ] 2 tests.\n"

# What Nsight Compute says of a launch: by instruction, and as a whole.
SOURCE = """"Kernel Name","void walk()"
"Address","Source","# Samples","Instructions Executed","stall_math","stall_wait","stall_wait (Not Issued)"
"0x10","  LDG R1, [R2]","10","8","0","10","10"
"0x20","  FMUL R1, R1, R3","30","1,000","0","30","0"
"0x30","  MUFU.EX2 R1, R1","60","1,000","20","40","0"
"""
RAW = """  gpu__time_duration.sum                                             ms   1.50
  smsp__average_warps_issue_stalled_selected_per_issue_active.ratio  inst 1.00
  smsp__average_warps_issue_stalled_wait_per_issue_active.ratio      inst 2.25
  smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio  inst 0
"""
# Kernels as the tools of CUDA write their names, each by its profile.
KERNELS = {
    "chunks": "walk_chunks_by_groups<stemma::GroupForm<stemma::BFloat16, (int)128>>(stemma::AttentionParams)",
    "decode": "walk_items<Form<stemma::BFloat16, (int)128, (stemma::RowKind)0, (int)1, (int)1>>(stemma::AttentionParams, int)",
    "decode_of_codes": "walk_items<Form<stemma::Float16, (int)128, (stemma::RowKind)1, (int)1, (int)1>>(stemma::AttentionParams)",
    "decode_of_latent_rows": "walk_items<Form<stemma::BFloat16, (int)576, (stemma::RowKind)3, (int)2, (int)2>>(int)",
    "latent_rows_by_groups": "walk_latent_items<stemma::LatentForm<stemma::BFloat16>>(stemma::AttentionParams)",
    "choice_of_tokens": "choose_from_guesses(stemma::TokenChoiceParams)",
    "products_of_few_rows": "gemm_kernel<stemma::BFloat16, float, stemma::GemmTile<(int)16, (int)32, (int)1, (int)2, (int)8>>()",
    "products_of_some_rows": "gemm_kernel<stemma::BFloat16, float, stemma::GemmTile<(int)64, (int)128, (int)2, (int)4, (int)4>>()",
    "products_of_many_rows": "gemm_kernel<stemma::BFloat16, float, stemma::GemmTile<(int)128, (int)256, (int)2, (int)4>>()",
    "products_of_int8": "rounded_kernel<(stemma::CodeForm)1, stemma::BFloat16, stemma::RoundedTile<(int)8, (int)32, (int)1>>()",
    "products_of_int4": "rounded_kernel<(stemma::CodeForm)2, stemma::BFloat16, stemma::RoundedTile<(int)8, (int)32, (int)1>>()",
    "drawing": "sample_kernel(stemma::SampleRows, stemma::Precision)",
}


class Runs(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for folder in ("tools", "build", "bin"):
            (self.work / folder).mkdir()
        shutil.copy(SCRIPT, self.work / "tools/gpu_check")
        self.program("bin/nvidia-smi", "A GPU\n")

    def program(self, place, says, status=0):
        path = self.work / place
        path.parent.mkdir(parents=True, exist_ok=True)
        lists = 'case "$*" in *--gtest_list_tests*) printf "Device.\\n  Does\\n"; exit ;; esac'
        path.write_text(f"#!/bin/sh\n{lists}\ncat <<'END'\n{says}END\nexit {status}\n")
        path.chmod(0o755)

    def pack(self, says):
        self.program("packed/device_cuda_test", says)
        with tarfile.open(self.work / "build/gpu_pack.tar.xz", "w:xz") as archive:
            archive.add(self.work / "packed", "gpu_pack")

    def run_tests(self, *more, **variables):
        told = {**os.environ, "PATH": f"{self.work / 'bin'}:{os.environ['PATH']}", **variables}
        command = [self.work / "tools/gpu_check", "--run", "tests", *more]
        return subprocess.run(command, env=told, capture_output=True, text=True)

    def test_tests_that_fail_are_counted(self):
        self.program("build/cuda/device_cuda_test", BRIEF, status=1)
        run = self.run_tests()
        self.assertIn("| device | 3 | 2 | 1 | not run | not run |", run.stdout)
        self.assertEqual(run.returncode, 1)

    def test_where_all_pass_none_failed(self):
        self.program("build/cuda/device_cuda_test", WELL)
        run = self.run_tests()
        self.assertIn("| device | 2 | 0 | 0 | not run | not run |", run.stdout)
        self.assertEqual(run.returncode, 0)

    # Else a machine that is lent by the minute would be asked for nothing.
    def test_a_part_that_there_is_not_is_named(self):
        self.program("build/cuda/device_cuda_test", WELL)
        run = self.run_tests("sanitisers")
        self.assertIn("there is no part 'sanitisers'", run.stderr)
        self.assertEqual((run.returncode, run.stdout), (2, ""))

    def test_each_share_has_its_tests(self):
        self.program("build/cuda/device_cuda_test", WELL)
        program = self.work / "build/cuda/device_cuda_test"
        says = 'echo "share $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS"\n'
        lists = 'printf "Device.\\n  A\\n  B\\n  C\\n"'
        program.write_text(
            program.read_text().replace('printf "Device.\\n  Does\\n"', lists).replace("cat <<", says + "cat <<"))
        run = self.run_tests(JOBS="2")
        self.assertIn("| device | 4 | 0 | 0 |", run.stdout)
        logs = sorted((self.work / "build/gpu_check").glob("device.*.log"))
        self.assertEqual([log.read_text().split("\n")[0] for log in logs], ["share 0 of 2", "share 1 of 2"])

    def test_programs_are_run_by_what_tests_them(self):
        self.program("build/cuda/device_cuda_test", WELL)
        self.program("build/cuda/stemma", "")
        for path, says, status in (("gpu/programs_test.py", "Ran 7 tests in 1.0s", 0), ("soak/soak.py", "other answers", 1)):
            script = self.work / "tests" / path
            script.parent.mkdir(parents=True)
            script.write_text(f"import sys\nprint({says!r})\nsys.exit({status})\n")
        run = self.run_tests("programs")
        self.assertIn("programs: passed: Ran 7 tests in 1.0s", run.stdout)
        self.assertIn("soak: FAILED with 1", run.stdout)
        self.assertEqual(run.returncode, 1)

    def test_where_there_is_no_package_its_tests_are_skipped(self):
        told = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run = subprocess.run([sys.executable, SCRIPT.parent.parent / "tests/gpu/programs_test.py", "/bin/true",
                              self.work / "none", "Package"], env=told, capture_output=True, text=True)
        self.assertIn("OK (skipped=3)", run.stderr)
        self.assertEqual(run.returncode, 0)

    def test_where_nothing_was_built_that_is_said(self):
        (self.work / "build/cuda").mkdir()
        run = self.run_tests()
        self.assertIn("nothing to run in build/cuda", run.stderr)
        self.assertEqual(run.returncode, 1)

    def test_of_a_program_that_dies_the_test_is_named(self):
        self.program("build/cuda/device_cuda_test", "[ RUN      ] Device.Ends\n", status=3)
        run = self.run_tests()
        self.assertIn("| device | 0 | 0; some ended with 3 |", run.stdout)
        self.assertIn("Device.Ends", run.stdout)

    def test_benchmarks_come_before_tests_that_say_less(self):
        order = self.work / "order"
        for name in ("engine_cuda_test", "device_cuda_test", "pool_cuda_bench", "tests_gpu"):
            self.program(f"build/cuda/{name}", "cuda_store kernel=cuda tokens=4096 GB/s=7\n" + WELL)
            program = self.work / "build/cuda" / name
            program.write_text(program.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\necho {name} >>{order}\n"))
        run = self.run_tests("benches")
        ran = dict.fromkeys(order.read_text().split())  # each is asked for its tests of Hopper as well
        self.assertEqual(list(ran), ["device_cuda_test", "pool_cuda_bench", "tests_gpu", "engine_cuda_test"])
        self.assertIn("The most telling of them:\n\n```\ncuda_store kernel=cuda tokens=4096 GB/s=7\n```", run.stdout)
        self.assertEqual(run.returncode, 0)

    # A kernel that never ran may have no end: nothing that comes behind it is lost.
    def test_a_benchmark_without_an_end_leaves_others_their_time(self):
        order = self.work / "order"
        for name in ("device_cuda_test", "pool_cuda_bench", "attention_cuda_bench", "cuda_cuda_bench"):
            self.program(f"build/cuda/{name}", f"cuda_{name} tokens=4096\n" + WELL)
            program = self.work / "build/cuda" / name
            text = program.read_text().replace("  Does", "  Does\\n  HopperDoes")
            text = text.replace("cat <<", f'echo "{name} $*" >>{order}\ncat <<')
            program.write_text(text.replace("exit 0\n", "exec sleep 60\n") if name.startswith("attention") else text)
        run = self.run_tests("benches", GPU_CHECK_BENCH_SECONDS="1", JOBS="1")
        ran = order.read_text().splitlines()
        self.assertEqual(ran, ["device_cuda_test --gtest_filter=-*Hopper*", "device_cuda_test --gtest_filter=*Hopper*",
                               "attention_cuda_bench ", "pool_cuda_bench ", "cuda_cuda_bench "])
        self.assertIn("| device_hopper | 2 | 0 | 0 |", run.stdout)
        for name in ("pool", "attention", "cuda"):
            self.assertIn(f"cuda_{name}_cuda_bench tokens=4096", run.stdout)
        self.assertIn("attention_cuda_bench.log ended with 124", run.stdout)
        self.assertEqual(run.returncode, 1)

    # Of a machine that is lent no more of the output comes back.
    def test_what_says_most_is_the_end_of_the_output(self):
        telling = ["cuda_store 7 tokens=4096 loads=2",
                   "cuda_attention 7 phase=decode heads=32/4 page_size=1 dtype=fp8_e4m3",
                   "cuda_attention 7 phase=decode heads=32/8 page_size=64 dtype=int8",
                   "cuda_attention 7 phase=decode_latent_hopper x", "cuda_sample 7 rules=all rows=64 x",
                   "cuda_pages 7 what=backup streams=2 x", "cuda_attention 7 phase=prefill x"]
        others = ["cuda_other " + "x" * 140] * 200
        self.program("build/cuda/pool_cuda_bench", "\n".join(others + telling) + "\n")
        failures = "x.cc:1: Failure\n" + "\n".join(["why " * 50] * 6) + "\n"
        for name in ("device", "engine", "cache", "tier", "pool", "cuda"):
            self.program(f"build/cuda/{name}_cuda_test", failures + BRIEF, status=1)
        run = self.run_tests("benches", JOBS="1")
        end = run.stdout[-12000:]
        figures = end[end.index("The most telling of them:"):]
        behind = ["-- device.0.log ended with 1", "| tests | passed |", "| device | 3 | 2 | 1 |"]
        places = [figures.index(line) for line in telling + behind]
        self.assertEqual(places, sorted(places))
        self.assertEqual(figures.count(telling[1]), 1)  # though two patterns have it
        self.assertEqual(run.returncode, 1)

    def test_profiles_say_where_time_goes(self):
        shutil.copy(SCRIPT.parent / "gpu_profile.py", self.work / "tools/gpu_profile.py")
        self.program("build/cuda/device_cuda_test", WELL)
        for name, says in (("source", SOURCE), ("raw", RAW)):
            (self.work / name).write_text(says)
        profiler = self.work / "bin/ncu"
        profiler.write_text(
            "#!/bin/bash\n"
            f'[[ "$*" == *--csv* ]] && exec cat {self.work}/source\n'
            f'[[ "$*" == *"--page raw"* ]] && exec cat {self.work}/raw\n'
            'while [ "$1" != -o ]; do shift; done; [[ "$3" == */attention_cuda_bench ]] && touch "$2"\n'
        )
        profiler.chmod(0o755)
        run = self.run_tests("profiles")
        self.assertIn("-- profile of chunks\nvoid walk()\nduration: ms 1.50\n", run.stdout)
        self.assertIn("by what it waited for: wait 2.25, selected 1.00\n", run.stdout)
        self.assertIn("  1 to 2: 1000 times, 90.0%\n", run.stdout)
        self.assertIn("  2: 60.0% MUFU.EX2 R1, R1 (wait, math)\n", run.stdout)
        self.assertIn("-- profile of drawing\nno launch of it was profiled", run.stdout)

    def test_each_profile_is_of_its_kernel_alone(self):
        listed = re.search(r"^profiled\(\) \{.*?<<'END'\n(.*?)^END$", SCRIPT.read_text(), re.M | re.S)[1]
        patterns = {words[0]: words[2] for words in map(str.split, listed.splitlines())}
        found = {name: [kernel for kernel, text in KERNELS.items() if re.search(pattern, text)]
                 for name, pattern in patterns.items()}
        self.assertEqual(found, {name: [name] for name in KERNELS})

    def test_the_calls_that_are_documented_have_time_for_what_they_name(self):
        for name in ("device_cuda_test", "pool_cuda_bench"):
            self.program(f"build/cuda/{name}", WELL)
        self.program("bin/compute-sanitizer", "")
        text = (SCRIPT.parent.parent / "docs/GPU.md").read_text().replace("\\\n", " ")
        calls = [line.strip() for line in text.splitlines() if line.startswith("    GPU_CHECK_SECONDS=")]
        self.assertEqual({part for call in calls for part in call[call.index("--run") + 5:].split()},
                         {"tests", "benches", "profiles", "sanitizers", "programs"})
        out = self.work / "out"  # all that comes back from a machine that is lent
        out.mkdir()
        told = {**os.environ, "PATH": f"{self.work / 'bin'}:{os.environ['PATH']}", "OUT": str(out)}
        for call in calls:
            run = subprocess.run(["bash", "-c", call], env=told, cwd=self.work, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertNotIn("no time", run.stdout, call)
        for log in out.iterdir():
            with tarfile.open(log) as archive:
                self.assertIn("gpu_check/table", archive.getnames())
        self.assertEqual(len(list(out.iterdir())), len(calls))

    def test_of_a_program_that_dies_a_sanitizer_has_found_nothing(self):
        self.program("build/cuda/device_cuda_test", WELL)
        for status, says in ((9, "FINDING"), (139, "ended with 139"), (0, "clean")):
            self.program("bin/compute-sanitizer", "", status=status)
            run = self.run_tests("sanitizers", SANITIZERS="memcheck")
            self.assertIn(f"| device | 2 | 0 | 0 | {says} | not run |", run.stdout)

    def test_time_is_kept_for_benchmarks(self):
        for name in ("device_cuda_test", "pool_cuda_bench", "tests_gpu"):
            self.program(f"build/cuda/{name}", WELL)
        run = self.run_tests("benches", GPU_CHECK_SECONDS="150")
        self.assertIn("| device | no time |", run.stdout)
        self.assertIn("| tests_gpu | 2 |", run.stdout)
        self.assertNotIn("pool_cuda_bench: no time", run.stdout)

    # Packs what lies in build/cuda, beside a file of so many bytes that travels with it.
    def pack_beside(self, size):
        for tool, does in (("cmake", ":"), ("strip", 'cp "$3" "$2"')):
            self.program(f"bin/{tool}", "")
            (self.work / "bin" / tool).write_text(f"#!/bin/sh\n{does}\n")
        (self.work / "tests/packaging").mkdir(parents=True, exist_ok=True)
        (self.work / "tests/packaging/installed_test.py").write_text("")
        (self.work / ".gitignore").write_text("build/\n")
        subprocess.run(["git", "init", "-q", self.work], check=True)
        with open(self.work / "large", "wb") as large:
            large.truncate(size)
        told = {**os.environ, "PATH": f"{self.work / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run([self.work / "tools/gpu_check", "--pack"], env=told, capture_output=True, text=True)

    def test_a_pack_that_is_too_large_to_travel_leaves_out_what_says_least(self):
        for name in ("device_cuda_test", "engine_cuda_test", "cache_cuda_test"):
            self.program(f"build/cuda/{name}", WELL)
        with open(self.work / "build/cuda/engine_cuda_test", "ab") as program:
            program.write(random.Random(1).randbytes(1 << 20))
        run = self.pack_beside(125 << 19)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("left out: engine_cuda_test", run.stdout)
        with tarfile.open(self.work / "build/gpu_pack.tar.xz") as archive:
            names = {pathlib.Path(name).name for name in archive.getnames()}
        self.assertLessEqual({"device_cuda_test", "cache_cuda_test"}, names)
        self.assertNotIn("engine_cuda_test", names)
        run = self.pack_beside(63 << 20)
        self.assertEqual(run.returncode, 1)
        self.assertIn("63.0 MiB", run.stderr)

    def test_a_pack_that_is_carried_later_is_the_one_that_runs(self):
        self.pack(WELL)
        self.assertIn("| device | 2 |", self.run_tests().stdout)
        self.pack(WELL.replace("2 tests", "5 tests"))
        self.assertIn("| device | 5 |", self.run_tests().stdout)


if __name__ == "__main__":
    unittest.main()
