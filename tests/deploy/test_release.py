"""deploy/release: checks of the changelog, archives that do not depend on their build, and workflows of the repository."""

import importlib.util
import io
import json
import re
import tarfile
import tomllib
import zipfile

import pytest
import yaml

from tests.deploy.dockerfile import DEPLOY

ROOT = DEPLOY.parent
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-31\n\n### Added\n\n- x\n\n## [1.1.0] - 2026-01-01\n"


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release_script", DEPLOY / "release/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workflow(name):
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text())


# --- changelog ----------------------------------------------------------------------------------------------------------


def test_a_version_needs_a_dated_section(release):
    release.check_changelog(CHANGELOG, "1.2.0")
    for version in ("1.3.0", "1.2", "Unreleased"):
        with pytest.raises(release.ReleaseError, match="no section"):
            release.check_changelog(CHANGELOG, version)


def test_an_older_version_is_not_released_again(release):
    with pytest.raises(release.ReleaseError, match="newest section is 1.2.0"):
        release.check_changelog(CHANGELOG, "1.1.0")


def test_nothing_may_be_left_under_unreleased(release):
    with pytest.raises(release.ReleaseError, match="left under Unreleased"):
        release.check_changelog(CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n### Fixed\n\n- y\n"), "1.2.0")


def test_our_changelog_has_the_form_of_keepachangelog():
    headings = re.findall(r"^## .*", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])
    kinds = set(re.findall(r"^### (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


# --- archives -----------------------------------------------------------------------------------------------------------


def archive(path, names, mtime, mode):
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode, member.uname = 1, mtime, mode, f"user{mtime}"
            tar.addfile(member, io.BytesIO(b"x"))


def test_archives_of_the_same_files_become_the_same_bytes(release, tmp_path):
    one, other = tmp_path / "1.tar.gz", tmp_path / "2.tar.gz"
    archive(one, ["p/a", "p/b"], 1, 0o644)
    archive(other, ["p/b", "p/a"], 2, 0o664)
    for path in (one, other):
        release.repack(path, 1_700_000_000)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as tar:
        assert tar.extractfile("p/a").read() == b"x"
        assert {(member.mtime, member.uname, member.uid) for member in tar} == {(1_700_000_000, "", 0)}


def test_builds_that_differ_are_refused(release, tmp_path):
    for folder, text in (("1", "x"), ("2", "y")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.whl").write_text(text)
    same = [tmp_path / "1/a.whl"]
    release.compare(same, same)
    with pytest.raises(release.ReleaseError, match="two builds differ"):
        release.compare(same, [tmp_path / "2/a.whl"])


def test_archives_that_lack_something_are_refused(release, tmp_path):
    sdist, wheel = tmp_path / "p.tar.gz", tmp_path / "p.whl"
    archive(sdist, [f"p-1/{name}" for name in release.IN_SDIST], 1, 0o644)
    with zipfile.ZipFile(wheel, "w") as file:
        for name in release.IN_WHEEL:
            file.writestr(name.replace("*", "x"), "")
    release.check_contents([sdist, wheel], is_complete=False)
    with pytest.raises(release.ReleaseError, match=r"p.whl has no pocketmq/lane/_lane\*.so\n.*jar$"):
        release.check_contents([sdist, wheel], is_complete=True)
    archive(sdist, ["p-1/pyproject.toml"], 1, 0o644)
    with pytest.raises(release.ReleaseError, match="p.tar.gz has no pocketmq/lane/crate/Cargo.lock"):
        release.check_contents([sdist, wheel], is_complete=False)


def test_a_release_asks_for_files_that_exist(release):
    for pattern in (*release.IN_SDIST, *release.IN_WHEEL):
        assert list(ROOT.glob(pattern)), pattern


def test_the_list_of_software_names_crates_with_their_hashes(release):
    lock = tomllib.loads((ROOT / "pocketmq/lane/crate/Cargo.lock").read_text())
    crates = [release.crate(package) for package in lock["package"] if "source" in package]
    pyo3 = next(crate for crate in crates if crate["name"] == "pyo3")
    assert pyo3["purl"] == f"pkg:cargo/pyo3@{pyo3['version']}" and len(pyo3["hashes"][0]["content"]) == 64
    assert json.dumps(crates)


def test_the_version_is_the_packages(release):
    from pocketmq import __version__

    assert release.version_of((ROOT / "pocketmq/__init__.py").read_text()) == __version__


# --- workflows ----------------------------------------------------------------------------------------------------------


def test_ci_runs_both_jobs_of_our_script():
    job = workflow("ci.yml")["jobs"]["test"]
    parts = set(re.findall(r"\.ci/run (test-\w+)", (ROOT / ".ci/run").read_text()))
    assert set(job["strategy"]["matrix"]["part"]) == parts and len(parts) == 2
    assert any("CI=true .ci/run" in step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_workflows_make_targets_that_exist_and_name_no_secrets(name):
    text = (ROOT / ".github/workflows" / name).read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"run: make ([\w-]+)", text):
        assert f"\n{target}:" in makefile
    assert "secrets." not in text and workflow(name)["permissions"] == {"contents": "read"}


def test_wheels_are_built_for_both_processors_and_the_oldest_python():
    job = workflow("release.yml")["jobs"]["wheels"]
    assert job["strategy"]["matrix"]["runner"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    (build,) = [step["env"]["CIBW_BUILD"] for step in job["steps"] if "env" in step]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert build.startswith(project["tool"]["distutils"]["bdist_wheel"]["py-limited-api"])
