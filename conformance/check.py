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


def answers(steps, lmbda, share, alpha):
    """A, b and θ of transitions; the last one of an episode keeps this share of its successor."""
    n, m = len(steps[0][1]), len(steps[0][2])
    rows, trace = [[0] * (n + m) for _ in range(n)], [0] * n
    for step, after in zip(steps, [*steps[1:], [None]], strict=True):
        episode, phi, rewards, successor, discount, ratio, coefficient, weight = step
        goes_on, z = after[0] == episode, [ratio * (coefficient * e + x) for e, x in zip(trace, phi, strict=True)]
        trace = [lmbda * discount * goes_on * e for e in z]
        terms = [x - (1 if goes_on else share) * discount * s for x, s in zip(phi, successor, strict=True)] + rewards
        rows = [[a + weight * e * x for a, x in zip(row, terms, strict=True)] for row, e in zip(rows, z, strict=True)]
    left = [[x + alpha * (i == j) for j, x in enumerate(row)] for i, row in enumerate(rows)]
    for i in range(n):  # Gauss and Jordan
        left[i:] = sorted(left[i:], key=lambda row: -abs(row[i]))
        one = left[i] = [x / left[i][i] for x in left[i]]
        left = [row if row is one else [x - row[i] * y for x, y in zip(row, one, strict=True)] for row in left]
    return [row[:n] for row in rows], [row[n:] for row in rows], [row[n:] for row in left]


folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
for name in ("lstd.json", "steps.json", "weights.json", "actions.json"):
    file = json.loads((folder / name).read_text(encoding="utf-8"))
    for case in file["cases"] if file["version"] == 1 else sys.exit(f"{name}: its version must be 1"):
        steps = [step for step in zip(*(numbers(case[column]) for column in COLUMNS), strict=True) if step[3]]
        lmbda, expected = numbers(case["lmbda"]), case["expected"]
        for s in expected["solutions"]:
            settings = lmbda, {"boyan": 1, "uncorrected": 0, "mixed": 1 - lmbda}[s["variant"]], numbers(s["alpha"])
            found = *answers(steps, *settings)[:2], answers(steps[: s["transitions"]], *settings)[2]
            wanted = expected["A"][s["variant"]], expected["b"], s["weights"]
            for array, exact, condition in zip(found, numbers([*wanted]), (1, 1, s["condition"]), strict=True):
                most = TOLERANCE * condition * max(abs(x) for row in exact for x in row)
                pairs = [pair for rows in zip(array, exact, strict=True) for pair in zip(*rows, strict=True)]
                if not all(abs(x - e) <= most for x, e in pairs):
                    sys.exit(f"{name}, {case['name']}, {s['variant']}: got {array}, expected {exact}")
    print(f"{name} agrees")
