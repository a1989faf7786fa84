"""The report in a real headless browser, opened from disk."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from paperworks.core import plotting, report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = pytest.mark.skipif(BROWSER is None, reason="neither chromium nor google-chrome is installed")
playwright = pytest.importorskip("playwright.sync_api")

WORDS = ("holds", "partly", "fails", "reported", "out of reach", "unavailable", "error")


def curve(table: pd.DataFrame) -> Figure:
    figure, ax = plotting.figure("Efficiency against alpha", xlabel="alpha", ylabel="efficiency (share of optimum)")
    for size, rows in table.groupby("param.agents"):
        ax.plot(rows["param.alpha"], rows["value.efficiency"], marker="o", label=f"{size} agents")
    ax.legend()
    return figure


def broken(table: pd.DataFrame) -> Figure:
    raise RuntimeError("no such column")


def table(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    alpha = np.tile(np.geomspace(0.01, 1, rows // 2), 2)
    agents = np.repeat([2, 50], rows // 2)
    return pd.DataFrame(
        {
            "param.family": "log and piecewise-linear valuations",
            "param.agents": agents,
            "param.alpha": alpha,
            "param.seed": np.arange(rows),
            "value.efficiency": 1 - 0.2 * np.sqrt(alpha) + 0.01 * rng.standard_normal(rows),
            "value.regret": 10.0 ** rng.uniform(-14, -9, rows),
            "value.converged": rng.random(rows) > 0.1,
            "run.trial": np.arange(rows),
            "run.status": "ok",
            "run.error": "",
            "run.seconds": rng.exponential(0.1, rows),
            "run.memory_mb": 180 + rng.exponential(5, rows),
            "run.threads": 1,
        }
    )


def claim(number: int, word: str, scale: str) -> dict[str, Any]:
    names = ("efficiency", "exists-unique", "revenue-against-vcg", "liquid", "public-budgets", "simple", "speed")
    headline = [
        {"name": "smallest efficiency", "value": 0.75012345, "low": 0.7412, "high": 0.7633, "unit": ""},
        {"name": "time for 10 000 agents", "value": 0.0112, "low": None, "high": None, "unit": "s"},
        {"name": "largest regret relative to the price", "value": 3.21e-11, "low": None, "high": 1e-8, "unit": ""},
    ]
    return {
        "id": names[number],
        "says": "At equilibrium the welfare is at least (1+2√α)/(1+√α)² of the optimum, strictly more than Kelly’s for "
        "every α below one, whatever the concave valuations.",
        "rule": "The worst-case instance reaches the bound to 1e-9; no random case is below it by more than 1e-9.",
        "source": "ours" if number > 4 else "paper",
        "experiments": ["sweep"] if number != 3 else ["sweep", "failures"],
        "verdict": word,
        "headline": headline[: 1 + number % 3] if word not in ("unavailable", "out of reach") else [],
        "sentence": "The smallest efficiency over 600 instances is 0.7501, above the bound of 0.75.",
        "trials": {"done": 40, "error": int(word == "error"), "total": 41},
        "plot": {0: "curve", 1: "broken"}.get(number),
        "command": f"paperworks check sample_a --claim {names[number]} --scale {scale}",
        "seconds": 1.23 + number,
        "versions": {"python": "3.11.7", "numpy": "2.4.6", "scipy": "1.16.3"},
    }


def sample(out: Path) -> Path:
    """Build the report of two systems, one of them at both scales, with every verdict word."""
    for slug, scale in (("sample_a", "quick"), ("sample_a", "full"), ("sample_b", "quick")):
        words = WORDS if scale == "quick" else ("holds",) * 5
        document = {
            "schema": 1,
            "version": "0.1.0",
            "scale": scale,
            "slug": slug,
            "title": "A Unified Framework for Uniform-Price Resource Allocation Mechanisms",
            "name": "Splits one divisible resource among self-interested teams by one number each, at one price.",
            "field": "mechanism design",
            "reference": "A. Author, B. Author, 2026. A Unified Framework for Uniform-Price Resource Allocation "
            "Mechanisms. arXiv:2606.06151",
            "seconds": 12.34,
            "claims": [claim(number, word, scale) for number, word in enumerate(words)],
        }
        path = out / "verdicts" / scale / f"{slug}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document), encoding="utf-8")
        results = out / "results" / scale / slug
        results.mkdir(parents=True)
        table(240 if scale == "full" else 24).to_parquet(results / "sweep.parquet")
        failures = table(6).assign(**{"run.status": ["ok"] * 5 + ["error"]})
        failures.loc[5, "run.error"] = (
            'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: ' + "x" * 300
        )
        if scale == "quick":
            failures.to_parquet(results / "failures.parquet")
    return report.build(out)


@dataclass
class Site:
    """An open browser page, and all that went wrong on it or left the machine."""

    index: Path
    page: Any
    trouble: list[str] = field(default_factory=list)

    def open(self, name: str = "index.html", *, width: int = 1200, scheme: str = "light") -> Any:
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme=scheme)
        self.page.goto(self.index.with_name(name).as_uri())
        return self.page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    plots = ModuleType("paperworks.sample_a.plots")
    plots.curve, plots.broken = curve, broken  # type: ignore[attr-defined]
    packages = {name: ModuleType(name) for name in ("paperworks.sample_a", "paperworks.sample_b")}
    sys.modules |= {**packages, plots.__name__: plots, "paperworks.sample_b.plots": plots}
    index = sample(tmp_path_factory.mktemp("out"))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=ARGS)
        page = browser.new_page()
        found = Site(index, page)
        page.on("console", lambda message: found.trouble.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: found.trouble.append(str(error)))
        page.on(
            "request",
            lambda request: found.trouble.append(request.url) if request.url[:5] not in ("file:", "data:") else None,
        )
        yield found
        browser.close()
    for name in (*packages, plots.__name__, "paperworks.sample_b.plots"):
        del sys.modules[name]


PAGES = ("index.html", "sample_a.html", "sample_b.html")


def contrast(site: Site, selector: str) -> float:
    """Return the smallest contrast of the elements that a selector finds against what is behind them."""
    colours = site.page.eval_on_selector_all(
        selector,
        """elements => elements.map(element => {
            let behind = element;
            while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            return [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor];
        })""",
    )
    assert colours, selector

    def luminance(colour: str) -> float:
        channels = np.array([int(c) for c in re.findall(r"\d+", colour)[:3]]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    pairs = [sorted(map(luminance, pair)) for pair in colours]
    return min((light + 0.05) / (dark + 0.05) for dark, light in pairs)


@pytest.mark.parametrize("name", PAGES)
def test_page_is_quiet_and_its_pictures_load(site: Site, name: str) -> None:
    site.trouble.clear()
    page = site.open(name)
    widths = page.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
    assert all(width > 0 for width in widths)
    assert bool(widths) == (name != "index.html")
    assert site.trouble == []


def test_every_link_resolves(site: Site) -> None:
    seen: set[str] = set()
    left = [site.index.as_uri()]
    while left:
        url = left.pop()
        path, _, anchor = url.partition("#")
        if path not in seen:
            assert site.page.goto(path).ok
            ids = site.page.eval_on_selector_all("[id]", "elements => elements.map(element => element.id)")
            assert len(ids) == len(set(ids))
            seen |= {path, *(f"{path}#{name}" for name in ids)}
            left += site.page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
        assert not anchor or url in seen
    assert {Path(url).name for url in seen if "#" not in url} == set(PAGES)


@pytest.mark.parametrize("name", PAGES[:2])
def test_dark_and_light_are_both_readable(site: Site, name: str) -> None:
    behind = {}
    for scheme in ("light", "dark"):
        page = site.open(name, scheme=scheme)
        behind[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for selector in ("p", "a", "dt", "dd", "th", "td", "h1, h2, h3", "footer", ".badge, .chip"):
            assert contrast(site, selector) >= 4.5, (scheme, selector)
    assert behind["light"] != behind["dark"]


@pytest.mark.parametrize("name", PAGES)
def test_narrow_screen_has_no_sideways_scroll(site: Site, name: str) -> None:
    page = site.open(name, width=400)
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_keyboard_reaches_the_skip_link_first_and_then_everything(site: Site) -> None:
    page = site.open("sample_a.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (page.evaluate("document.activeElement.tagName"), outline) == ("A", "solid")


def test_a_folded_table_opens_from_the_keyboard(site: Site) -> None:
    page = site.open("sample_a.html")
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").first.evaluate("one => one.open")
    assert page.locator("details").first.locator("td").first.is_visible()


def test_headings_go_down_one_level_at_a_time(site: Site) -> None:
    for name in PAGES:
        page = site.open(name)
        levels = page.eval_on_selector_all("h1,h2,h3,h4,h5,h6", "all => all.map(one => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
