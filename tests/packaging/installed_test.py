#!/usr/bin/env python3
"""What an engine's author gets: installs the libraries below the build folder, and looks at them from outside.

  tests/packaging/installed_test.py BUILD_FOLDER

What they link and export, what the headers include, that the example of docs/EMBEDDING.md builds and runs through CMake
and through pkg-config, shared and static, and what the packages of Debian hold. Where only one kind of library was built
(BUILD_SHARED_LIBS), tests of the other are skipped.
"""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop()).resolve() if len(sys.argv) > 1 else None
WORK = BUILD / "test_files/packaging"
PREFIX = WORK / "installed"

SYSTEM = {"libstdc++.so", "libgcc_s.so", "libm.so", "libc.so", "ld-linux-x86-64.so", "ld-linux-aarch64.so"}
EXAMPLE_SAYS = ["tenant a, question 7: computed 220 of 220 tokens",
                "tenant a, question 8: computed 28 of 220 tokens",
                "tenant b, question 7: computed 220 of 220 tokens"]


def run(*command, cwd=None, env=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **(env or {})},
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def library(name):
    return PREFIX / "lib" / name


def needed(path):
    """Sonames that a library needs, without their numbers."""
    sonames = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", path))
    return {re.sub(r"(\.so).*", r"\1", soname) for soname in sonames}


def pkg_config(*flags):
    return run("pkg-config", *flags, env={"PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")}).split()


def said_version():
    return re.search(r'kVersion = "(.+)"', (SOURCE / "include/stemma/version.h").read_text()).group(1)


def with_library_path():
    return {"LD_LIBRARY_PATH": str(PREFIX / "lib")}


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir(parents=True)
        for component in ("runtime", "development"):
            run("cmake", "--install", BUILD, "--prefix", PREFIX, "--component", component)
        cls.launcher = shutil.which("ccache")

    def require(self, name):
        if not library(name).exists():
            self.skipTest(f"{name} was not built")
        return library(name)

    def compile_example(self):
        """The example's object, made with what pkg-config says; its flags follow."""
        flags = pkg_config("--cflags", "stemma")
        compiler = ([self.launcher] if self.launcher else []) + ["c++"]
        run(*compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-c",
            SOURCE / "examples/fake_engine/main.cc", "-o", WORK / "main.o")
        return WORK / "main.o"

    # --- what they are

    def test_the_core_links_nothing_but_libcrypto_and_highway(self):
        self.assertEqual(needed(self.require("libstemma.so")) - SYSTEM, {"libcrypto.so", "libhwy.so"})

    def test_io_uring_comes_with_the_tiers_alone(self):
        self.assertEqual(needed(self.require("libstemma_tiers.so")) - SYSTEM,
                         {"libstemma.so", "libcrypto.so", "liburing.so"})

    def test_nothing_is_exported_but_the_api(self):
        cpp = "STEMMA_CXX_" + said_version()
        for name in ("libstemma.so", "libstemma_tiers.so", "libstemma_cuda.so"):
            if name == "libstemma_cuda.so" and not library(name).exists():
                continue  # a build without CUDA
            symbols = run("nm", "-D", "--defined-only", "--with-symbol-versions", self.require(name)).splitlines()
            for symbol in (line.split()[-1] for line in symbols):
                bare, _, version = symbol.partition("@")
                version = version.lstrip("@")
                if bare == version:  # of the version itself
                    continue
                self.assertTrue(re.fullmatch(r"STEMMA_\d+", version) if bare.startswith("stemma_") else version == cpp,
                                symbol)

    def test_a_gpu_needs_no_library_of_cuda(self):
        self.assertEqual(needed(self.require("libstemma_cuda.so")) - SYSTEM, {"libstemma.so"})

    def test_libraries_that_share_a_process_share_their_log_and_errors(self):
        undefined = run("nm", "-D", "--undefined-only", self.require("libstemma_tiers.so"))
        for name in ("log_event", "stemma_set_last_error"):
            self.assertIn(name, undefined)

    def test_the_shared_library_has_what_the_static_one_has_of_the_api(self):
        archive, shared = self.require("libstemma.a"), self.require("libstemma.so")
        api = re.findall(r'^ *"?(stemma::[^";]*)"?;$', (BUILD / "stemma.map").read_text(), re.M)

        def has(path, *flags):
            lines = run("nm", "--demangle", "--defined-only", *flags, path).splitlines()
            names = {re.sub("@.*", "", line[19:]) for line in lines if re.match("[0-9a-f]+ [TW] ", line)}
            return {name for name in names
                    if re.fullmatch(r"stemma_\w+", name) or any(fnmatch.fnmatchcase(name, one) for one in api)}

        static = has(archive)
        self.assertIn("stemma_begin", static)
        self.assertEqual(static - has(shared, "-D"), set())

    def test_installed_headers_include_installed_headers_alone(self):
        headers = list((PREFIX / "include/stemma").glob("*.h"))
        self.assertGreater(len(headers), 15)
        for header in headers:
            for included in re.findall(r'#include "(.+)"', header.read_text()):
                self.assertTrue((PREFIX / "include" / included).exists(), f"{header.name} includes {included}")

    def test_everything_says_one_version(self):
        self.assertEqual(pkg_config("--modversion", "stemma", "stemma-tiers"), [said_version()] * 2)
        config = (PREFIX / "lib/cmake/stemma/stemmaConfigVersion.cmake").read_text()
        self.assertIn(f'PACKAGE_VERSION "{said_version()}"', config)

    # --- who links them

    def test_the_example_is_short(self):
        lines = [line for line in (SOURCE / "examples/fake_engine/main.cc").read_text().splitlines() if line.strip()]
        self.assertLess(len(lines), 100)

    def test_the_example_builds_through_cmake(self):
        folder = WORK / "by_cmake"
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={self.launcher}"] if self.launcher else []
        run("cmake", "-S", SOURCE / "examples/fake_engine", "-B", folder, f"-DCMAKE_PREFIX_PATH={PREFIX}", *launcher)
        run("cmake", "--build", folder)
        self.assertEqual(run(folder / "fake_engine").splitlines(), EXAMPLE_SAYS)

    def test_cmake_refuses_a_component_that_there_is_not(self):
        folder = WORK / "wrong_component"
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\n"
                                               "find_package(stemma COMPONENTS core tiers)\n"
                                               "if(NOT TARGET stemma::tiers)\n  message(FATAL_ERROR tiers)\nendif()\n"
                                               "find_package(stemma COMPONENTS wings)\n"
                                               "if(stemma_FOUND)\n  message(FATAL_ERROR wings)\nendif()\n"
                                               "if(NOT stemma_NOT_FOUND_MESSAGE STREQUAL \"there is no component wings\")\n"
                                               "  message(FATAL_ERROR \"${stemma_NOT_FOUND_MESSAGE}\")\nendif()\n")
        run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}")

    def test_without_cuda_there_is_no_component_of_it(self):
        if library("libstemma_cuda.so").exists() or library("libstemma_cuda.a").exists():
            self.skipTest("a build with CUDA")
        folder = WORK / "no_cuda"
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\n"
                                               "find_package(stemma COMPONENTS core cuda)\n"
                                               "if(stemma_FOUND)\n  message(FATAL_ERROR cuda)\nendif()\n"
                                               "if(NOT stemma_NOT_FOUND_MESSAGE MATCHES \"^there is no component cuda: .* without CUDA$\")\n"
                                               "  message(FATAL_ERROR \"${stemma_NOT_FOUND_MESSAGE}\")\nendif()\n")
        run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}")

    def test_an_engine_links_the_pools_of_a_gpu(self):
        """The example of docs/EMBEDDING.md, shared and static; where there is no GPU it says so."""
        if not library("libstemma_cuda.so").exists() and not library("libstemma_cuda.a").exists():
            self.skipTest("a build without CUDA")
        text = (SOURCE / "docs/EMBEDDING.md").read_text()
        folder = WORK / "gpu_engine"
        folder.mkdir()
        (folder / "main.cc").write_text(re.search(r"```cpp\n(.*?)```", text, re.S).group(1))
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\n"
                                               "find_package(stemma REQUIRED COMPONENTS core cuda)\n"
                                               "add_compile_options(-Wall -Wextra -Werror)\n"
                                               "add_executable(gpu_engine main.cc)\n"
                                               "target_link_libraries(gpu_engine PRIVATE stemma::cuda)\n")
        for kind, static in (("shared", "OFF"), ("static", "ON")):
            run("cmake", "-S", folder, "-B", folder / kind, f"-DCMAKE_PREFIX_PATH={PREFIX};/usr/local/cuda",
                f"-DSTEMMA_USE_STATIC_LIBS={static}")
            run("cmake", "--build", folder / kind)
            said = run(folder / kind / "gpu_engine")
            self.assertTrue(said == "" or "no GPU 0" in said, said)

    def test_the_example_builds_through_pkg_config(self):
        self.require("libstemma.so")
        program = WORK / "by_pkg_config"
        run("c++", self.compile_example(), "-o", program, *pkg_config("--libs", "stemma"))
        self.assertEqual(run(program, env=with_library_path()).splitlines(), EXAMPLE_SAYS)

    def test_the_example_links_statically(self):
        archive = self.require("libstemma.a")
        program = WORK / "static"
        flags = [archive if flag == "-lstemma" else flag for flag in pkg_config("--libs", "--static", "stemma")]
        run("c++", self.compile_example(), "-o", program, *flags)
        self.assertNotIn("libstemma.so", needed(program))
        self.assertNotIn("liburing.so", needed(program))
        self.assertEqual(run(program).splitlines(), EXAMPLE_SAYS)

    def test_a_c99_program_builds_through_pkg_config(self):
        self.require("libstemma.so")
        program = WORK / "life"
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", SOURCE / "tests/c/life.c", "-o", program,
            *pkg_config("--cflags", "--libs", "stemma"))
        self.assertIn(f"stemma {said_version()}", run(program, env=with_library_path()))

    def test_the_command_brings_its_model(self):
        run("cmake", "--install", BUILD, "--prefix", WORK / "command", "--component", "command")
        moved = (WORK / "command").rename(WORK / "moved")
        with subprocess.Popen([moved / "bin/stemma", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
            said = server.stdout.readline()
            server.terminate()
        self.assertRegex(said, "scribe.* on http://127.0.0.1:")
        self.assertEqual(server.returncode, 0)

    def test_a_project_in_c_alone_builds_through_cmake(self):
        folder = WORK / "c_alone"
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES C)\n"
                                               "find_package(stemma REQUIRED COMPONENTS core tiers)\n"
                                               f"add_executable(life {SOURCE}/tests/c/life.c)\n"
                                               "target_link_libraries(life PRIVATE stemma::tiers stemma::core)\n")
        for kind, static in (("shared", "OFF"), ("static", "ON")):
            run("cmake", "-S", folder, "-B", folder / kind, f"-DCMAKE_PREFIX_PATH={PREFIX}",
                f"-DSTEMMA_USE_STATIC_LIBS={static}")
            run("cmake", "--build", folder / kind)
            self.assertIn(f"stemma {said_version()}", run(folder / kind / "life"))

    def test_rust_binds_it_as_it_is(self):
        self.require("libstemma.so")
        if not shutil.which("rustc"):
            self.skipTest("no rustc")
        text = (SOURCE / "docs/EMBEDDING.md").read_text()
        (WORK / "embed.rs").write_text(re.search(r"```rust\n(.*?)```", text, re.S).group(1))
        run("rustc", "--edition", "2021", "-L", PREFIX / "lib", "-o", WORK / "embed_rs", WORK / "embed.rs")
        self.assertEqual(run(WORK / "embed_rs", env=with_library_path()).splitlines()[-1], "96 of 100 tokens are cached")

    def test_the_c_of_the_documentation_runs(self):
        self.require("libstemma.so")
        text = (SOURCE / "docs/EMBEDDING.md").read_text()
        (WORK / "embed.c").write_text(re.search(r"```c\n(.*?)```", text, re.S).group(1))
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", WORK / "embed.c", "-o", WORK / "embed_c",
            *pkg_config("--cflags", "--libs", "stemma"))
        self.assertEqual(run(WORK / "embed_c", env=with_library_path()).splitlines()[-1], "96 of 100 tokens are cached")


@unittest.skipUnless(shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps"), "no tools of Debian")
@unittest.skipIf((BUILD / "libstemma.so").exists() != (BUILD / "libstemma.a").exists(), "one kind was built alone")
class Debs(unittest.TestCase):
    def test_each_package_holds_its_part(self):
        folder = WORK / "debs"
        shutil.rmtree(folder, ignore_errors=True)
        run("cpack", "-G", "DEB", "-B", folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", cwd=BUILD)
        held = {}
        for deb in folder.glob("*.deb"):
            name = run("dpkg-deb", "-f", deb, "Package").strip()
            held[name] = (run("dpkg-deb", "-c", deb), run("dpkg-deb", "-f", deb, "Depends"))
        self.assertEqual(set(held), {"libstemma1", "libstemma-dev", "stemma"})
        for name, path in (("stemma", "/usr/bin/stemma"), ("stemma", "/usr/share/stemma/models/scribe-3m/config.json"),
                           ("stemma", "/usr/share/doc/stemma/copyright"), ("libstemma1", "/usr/share/doc/libstemma1/copyright"),
                           ("libstemma-dev", "/usr/include/stemma/c.h"),
                           ("libstemma-dev", "/usr/lib/libstemma.a"), ("libstemma-dev", "/usr/lib/libstemma.so "),
                           ("libstemma-dev", "/usr/lib/pkgconfig/stemma.pc"),
                           ("libstemma-dev", "/usr/lib/cmake/stemma/stemmaConfig.cmake"),
                           ("libstemma1", "/usr/lib/libstemma.so.1"), ("libstemma1", "/usr/lib/libstemma_tiers.so.1")):
            self.assertIn(path, held[name][0] + " ")
        self.assertNotIn("libfmt", held["libstemma1"][1])
        self.assertIn("libssl3", held["libstemma1"][1])
        self.assertIn("libstemma1 (= ", held["libstemma-dev"][1])


if __name__ == "__main__":
    unittest.main()
