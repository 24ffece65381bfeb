"""PyTorch modules: gradients as a plain loop and as Opacus has them, bounds that hold, refusals.

Needs torch (and one test Opacus): without them these are skipped, `make test-torch` runs them.
"""

from __future__ import annotations

import copy
import math
import random
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.problems.losses import torch_clipping
from hearsay.problems.losses.neural_loss import NeuralLoss, from_host
from hearsay.problems.losses.torch_state import snapshot

torch = pytest.importorskip("torch", reason="needs torch: make test-torch runs it")
nn, F = torch.nn, torch.nn.functional
Rows = torch.utils.data.TensorDataset
TorchHost = __import__("hearsay.problems.losses.torch_host", fromlist=["TorchHost"]).TorchHost

CLIP, RECORDS, SHAPE = 0.3, 7, (1, 8, 8)


def cnn(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.GroupNorm(2, 6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def batch(shape=SHAPE, classes=3):
    rng = np.random.default_rng(0)
    scale = np.logspace(-2, 1, RECORDS).reshape(-1, *(1 for _ in shape))
    weights = rng.random(RECORDS)
    weights[2] = 0
    return rng.normal(size=(RECORDS, *shape)) * scale, rng.integers(0, classes, RECORDS), weights


def looped(module, clip, norm, loss=F.cross_entropy):
    """The definition, one record after the other, by torch's own backward."""
    module, total = copy.deepcopy(module).double(), 0.0
    trained = [p for p in module.parameters() if p.requires_grad]
    for feature, label, weight in zip(*batch(), strict=True):
        scores = module(torch.from_numpy(feature)[None])
        parts = torch.autograd.grad(loss(scores, torch.tensor([label])), trained)
        vector = np.concatenate([part.numpy().ravel() for part in parts])
        length = np.linalg.norm(vector, {"l1": 1, "l2": 2}[norm])
        total = total + weight * vector * (1 if clip is None else min(1, clip / length))
    return total


def summed(module, clip=CLIP, norm="l2", microbatch=None, rows=None, loss="cross-entropy"):
    host = TorchHost(module, SHAPE, loss)
    known = NeuralLoss(from_host(host, "net"), clip=clip, norm=norm, microbatch=microbatch)
    features, labels, weights = map(jnp.asarray, rows or batch())
    return np.asarray(jax.jit(known.gradient_sum)(host.first, features, labels, weights))


@pytest.mark.parametrize(
    "norm, clip, microbatch",
    [("l2", CLIP, None), ("l2", CLIP, 3), ("l1", CLIP, 1), ("l2", None, None)],
)
def test_the_sum_is_that_of_a_plain_loop(norm, clip, microbatch):
    module = cnn()
    wanted = looped(module, clip, norm)
    assert np.abs(wanted).max() > 1e-3
    found = summed(module, clip, norm, microbatch)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_clipped_sums_are_those_of_opacus(mode):
    """In single precision, as Opacus computes them."""
    pytest.importorskip("opacus", reason="needs Opacus: make test-torch runs it")
    from opacus.grad_sample import GradSampleModule

    module, (features, labels, _) = cnn(), batch()
    x, y = torch.from_numpy(features).float(), torch.from_numpy(labels)
    private = GradSampleModule(
        copy.deepcopy(module), loss_reduction="sum", force_functorch=mode == "functorch"
    )
    F.cross_entropy(private(x), y, reduction="sum").backward()
    flat = torch.cat([p.grad_sample.flatten(1) for p in private.parameters()], dim=1)
    theirs = (flat * (CLIP / (flat.norm(dim=1) + 1e-6)).clamp(max=1)[:, None]).sum(0)
    host = TorchHost(module, SHAPE, "cross-entropy")
    ours = host.gradient_sum(
        host.first.astype(np.float32),
        x.numpy(),
        labels.astype(np.float32),
        np.ones(RECORDS, np.float32),
        clip=CLIP,
        norm="l2",
        microbatch=None,
    )
    assert np.abs(ours).max() > 0.01
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-5 * CLIP)


def test_under_vmap_over_agents_and_seeds_it_is_the_loop():
    host = TorchHost(cnn(), SHAPE, "cross-entropy")
    known = NeuralLoss(from_host(host, "net"), clip=CLIP)
    points = jnp.asarray(np.stack([host.first, 0 * host.first, 2 * host.first]))
    features, labels, weights = map(jnp.asarray, batch())
    both = lambda p: (known.gradient_sum(p, features, labels, weights), known.scores(p, features))  # noqa: E731
    together = jax.jit(jax.vmap(both))(points)
    for number, point in enumerate(points):
        for part, alone in zip(together, both(point), strict=True):
            np.testing.assert_array_equal(part[number], alone)


def linear_rows(rows, clip, norm="l2", dtype=np.float32):
    """A module whose gradient by its weights is the record itself."""

    class Same(nn.Linear):
        def forward(self, x):
            return (x * self.weight).sum(dim=1, keepdim=True)

    rows = np.asarray(rows, dtype)
    host = TorchHost(Same(rows.shape[1], 1, bias=False), (rows.shape[1],), lambda s, y: s.sum())
    ones = np.ones(len(rows), dtype)
    return host.gradient_sum(
        np.ones(rows.shape[1], dtype), rows, 0 * ones, ones, clip=clip, norm=norm, microbatch=None
    )


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("clip", [1e-3, 700.0])
def test_no_record_counts_more_than_the_clip(norm, clip):
    rng, order = np.random.default_rng(0), {"l1": 1, "l2": 2}[norm]
    for _ in range(40):
        scale, spread = rng.uniform(-20, 20), rng.uniform(0, 15)
        record = rng.normal(size=(1, 40)) * 10.0 ** (scale + rng.uniform(-spread, 0, 40))
        found = linear_rows(record, clip, norm).astype(np.float64)
        length = np.linalg.norm(record[0].astype(np.float32).astype(np.float64), order)
        assert np.linalg.norm(found, order) <= clip
        np.testing.assert_allclose(
            found, record[0].astype(np.float32) * min(1, clip / length), rtol=1e-4, atol=1e-37
        )


def test_small_entries_are_not_lost_beside_a_large_one():
    for norm, small in (("l2", 2e-4), ("l1", 5e-8)):
        record = np.full(2_000_003, small, np.float32)
        record[0] = 1
        found = torch_clipping.clipped_sum(
            [torch.from_numpy(record[None])], torch.ones(1), 1.0, norm
        ).astype(np.float64)
        length = np.abs(found).sum() if norm == "l1" else np.linalg.norm(found)
        assert 1 - 1e-5 < length <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e37])
def test_a_record_without_a_finite_gradient_counts_nothing(bad):
    rows = np.random.default_rng(0).normal(size=(5, 6))
    clean = linear_rows(rows[[0, 2, 3]], 0.5)
    rows[1, 3], rows[4, 0] = bad, bad
    np.testing.assert_allclose(linear_rows(rows, 0.5), clean, atol=1e-6)
    np.testing.assert_array_equal(linear_rows(rows[1:2], 0.5), 0)


@pytest.mark.parametrize("clip", [CLIP, None])
@pytest.mark.parametrize("microbatch", [None, 2])
def test_a_row_of_weight_0_counts_exactly_nothing(clip, microbatch):
    """Empty slots of a Poisson batch and padding, whatever is in them."""
    features, labels, weights = batch()
    wanted = summed(cnn(), clip, microbatch=microbatch, rows=(features, labels, weights))
    for junk in (1e30, np.nan, np.inf):
        features[2] = junk
        found = summed(cnn(), clip, microbatch=microbatch, rows=(features, labels, weights))
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(summed(cnn(), clip, rows=(features, labels, 0 * weights)), 0)


def test_what_is_not_trained_stays_as_it_is_and_tied_parameters_count_once():
    module = cnn()
    module[0].requires_grad_(False)
    module[7].register_buffer("unused", torch.arange(3))
    np.testing.assert_allclose(summed(module), looped(module, CLIP, "l2"), rtol=1e-9, atol=1e-12)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 3, bias=False), nn.Linear(64, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.a(x.flatten(1)) + self.b(x.flatten(1))

    tied = Tied()
    host = TorchHost(tied, SHAPE, "cross-entropy")
    assert host.size == 64 * 3 + 3
    np.testing.assert_allclose(summed(tied), looped(tied, CLIP, "l2"), rtol=1e-9, atol=1e-12)
    assert set(hs.problems.state_dict(tied, host.first)) == {"a.weight", "b.weight", "b.bias"}


def test_gradients_that_share_their_memory_are_scaled_once():
    """The biases of two layers that are added up have one gradient, in one array."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 3), nn.Linear(64, 3)

        def forward(self, x):
            return self.a(x.flatten(1)) + self.b(x.flatten(1))

    module = Both()
    np.testing.assert_allclose(summed(module), looped(module, CLIP, "l2"), rtol=1e-9, atol=1e-12)


class Odd(nn.Module):
    """Layers with faults, one at a time."""

    def __init__(self, fault):
        super().__init__()
        self.fault, self.layer = fault, nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.fault == "random":
            x = F.dropout(x, training=True)
        if self.fault == "item":
            x = x * float(x.sum().item())
        if self.fault == "branch":
            x = x if x.sum() > 0 else -x
        if self.fault == "state":
            self.seen += 1
        if self.fault == "statistics":
            self.seen.mul_(0.9).add_(x.mean())
        return {"scores": x} if self.fault == "dict" else self.layer(x)


@pytest.mark.parametrize(
    "module, message",
    [
        (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), "BatchNorm1d at 0: with it a record's"),
        (nn.Sequential(nn.SyncBatchNorm(4), nn.Linear(4, 2)), "no gradient of one record to clip"),
        (
            nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True), nn.Linear(4, 2)),
            "InstanceNorm1d at 0",
        ),
        (nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)), r"Dropout at 1 in .*module.eval\(\)"),
        (nn.Linear(5, 2), "module must take records of shape 4, one at a time .* Linear does not"),
        (nn.Linear(4, 2).requires_grad_(False), "parameters that require a gradient"),
        (nn.Linear(4, 1), "a score for each of two or more classes, got 1"),
        (nn.Linear(4, 2).to("meta"), "real numbers on the CPU"),
        (Odd("random"), "deterministic, but Odd draws random numbers: call module.eval"),
        (Odd("item"), r"record by record \(no .item\(\)"),
        (Odd("branch"), r"record by record \(no .item\(\), no branch"),
        (Odd("state"), "changes 'seen' of Odd at the top"),
        (Odd("statistics"), "changes 'seen' of Odd at the top"),
        (Odd("dict"), "a row of scores for a record, got 'dict'"),
    ],
    ids=lambda x: x.fault if isinstance(x, Odd) else None,
)
def test_modules_that_have_no_gradient_of_one_record_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        hs.problems.torch_model(module, (4,))


class Keeping(nn.Module):
    """Keeps something from one call to the next, in one of the places where that is possible."""

    kept = None

    def __init__(self, where):
        super().__init__()
        self.where, self.layer, self.calls = where, nn.Linear(4, 2), []
        self.generator, self.hidden = random.Random(0), [nn.Identity()]
        self.register_buffer("seen", torch.zeros(4, dtype=torch.float64))
        self.alias = self.seen

    def forward(self, x):
        mean, where = self.layer.weight.detach().mean(0), self.where
        if where == "attribute":
            x, self.kept = x + (0 if self.kept is None else self.kept), mean
        if where == "first record":
            self.kept = x.detach().abs().mean() if self.kept is None else self.kept
            x = x * (1 + self.kept)
        if where == "in gradients" and torch.is_grad_enabled():
            self.kept = self.layer.weight.mean()
        if where == "list":
            self.calls.append(len(x))
        if where == "generator":
            x = x * self.generator.random()
        if where == "hidden layer":
            self.hidden[0].calls = 1 + getattr(self.hidden[0], "calls", 0)
        if where == "double buffer":
            with torch.no_grad():
                self.seen.fill_(float(len(x)))
        if where == "alias":
            with torch.no_grad():
                self.alias.add_(1)
        if where == "class":
            x, Keeping.kept = x + (Keeping.kept or 0), 1 + (Keeping.kept or 0)
        return self.layer(x)


@pytest.mark.parametrize(
    "where, message",
    [
        ("attribute", "changes 'kept' of Keeping at 0 "),
        ("first record", "changes 'kept' of Keeping at 0 "),
        ("in gradients", "changes 'kept' of Keeping at 0 "),
        ("list", "changes 'calls' of Keeping at 0 .*keep state out of forward"),
        ("generator", "changes 'generator' of Keeping at 0 "),
        ("hidden layer", "changes 'hidden' of Keeping at 0 "),
        ("double buffer", "changes 'seen' of Keeping at 0 "),
        ("alias", "changes 'seen' of Keeping at 0 "),
        ("class", "one gradient for a record and parameters, got another one for '0.layer.weight'"),
    ],
)
def test_what_is_kept_from_one_call_to_the_next_is_refused(where, message, monkeypatch):
    """One module serves all agents and seeds: nobody counts what one learns from another's call."""
    monkeypatch.setattr(Keeping, "kept", None)
    module = nn.Sequential(Keeping(where))
    before = snapshot(module)
    with pytest.raises(ValueError, match=message):
        hs.problems.torch_model(module, (4,))
    assert snapshot(module) == before


def test_a_loss_with_a_memory_and_random_numbers_of_numpy_are_refused():
    calls, rng = [], np.random.default_rng(0)

    def loss(scores, label):
        calls.append(1)
        return len(calls) * scores.sum()

    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x * rng.random())

    with pytest.raises(ValueError, match="keep state out of forward and of the loss"):
        hs.problems.torch_model(nn.Linear(4, 2), (4,), loss=loss)
    with pytest.raises(ValueError, match="draw no random numbers"):
        hs.problems.torch_model(Noisy(4, 2), (4,))


def test_spectral_norm_is_refused_in_training_mode_and_learns_in_eval_mode():
    """In training mode a trial with parameters of 0 left buffers of 0, and gradients of 0."""
    module = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(64, 3)))
    before = snapshot(module)
    with pytest.raises(ValueError, match=r"'_u' of _SpectralNorm at 1.*module.eval\(\) first"):
        TorchHost(module, SHAPE, "cross-entropy")
    assert snapshot(module) == before
    wanted = looped(module.eval(), CLIP, "l2")
    assert np.abs(wanted).max() > 1e-3
    np.testing.assert_allclose(summed(module), wanted, rtol=1e-9, atol=1e-12)


def test_trials_and_sums_leave_buffers_and_modules_as_they_were():
    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(64, 3)
            self.register_buffer("scale", torch.full((64,), 0.5))
            self.note = {"sizes": [64, 3]}

        def forward(self, x):
            return super().forward(x.flatten(1) * self.scale)

    module = Scaled()
    before = snapshot(module)
    host = TorchHost(module, SHAPE, "cross-entropy")
    features, labels, weights = (np.asarray(part, np.float64) for part in batch())
    for point in (host.first, 1 + host.first):
        host.gradient_sum(point, features, labels, weights, clip=CLIP, norm="l2", microbatch=None)
    assert snapshot(module) == snapshot(host.module) == before
    assert torch.equal(host.fixed["scale"], torch.full((64,), 0.5))


# torch says that it takes the records of an LSTM one after the other.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_recurrent_layer_is_not_taken_for_one_with_a_memory():
    """torch keeps its parameters a second time, and makes that list anew in every call."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.LSTM(8, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.last(self.layer(x[:, 0])[0][:, -1])

    torch.manual_seed(0)
    host = TorchHost(Recurrent(), SHAPE, "cross-entropy")
    # In single precision: torch's LSTM has no gradients by record in double.
    point, *rows = (np.asarray(part, np.float32) for part in (host.first, *batch()))
    known = {"clip": CLIP, "norm": "l2", "microbatch": None}
    found = host.gradient_sum(point, *rows, **known)
    np.testing.assert_allclose(found, looped(host.module, CLIP, "l2"), rtol=1e-3, atol=1e-6)
    assert np.abs(found - host.gradient_sum(1 + point, *rows, **known)).max() > 1e-3
    np.testing.assert_allclose(host.gradient_sum(point, *rows, **known), found, atol=1e-7)


def test_a_module_that_cannot_be_copied_says_why():
    module = Keeping("in gradients")
    module(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="copy.deepcopy copies, but Keeping is not"):
        hs.problems.torch_model(module, (4,))


def test_dropout_in_eval_mode_is_left_out():
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3)).eval()
    np.testing.assert_allclose(summed(module), looped(module, CLIP, "l2"), rtol=1e-9, atol=1e-12)


def rows(count=60, seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 3, count))
    return Rows(torch.from_numpy(rng.normal(size=(count, *shape))).float(), labels)


class Listed(torch.utils.data.Dataset):
    """A data set that makes its items when they are asked for."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_data_sets_become_records():
    whole, module = rows(), cnn()
    problem = hs.problems.from_torch(module, whole, agents=4, test=rows(9, 1))
    assert (problem.agents, problem.shape, len(problem.test_labels)) == (4, SHAPE, 9)
    assert problem.arrivals.head_start == problem.most == 15
    dealt = {tuple(f.ravel()) for f in problem.features.reshape(-1, *SHAPE)}
    assert dealt == {tuple(f.ravel()) for f in whole.tensors[0].numpy()}
    listed = Listed([(x.numpy(), int(y)) for x, y in whole])
    again = hs.problems.from_torch(module, listed, agents=4)
    np.testing.assert_array_equal(again.features, problem.features)
    np.testing.assert_array_equal(again.labels, problem.labels)
    each = hs.problems.from_torch(module, [rows(5), rows(8, 1)])
    assert each.counts.tolist() == [5, 8] and each.name == "TensorDataset"
    np.testing.assert_array_equal(each.features[1], rows(8, 1).tensors[0].numpy())


def test_bytes_reach_the_module_as_parts_of_255():
    images = torch.randint(0, 256, (20, *SHAPE), dtype=torch.uint8)
    labels = torch.arange(20) % 3
    as_bytes, as_numbers = (
        hs.problems.from_torch(cnn(), Rows(x, labels), agents=1)
        for x in (images, images.double() / 255)
    )
    assert as_bytes.bytes and not as_numbers.bytes
    found = [
        np.asarray(
            p.loss.gradient_sum(
                jnp.asarray(p.start), *map(jnp.asarray, p.records.of(0)[:2]), jnp.ones(20)
            )
        )
        for p in (as_bytes, as_numbers)
    ]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dataset, options, message",
    [
        ([], {}, "dataset must be one for every agent, got 'an empty list'"),
        ([rows()], {"agents": 2}, "agents must be left out, or the 1 that have"),
        ([rows()], {"partition": "iid"}, "partition must be left out"),
        ([rows(), rows(shape=(1, 9, 9))], {}, "dataset of agent 1 must be records of shape"),
        (Listed([]), {}, "dataset must be one or more pairs"),
        (Listed([(torch.zeros(3), 1, 2)]), {}, "pairs .features, label., got 'tuple as an item'"),
        (Listed([(torch.zeros(3), 1), (torch.zeros(4), 1)]), {}, "features of one shape"),
        (iter([]), {}, "dataset must be a torch Dataset with a length"),
        (Rows(torch.zeros(4, 3), torch.zeros(4, 2)), {}, "labels of dataset must be one number"),
        (Rows(torch.zeros(4, 3).long(), torch.zeros(4)), {}, "floating-point numbers, or bytes"),
        (rows(), {"classes": 4}, "classes must be the 3 that Sequential gives scores for, got 4"),
        (rows(), {"test": rows(shape=(1, 9, 9))}, "test must be records of shape"),
        (
            Rows(torch.zeros(9, *SHAPE), torch.arange(9)),
            {"agents": 1},
            "dataset of agent 0: labels must be whole numbers from 0 to 2",
        ),
        (rows(), {"loss": "l2"}, "loss must be one of cross-entropy, mse"),
        (rows(), {"loss": "mse"}, "one number for a record with mse, got 3"),
    ],
)
def test_what_is_wrong_with_the_data_is_said(dataset, options, message):
    with pytest.raises(ValueError, match=message):
        hs.problems.from_torch(cnn(), dataset, **options)


def test_regression_and_a_loss_of_ones_own():
    features = torch.randn(40, 4)
    numbers = Rows(features, features @ torch.tensor([1.0, -1.0, 0.5, 0.0]))
    torch.manual_seed(0)
    line = nn.Linear(4, 1)
    problem = hs.problems.from_torch(line, numbers, loss="mse", agents=2, test=numbers)
    own = hs.problems.from_torch(
        line, numbers, loss=lambda scores, label: (scores[0] - label) ** 2, agents=2, test=numbers
    )
    assert not problem.classification and problem.loss.model.scores is None
    algorithm = hs.gradient_perturbation(step=0.3, noise=0.0, sampling=hs.Cyclic(20))
    runs = [hs.simulate(algorithm, p, hs.graphs.ring(2), steps=30, seeds=1) for p in (problem, own)]
    np.testing.assert_allclose(runs[0].models, runs[1].models, rtol=1e-9)
    losses = np.asarray(runs[0].metrics["test_loss"])
    assert losses[-1].max() < 0.05 * losses[0].max()
    released = runs[0].release()
    with pytest.raises(ValueError, match=r"scores of classes \(module\(\) has it as it is\)"):
        released.predict(problem.test_features)
    with torch.no_grad():
        errors = released.module()(features)[:, 0] - numbers.tensors[1]
    assert float(errors.square().mean()) < 0.2 * losses[0].max()


def test_a_run_comes_back_as_a_state_dict(tmp_path):
    """Released, saved, loaded, and put into the module: its predictions are the released ones."""
    module = cnn()
    problem = hs.problems.from_torch(module, rows(), agents=2, test=rows(12, 1))
    algorithm = hs.gradient_perturbation(
        step=0.2, noise=1.0, mechanism="gaussian", sampling=hs.Cyclic(10)
    )
    run = hs.simulate(
        algorithm, problem, hs.graphs.ring(2), steps=4, seeds=1, delta=1e-5, release="tail"
    )
    released = run.release(folder=tmp_path)
    assert math.isfinite(max(released.certificate.epsilon))
    trained = copy.deepcopy(module)
    trained.load_state_dict(hs.problems.state_dict(problem, released))
    test = problem.test_features
    with torch.no_grad():
        said = trained.eval()(torch.from_numpy(test)).argmax(dim=1).numpy()
    np.testing.assert_array_equal(said, released.predict(test))
    again = hs.load_model(tmp_path, model=hs.problems.torch_model(module, SHAPE))
    np.testing.assert_array_equal(again.predict(test), said)
    for name, tensor in again.module().state_dict().items():
        assert torch.equal(tensor, trained.state_dict()[name])
    changed = torch.cat([p.flatten() for p in trained.parameters()])
    np.testing.assert_allclose(changed.detach().numpy(), released.params, rtol=1e-6, atol=1e-7)
    assert not np.allclose(released.params, problem.start)


def test_the_module_itself_is_never_changed():
    module = cnn()
    before = copy.deepcopy(module.state_dict())
    problem = hs.problems.from_torch(module, rows(), agents=2)
    hs.problems.state_dict(problem, np.zeros(problem.dimension))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


def test_a_fingerprint_tells_programs_and_constants_apart():
    def digest(module, loss="cross-entropy"):
        return TorchHost(module, SHAPE, loss).program(SHAPE, np.dtype(np.float32))

    assert digest(cnn()) == digest(cnn(1)), "parameters are no part of a program"
    others = [cnn(), cnn(), cnn()]
    others[0][2] = nn.Tanh()
    others[1][4] = nn.Conv2d(6, 8, 3, stride=2, padding_mode="zeros", dilation=1, bias=True)
    others[1].append(nn.Softmax(dim=1))
    others[2][7].weight.requires_grad_(False)
    found = {digest(one) for one in (cnn(), *others)}
    assert len(found) == 4
    fixed = cnn(1)
    fixed[7].weight.requires_grad_(False)
    assert digest(fixed) not in found, "what is not trained is"


def test_large_batches_in_many_rounds_do_not_hang():
    """A callback that waits for the runtime that calls it would stop for ever."""
    host = TorchHost(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), SHAPE, "cross-entropy")
    known = NeuralLoss(from_host(host, "net"), clip=CLIP)
    features = jnp.asarray(np.random.default_rng(0).normal(size=(500, *SHAPE)))
    labels, weights = jnp.zeros(500), jnp.full(500, 1 / 500)

    @jax.jit
    def walk(point):
        step = lambda p, _: (p - known.gradient_sum(p, features + p[0], labels, weights), None)  # noqa: E731
        return jax.lax.scan(step, point, None, length=20)[0]

    done = []

    def work():
        point = jnp.asarray(host.first)
        for _ in range(10):
            point = walk(point)
        done.append(np.asarray(point))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(120)
    assert done and np.isfinite(done[0]).all()
