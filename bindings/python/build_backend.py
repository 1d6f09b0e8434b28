"""Builds the wheel of `stemma` (PEP 517) with CMake, and with nothing from the network.

The version is that of include/stemma/version.h. CMAKE_BUILD_PARALLEL_LEVEL says how many compilers run at once.
"""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "stemma"
# Not parts of a source archive: what is built, and what others installed into the tree.
LEFT_OUT = {".git", "build", ".cache", "node_modules", "__pycache__"}


def _version():
    header = (ROOT / "include/stemma/version.h").read_text()
    return re.search(r'kVersion = "([^"]+)"', header).group(1)


def _tag():
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"{python}-{python}-{platform}"


def _metadata():
    readme = (ROOT / "docs/PYTHON.md").read_text()
    return (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {_version()}\n"
        "Summary: A prefix-sharing, tiered KV cache for LLM serving\n"
        "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n" + readme
    )


def _build():
    """Configures and builds; the folder with the package."""
    folder = ROOT / "build/wheel"
    configure = [
        "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DSTEMMA_TESTS=OFF", "-DSTEMMA_PYTHON=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]  # fmt: skip
    # An object file is the same wherever the checkout lies, so that a compiler cache finds it.
    environment = {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1", **os.environ}
    subprocess.run(configure, check=True, env=environment)
    build = ["cmake", "--build", folder, "--target", "stemma_python"]
    if subprocess.run(build, env=environment).returncode != 0:
        raise SystemExit("stemma: not built. python3-dev and pybind11-dev are wanted (tools/install_packages)")
    return folder / "python" / NAME


def _record_line(path, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    package, about = _build(), f"{NAME}-{_version()}.dist-info"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    files = {
        f"{NAME}/{file.name}": file.read_bytes()
        for file in sorted(package.iterdir())
        if file.suffix in (".py", ".pyi", ".typed") or file.name == f"_stemma{suffix}"
    }
    files[f"{about}/METADATA"] = _metadata().encode()
    files[f"{about}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: stemma\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    )
    record = "".join(_record_line(path, content) for path, content in files.items())
    files[f"{about}/RECORD"] = (record + f"{about}/RECORD,,\n").encode()
    name = f"{NAME}-{_version()}-{_tag()}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    name = f"{NAME}-{_version()}"

    def keep(entry):
        return None if LEFT_OUT & set(pathlib.PurePath(entry.name).parts) else entry

    with tarfile.open(os.path.join(sdist_directory, name + ".tar.gz"), "w:gz") as archive:
        archive.add(ROOT, arcname=name, filter=keep)
    return name + ".tar.gz"


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
