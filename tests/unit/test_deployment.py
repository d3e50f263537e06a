"""What runs it: chart, unit, alerts and dashboard name what exists, and keep what the server asks of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import jsonschema
import kubernetes_validate  # pyright: ignore[reportMissingTypeStubs]
import promql_parser
import pytest
import yaml

from proxy.config import PREFIX, Settings
from proxy.telemetry import Metrics
from tests.charts import render

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "systemd" / "unabridged.service").read_text(encoding="utf-8")
RULES = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "unabridged.json").read_text(encoding="utf-8"))
DRAIN: float = Settings.model_fields["drain_timeout"].default
VARIABLES = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
GIVEN = {"secret": "s", "adminToken": "t", "store": "redis+cluster://valkey:6379"}

Resource = dict[str, Any]


def resources(**values: Any) -> dict[str, Resource]:
    """The chart's resources by their kind."""
    return {each["kind"]: each for each in render(CHART, "ours", **(GIVEN | values))}


def pod(**values: Any) -> Resource:
    return cast("Resource", resources(**values)["Deployment"]["spec"]["template"]["spec"])


def container(**values: Any) -> Resource:
    return cast("Resource", pod(**values)["containers"][0])


def environment(**values: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(**values)["env"]}


# --- the chart ---

EVERYTHING: Resource = {
    "autoscaling": {"enabled": True},
    "policies": {"mine.toml": 'extends = "default"\n'},
    "settings": {"UNABRIDGED_BODY_MEMORY": "1GiB", "UNABRIDGED_LOG_CONTENT": False},
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it is", "with everything"])
@pytest.mark.parametrize("version", ["1.27.0", kubernetes_validate.latest_version()])
def test_every_resource_is_one_that_kubernetes_takes(values: Resource, version: str) -> None:
    made = resources(**values)
    assert len(made) == (6 if values else 4)
    for resource in made.values():
        kubernetes_validate.validate(resource, version, strict=True)


def test_its_values_are_those_that_its_schema_allows() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(values) == set(schema["properties"]) - {"global"}
    jsonschema.validate(values | GIVEN | EVERYTHING, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"store": "memory://"}, schema)


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
    assert made["ConfigMap"]["data"] == EVERYTHING["policies"]
    (mount,) = [each for each in container(**EVERYTHING)["volumeMounts"] if each["name"] == "policies"]
    assert environment(**EVERYTHING)["UNABRIDGED_POLICIES"] == mount["mountPath"]


# --- the unit ---


def test_the_unit_drains_and_names_settings_alone() -> None:
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(stop) > DRAIN
    assert set(re.findall(rf"{PREFIX}[A-Z_]+", UNIT)) <= VARIABLES
    credentials = dict(re.findall(r"^LoadCredential=([a-z-]+):(\S+)$", UNIT, re.MULTILINE))
    files = re.findall(rf"^Environment={PREFIX}\w+_FILE=%d/(\S+)$", UNIT, re.MULTILINE)
    assert sorted(credentials) == sorted(files) == ["admin-token", "secret", "store"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd is installed")
def test_systemd_takes_the_unit_and_finds_it_well_confined(tmp_path: Path) -> None:
    program = shutil.which("true")
    unit = tmp_path / "unabridged.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={program}", UNIT, flags=re.MULTILINE))
    for check in (["verify", "--man=no"], ["security", "--offline=yes", "--threshold=20"]):
        done = subprocess.run(
            ["systemd-analyze", *check, str(unit)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


# --- alerts and dashboard ---


def metrics() -> dict[str, set[str]]:
    """Every name under which a metric is scraped, and its labels."""
    found: dict[str, set[str]] = {"up": set()}
    measured = Metrics()
    labels = {
        str(each._name): set(cast("tuple[str, ...]", each._labelnames))
        for each in vars(measured).values()
        if hasattr(each, "_labelnames")
    }
    for family in measured.registry.collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        own = labels.get(family.name, set[str]()) | ({"le"} if family.type == "histogram" else set[str]())
        found |= {family.name + end: own for end in ends}
    return found


def expressions() -> dict[str, str]:
    alerts = {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }
    return alerts | panels


@pytest.mark.parametrize("named", expressions())
def test_an_expression_is_promql_over_metrics_and_labels_that_exist(named: str) -> None:
    expression = expressions()[named].replace("$__rate_interval", "5m")
    promql_parser.parse(expression)
    known = metrics()
    selectors = re.findall(r"\b((?:unabridged|process)_\w+|up)\b(?:\{([^}]*)\})?", expression)
    assert selectors
    for name, matchers in selectors:
        labels = set(re.findall(r"(\w+)=~?\"", matchers))
        assert labels <= known[name] | {"job", "instance"}, name
    grouped = {
        label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")
    }
    assert grouped <= {label for name, _ in selectors for label in known[name]} | {"job", "instance"}


def test_each_of_our_metrics_has_its_panel() -> None:
    shown = " ".join(expressions().values())
    families = {
        family.name for family in Metrics().registry.collect() if family.name.startswith(PREFIX.lower())
    }
    assert {name for name in families if name not in shown} == set()


def test_panels_have_ids_of_their_own_and_do_not_cover_each_other() -> None:
    panels: list[Resource] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place: dict[str, int] = panel["gridPos"]
        columns, lines = (
            range(place["x"], place["x"] + place["w"]),
            range(place["y"], place["y"] + place["h"]),
        )
        cells = {(x, y) for x in columns for y in lines}
        assert max(columns) < 24
        assert not cells & taken
        taken |= cells


def test_every_alert_says_what_happens_and_how_bad_it_is() -> None:
    for rule in (rule for group in RULES["groups"] for rule in group["rules"]):
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert set(re.findall(rf"{PREFIX}[A-Z_]+", rule["annotations"]["description"])) <= VARIABLES


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool is installed")
@pytest.mark.parametrize("check", [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]])
def test_prometheus_takes_the_alerts_and_they_ring_when_they_should(check: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *check], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
