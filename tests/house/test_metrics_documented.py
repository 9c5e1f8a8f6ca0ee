"""docs/operations.md tells of the metrics that there are, and alerts on no others."""

import re
from functools import cache

import yaml
from prometheus_client import Counter, Gauge, Histogram

from app.metrics import Metrics
from tests.house.test_code_rules import ROOT

ROW = re.compile(r"^\| `(amends_\w+)` \| (\w+) \|([^|]*)\| ([^|]*) \|$", re.MULTILINE)
NAME = re.compile(r"\bamends_[a-z_]+")
RULES = re.compile(r"^```yaml\n(groups:.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def text() -> str:
    """The page."""
    return (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def instruments() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Type and labels of every metric of ours, by the name under which it is scraped."""
    metrics = Metrics(version="1")
    made = [
        each for each in vars(metrics).values() if isinstance(each, Counter | Gauge | Histogram)
    ]
    found = {
        f"{each._name}_total" if each._type == "counter" else each._name: (
            each._type,
            tuple(each._labelnames),
        )
        for each in made
    }
    return {**found, "amends_build_info": ("gauge", ("version", "python"))}


def test_nothing_is_scraped_that_is_no_instrument() -> None:
    """What the tests of this file compare with is all that there is."""
    scraped = {metric.name for metric in Metrics(version="1").registry.collect()}

    ours = {name for name in scraped if name.startswith("amends_")}
    assert {f.removesuffix("_total").removesuffix("_info") for f in instruments()} == ours


def test_the_table_lists_every_metric() -> None:
    """Every metric is listed with its type and its labels, and no other is."""
    listed = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in ROW.findall(text())
    }

    assert instruments() == listed


def test_alerts_ask_for_metrics_that_there_are() -> None:
    """The rules are YAML, and every metric in them is scraped under that name."""
    rules = RULES.search(text())
    assert rules is not None
    expressions = [
        rule["expr"] for group in yaml.safe_load(rules[1])["groups"] for rule in group["rules"]
    ]
    scraped = set(instruments())
    for name, (kind, _) in instruments().items():
        if kind == "histogram":
            scraped |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}

    asked = {name for expression in expressions for name in NAME.findall(expression)}

    assert asked <= scraped
    assert len(expressions) > 5


def test_the_survey_is_told_apart() -> None:
    """Those gauges that all replicas tell alike are marked so, here and in what is scraped."""
    metrics = Metrics(version="1").registry.collect()
    told = {each.name for each in metrics if each.documentation.startswith("Survey")}

    marked = {name for name, _, _, meaning in ROW.findall(text()) if meaning.startswith("Survey")}

    assert told == marked
