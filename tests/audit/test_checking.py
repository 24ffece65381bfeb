"""check_algorithm: planted faults are caught, right algorithms pass, and a pass is noted for the
very source that passed.

All but the check of the noise involve no chance; that one refuses right noise with probability
1e-6 at most (worst_cases.LEVEL).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hearsay as hs
from hearsay.audit import checking, contract, plain_loop, worst_cases
from hearsay.audit.checking import CHECKS, check_algorithm
from hearsay.certification import stamps
from hearsay.privacy.verification import verify

SOURCE = Path(hs.__file__).parents[1] / "examples" / "gossip_package" / "plain_gossip.py"
PROBLEM = hs.problems.ridge(agents=3, records=9, dimension=2)
GRAPH = hs.graphs.ring(3, weight=0.3)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "cache"))


def loaded(folder: Path, *changes: tuple[str, str], name: str = "gossip_under_test") -> Any:
    """The class of the example's file with some of its text replaced."""
    text = SOURCE.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    spec.loader.exec_module(module)
    return module.PlainGossip


LEAK = "return self.pull.scaled(heard)"
RELEASE = 'return (Release("params", self.noise_for(agent)),)'
SENT = "return Message(Private(state.params, rates.noise)), state"
STATE = "return State(domain.project(moved))"
GRADIENT = "rates.step * batch.gradient(state.params)"
SHOWN = "Message(Private(state.params + batch.gradient(state.params), rates.noise)), state"
METHOD = "    def leak(self, heard: float) -> Schedule:"
CHANNELS = '    channels: ClassVar[dict[str, str]] = {"params": "coupling"}'
TWICE = """class Twice(NamedTuple):
    params: Any
    again: Any


@final
"""
# A second field beside the model, over the same edges.
SECOND = (
    ("@final\n", TWICE),
    ("import Any, ClassVar, final", "import Any, ClassVar, NamedTuple, final"),
    (CHANNELS, CHANNELS.replace("}", ', "again": "coupling"}') + "\n    message = Twice"),
)
BOTH = (RELEASE, 'return tuple(Release(n, self.noise_for(agent)) for n in ("params", "again"))')
# What is wrong -> (the checks that see it, what they say, the changes to the right file).
FAULTS: dict[str, tuple[tuple[str, ...], str, tuple[tuple[str, str], ...]]] = {
    "a leak that forgets a state which is kept": (
        ("brute force", "search"), "found / allowed", ((LEAK, "return Constant(1.0)"),)),
    "a leak that is a quarter too large": (
        ("brute force",), "found / allowed", ((LEAK, "return self.pull.scaled(1.25 * heard)"),)),
    "a leak that is not affine": (
        ("affine leak",), "affine", ((LEAK, "return self.pull.scaled(heard**2)"),)),
    "too small a state": (
        ("brute force",), "found / allowed 2.0",
        ((RELEASE, RELEASE.replace("(agent)", "(agent), state=0.5")),)),
    "a gradient that is shown and not counted": (
        ("brute force",), "found / allowed", ((SENT, "return " + SHOWN),)),
    "too small a fresh": (
        ("brute force",), "found / allowed",
        ((SENT, "return " + SHOWN),
         (RELEASE, RELEASE.replace("(agent)", "(agent), state=2.0, fresh=0.5")))),
    "a message without noise": (
        ("brute force", "noise"), "certificate",
        ((SENT, "return Message(Private(state.params, 0.0 * rates.noise)), state"),)),
    "half the noise": (
        ("scales", "brute force", "noise"), "certificate",
        ((SENT, "return Message(Private(state.params, 0.5 * rates.noise)), state"),)),
    "more noise where the model is large, which its size shows": (
        ("scales",), "must follow from rates alone",
        ((SENT, "scale = rates.noise * (1 + abs(state.params).max())\n"
          "        return Message(Private(state.params, scale)), state"),)),
    "draws of half the size": (
        ("noise",), "not what the certificate counts",
        ((METHOD, "    def draw(self, key, params):\n"
          "        return Message(0.5 * self.fresh_noise(key, params))\n\n" + METHOD),)),
    "a step that is twice the one that counts": (
        ("brute force",), "found / allowed 2.0", ((GRADIENT, f"2.0 * {GRADIENT}"),)),
    "a record that is used again in the next step": (
        ("brute force",), "found / allowed",
        ((SENT, "return Message(Private(state.params, rates.noise)), state._replace("
          "params=state.params - rates.step * batch.gradient(state.params))"),)),
    "one draw in two fields": (
        ("noise path",), "again of round 0",
        (*SECOND, BOTH,
         (SENT, "both = Private(state.params, rates.noise)\n"
          "        return Twice(both, both), state"),
         (METHOD, "    def draw(self, key, params):\n"
          "        noise = self.fresh_noise(key, params)\n        return Twice(noise, noise)\n\n"
          + METHOD))),
    "the same noise in every round": (
        ("noise path",), "params of round 1",
        ((METHOD, "    def draw(self, key, params):\n        import jax\n"
          "        key = jax.random.key(1)\n"
          "        return Message(self.fresh_noise(key, params))\n\n" + METHOD),)),
    "noise that the state keeps": (
        ("noise path",), "must not keep the noise",
        ((METHOD, "    def finish(self, noised, draws, state):\n"
          "        return noised, State(state.params + draws.params)\n\n" + METHOD),)),
    "a coin that shows the data": (
        ("brute force",), "field again",
        (*SECOND, ("message = Twice", 'message = Twice\n    coins = ("again",)'),
         (SENT, "hint = Private(state.params, 0.0)\n"
          "        return Twice(Private(state.params, rates.noise), hint), state"))),
    "a field that no release counts": (
        ("messages",), "needs a draw and a release",
        (*SECOND, (SENT, "both = Private(state.params, rates.noise)\n"
                   "        return Twice(both, both), state"))),
    "noise that is added by send itself": (
        ("messages",), "send must not be overridden",
        ((METHOD, "    def send(self, draws, state, batch, rates):\n"
          "        return Message(state.params), state\n\n" + METHOD),)),
    "an update that counts its calls": (
        ("pure",), "pure",
        (("@final\n", "CALLS = []\n\n\n@final\n"),
         ("        heard = inbox", "        CALLS.append(1)\n        heard = len(CALLS) * inbox"))),
    "noise that calibration does not know": (
        ("calibration",), "annotated Noise",
        (("    noise: Noise = Constant(1.0)\n",
          "    noise: Noise = Constant(1.0)\n    own: Schedule = Constant(1.0)\n"),
         (RELEASE, 'return (Release("params", self.own),)'))),
    "schedules that nobody reads": (
        ("declaration",), "super().__post_init__",
        ((METHOD, "    def __post_init__(self):\n        pass\n\n" + METHOD),)),
    "secret batches that are said to cost less beside a private state": (
        ("secret batches",), "must be False", ((CHANNELS, CHANNELS + "\n    amplifies = True"),)),
    "a sum of weights that is looked up and not named": (
        ("agent facts",), "says nothing: agents 0 and 1",
        ((CHANNELS, CHANNELS + "\n    agent_facts: ClassVar = ()"),)),
    "more of a state kept the more is heard, and it is not named": (
        ("agent facts",), "differ in its accounts",
        ((CHANNELS, CHANNELS.replace("coupling", "mixing") + "\n    agent_facts: ClassVar = ()"),
         ("inbox.own.params * state.params", "inbox.own.params * (sent.params - state.params)"),
         (LEAK, "return self.pull.scaled(1 - heard)"))),
    "the weights of edges, looked up one by one": (
        ("agent facts",), "says heard: agents 0 and 3 of a network (custom)",
        ((CHANNELS, CHANNELS + '\n    agent_facts: ClassVar = ("heard",)'),
         (METHOD, "    def own_accounts(self, graph, agent, problem):\n"
          "        from hearsay.certification.describing import _recursions\n"
          "        louder = self.with_noise([graph.weights[[agent]].max()] * graph.agents)\n"
          "        return tuple(_recursions(louder, problem, graph, agent, False))\n\n" + METHOD))),
    "the noise of a neighbour": (
        ("agent facts",), "differ in its accounts",
        ((CHANNELS, CHANNELS + '\n    agent_facts: ClassVar = ("heard",)'),
         (RELEASE, RELEASE.replace("(agent)", "(max(agent - 1, 0))")))),
    "rounding that depends on an agent's number": (
        ("agent facts",), "differ in the rounding of its updates",
        ((CHANNELS, CHANNELS + '\n    agent_facts: ClassVar = ("heard",)'),
         ("coupling=self.pull", "coupling=self.pull.scaled(1 + agent)"))),
    "a momentum whose rounding nothing counts": (
        ("magnitudes",), "momentum of the state is carried on",
        (("@final\n", TWICE.replace("Twice", "Moving").replace("again", "momentum")),
         ("import Any, ClassVar, final", "import Any, ClassVar, NamedTuple, final"),
         (METHOD, "    def init(self, params):\n        return Moving(params, 0 * params)\n\n"
          + METHOD),
         (STATE, "kept = (8 * state.momentum).round() / 16  # a staircase has no slope\n"
          "        speed = kept + batch.gradient(state.params)\n"
          "        return Moving(domain.project(moved - rates.step * speed), speed)"))),
    "noise that is taken off again where it is large": (
        ("noise path",), "finish must not use the draws",
        ((METHOD, "    def finish(self, noised, draws, state):\n"
          "        far = abs(draws.params) > 1.5\n"
          "        return Message(noised.params - far * draws.params), state\n\n" + METHOD),)),
    "a state that is shown where noise is large": (
        ("noise path",), "finish must not use the state",
        ((METHOD, "    def finish(self, noised, draws, state):\n"
          "        far = abs(noised.params - state.params) > 12\n"
          "        return Message(noised.params * ~far + state.params * far), state\n\n"
          + METHOD),)),
    "noise that everybody can draw": (
        ("noise path",), "own key alone, and params follows from one that others have",
        ((METHOD, '    keys = ("own", "public")\n\n    def draw(self, key, params):\n'
          "        import jax\n"
          "        key = jax.random.fold_in(key.public.key, key.public.edges[0])\n"
          "        return Message(self.fresh_noise(key, params))\n\n" + METHOD),)),
    "noise that stops after four rounds": (
        ("messages",), "draws must not be overridden",
        ((METHOD, "    def draws(self, key, steps, params, constants):\n"
          "        drawn = super().draws(key, steps, params, constants).params\n"
          "        return Message(drawn * (steps < 4)[:, None])\n\n" + METHOD),)),
    "a message without noise that shows the model a little": (
        ("brute force",), "allowed inf",
        (*SECOND, (SENT, "hint = Private(1e-20 * state.params, 0.0)\n"
                   "        return Twice(Private(state.params, rates.noise), hint), state"),
         (RELEASE, 'return (Release("params", self.noise_for(agent)),'
          ' Release("again", Constant(0.0), state=0.0))'))),
    "more of the state where noise is small": (
        ("brute force",), "found / allowed",
        ((SENT, SENT.replace("state.params,", "state.params * (1 + (rates.noise < 0.5)),")),)),
    "an option that is no noise and multiplied as if it were": (
        ("calibration",), "own is annotated Noise and must be the scale of a release",
        (("    noise: Noise = Constant(1.0)\n",
          "    noise: Noise = Constant(1.0)\n    own: Noise = Constant(0.0)\n"),
         (GRADIENT, f"(1 + rates.own) * {GRADIENT}"))),
    "an update that returns no state": (
        ("scales",), "State(params=(3,)), got ((3,),)",
        ((STATE, "return (domain.project(moved),)"),)),
    "a message without its state": (
        ("messages", "scales"), "must return (message, state), got Message",
        ((SENT, SENT.removesuffix(", state")),)),
    "a Python if": (
        ("scales",), "if moved[0] > 0:); numbers are not known yet there: jnp.where takes",
        ((STATE, "if moved[0] > 0:\n            return state\n        " + STATE),)),
    "magnitudes that are too small": (
        ("magnitudes",), "declared 0.4", (("coupling=self.pull", "coupling=Constant(0.4)"),)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault, tmp_path):
    """By each of the checks that are to see it, with numbers, and no stamp is left."""
    names, text, changes = FAULTS[fault]
    report = check_algorithm(loaded(tmp_path, *changes), only=names, thorough=False)
    assert [check.name for check in report.failed] == list(names)
    assert any(text in check.detail for check in report.failed), str(report)
    assert not report.passed and not report.stamped
    assert "not to be believed" in str(report)


# Faults that do not show in the first world, with the words of those in which they do.
SELDOM = {
    "a leak that knows the usual coupling only": (
        "other schedules 0.5", (LEAK, "return Constant(0.8 * heard)")),
    "a state that counts in full for one agent alone": (
        "records used once, star",
        (RELEASE, RELEASE.replace("(agent)", "(agent), state=1.0 if agent == 1 else 0.5"))),
    "own models that are kept by who hears most": (
        "records used once, star",
        ("inbox.own.params * state.params",
         "(inbox.own.params > -0.7) * inbox.own.params * state.params")),
    "steps that double after six messages": (
        "40 messages",
        (GRADIENT, f"(1 + (rates.step < 0.006)) * {GRADIENT}")),
}  # fmt: skip


@pytest.mark.parametrize("fault", SELDOM)
def test_faults_that_show_late_or_with_other_schedules_are_caught(fault, tmp_path, monkeypatch):
    words, change = SELDOM[fault]
    known = worst_cases.cases()
    shows = [case for case in known if words in case.words]
    hides = [case for case in known if case.others is None and case.steps == 6][:1]
    for changes, worlds, holds in (((change,), shows, False), ((change,), hides, True),
                                   ((), shows, True)):  # fmt: skip
        monkeypatch.setattr(worst_cases, "cases", lambda worlds=worlds: worlds)
        (check,) = check_algorithm(loaded(tmp_path, *changes), only=["brute force"]).checks
        assert check.passed is holds, check.detail
        assert holds or words in check.detail


def test_the_right_file_passes_the_same_checks(tmp_path):
    seen = tuple({name for names, _, _ in FAULTS.values() for name in names})
    report = check_algorithm(loaded(tmp_path), only=seen, thorough=False)
    assert report.passed, str(report)
    assert not report.stamped, "a check in part is no check"
    assert set(seen) >= set(CHECKS) - {"plain loop", "relabelling"}


@pytest.mark.parametrize("name", hs.REGISTRY)
def test_hearsays_own_algorithms_name_what_they_look_up(name):
    check = check_algorithm(name, only=["agent facts"]).checks[0]
    assert check.passed and "certified as another one" in check.detail, check.detail


def test_who_names_all_that_is_looked_up_passes(tmp_path):
    named = (CHANNELS, CHANNELS + '\n    agent_facts: ClassVar = ("heard",)')
    (check,) = check_algorithm(loaded(tmp_path, named), only=["agent facts"]).checks
    assert check.passed, check.detail
    (check,) = check_algorithm(loaded(tmp_path), only=["agent facts"]).checks
    assert check.passed is None and "certified by itself" in check.detail


def counted(folder, start, *changes):
    """An algorithm whose state has a count of rounds beside the model, which begins so."""
    return loaded(
        folder,
        ("@final\n", TWICE.replace("Twice", "Counted").replace("again", "k")),
        ("import Any, ClassVar, final", "import Any, ClassVar, NamedTuple, final"),
        (METHOD, "    def init(self, params):\n        import jax.numpy as jnp\n"
         f"        return Counted(params, {start})\n\n" + METHOD),
        *changes,
    )  # fmt: skip


def test_a_count_of_rounds_in_the_state_can_be_deployed(tmp_path):
    """Its rounding is the same whatever the data."""
    kind = counted(
        tmp_path,
        "jnp.zeros(())",
        (STATE, "return Counted(domain.project(moved / (1 + state.k)), state.k + 1)"),
    )  # fmt: skip
    (check,) = check_algorithm(kind, only=["magnitudes"]).checks
    assert check.passed, check.detail


def test_a_whole_number_in_the_state_and_the_rows_of_a_batch_are_no_faults(tmp_path):
    kind = counted(
        tmp_path,
        "jnp.zeros((), int)",
        (GRADIENT, "rates.step * batch.loss.gradient_sum(state.params, *batch.rows(),"
                   " batch.weights)"),
        (STATE, "return Counted(domain.project(moved), state.k + 1)"),
        (LEAK, "return 0.8 * heard"),
    )  # fmt: skip
    report = check_algorithm(kind, only=["pure", "magnitudes", "noise path", "affine leak"])
    assert report.passed, str(report)


def test_a_momentum_of_what_was_sent_can_be_deployed(tmp_path):
    """What was sent last is on the transcript: it has no rounding of its own."""
    kind = loaded(
        tmp_path,
        ("@final\n", TWICE.replace("Twice", "Moving").replace("again", "last")),
        ("import Any, ClassVar, final", "import Any, ClassVar, NamedTuple, final"),
        (METHOD, "    def init(self, params):\n        return Moving(params, params)\n\n" + METHOD),
        (STATE, "ball = 0.3 * (sent.params - state.last)\n"
         "        return Moving(domain.project(moved + ball), sent.params)"),
    )  # fmt: skip
    (check,) = check_algorithm(kind, only=["magnitudes"]).checks
    assert check.passed, check.detail


@pytest.mark.parametrize("name", hs.REGISTRY)
def test_hearsays_own_magnitudes_count_what_is_carried_on(name):
    (check,) = check_algorithm(name, only=["magnitudes"]).checks
    assert check.passed is not False, check.detail


QUICK = ["dsgd", "gradient-perturbation"]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in hs.REGISTRY]
)
def test_hearsays_own_algorithms_pass_in_one_world(name):
    """What the default suite has time for: the checks that no other test of theirs makes."""
    chosen = ("declaration", "noise path", "calibration", "brute force")
    report = check_algorithm(name, only=chosen, thorough=False)
    assert report.passed, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", hs.REGISTRY)
def test_hearsays_own_algorithms_pass(name):
    report = check_algorithm(name)
    assert report.passed and report.whole, str(report)
    assert not report.stamped, "hearsay's own need none"
    undone = {check.name for check in report.checks if check.passed is None}
    usual = {"relabelling"} | (set() if report.algorithm.amplifies else {"secret batches"})
    usual |= {"plain loop"} if report.algorithm.keys != ("own",) else set()
    noiseless = {"noise", "calibration", "secret batches", "brute force", "search"}
    assert undone <= (usual if name != "federated-noiseless" else noiseless)


# The stamp.


def certified(algorithm):
    certificate = hs.certify(algorithm, PROBLEM, GRAPH, 5)
    texts = [a.text for a in certificate.budgets[0].assumptions if "author of the alg" in a.text]
    assert len(texts) == 1
    return certificate.descriptions[0].checked, texts[0]


@pytest.fixture
def passing(monkeypatch):
    """All checks, cut down to those that take no time: what is noted is tested, not what is
    found.
    """
    few = {n: checking._CHECKS[n] for n in ("declaration", "affine leak")}
    monkeypatch.setattr(checking, "_CHECKS", few)
    monkeypatch.setattr(checking, "CHECKS", tuple(few))


def test_a_pass_is_noted_for_this_very_source(tmp_path, passing):
    kind = loaded(tmp_path)
    assert certified(kind())[0] is False and "nothing has checked it" in certified(kind())[1]
    assert check_algorithm(kind).stamped
    checked, text = certified(kind())
    assert checked and "found none" in text and "no proof" in text
    path = stamps.place(kind())
    assert json.loads(path.read_text())["hearsay"] == hs.__version__
    # Another step or noise is the same algorithm, another coupling or law of noise is not.
    assert certified(kind(step=0.1, noise=3.0, sampling=hs.Fresh()))[0]
    assert not stamps.standing(kind(pull=0.3)).checked
    assert not stamps.standing(kind(mechanism="gaussian")).checked
    # One more character in the source, and it is its author's word again.
    file = tmp_path / "gossip_under_test.py"
    file.write_text(file.read_text() + "\n")
    assert not certified(kind())[0]


def test_a_failure_takes_the_place_of_the_note(tmp_path, passing):
    kind = loaded(tmp_path)
    assert check_algorithm(kind).stamped and certified(kind())[0]
    wrong = loaded(tmp_path, (LEAK, "return self.pull.scaled(heard**2)"))
    assert not check_algorithm(wrong).passed
    assert stamps.place(kind()) == stamps.place(wrong())
    checked, text = certified(wrong())
    assert not checked and "FAILED" in text and "not to be believed" in text
    certificate = hs.certify(wrong(), PROBLEM, GRAPH, 5)
    verified = verify(certificate)
    assert not verified.wrong and any("FAILED" in one for one in verified.trusted)
    # Mended, it is unchecked; checked again, it passes.
    kind = loaded(tmp_path)
    assert "nothing has checked it" in certified(kind())[1]
    assert check_algorithm(kind).stamped and certified(kind())[0]


def test_what_name_and_options_do_not_tell_apart_is_never_noted(tmp_path, passing):
    """Classes that a function makes, and options that are in no field."""
    seen = "    def __post_init__(self, start):\n        super().__post_init__()\n\n"
    made = (METHOD, "    start: InitVar[float] = 1.0\n\n" + seen + METHOD)
    imports = ("import dataclass, field\n", "import InitVar, dataclass, field\n")
    hidden = loaded(tmp_path, made, imports)
    assert stamps.stamp(hidden()) is None and not stamps.standing(hidden()).checked
    kind = loaded(tmp_path)
    assert stamps.stamp(kind()) is not None
    kind.__qualname__ = "make.<locals>.PlainGossip"
    assert stamps.stamp(kind()) is None and not stamps.standing(kind()).checked


def test_a_class_that_is_changed_after_its_check_is_unchecked_again(tmp_path, passing, monkeypatch):
    kind = loaded(tmp_path)
    assert check_algorithm(kind).stamped and certified(kind())[0]
    for name, held in (("gradient_at_state", False), ("leak", lambda self, heard: self.pull)):
        with monkeypatch.context() as changed:
            changed.setattr(kind, name, held)
            assert not stamps.standing(kind()).checked, name
        assert stamps.standing(kind()).checked


def test_options_whose_repr_hides_a_value_are_told_apart(tmp_path, passing):
    field = ("    mechanism: str", "    weights: Any = None\n    mechanism: str")
    kind = loaded(tmp_path, field)

    class Text(str):
        """Any text, shown as it always is."""

        def __repr__(self):
            return "Text()"

    # Nothing is known of what is in it.
    assert not check_algorithm(kind(weights=Text("a"))).stamped
    many = tuple(float(n) for n in range(3000))
    assert check_algorithm(kind(weights=many)).stamped
    assert stamps.standing(kind(weights=many)).checked
    assert not stamps.standing(kind(weights=(*many[:-1], 1.0))).checked


def test_a_run_is_not_continued_with_another_class_of_the_same_function(tmp_path):
    kind = loaded(tmp_path)

    def made(factor):
        def prepare(self, state, batch, rates):
            return hs.base.Message(hs.base.Private(factor * state.params, rates.noise)), state

        return type("Own", (kind,), {"prepare": prepare, "__module__": kind.__module__})

    options = {"folder": tmp_path / "run", "reference": False, "regret": False}
    hs.simulate(made(1.0)(), PROBLEM, GRAPH, steps=4, **options)
    hs.simulate(made(1.0)(), PROBLEM, GRAPH, steps=5, resume=True, **options)
    with pytest.raises(ValueError, match="source of the algorithm = gossip_under_test"):
        hs.simulate(made(0.5)(), PROBLEM, GRAPH, steps=6, resume=True, **options)


def test_an_option_of_one_s_own_that_is_called_horizon_is_noted(tmp_path, passing):
    field = ("    mechanism: str", "    horizon: int = 3\n    mechanism: str")
    kind = loaded(tmp_path, field)
    assert check_algorithm(kind).stamped and stamps.standing(kind()).checked
    assert not stamps.standing(kind(horizon=9)).checked


def test_a_run_is_not_continued_with_another_source(tmp_path):
    kind = loaded(tmp_path)
    options = {"folder": tmp_path / "run", "reference": False, "regret": False}
    hs.simulate(kind(), PROBLEM, GRAPH, steps=4, **options)
    hs.simulate(kind(), PROBLEM, GRAPH, steps=5, resume=True, **options)
    other = loaded(tmp_path, (SENT, SENT.replace("rates.noise", "1.01 * rates.noise")))
    with pytest.raises(ValueError, match="source of the algorithm = gossip_under_test"):
        hs.simulate(other(), PROBLEM, GRAPH, steps=6, resume=True, **options)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", "other version"])
def test_a_damaged_note_counts_for_nothing(tmp_path, passing, damage):
    kind = loaded(tmp_path)
    check_algorithm(kind)
    path = stamps.place(kind())
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "hearsay": "0.0"}) if " " in damage else damage)
    assert not certified(kind())[0]


def test_a_class_without_a_file_is_never_noted(passing):
    module = sys.modules["nowhere"] = ModuleType("nowhere")
    exec(compile(SOURCE.read_text(encoding="utf-8"), "<text>", "exec"), vars(module))
    kind = module.PlainGossip
    report = check_algorithm(kind, only=["affine leak"])
    assert report.passed and not report.stamped
    sys.modules.pop("nowhere")
    assert stamps.stamp(kind()) is None and not certified(kind())[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (int, "inherits hearsay.base.Algorithm"),
        (hs.base.Algorithm, "lacks leak, prepare, releases, update"),
        (3, "a class, an algorithm or a name"),
        ("nothing", "algorithm must be one of"),
        (lambda: 3, "something that builds an Algorithm"),
        (lambda step: 3, "must have usual options"),
    ],
)
def test_what_is_no_algorithm_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        check_algorithm(given)


def test_an_instance_is_checked_with_its_options(tmp_path):
    kind = loaded(tmp_path)
    report = check_algorithm(replace(kind(), pull=0.5), only=["affine leak", "calibration"])
    assert report.algorithm.pull == hs.Constant(0.5) and report.passed
    with pytest.raises(ValueError, match="only must be one of"):
        check_algorithm(kind, only=["everything"])


@pytest.mark.parametrize(
    "algorithm",
    [hs.asynchronous_gossip(noise=0.2), hs.weighted_erm(noise=0.2, averaging=3, chebyshev=True)],
    ids=lambda a: a.name,
)
def test_the_plain_loop_knows_public_coins_and_phases(algorithm):
    one = contract.subject(algorithm)
    assert "models differ by" in plain_loop.plain_loop(one)
