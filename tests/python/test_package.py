"""The package as a whole: what it says of itself is so."""

import ast
import pathlib
import re

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


def defaults(function):
    """Of a stub: what each argument is where nobody says."""
    named = function.args.posonlyargs + function.args.args
    pairs = [*zip(named[len(named) - len(function.args.defaults) :], function.args.defaults)]
    pairs += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d is not None]
    return {a.arg: ast.literal_eval(d) for a, d in pairs if not isinstance(d, ast.Constant) or d.value is not ...}


@pytest.mark.parametrize("stub", [node for node in STUBS.body if isinstance(node, ast.ClassDef)], ids=lambda n: n.name)
def test_the_stubs_have_the_defaults_that_there_are(stub):
    for function in (node for node in stub.body if isinstance(node, ast.FunctionDef)):
        signature = (getattr(getattr(_stemma, stub.name), function.name).__doc__ or "").split("\n")[0]
        for name, default in defaults(function).items() if signature.startswith(function.name) else ():
            said = re.search(rf"\b{name}: [^=]* = (.*?)(, \w+: |, \*|\) -> )", signature)
            assert said is not None, f"{function.name}: {name} in {signature}"
            assert ast.literal_eval(said[1]) == default, f"{function.name}: {name}"


def arguments(function):
    """Of a stub, in their order."""
    named = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    return [argument.arg for argument in named]


@pytest.mark.parametrize("stub", [node for node in STUBS.body if isinstance(node, ast.ClassDef)], ids=lambda n: n.name)
def test_the_stubs_have_the_arguments_that_there_are(stub):
    for function in (node for node in stub.body if isinstance(node, ast.FunctionDef)):
        signature = (getattr(getattr(_stemma, stub.name), function.name).__doc__ or "").split("\n")[0]
        if signature.startswith(function.name + "("):
            assert arguments(function) == re.findall(r"(?<=[(\s])(\w+): ", signature), function.name


# A list of one kind is none of a list of either: who has names in a list[str] could not give it.
def test_the_stubs_take_a_list_of_one_kind_where_either_does():
    arguments_of = [node.args + node.kwonlyargs for node in ast.walk(STUBS) if isinstance(node, ast.arguments)]
    taken = [argument.annotation for those in arguments_of for argument in those if argument.annotation is not None]
    assert not [text for text in map(ast.unparse, taken) if text.startswith("list[Union")]


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


# `import stemma` alone brings none of them.
def test_the_documentations_examples_import_the_modules_that_they_name():
    text = (pathlib.Path(__file__).parents[2] / "docs/PYTHON.md").read_text()
    named = 0
    for block in text.split("```python\n")[1:]:
        code = block.split("```")[0]
        for module in set(re.findall(r"stemma\.compat_\w+(?=\.)", code)):
            named += 1
            assert re.search(rf"^(import|from) {re.escape(module)}\b", code, re.MULTILINE), module
    assert named > 1
