"""The package as a whole: what it says of itself is so."""

import ast
import pathlib

import pytest

import stemma
from stemma import _stemma

STUBS = ast.parse((pathlib.Path(stemma.__file__).parent / "_stemma.pyi").read_text())


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stubs_name_what_there_is():
    stubbed = public(node.name for node in STUBS.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)))
    assert stubbed == public(dir(_stemma))


@pytest.mark.parametrize("stub", [node for node in STUBS.body if isinstance(node, ast.ClassDef)], ids=lambda n: n.name)
def test_the_stubs_name_what_each_class_has(stub):
    stubbed = public(node.name for node in stub.body if isinstance(node, ast.FunctionDef))
    assert stubbed == public(dir(getattr(_stemma, stub.name)))


def test_all_names_are_there_and_typed():
    assert all(hasattr(stemma, name) for name in stemma.__all__)
    assert (pathlib.Path(stemma.__file__).parent / "py.typed").exists()


def test_what_users_call_says_what_it_does():
    for kind in (stemma.Cache, stemma.Sequence, stemma.Pool, stemma.PageStore, stemma.Tiers, stemma.Promotion):
        for name in public(dir(kind)):
            assert getattr(kind, name).__doc__, f"{kind.__name__}.{name}"


def test_the_version_is_the_librarys():
    header = pathlib.Path(__file__).parents[2] / "include/stemma/version.h"
    assert f'kVersion = "{stemma.__version__}"' in header.read_text()


def test_an_unknown_level_is_refused():
    with pytest.raises(stemma.InvalidArgumentError):
        stemma.set_log_level("loud")
