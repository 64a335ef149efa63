"""Few and small trees in place of those of `lstd.ope`, for tests of what does not depend on how well they predict.

A module takes them by ``pytest.mark.usefixtures("few_trees")``, and tests of the predictions themselves, and of the
chances of errors of a check, take `real_trees` in their place.
"""

import pytest


@pytest.fixture
def real_trees():
    """Keep the trees that users have, whatever the module says."""


@pytest.fixture
def few_trees(request, monkeypatch):
    """Predict visits, action values and rewards by trees that take a tenth of the time."""
    if "real_trees" in request.fixturenames:
        return
    from lstd.ope import hidden_state, logged_states

    boosting = logged_states.boosting
    trees = hidden_state.reward_trees

    def few_of_values(*least):
        return boosting(*least).set_params(max_iter=2, max_leaf_nodes=4)

    def few_of_rewards():
        boosted, randomised = trees()
        return boosted.set_params(max_iter=3, max_leaf_nodes=4), randomised.set_params(n_estimators=3)

    monkeypatch.setattr(logged_states, "boosting", few_of_values)
    monkeypatch.setattr(logged_states, "N_VISITS", 2)
    monkeypatch.setattr(logged_states, "N_VALUES", 1)
    monkeypatch.setattr(hidden_state, "reward_trees", few_of_rewards)
