"""Recompute lstd.json, steps.json and weights.json in float64: python check.py [folder]. README.md explains them."""

import json
import sys
from fractions import Fraction
from pathlib import Path

TOLERANCE = 1e-13
COLUMNS = ("episode", "X", "y", "X_next", "discount", "importance_ratio", "trace_coefficient", "weight")


def numbers(value):
    """The numbers that "p/q" stand for, in lists of any depth; null stays."""
    return [numbers(v) for v in value] if isinstance(value, list) else value and float(Fraction(value))


def sums(steps, lmbda, share, alpha):
    """[A + αI, b], (n, n + m); the last transition of an episode keeps this share of its successor."""
    n, m, before, arrival = len(steps[0][1]), len(steps[0][2]), None, 0
    rows, z = [[alpha * (i == j) for j in range(n)] + [0] * m for i in range(n)], [0] * n
    for step, after in zip(steps, [*steps[1:], [None]], strict=True):
        episode, phi, rewards, successor, discount, ratio, coefficient, weight = step
        decay = coefficient * lmbda * arrival if episode == before else 0
        before, arrival, kept = episode, discount, discount if after[0] == episode else share * discount
        z = [ratio * (decay * e + x) for e, x in zip(z, phi, strict=True)]
        terms = [x - kept * s for x, s in zip(phi, successor, strict=True)] + rewards
        rows = [[a + weight * e * x for a, x in zip(row, terms, strict=True)] for row, e in zip(rows, z, strict=True)]
    return rows


def solve(rows):
    """θ of (A + αI) θ = b by Gauss and Jordan, (n, m)."""
    for i in range(len(rows)):
        rows[i:] = sorted(rows[i:], key=lambda row: -abs(row[i]))
        one = rows[i] = [x / rows[i][i] for x in rows[i]]
        rows = [row if row is one else [x - row[i] * y for x, y in zip(row, one, strict=True)] for row in rows]
    return [row[len(rows) :] for row in rows]


def compare(where, found, expected, condition=1):
    """Stop if an entry is further off than the tolerance allows."""
    pairs = [pair for rows in zip(found, numbers(expected), strict=True) for pair in zip(*rows, strict=True)]
    most = TOLERANCE * condition * max(abs(y) for _, y in pairs)
    if not all(abs(x - y) <= most for x, y in pairs):
        sys.exit(f"{where}: got {found}, expected {numbers(expected)}")


for name in ("lstd.json", "steps.json", "weights.json"):
    path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent) / name
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        steps = [step for step in zip(*(numbers(case[column]) for column in COLUMNS), strict=True) if step[3]]
        lmbda, expected, n = numbers(case["lmbda"]), case["expected"], len(steps[0][1])
        for s in expected["solutions"]:
            where, share = f"{name}, {case['name']}, {s['variant']}", {"boyan": 1, "uncorrected": 0, "mixed": 1 - lmbda}
            rows = sums(steps, lmbda, share[s["variant"]], 0)
            compare(where, [row[:n] for row in rows], expected["A"][s["variant"]])
            compare(where, [row[n:] for row in rows], expected["b"])
            rows = sums(steps[: s["transitions"]], lmbda, share[s["variant"]], numbers(s["alpha"]))
            compare(where, solve(rows), s["weights"], s["condition"])
    print(f"{name} agrees")
