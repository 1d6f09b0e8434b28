"""Packages of other engines are not installed here: stand-ins with their interfaces are."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "stand_ins"))
