"""The draws of `numpy.random.RandomState`, and the random Markov reward processes made of them, in plain Python.

The generator is MT19937 with the seeding of Matsumoto and Nishimura's `init_genrand`. Everything but `log` and `sqrt`
in the normal numbers is exact in float64; a `log` that differs in the last bit changes the last bits of those.
"""

from __future__ import annotations

import math
import random
from itertools import accumulate


class RandomState:
    """Uniform, normal and integer numbers as the legacy generator of NumPy draws them."""

    def __init__(self, seed):
        key = [seed]
        for i in range(1, 624):
            key.append((1812433253 * (key[-1] ^ (key[-1] >> 30)) + i) & 0xFFFFFFFF)
        self._words = random.Random()
        self._words.setstate((3, (*key, 624), None))
        self._second = None  # normal numbers come in pairs

    def uniform(self):
        """A number in [0, 1) of two 32-bit words a, b: ((a >> 5) · 2²⁶ + (b >> 6)) / 2⁵³."""
        a, b = self._words.getrandbits(32) >> 5, self._words.getrandbits(32) >> 6
        return (a * 67108864.0 + b) / 9007199254740992.0

    def integer(self, most):
        """An integer in [0, most]: low bits of a word, rejected while they exceed `most`."""
        mask = (1 << most.bit_length()) - 1
        while (value := self._words.getrandbits(32) & mask) > most:
            pass
        return value

    def normal(self):
        """A standard normal number by the polar method of Box, Muller and Marsaglia."""
        if self._second is not None:
            value, self._second = self._second, None
            return value
        square = 0.0
        while not 0.0 < square < 1.0:
            x = 2.0 * self.uniform() - 1.0
            y = 2.0 * self.uniform() - 1.0
            square = x * x + y * y
        factor = math.sqrt(-2.0 * math.log(square) / square)
        self._second = factor * x
        return factor * y

    def choice(self, n, size):
        """`size` of the numbers 0 … n−1 without replacement: the first of a shuffled list."""
        numbers = list(range(n))
        for i in reversed(range(1, n)):
            j = self.integer(i)
            numbers[i], numbers[j] = numbers[j], numbers[i]
        return numbers[:size]


def random_process(k, branching, seed):
    """Successors and probabilities (k, b), rewards (k, k) and normal features (k, 5), in the order of the draws."""
    source = RandomState(seed)
    for _ in range(k * k):
        source.uniform()
    successors, probabilities = [], []
    for _ in range(k):
        successors.append(source.choice(k, branching))
        cuts = [0.0, *sorted(source.uniform() for _ in range(branching - 1)), 1.0]
        probabilities.append([cuts[i + 1] - cuts[i] for i in range(branching)])
    rewards = [[source.normal() for _ in range(k)] for _ in range(k)]
    for _ in range(k):
        source.uniform()
    normals = [[source.normal() for _ in range(5)] for _ in range(k)]
    return successors, probabilities, rewards, [unit_length(row) for row in normals]


def binary_features(k):
    """The bits of s + 1, most significant first, scaled to length 1; (k, ⌈log2(k + 1)⌉)."""
    width = k.bit_length()
    return [unit_length([float(bit) for bit in format(s + 1, f"0{width}b")]) for s in range(k)]


def unit_length(row):
    """The row divided by the square root of its sum of squares, which are added from the first to the last."""
    total = 0.0
    for x in row:
        total += x * x
    return [x / math.sqrt(total) for x in row]


def run(successors, probabilities, rewards, reward_std, n_steps, seed):
    """States (n_steps + 1) and rewards (n_steps) of a run from state 0.

    Per step a uniform u: the successor is the first state in order of index with u < cumulative probability. Then, if
    `reward_std` is positive, a normal number times it is added to the reward.
    """
    source, states, received = RandomState(seed), [0], []
    for _ in range(n_steps):
        s, u = states[-1], source.uniform()
        ordered = sorted(zip(successors[s], probabilities[s], strict=True))
        sums = list(accumulate(probability for _, probability in ordered))
        i = next((i for i, total in enumerate(sums) if u < total), len(ordered) - 1)
        states.append(ordered[i][0])
        received.append(rewards[s][states[-1]] + (reward_std * source.normal() if reward_std else 0.0))
    return states, received
