"""Recompute the files of least squares in float64: python check.py [folder]. README.md explains them."""

import json
import sys
from fractions import Fraction
from pathlib import Path

TOLERANCE = 1e-13
COLUMNS = ("episode", "X", "y", "X_next", "discount", "importance_ratio", "trace_coefficient", "weight")


def numbers(value):
    """The numbers that "p/q" stand for, in lists of any depth; null stays."""
    return [numbers(v) for v in value] if isinstance(value, list) else value and float(Fraction(value))


def sums(steps, lmbda, share):
    """A and b of transitions; the last one of an episode keeps this share of its successor."""
    n, m = len(steps[0][1]), len(steps[0][2])
    rows, trace = [[0] * (n + m) for _ in range(n)], [0] * n
    for step, after in zip(steps, [*steps[1:], [None]], strict=True):
        episode, phi, rewards, successor, discount, ratio, coefficient, weight = step
        goes_on, z = after[0] == episode, [ratio * (coefficient * e + x) for e, x in zip(trace, phi, strict=True)]
        trace = [lmbda * discount * goes_on * e for e in z]
        terms = [x - (1 if goes_on else share) * discount * s for x, s in zip(phi, successor, strict=True)] + rewards
        rows = [[a + weight * e * x for a, x in zip(row, terms, strict=True)] for row, e in zip(rows, z, strict=True)]
    return [row[:n] for row in rows], [row[n:] for row in rows]


def solution(A, b, alpha):
    """(A + αI)⁻¹ b."""
    left, n = [[x + alpha * (i == j) for j, x in enumerate(row)] + b[i] for i, row in enumerate(A)], len(A)
    for i in range(n):  # Gauss and Jordan
        left[i:] = sorted(left[i:], key=lambda row: -abs(row[i]))
        one = left[i] = [x / left[i][i] for x in left[i]]
        left = [row if row is one else [x - row[i] * y for x, y in zip(row, one, strict=True)] for row in left]
    return [row[n:] for row in left]


def first_pairs(case):
    """Mean of Σ π(a|s) φ(s, a) over the first states of episodes with a transition."""
    episodes, policy, states = case["episode"], numbers(case["target_policy"]), numbers(case["states"])
    firsts = [t for t, e in enumerate(episodes) if e not in episodes[:t] and case["X_next"][t]]
    pairs = [[p * x for p in policy[t] for x in states[t]] for t in firsts]
    return [[sum(column) / len(firsts)] for column in zip(*pairs, strict=True)]


folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
for name in ("lstd.json", "steps.json", "weights.json", "actions.json"):
    file = json.loads((folder / name).read_text(encoding="utf-8"))
    for case in file["cases"] if file["version"] == 1 else sys.exit(f"{name}: its version must be 1"):
        steps = [step for step in zip(*(numbers(case[column]) for column in COLUMNS), strict=True) if step[3]]
        lmbda, expected = numbers(case["lmbda"]), case["expected"]
        for s in expected["solutions"]:
            share, alpha = {"boyan": 1, "uncorrected": 0, "mixed": 1 - lmbda}[s["variant"]], numbers(s["alpha"])
            found = [*sums(steps, lmbda, share)]
            found.append(solution(*sums(steps[: s["transitions"]], lmbda, share), alpha))
            wanted, conditions = [expected["A"][s["variant"]], expected["b"], s["weights"]], [1, 1, s["condition"]]
            if "dual" in s:
                initial, transposed = first_pairs(case), [list(column) for column in zip(*found[0], strict=True)]
                found += [initial, solution(transposed, initial, alpha)]
                wanted += [[[x] for x in expected["initial"]], [[x] for x in s["dual"]]]
                conditions += [1, s["dual_condition"]]
            for array, exact, condition in zip(found, numbers(wanted), conditions, strict=True):
                most = TOLERANCE * condition * max(abs(x) for row in exact for x in row)
                pairs = [pair for rows in zip(array, exact, strict=True) for pair in zip(*rows, strict=True)]
                if not all(abs(x - e) <= most for x, e in pairs):
                    sys.exit(f"{name}, {case['name']}, {s['variant']}: got {array}, expected {exact}")
    print(f"{name} agrees")
