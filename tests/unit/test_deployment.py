"""What runs it: unit, alerts and dashboard name what exists, and keep what the server asks of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import promql_parser
import pytest
import yaml

from proxy.config import Settings
from proxy.environment import PREFIX
from proxy.telemetry import Metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "systemd" / "unabridged.service").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
RULES = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "unabridged.json").read_text(encoding="utf-8"))
DRAIN: float = Settings.model_fields["drain_timeout"].default
VARIABLES = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}

Resource = dict[str, Any]


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


def test_alerts_match_values_of_labels_that_the_metrics_table_names() -> None:
    rows = re.findall(r"^\| `(unabridged_\w+)` \| (.*) \|$", OPERATIONS, re.MULTILINE)
    said = {name: set(re.findall(r"`(\w+)`", text)) for name, text in rows}
    for rule in (rule for group in RULES["groups"] for rule in group["rules"]):
        for name, matchers in re.findall(r"\b(unabridged_\w+?)(?:_bucket)?\{([^}]*)\}", rule["expr"]):
            matched = re.findall(r'(\w+)=~?"([^"]*)"', matchers)
            values = {value for label, words in matched if label != "job" for value in words.split("|")}
            assert {value for value in values if value.isidentifier()} <= said[name], name


def test_the_alert_of_summaries_counts_every_reason_for_which_one_is_not_written() -> None:
    (row,) = re.findall(r"^\| `unabridged_summaries_total` .*$", OPERATIONS, re.MULTILINE)
    reasons = row.partition("why others were not:")[2].partition("`not_compacted`")[0]
    alerts = {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}
    failed, tried = (
        set(words.split("|")) for words in re.findall(r'result=~"(.*)"', alerts["UnabridgedSummariesFail"])
    )
    assert failed == {*re.findall(r"`(\w+)`", reasons)} - {"interrupted"}  # that one is tried again
    assert tried == failed | {"written", "rebuilt"}


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
