"""What is shipped: the wheel, the locks, the image and its composition agree with each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from tests.support.clients import Chat
from tests.support.processes import serving
from tests.support.upstreams import Model, running

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
INSTALLED = (sys.executable, "-S", "-P", "-m", "proxy")
"""The program without the checkout: neither its editable installation nor the current directory counts."""
NPM_LOCKS = [ROOT / "tests" / place / "package-lock.json" for place in ("clients/node", "conformance")]


def service(name: str) -> dict[str, Any]:
    """One service of the composition."""
    composition = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
    return cast("dict[str, Any]", composition["services"][name])


def test_the_wheel_carries_every_preset(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    shipped = set(zipfile.ZipFile(wheel).namelist())
    presets = {f"proxy/policies/{preset.name}" for preset in (ROOT / "policies").glob("*.toml")}
    assert presets
    assert presets <= shipped


def test_the_wheel_carries_the_whole_package_and_no_tests(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "proxy").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert package <= shipped
    assert {Path(name).parts[0] for name in shipped} == {"proxy"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where a wheel is unpacked away from the checkout, as the path of a Python without site packages."""
    directory = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"])
    zipfile.ZipFile(wheel).extractall(directory / "lib")
    return {"PYTHONPATH": os.pathsep.join([str(directory / "lib"), sysconfig.get_path("purelib")])}


def test_an_installed_wheel_has_its_presets_and_needs_no_checkout(
    installed: dict[str, str], tmp_path: Path
) -> None:
    where = "import proxy, pathlib; print(pathlib.Path(proxy.__file__).parent)"
    program = [*INSTALLED[:-2], "-c", where]
    told = subprocess.run(program, env=installed, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not Path(told.stdout.strip()).is_relative_to(ROOT)
    checked = subprocess.run(
        [*INSTALLED, "check", "agent", "--json"], env=installed, cwd=tmp_path, capture_output=True, check=True
    )
    assert json.loads(checked.stdout)["counts"] == {"units": 20}


async def test_an_installed_wheel_serves_and_counts_tokens(installed: dict[str, str], tmp_path: Path) -> None:
    async with running(Model()) as model:
        upstream, path = f"{model.url}/v1", installed["PYTHONPATH"]
        async with serving(tmp_path, "--upstream", upstream, program=INSTALLED, PYTHONPATH=path) as served:
            chat = Chat(served.url)
            async with chat.client:
                answer = await chat.ask("Hello?")
    assert answer.status_code == 200
    assert re.match(r"sent=\d+;", answer.headers["x-unabridged-tokens"])


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_hashes_every_requirement_and_names_no_host(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    requirements = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert requirements
    assert [r.splitlines()[0] for r in requirements if "==" not in r or "--hash=sha256:" not in r] == []
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host", text)


@pytest.mark.parametrize("lock", NPM_LOCKS, ids=lambda lock: lock.parent.name)
def test_an_npm_lock_hashes_every_package_and_names_no_registry(lock: Path) -> None:
    packages = cast("dict[str, dict[str, Any]]", json.loads(lock.read_text(encoding="utf-8"))["packages"])
    installed = {name: package for name, package in packages.items() if name}
    assert installed
    assert [name for name, package in installed.items() if "integrity" not in package] == []
    assert [name for name, package in installed.items() if "resolved" in package] == []


def test_the_image_serves_exposes_and_probes_one_port() -> None:
    assert re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE) == ["8080"]
    assert '"--port", "8080"' in DOCKERFILE
    assert "http://127.0.0.1:8080/readyz" in DOCKERFILE
    assert service("proxy")["ports"] == ["127.0.0.1:8080:8080"]


def test_the_image_does_not_run_as_root() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0
    assert f"useradd --uid {user} " in DOCKERFILE


@pytest.mark.parametrize("secret", ["UNABRIDGED_SECRET", "UNABRIDGED_ADMIN_TOKEN"])
def test_the_composition_does_not_start_without_its_secrets(secret: str) -> None:
    assert service("proxy")["environment"][secret].startswith(f"${{{secret}:?")


def test_the_composed_store_persists_and_is_reached_by_the_proxy_alone() -> None:
    valkey = service("valkey")
    assert "ports" not in valkey
    assert valkey["networks"] == ["store"]
    assert valkey["volumes"] == ["valkey-data:/data"]
    assert valkey["command"][1:3] == ["--appendonly", "yes"]
    assert service("proxy")["environment"]["UNABRIDGED_STORE"].startswith("redis://valkey:")


# --- the workflow ---


def test_the_workflow_checks_every_python_that_the_package_names() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert workflow["jobs"]["check"]["strategy"]["matrix"]["python"] == named


def test_the_workflow_names_versions_of_actions_and_no_secret() -> None:
    text = (ROOT / ".github" / "workflows" / "check.yaml").read_text(encoding="utf-8")
    assert all(re.search(r"@v\d", action) for action in re.findall(r"uses: (\S+)", text))
    assert "secrets." not in text
