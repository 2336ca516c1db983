"""What ARCHITECTURE.md promises of the shape of the code, read from the code."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FORMAT_MODULES = {
    "pocketmq.store.format.layout",
    "pocketmq.store.format.record",
    "pocketmq.store.format.record_chain",
    "pocketmq.store.format.record_window",
    "pocketmq.store.format.properties",
    "pocketmq.store.format.java_hash",
    "pocketmq.store.format.message",
    "pocketmq.store.format.delay_level",
    "pocketmq.store.format.config_document",
}
"""The modules of the store that say what bytes mean and touch no file."""

MAY_IMPORT: dict[str, set[str]] = {
    "runtime": set(),
    "remoting": {"runtime"},
    "store": {"pocketmq.runtime.clock", "pocketmq.runtime.refusal_log"},
    "namesrv": {"remoting", "runtime"},
    "broker": {"remoting", "store", "runtime"},
    "client": {"remoting", "runtime"},
    "spark_analytics": FORMAT_MODULES,
    "store_tools": {"store", "runtime"},
    "pyspark_rocketmq": {"spark_analytics"},
}
"""Package -> packages (or modules) of ours that it may import; `pocketmq` may import all, as it puts processes together."""

PACKAGES = {*MAY_IMPORT, "pocketmq"}
FORBIDDEN_OUTSIDE = {
    "store": {"asyncio", "socket", "uvloop"},
    "spark_analytics": {"asyncio", "uvloop"},
    "store_tools": {"asyncio", "uvloop"},
}
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
VAGUE = {"common", "util", "utils", "helper", "helpers", "misc"}
PRINTING = {
    "pocketmq.runtime.command_line", "pocketmq.spark_analytics.report",
}  # fmt: skip
"""Modules that speak to people on standard output, beside every `__main__` and everything in pocketmq."""


def sources() -> Iterator[tuple[str, Path]]:
    """(dotted name, path) of every module of ours."""
    for package in sorted(PACKAGES):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports, `from a import b` as both `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


MODULES = dict(sources())


def test_there_is_something_to_read():
    assert len(MODULES) > 30
    assert {name.split(".")[0] for name in MODULES} >= {"runtime", "remoting", "namesrv", "store", "broker"}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_follow_the_table(package):
    allowed = MAY_IMPORT[package] | {package}
    wrong = []
    for name, path in MODULES.items():
        if name.split(".")[0] != package:
            continue
        for target in imported(path):
            if target.split(".")[0] not in PACKAGES:
                continue
            is_allowed = any(target == one or target.startswith(one + ".") for one in allowed)
            # `from runtime import clock` names the package on its way to the allowed module.
            is_way = any(one.startswith(target + ".") for one in allowed) and not _takes_more(path, target, allowed)
            if not (is_allowed or is_way):
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def _takes_more(path: Path, target: str, allowed: set[str]) -> bool:
    """Whether `path` takes something out of package `target` that is not allowed."""
    taken = [name for name in imported(path) if name.startswith(target + ".") and name.count(".") == target.count(".") + 1]
    return not taken or any(not any(one == name or one.startswith(name) for one in allowed) for name in taken)


@pytest.mark.parametrize("package", FORBIDDEN_OUTSIDE)
def test_some_packages_keep_away_from_the_loop(package):
    wrong = [
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if name.split(".")[0] == package
        for target in imported(path)
        if target.split(".")[0] in FORBIDDEN_OUTSIDE[package]
    ]
    assert wrong == []


def test_the_table_is_the_one_of_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = dict(re.findall(r"^    (\w+) +-> (.+?)(?:  .*)?$", text, re.MULTILINE))
    for package, allowed in MAY_IMPORT.items():
        assert package in rows, f"ARCHITECTURE.md does not say what {package} may import"
        said = set(re.findall(r"[\w.]+", rows[package])) & (
            PACKAGES | {"pocketmq.runtime.clock", "pocketmq.runtime.refusal_log"}
        )
        if package == "spark_analytics":
            assert "store" in rows[package]
        else:
            assert said == allowed


def test_modules_are_short_and_nameable():
    too_long = {name: n for name, path in MODULES.items() if (n := len(path.read_text().splitlines())) > MODULE_LINES_MAX}
    assert too_long == {}
    assert [name for name in MODULES if VAGUE & set(name.split("."))] == []


def test_functions_are_short():
    too_long = [
        f"{name}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for name, path in MODULES.items()
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_every_module_says_what_it_is():
    assert [name for name, path in MODULES.items() if path.read_text().strip() and not ast.get_docstring(tree(path))] == []


# Headers and formats are declared once


def _is_header(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id.endswith(("CommandHeader", "RequestHeader", "ResponseHeader"))
        for base in node.bases
    )


def test_headers_are_declared_in_their_place():
    allowed = ("pocketmq.remoting.headers.", "pocketmq.remoting.header")
    assert [
        f"{name}: {node.name}"
        for name, path in MODULES.items()
        if not name.startswith(allowed)
        for node in ast.walk(tree(path))
        if _is_header(node)
    ] == []


def test_every_header_is_declared_once():
    import importlib

    import msgspec

    from pocketmq.remoting.header import CommandHeader

    by_name, by_fields = defaultdict(list), defaultdict(list)
    for module in [name for name in MODULES if name.startswith("pocketmq.remoting.headers.")]:
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, type) and issubclass(value, CommandHeader) and value.__module__ == module:
                by_name[value.__name__].append(module)
                fields = msgspec.structs.fields(value)
                wire = frozenset((f.encode_name, str(f.type), f.required) for f in fields)
                by_fields["Request" in value.__name__, wire].append(value.__name__)
    assert len(by_name) > 30
    assert {name: modules for name, modules in by_name.items() if len(modules) > 1} == {}
    assert [names for names in by_fields.values() if len(names) > 1] == []


def test_formats_are_declared_in_layout_modules_only():
    wrong = [
        name
        for name, path in MODULES.items()
        if any(target.split(".")[0] == "construct" for target in imported(path)) and name.split(".")[-1] != "layout"
    ]
    assert wrong == []


def test_no_module_prints_but_the_command_lines():
    wrong = [
        f"{name}:{node.lineno}"
        for name, path in MODULES.items()
        if name not in PRINTING and not name.endswith("__main__") and not name.startswith("pocketmq")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert wrong == []


# Tests


def _is_sleep(node: ast.Call) -> bool:
    """A call of any `sleep`, but not of `sleep(0)`, which only gives the loop its turn."""
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "sleep" and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)


def _sleeps(path: Path) -> Iterator[int]:
    """Lines where a test sleeps outside a loop that looks at a condition, without a comment that says why."""
    text = path.read_text().splitlines()

    def walk(node: ast.AST, is_waiting: bool) -> Iterator[int]:
        if isinstance(node, ast.Call) and not is_waiting and _is_sleep(node):
            lines = text[node.lineno - 2 : node.lineno]
            if not (lines[0].lstrip().startswith("#") or "#" in lines[-1]):
                yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from walk(child, is_waiting or isinstance(node, (ast.While, ast.For)))

    yield from walk(tree(path), False)


def test_tests_wait_for_conditions_and_do_not_sleep():
    paths = sorted((ROOT / "tests").rglob("*.py"))
    assert len(paths) > 10
    assert [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in _sleeps(path)] == []
