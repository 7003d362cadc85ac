"""The image's Python packages: locked with hashes, installed by the Dockerfile's own steps, listed by `make sbom`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamdp import __version__

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
LOCKS = [DEPLOY / "requirements.txt", DEPLOY / "requirements-build.txt"]
# A build stage's steps, each on one line: ["RUN", "python -m venv ..."].
STAGES = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text()).split("\nFROM ")
STEPS = [line.split(maxsplit=1) for line in STAGES[1].splitlines() if re.match("(RUN|COPY) ", line)]


def locked(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Name to version and hashes."""
    lines = re.sub(r" \\\n", " ", path.read_text()).splitlines()
    found = {}
    for line in lines:
        if line and not line.startswith(("#", "--only-binary")):
            [requirement, *hashes] = line.split()
            name, _, version = requirement.partition("==")
            found[canonicalize_name(name)] = (version, hashes)
    return found


def closure(wanted: list[Requirement]) -> set[str]:
    """What these need, and what those need in turn, as the installed packages say."""
    found: dict[str, set[str]] = {}
    waiting = list(wanted)
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        fresh = {"", *one.extras} - found.setdefault(name, set())
        found[name] |= fresh
        for line in distribution(name).requires or []:
            needed = Requirement(line)
            if any(needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in fresh):
                waiting.append(needed)
    return set(found)


def test_the_image_gets_what_the_project_needs_to_run_and_nothing_else():
    names = set(locked(LOCKS[0]))
    assert names == closure(RUNTIME), "run: make lock"
    assert {"cramjam", "lz4", "zstandard"} <= names, "the codecs of Kafka's extras"
    [build] = PROJECT["build-system"]["requires"]
    [(name, (version, _))] = locked(LOCKS[1]).items()
    assert f"{name}=={version}" == build


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_package_of_the_image_has_a_hash(path):
    assert "--only-binary :all:" in path.read_text().splitlines(), "a source archive would run its own code to install"
    for name, (version, hashes) in locked(path).items():
        assert version, name
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), name


def test_the_image_has_the_versions_that_are_tested():
    tested = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    tested = {canonicalize_name(name): version for name, version in tested.items()}
    for name, (version, _) in locked(LOCKS[0]).items():
        assert version == tested[name], f"{name}: run make lock"


@pytest.mark.parametrize("path", [*LOCKS, ROOT / "constraints.txt"], ids=lambda path: path.name)
def test_a_lock_names_no_index(path):
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host", path.read_text())


def test_the_dockerfile_installs_nothing_without_a_hash():
    commands = [command for word, text in STEPS if word == "RUN" for command in text.split(" && ")]
    installs = [each for each in commands if re.search(r"\bpip\b.* (install|wheel) ", each)]
    assert len(installs) == 4
    for each in installs:
        assert "--require-hashes" in each or {"--no-index", "--no-deps"} <= set(each.split()), each
    assert not any(re.search(r"\bpip\b.* install ", stage) for stage in STAGES[2:])


# The real thing: some 200 MB from the package index.


def run(command: list[str], **settings) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, **settings)


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Iterator[Path]:
    """The image's environment, made by the steps of the Dockerfile's build stage, but for where things are."""
    folder = tmp_path_factory.mktemp("image")
    source, environment, base = folder / "source", folder / "opt", folder / "base"
    source.mkdir()
    run([sys.executable, "-m", "venv", str(base)])
    settings = {**os.environ, "PATH": f"{base / 'bin'}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    settings.pop("PYTHONPATH", None)
    probe = ["pip", "download", "--require-hashes", "-r", str(LOCKS[1]), "--dest", str(folder)]
    reached = run(probe, cwd=folder, env=settings)
    if reached.returncode != 0:
        pytest.skip(f"NOT TESTED: no package index can be reached: {reached.stderr.strip().splitlines()[-1]}")
    for word, text in STEPS:
        if word == "COPY":
            *names, _ = text.split()
            for name in names:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, source)
        else:
            done = run(["sh", "-c", text.replace("/opt/streamdp", str(environment))], cwd=source, env=settings)
            assert done.returncode == 0, done.stdout + done.stderr
    yield environment
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("image")
def test_the_dockerfiles_steps_make_an_environment_that_runs(image):
    done = run([str(image / "bin" / "streamdp"), "--version"], cwd=image)
    assert (done.returncode, done.stdout.split()[-1]) == (0, __version__), done.stderr
    listed = run([sys.executable, "-m", "pip", "--python", str(image), "list", "--format=json"])
    installed = {canonicalize_name(each["name"]): each["version"] for each in json.loads(listed.stdout)}
    expected = {name: version for name, (version, _) in locked(LOCKS[0]).items()}
    assert installed == {**expected, "streamdp": __version__}
    checked = run([sys.executable, "-m", "pip", "--python", str(image), "check"])
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("image")
def test_the_sbom_lists_every_package_of_the_image(image, tmp_path):
    """`make sbom` has its tool validate the file against the schema of CycloneDX."""
    (image / ".installed").touch()
    path = tmp_path / "streamdp.cdx.json"
    done = run(["make", "-C", str(ROOT), "sbom", f"IMAGE_VENV={image}", f"SBOM={path}", f"PYTHON={sys.executable}"])
    assert done.returncode == 0, done.stdout + done.stderr
    bom = json.loads(path.read_text())
    assert (bom["bomFormat"], bom["metadata"]["component"]["name"]) == ("CycloneDX", "streamdp")
    assert bom["metadata"]["component"]["version"] == __version__
    listed = {canonicalize_name(each["name"]): each for each in bom["components"]}
    for name, (version, _) in locked(LOCKS[0]).items():
        assert listed[name]["version"] == version
        assert listed[name]["purl"] == f"pkg:pypi/{name}@{version}"
    assert set(listed) <= {*locked(LOCKS[0]), "streamdp"}


def test_git_ignores_what_make_sbom_makes():
    makefile, ignored = (ROOT / "Makefile").read_text(), (ROOT / ".gitignore").read_text().splitlines()
    for made in (*re.findall(r"^(?:SBOM|IMAGE_VENV) := (\S+)$", makefile, re.MULTILINE), ".sbom-venv"):
        assert made.split("/")[0] + "/" in ignored
