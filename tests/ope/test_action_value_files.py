"""Action values in files: the same values, intervals and shares after loading."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import lstd
from logged_actions import PROCESS, logged
from lstd.errors import InvalidInputError
from lstd.files import pack, write
from lstd.ope import LSTDQ, EpsilonGreedy, StateActionFeatures, policy_value

COMPARED = (
    "value",
    "lower",
    "upper",
    "standard_error",
    "degrees_of_freedom",
    "little_data",
    "sample",
    "unlogged_share",
)


def same_values(one, two, **arguments):
    one, two = policy_value(one, **arguments), policy_value(two, **arguments)
    assert [getattr(one, name) for name in COMPARED] == [getattr(two, name) for name in COMPARED]


@pytest.mark.filterwarnings("ignore::lstd.errors.SupportWarning")  # twelve episodes
@pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")
@pytest.mark.parametrize("kind", ["array", "sparse", "function", "successors", "labels", "weights", "wide"])
def test_a_loaded_model_is_that_saved(kind, tmp_path, monkeypatch):
    data, states = PROCESS.simulate(12, 5, 1), np.eye(4)[:3]
    options = {}
    if kind == "sparse":
        data["X"] = sparse.csr_array(data["X"])
    elif kind == "function":
        data["target_policy"] = EpsilonGreedy(lambda X: X @ PROCESS.r, 0.1)
    elif kind == "successors":
        data |= {"y": np.nan_to_num(data["y"]), "X_next": data["X"], "target_policy": lambda X: X @ PROCESS.pi}
        del data["behavior_probability"]
    elif kind == "labels":
        names = np.array(["wait", "treat", "operate"])
        data["actions"], options["features"] = names[data["actions"]], StateActionFeatures(names)
    elif kind == "weights":
        data["weight"], options["fit_intercept"] = np.random.default_rng(0).uniform(0.0, 2.0, len(data["y"])), False
    elif kind == "wide":
        monkeypatch.setattr("lstd.ope.logged_rows.ENTRIES_AT_ONCE", 8)
    lmbda = 0.0 if kind == "successors" else 0.5
    options["weighting"] = "none" if kind == "successors" else "ratio"
    model = LSTDQ(0.9, lmbda, alpha=0.3, **options).fit(**data)
    model.save(tmp_path / "model")
    again = lstd.load(tmp_path / "model")
    np.testing.assert_array_equal(again.action_values(states), model.action_values(states))
    actions = model.features_.labels[[2, 0, 1]]
    np.testing.assert_array_equal(again.predict(states, actions), model.predict(states, actions))
    np.testing.assert_array_equal(
        again.state_values(states, PROCESS.pi[:3]), model.state_values(states, PROCESS.pi[:3])
    )
    same_values(model, again)
    for sample in ("auto", "independent", "fixed"):
        same_values(model, again, initial_states=states, target_policy=PROCESS.pi[:3], sample=sample)
    assert again.unlogged_share_ == model.unlogged_share_
    assert policy_value(again).dual_weights is None
    assert policy_value(again).effective_sample_size is None
    assert (again.gamma, again.lmbda, again.trace, again.alpha) == (0.9, lmbda, "retrace", 0.3)
    assert again.weighting == model.weighting
    assert again.fit(**data).coef_.tolist() == model.coef_.tolist()
    with pytest.raises(InvalidInputError, match="or loaded from a file"):
        LSTDQ.load(tmp_path / "model").state_values(states)


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_first_states_of_blocks_are_known_to_a_loaded_lstd(tmp_path):
    data = PROCESS.simulate(12, 5, 1)
    model = lstd.LSTD(0.9, 0.0).fit(data["X"], data["y"], episode=data["episode"], terminated=data["terminated"])
    model.save(tmp_path / "model")
    first = data["X"][np.flatnonzero(np.diff(data["episode"], prepend=-1))]
    same_values(model, lstd.load(tmp_path / "model"), initial_states=first, sample="episodes")


def test_what_a_file_cannot_hold_is_refused(tmp_path):
    data = logged()
    with pytest.raises(NotFittedError):
        LSTDQ().save(tmp_path / "model")
    function = LSTDQ(0.9, features=lambda X, actions: X * actions[:, np.newaxis]).fit(**data)
    with pytest.raises(InvalidInputError, match=r"`features` must have no function .* Save `lstd_`"):
        function.save(tmp_path / "model")
    labels = np.array(["a", 1, 2.5], dtype=object)
    mixed = LSTDQ(0.9, features=StateActionFeatures(labels)).fit(**data | {"actions": labels[data["actions"]]})
    with pytest.raises(InvalidInputError, match="labels of one type"):
        mixed.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_files_of_other_models_and_content_are_refused(tmp_path):
    model = LSTDQ(0.9).fit(**logged())
    model.save(tmp_path / "values")
    model.lstd_.save(tmp_path / "pairs")
    with pytest.raises(InvalidInputError, match="format 'lstd model'; it is of format 'lstd model of action values'"):
        lstd.LSTD.load(tmp_path / "values")
    with pytest.raises(InvalidInputError, match="must be a file of format 'lstd model of action values'"):
        LSTDQ.load(tmp_path / "pairs")
    for wrong in (
        {"trace": "q"}, {"names": ["u"]}, {"unlogged": [None, 1.0]}, {"unlogged": [0.0]}, {"labels": [0, 1]},
        {"labels": [0, 1, 1]}, {"n_features": 2}, {"policy": [1, 2]}, {"policy": np.nan}, {"states": [3, 1]},
    ):  # fmt: skip
        document, arrays = pack(model.to_record())
        (name, value), *_ = wrong.items()
        if value is np.nan:
            arrays[name] = np.nan * arrays[name]
        elif name in arrays:
            document[name], arrays[name] = value, np.zeros(value)
        else:
            document[name] = value
        write(tmp_path / "wrong", "model of action values", document, arrays)
        with pytest.raises(InvalidInputError, match="does not hold a model of action values written by lstd"):
            lstd.load(tmp_path / "wrong")
