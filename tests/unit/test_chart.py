"""The Helm chart: what it renders to is what Kubernetes takes, and keeps what the server asks of it.

It is rendered without Helm: below stands as much of its language as our templates speak, and no more.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import jsonschema
import kubernetes_validate  # pyright: ignore[reportMissingTypeStubs]
import pytest
import yaml

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import load_settings
from proxy.config import Settings
from proxy.environment import PREFIX

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
DRAIN: float = Settings.model_fields["drain_timeout"].default
VARIABLES = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
GIVEN = {"secret": "0123456789abcdef", "adminToken": "t", "store": "redis+cluster://valkey:6379"}

Resource = dict[str, Any]


def resources(**values: Any) -> dict[str, Resource]:
    """The chart's resources by their kind; config maps by their name too."""
    made = render(CHART, "ours", **(GIVEN | values))
    names = [(each["kind"], each["metadata"]["name"].removeprefix("ours")) for each in made]
    return {kind + name: each for (kind, name), each in zip(names, made, strict=True)}


def pod(**values: Any) -> Resource:
    return cast("Resource", resources(**values)["Deployment"]["spec"]["template"]["spec"])


def container(**values: Any) -> Resource:
    return cast("Resource", pod(**values)["containers"][0])


def environment(**values: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(**values)["env"]}


EVERYTHING: Resource = {
    "autoscaling": {"enabled": True},
    "policies": {"mine.toml": 'extends = "default"\n'},
    "config": 'log_level = "debug"\n\n[[use]]\nclient = "Qwen\\u0043ode/*"\npolicy = "mine"\n',
    "settings": {"UNABRIDGED_BODY_MEMORY": "1GiB", "UNABRIDGED_LOG_CONTENT": False},
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it is", "with everything"])
@pytest.mark.parametrize("version", ["1.27.0", kubernetes_validate.latest_version()])
def test_every_resource_is_one_that_kubernetes_takes(values: Resource, version: str) -> None:
    made = resources(**values)
    assert len(made) == (7 if values else 4)
    for resource in made.values():
        kubernetes_validate.validate(resource, version, strict=True)


def test_its_values_are_those_that_its_schema_allows() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(values) == set(schema["properties"]) - {"global"}
    jsonschema.validate(values | GIVEN | EVERYTHING, schema)
    wrong_values = (
        {"store": "memory://"},
        {"secret": "too-short"},
        {"config": 3},
        {"settings": {"UNABRIDGED_PORT": "9000"}},
        {"terminationGracePeriodSeconds": "40s"},
    )
    for wrong in wrong_values:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(values | wrong, schema)


def test_settings_are_those_that_nothing_else_in_the_chart_or_the_image_decides() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    names = jsonschema.Draft7Validator(schema["properties"]["settings"]["propertyNames"])
    set_here = set(environment(**EVERYTHING)) - set(EVERYTHING["settings"])
    entrypoint = json.loads(DOCKERFILE.rpartition("ENTRYPOINT")[2])
    flags = {each for each in [*entrypoint, *container(**EVERYTHING)["args"]] if each.startswith("--")}
    decided = (
        set_here
        | {name.removesuffix("_FILE") for name in set_here}
        | {PREFIX + flag.removeprefix("--").upper() for flag in flags}
    )
    assert decided < VARIABLES
    assert {name for name in VARIABLES if not names.is_valid(name)} == decided  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("missing", GIVEN)
def test_it_does_not_install_without_its_secrets(missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        resources(**{missing: ""})
    made = resources(**dict.fromkeys(GIVEN, ""), existingSecret="theirs")
    assert "Secret" not in made
    volumes = made["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["secret"]["secretName"] == "theirs"


def test_secrets_are_files_and_no_variables() -> None:
    keys = set(resources()["Secret"]["stringData"])
    (mount,) = [each for each in container()["volumeMounts"] if each["name"] == "secrets"]
    files = {name: value for name, value in environment().items() if name.endswith("_FILE")}
    assert {Path(file).parent for file in files.values()} == {Path(mount["mountPath"])}
    assert {Path(file).name for file in files.values()} == keys
    assert not set(GIVEN.values()) & set(environment().values())


def test_its_variables_are_settings_and_no_service_sets_another() -> None:
    assert set(environment(**EVERYTHING)) <= VARIABLES
    assert environment(**EVERYTHING)["UNABRIDGED_LOG_CONTENT"] == "false"
    assert pod()["enableServiceLinks"] is False  # one named unabridged would set UNABRIDGED_PORT


def test_port_probes_and_user_are_those_of_the_image() -> None:
    (exposed,) = re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE)
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    proxy = container()
    assert proxy["ports"] == [{"name": "http", "containerPort": int(exposed)}]
    paths = {name: proxy[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert {proxy[f"{name}Probe"]["httpGet"]["port"] for name in paths} == {"http"}
    assert resources()["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert pod()["securityContext"]["runAsUser"] == int(user)


def test_replicas_replace_each_other_without_cutting_a_stream_off() -> None:
    spec = resources()["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert pod()["terminationGracePeriodSeconds"] > DRAIN
    assert pod(terminationGracePeriodSeconds=310)["terminationGracePeriodSeconds"] == 310
    assert spec["replicas"] > resources()["PodDisruptionBudget"]["spec"]["maxUnavailable"]
    labels = spec["template"]["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert resources()[kind]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert resources()["Service"]["spec"]["selector"].items() <= labels.items()


def test_what_scales_replicas_is_alone_in_setting_their_number() -> None:
    made = resources(autoscaling={"enabled": True})
    assert "replicas" not in made["Deployment"]["spec"]
    assert made["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "ours"


def test_policies_of_the_values_stand_where_the_server_looks_for_them() -> None:
    made = resources(**EVERYTHING)
    assert made["ConfigMap-policies"]["data"] == EVERYTHING["policies"]
    assert environment(**EVERYTHING)["UNABRIDGED_POLICIES"] == mounted("policies")


def mounted(name: str) -> str:
    """Where the files of one of our config maps stand."""
    (volume,) = [each for each in pod(**EVERYTHING)["volumes"] if each["name"] == name]
    assert volume["configMap"]["name"] == f"ours-{name}"
    (mount,) = [each for each in container(**EVERYTHING)["volumeMounts"] if each["name"] == name]
    assert mount["readOnly"]
    assert "subPath" not in mount  # no edit would ever come there
    return mount["mountPath"]


def test_the_settings_file_of_the_values_is_the_one_that_the_server_is_told_of(tmp_path: Path) -> None:
    ((name, text),) = resources(**EVERYTHING)["ConfigMap-config"]["data"].items()
    assert container(**EVERYTHING)["args"] == ["--config", f"{mounted('config')}/{name}"]
    assert "args" not in container()
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(EVERYTHING["policies"]["mine.toml"], encoding="utf-8")
    settings, written = load_settings(config=file)
    assert written is not None
    written.check(PolicyLibrary(tmp_path))
    assert settings.log_level == "debug"
    assert [(rule.client, rule.policy) for rule in written.rules] == [("QwenCode/*", "mine")]


# --- the chart's language ---

Scope = Mapping[str, Any]

_ACTION = re.compile(r"\{\{-? *(.*?) *\}\}")
_LINE = re.compile(r"^ *\{\{- (if|range|end)\b *(.*?) *\}\} *$")


def render(chart: Path, release: str, **values: Any) -> list[dict[str, Any]]:
    """The chart's resources, with these values over its own."""
    own = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    scope = {"Release": {"Name": release}, "Values": _over(own, values)}
    made: list[dict[str, Any]] = []
    for template in sorted((chart / "templates").glob("*.yaml")):
        text = "\n".join(_lines(iter(template.read_text(encoding="utf-8").splitlines()), scope))
        resource = yaml.safe_load(text)
        if resource is not None:
            made.append(cast("dict[str, Any]", resource))
    return made


def _over(own: Any, other: Any) -> Any:
    if not (isinstance(own, dict) and isinstance(other, dict)):
        return other
    mine, theirs = cast("dict[str, Any]", own), cast("dict[str, Any]", other)
    return mine | {name: _over(mine.get(name), value) for name, value in theirs.items()}


def _lines(template: Iterator[str], scope: Scope) -> Iterator[str]:
    """The lines up to the end of the block that has begun."""
    for line in template:
        block = _LINE.match(line)
        if block is None:
            yield _ACTION.sub(lambda action: _value(action[1], scope), line)
            continue
        kind, condition = block.groups()
        if kind == "end":
            return
        inner = list(_block(template))
        if kind == "if":
            if _holds(condition, scope):
                yield from _lines(iter(inner), scope)
            continue
        name, value, source = re.fullmatch(r"(\$\w+), (\$\w+) := (\S+)", condition, re.ASCII).groups()  # pyright: ignore[reportOptionalMemberAccess]
        for each in sorted(_look_up(source, scope).items()):
            yield from _lines(iter(inner), {**scope, **dict(zip((name, value), each, strict=True))})


def _block(template: Iterator[str]) -> Iterator[str]:
    depth = 1
    for line in template:
        block = _LINE.match(line)
        if block:
            depth += -1 if block[1] == "end" else 1
        if depth == 0:
            return
        yield line


def _holds(condition: str, scope: Scope) -> bool:
    wanted = condition.removeprefix("not ")
    return bool(_look_up(wanted, scope)) is (wanted == condition)


def _look_up(name: str, scope: Scope) -> Any:
    if name.startswith("$"):
        return scope[name]
    value: Any = scope
    for part in name.removeprefix(".").split("."):
        value = value[part]  # a name that the values do not have is a mistake of the template
    return value


def _value(action: str, scope: Scope) -> str:
    first, *filters = re.split(r" \| ", action)
    words = re.findall(r'"[^"]*"|\S+', first)
    value = _look_up(words[-1], scope)
    if words[0] == "required" and not value:
        raise ValueError(words[1])
    if words[0] == "toYaml":
        value = yaml.safe_dump(value).rstrip()
    for each in filters:
        value = _filtered(each, value, scope)
    return str(value)


def _filtered(name: str, value: Any, scope: Scope) -> Any:
    match name.split():
        case ["quote"]:
            return json.dumps(value if isinstance(value, str) else json.dumps(value))
        case ["nindent", width]:
            return "\n" + textwrap.indent(value, " " * int(width))
        case ["default", other]:
            return value or _look_up(other, scope)
        case _:
            raise ValueError(name)
