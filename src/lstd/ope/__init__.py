"""Policy evaluation from logged actions: the value of a policy other than the one that logged the data.

States, actions and rewards that one policy logged come in, with the probabilities of another, the target policy. Action
values, values of policies with intervals, and differences between policies go out. Weights and intervals are those of
:class:`lstd.LSTD`, fitted to features of state–action pairs.
"""

from lstd.ope.action_calibration import ActionCalibration, action_calibration
from lstd.ope.evaluate_policy import evaluate_policy
from lstd.ope.hidden_state import HiddenStateCheck
from lstd.ope.importance_sampling import importance_sampling
from lstd.ope.logged_states import FeatureCheck
from lstd.ope.lstdq import LSTDQ
from lstd.ope.pairs import StateActionFeatures
from lstd.ope.policies import EpsilonGreedy
from lstd.ope.policy_comparison import PolicyComparison, compare_policies
from lstd.ope.policy_value import PolicyValue, policy_value

__all__ = [
    "LSTDQ",
    "ActionCalibration",
    "EpsilonGreedy",
    "FeatureCheck",
    "HiddenStateCheck",
    "PolicyComparison",
    "PolicyValue",
    "StateActionFeatures",
    "action_calibration",
    "compare_policies",
    "evaluate_policy",
    "importance_sampling",
    "policy_value",
]
