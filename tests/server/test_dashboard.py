"""The Grafana dashboard: every series that it draws is one that the server has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from server_harness import InProcess

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
EXPRESSIONS = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_it_draws_is_there(served: InProcess, expression: str) -> None:
    served.assert_alive()  # so that responses and answers have been counted
    (name,) = re.findall(r"octavo_\w+", expression)
    series = {line.partition("{")[0].partition(" ")[0]: line for line in served.get("/metrics").text.splitlines()}
    assert name in series
    for label in re.findall(r"by \(([\w, ]+)\)", expression):
        assert all(f'{each.strip()}="' in series[name] for each in label.split(","))
