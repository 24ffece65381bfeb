"""Reports: complete, self-contained, escaped, and the same bytes for the same run."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from jinja2 import Environment, meta
from markupsafe import escape

import hearsay as hs
from hearsay import report
from hearsay.algorithms.theory.findings import Finding
from hearsay.privacy.certificate import FLOATING, NOT_COVERED, AgentBudget, Certificate, show
from hearsay.privacy.recursion import Assumption
from hearsay.report import numbers
from hearsay.report.certificate import certificate_section
from hearsay.report.collusion import colluding
from hearsay.report.comparison import comparison_report
from hearsay.report.page import Table, render
from hearsay.report.plot_style import new_figure
from hearsay.report.run import run_report
from hearsay.simulation.spent import Spending

TEMPLATES = Path(report.__file__).parent / "templates"
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Balanced(HTMLParser):
    """Raises for a tag that is closed out of turn; collects ids and what the page would load."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.note(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.note(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def note(self, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        links = (given.get(k) for k in ("href", "src", "xlink:href"))
        self.loads += [v for v in links if v and not v.startswith(("#", "data:"))]


@pytest.fixture(scope="module")
def problem():
    return hs.problems.logistic("digits", agents=5)


@pytest.fixture(scope="module")
def graph():
    return hs.graphs.ring(5, weight=0.3)


@pytest.fixture(scope="module")
def run(problem, graph) -> hs.Run:
    noise = [hs.PowerLaw(1.0, 0.1 + 0.01 * i) for i in range(1, 6)]
    return hs.simulate(hs.ldp_online(noise=noise), problem, graph, steps=30, seeds=3)


def written(run: hs.Run, folder) -> str:
    """The page, checked for what every page must fulfil."""
    return checked(run_report(run, folder))


def checked(path) -> str:
    page = path.read_bytes().decode()
    found = Balanced(page)
    assert not found.loads
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert len(set(found.ids)) == len(found.ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(found.ids)
    assert [p.name for p in path.parent.glob("*.partial")] == []
    return page


def test_report_says_what_the_certificate_says(run, tmp_path):
    page = written(run, tmp_path)
    for budget in run.certificate.budgets:
        assert f">{show(budget.epsilon)}</td>" in page
        assert f">{show(budget.paper_epsilon)}</td>" in page
        assert escape(budget.dominated_by) in page
    for assumption, _ in run.certificate.shared_assumptions():
        assert escape(assumption.text) in page
        assert f'class="badge {assumption.kind}"' in page
    assert escape(NOT_COVERED[1:]) in page
    assert "the paper's formula, not a guarantee" in unescape(page)
    assert "30 messages from every agent" in page
    assert "This page is private" in page


def test_report_has_the_headline_numbers_and_figures(run, tmp_path):
    page = written(run, tmp_path)
    assert "<h1>ldp-online on digits</h1>" in page
    assert f"{100 * run.final('accuracy')[0]:.1f} ± " in page
    assert ">150</p>" in page  # 30 messages from each of 5 agents
    assert "Released model&#39;s accuracy" in page
    assert page.count("<svg ") == 9
    assert page.count('role="img" aria-label="') == 9
    assert "ended early" not in page


def test_same_run_same_bytes(run, tmp_path):
    assert (
        run_report(run, tmp_path / "a").read_bytes() == run_report(run, tmp_path / "b").read_bytes()
    )


def test_the_printed_algorithm_is_code_that_rebuilds_it(run, tmp_path):
    page = written(run, tmp_path)
    line = re.search(r"^algorithm = (.*)$", unescape(page), re.MULTILINE)
    assert eval(line[1], {name: getattr(hs, name) for name in hs.__all__}) == run.algorithm


def test_names_are_escaped(run, tmp_path):
    evil = "<script>alert(1)</script>"
    named = replace(
        run,
        problem=replace(run.problem, name=evil),
        graph=replace(run.graph, name=evil),
        stopped=evil,
    )
    assert "&lt;script&gt;" in written(named, tmp_path / "run")
    figure, ax = new_figure()
    ax.set_title(evil)
    extra = ((evil, [evil, "b"], [[evil, 1.5]]),)
    path = comparison_report(
        {evil: run, "b": named}, tmp_path / "cmp", evil, [evil], extra, [(evil, figure)]
    )
    assert checked(path).count("&lt;script&gt;") > 10


class Hostile:
    """Whatever a template asks it for is hostile too, and so is what it says of itself."""

    evil = "<script>alert(1)</script>'\"&"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Table(self.evil, [self.evil], [[self.evil]]) if name == "table" else Hostile()

    def __iter__(self):
        return iter([self.evil])

    def __str__(self):
        return self.evil


@pytest.mark.parametrize("template", ["attack.html", "audit.html"])
def test_pages_of_attacks_and_audits_escape_whatever_they_are_given(template):
    asked = meta.find_undeclared_variables(Environment().parse((TEMPLATES / template).read_text()))
    data = {name: Hostile() for name in {*asked, "title", "about"}}
    data |= {"levels": Table(Hostile.evil, [Hostile.evil], [[Hostile.evil]]), "skipped": ()}
    page = render(template, **data)
    assert "<script" not in page and page.count("&lt;script&gt;alert(1)") > 10
    assert Balanced(page)


def test_no_template_switches_the_escaping_off():
    for path in TEMPLATES.iterdir():
        assert not re.search(r"\|\s*safe|autoescape|Markup", path.read_text()), path


def test_what_pages_are_made_of_is_installed_with_the_package():
    """Every file of the package that is no Python matches a pattern of pyproject.toml."""
    root = TEMPLATES.parents[1]
    project = tomllib.loads((root.parent / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["hearsay"]
    installed = {path for pattern in patterns for path in root.glob(pattern)}
    there = {p for p in root.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert installed == there and root / "report" / "report.css" in there


def test_early_end_is_visible(problem, graph, tmp_path):
    first = hs.certify(hs.ldp_online(), problem, graph, 5)
    stopped = hs.simulate(
        hs.ldp_online(), problem, graph, steps=30, seeds=3, budget=max(first.epsilon)
    )
    assert stopped.stopped
    page = written(stopped, tmp_path)
    assert "The run ended early" in page
    assert escape(stopped.stopped) in page


def test_no_noise_is_no_guarantee(problem, graph, tmp_path):
    noiseless = hs.simulate(hs.ldp_online(noise=None), problem, graph, steps=10, seeds=3)
    page = written(noiseless, tmp_path)
    assert "No privacy guarantee" in page
    assert page.count(">infinite</td>") >= 5
    assert "exp(" not in page


def test_one_unbounded_agent_is_named(run, tmp_path):
    budgets = tuple(
        replace(b, epsilon=math.inf) if b.agent == 3 else b for b in run.certificate.budgets
    )
    spent = run.spent.copy()
    spent[1:, 3] = np.inf
    page = written(
        replace(
            run, certificate=replace(run.certificate, budgets=budgets), spending=Spending.of(spent)
        ),
        tmp_path,
    )
    assert "epsilon is infinite for agent 3." in page
    assert "agent 3: infinite" in page


def test_without_a_reference_its_figures_are_left_out(problem, graph, tmp_path):
    blind = hs.simulate(hs.ldp_online(), problem, graph, steps=10, seeds=3, reference=False)
    page = written(blind, tmp_path)
    assert "Tracking error" not in page
    assert "nan" not in re.sub(r"<[^>]*>", " ", page).lower().split()
    # Network, accuracy (the agents' own and the released model's), consensus, budget.
    assert page.count("<svg ") == 5


def test_gaussian_noise_shows_rho_and_delta(problem, graph, tmp_path):
    algorithm = hs.ldp_online(mechanism="gaussian", noise=hs.Constant(50.0))
    page = written(hs.simulate(algorithm, problem, graph, steps=2, seeds=3, delta=1e-5), tmp_path)
    assert "epsilon spent (delta = " in page
    assert "epsilon holds at delta = 10⁻⁵" in page
    assert ">rho</th>" in page


def test_a_page_says_what_the_text_says():
    """One layout for both: columns, names, what is not covered."""
    budget = AgentBudget(
        0,
        0.0,
        "basis",
        "every step",
        "step 3",
        assumptions=(Assumption("declared", "a stream"),),
        delta=0.125,
    )
    cert = Certificate(
        "ternary-dsgd",
        9,
        "ternary",
        (budget, replace(budget, agent=1, delta=0.25, assumptions=())),
        names=("alice", "bob"),
    )
    for this in (cert, replace(cert, deployed=True)):
        markup = render("certificate.html", certificate=certificate_section(this))
        page = unescape(re.sub(r"<[^>]*>", "|", markup))
        for part in ("|delta|", "|0.1250|", "|0.2500|", "|alice|", "|bob|", "(agent alice)"):
            assert part in page
        assert (FLOATING in page) == (not this.deployed) == (FLOATING[2:20] in str(this))
        for column in this.columns():
            assert f"|{column.title}|" in page and f"  {column.name}" in str(this)


def test_regression_reports_test_error(tmp_path):
    problem = hs.problems.ridge(agents=4, records=50)
    regression = hs.simulate(
        hs.dsgd(), problem, hs.graphs.star(4), steps=2, seeds=2, reference=False
    )
    assert "<h3>Test error</h3>" in written(regression, tmp_path)


def test_theory_findings_are_listed(run, tmp_path, monkeypatch):
    findings = [
        Finding("Theorem 1, step", False, "1 <= 0.5", -0.5),
        Finding("Theorem 5 <ii>", True, "finite", None),
    ]
    monkeypatch.setattr(type(run.algorithm), "theory", lambda *_: findings)
    page = written(run, tmp_path / "some")
    assert "1 of 2 fail" in page
    assert "Theorem 5 &lt;ii&gt;" in page
    assert 'class="n">-0.5</td>' in page
    monkeypatch.setattr(type(run.algorithm), "theory", lambda *_: [])
    assert "conditions</h2>" not in written(run, tmp_path / "none")


def test_large_network(run, tmp_path):
    """The numbers are those of five agents, over and over:
    what is looked at is how much a page says.
    """
    graph, problem = hs.graphs.random(400), hs.problems.ridge(agents=400, records=5)
    cert = hs.certify(hs.ldp_online(), problem, graph, 30)
    raw = {
        name: np.repeat(v, 4, axis=2)[:, :, :16] if v.ndim == 3 else v
        for name, v in run.raw.items()
    }
    wide = replace(
        run,
        algorithm=hs.ldp_online(),
        problem=replace(
            problem,
            records=problem.records._replace(labels=1.0 * (problem.labels > 0)),
            loss=run.problem.loss,
        ),
        graph=graph,
        certificate=cert,
        raw=raw,
        spending=Spending.of(np.tile(run.spent, 80)),
    )
    page = written(wide, tmp_path)
    rows = (
        page.partition("Budget of every agent")[2]
        .partition("</table>")[0]
        .count('<tr><th scope="row"')
    )
    assert rows == len({str(b.epsilon) for b in wide.certificate.budgets}) < 20, (
        "equal budgets share a row"
    )
    assert "Models are measured on 16 of the 400 agents" in page


def test_comparison_sets_runs_side_by_side(run, problem, graph, tmp_path):
    other = hs.simulate(hs.dsgd(), problem, graph, steps=10, seeds=3, reference=False)
    figure, ax = new_figure()
    ax.plot([0, 1], [0, 1])
    path = comparison_report(
        {"ours": run, "baseline": other},
        tmp_path,
        "Two runs",
        ["Why we looked."],
        [("Extra", ["name", "value"], [["x", 12345.678], ["y", None]])],
        [("An extra figure", figure)],
    )
    page = checked(path)
    # Both accuracies and consensus are shared; budgets; and the extra one.
    assert page.count("<svg ") == 5
    assert f">{show(max(other.certificate.epsilon))}<small>" in page
    assert f">{show(max(run.certificate.epsilon))}<small>" in page
    assert "Why we looked." in page
    assert ">12,350</td>" in page
    again = comparison_report({"ours": run, "baseline": other}, tmp_path / "x", "Two runs")
    assert (
        again.read_bytes()
        == comparison_report(
            {"ours": run, "baseline": other}, tmp_path / "y", "Two runs"
        ).read_bytes()
    )


def test_runs_that_are_read_again_are_compared_as_they_were(run, tmp_path):
    stopped = replace(run, stopped="the budget was spent")
    runs = {"ours": run, "stopped": stopped}
    saved = {name: hs.load_run(one.save(tmp_path / name)) for name, one in runs.items()}

    def without_pictures(page: str) -> str:
        return re.sub("<svg .*?</svg>", "", page, flags=re.DOTALL)

    new = checked(comparison_report(runs, tmp_path / "new", "Two runs"))
    old = checked(comparison_report(saved, tmp_path / "old", "Two runs"))
    assert without_pictures(old) == without_pictures(new)
    assert old.count("<svg ") == new.count("<svg ") > 3


def test_comparison_of_nothing_but_tables(tmp_path):
    page = checked(comparison_report({}, tmp_path, "Tables", tables=[("One", ["a"], [[1]])]))
    assert "<caption>One</caption>" in page
    assert "At the end" not in page


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (0.00012345, "0.0001234"),
        (12345.6, "12,350"),
        (1e-5, "10⁻⁵"),
        (2.5e7, "2.5 × 10⁷"),
        (-3.0, "-3"),
        (math.inf, "infinite"),
        (0.99996, "1"),
        (999999.9, "10⁶"),
    ],
)
def test_quantity(value, said):
    assert numbers.quantity(value) == said


def test_spread_shows_the_digits_that_the_deviation_supports():
    assert numbers.spread(9.8481, 0.2784, 5) == "9.85 ± 0.28"
    assert numbers.spread(0.80757, 0.0102, 5, percent=True) == "80.8 ± 1.0 %"
    assert numbers.spread(1234.5, 56.0, 5) == "1,234 ± 56"
    assert numbers.spread(9.8481, 0.0, 1) == "9.85"
    assert numbers.spread(math.nan, math.nan, 3) == "not a number"


def test_who():
    assert numbers.who([0, 1, 2], 3) == "every agent"
    assert numbers.who([0], 1) == "agent 0"
    assert numbers.who([5, 0, 1, 2, 7, 8], 20) == "agents 0–2, 5, 7, 8"
    assert numbers.who(list(range(0, 40, 2)), 40) == "20 agents (0, 2, 4, 6, 8, 10, …)"


def shared_certificate(noise, agents: int = 5) -> Certificate:
    problem = hs.problems.ridge(agents=agents, records=20, dimension=2, clip=0.5)
    algorithm = hs.gradient_perturbation(
        mechanism="gaussian", noise=noise, secrets=hs.Secrets(2, 10**0.5)
    )
    return hs.certify(algorithm, problem, hs.graphs.ring(agents), 5, delta=1e-5)


@pytest.mark.parametrize(
    ("noise", "agents"),
    [(2.0, 5), ([1.0, 2.0, 2.0, 3.0, 1.0], 5), ([1 + i / 9 for i in range(14)], 14)],
)
def test_the_curve_over_colluders_is_drawn_and_told(noise, agents, tmp_path):
    cert = shared_certificate(noise, agents)
    markup = render("certificate.html", certificate=certificate_section(cert))
    Balanced(markup)
    page = unescape(re.sub(r"<[^>]*>", "|", markup))
    top, every = show(max(cert.epsilon)), show(max(cert.all_collude))
    for part in (
        "|epsilon if 2 of the others collude|",
        "|epsilon if all others collude|",
        "|If others collude|",
        f"epsilon is then {every} at most",
        "neither on the others nor on cryptography",
        f"all others collude: {every}",
        "planned",
        "|colluders|",
        f"|all {agents - 1}|",
        "worst coalitions: closed form",
        f"|{top}|",
    ):
        assert part in page, part
    for column in cert.columns():
        assert f"|{column.title}|" in page
    assert "If others collude" not in render(
        "certificate.html",
        certificate=certificate_section(
            hs.certify(
                hs.gradient_perturbation(mechanism="gaussian", noise=1.0),
                hs.problems.ridge(agents=3, records=20, dimension=2, clip=0.5),
                hs.graphs.ring(3),
                5,
                delta=1e-5,
            )
        ),
    )


def test_infinite_points_of_a_curve_are_left_out_of_the_figure():
    cert = shared_certificate(2.0)
    _, ax = new_figure()
    colluding(cert, ax)
    (line,) = [one for one in ax.lines if len(one.get_xdata()) == 5]
    np.testing.assert_allclose(line.get_ydata(), [p.epsilon for p in cert.budgets[0].curve])
    endless = replace(
        cert,
        budgets=tuple(
            replace(b, curve=(*b.curve[:-1], replace(b.curve[-1], epsilon=math.inf)))
            for b in cert.budgets
        ),
    )
    _, ax = new_figure()
    colluding(endless, ax)
    assert "all others collude: infinite" in [text.get_text() for text in ax.texts]
