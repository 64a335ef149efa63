// Recompute every file of this folder in float64: node check.mjs [folder]. README.md explains them.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const TOLERANCE = 1e-13;
const VERSION = 1;
const folder = process.argv[2] ?? dirname(fileURLToPath(import.meta.url));

// ---------------------------------------------------------------- numbers and comparison

/** The numbers that "p/q" stand for, in arrays and objects of any depth; all else stays. */
function numbers(value) {
  if (Array.isArray(value)) return value.map(numbers);
  if (value !== null && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, numbers(v)]));
  if (typeof value !== "string" || !/^-?\d+(\/\d+)?$/.test(value)) return value;
  const [p, q] = value.split("/");
  return Number(p) / Number(q ?? 1);
}

/** The float64 that C's "%a" writes. */
function hexadecimal(value) {
  if (Array.isArray(value)) return value.map(hexadecimal);
  const [, sign, whole, rest, exponent] = /^(-?)0x([01])\.([0-9a-f]+)p([+-]\d+)$/.exec(value);
  return Number(sign + "1") * parseInt(whole + rest, 16) * 2 ** (Number(exponent) - 4 * rest.length);
}

/** Stop if a number is further off than the tolerance allows, relative to the largest one expected. */
function compare(where, found, expected, tolerance = TOLERANCE) {
  const [one, two] = [[found].flat(Infinity), [expected].flat(Infinity)];
  const most = tolerance * Math.max(...two.map(Math.abs));
  if (one.length !== two.length || !one.every((x, i) => Math.abs(x - two[i]) <= most)) {
    console.error(`${where}: got ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`);
    process.exit(1);
  }
}

// ---------------------------------------------------------------- arithmetic

const zeros = (n, m) => Array.from({ length: n }, () => Array(m).fill(0));
const dot = (u, v) => u.reduce((total, x, i) => total + x * v[i], 0);
const axpy = (factor, x, y) => y.map((value, i) => value + factor * x[i]);
const add = (A, B, factor = 1) => A.map((row, i) => axpy(factor, B[i], row));
const addOuter = (A, factor, u, v) => A.map((row, i) => axpy(factor * u[i], v, row));

/** θ of A θ = b, (n, m), by Gauss and Jordan with the largest pivot. */
function solve(A, b) {
  const rows = A.map((row, i) => [...row, ...b[i]]);
  for (let i = 0; i < rows.length; i++) {
    let pivot = i;
    for (let k = i; k < rows.length; k++) if (Math.abs(rows[k][i]) > Math.abs(rows[pivot][i])) pivot = k;
    [rows[i], rows[pivot]] = [rows[pivot], rows[i]];
    rows[i] = rows[i].map((x) => x / rows[i][i]);
    for (let k = 0; k < rows.length; k++) if (k !== i) rows[k] = axpy(-rows[k][i], rows[i], rows[k]);
  }
  return rows.map((row) => row.slice(A.length));
}

// ---------------------------------------------------------------- least squares

/** Discount on arrival in row t: 0 where an episode begins. */
const arrival = (data, t) => (t > 0 && data.episode[t] === data.episode[t - 1] ? data.discount[t - 1] : 0);

/** All rows but horizon rows. */
function transitions(data) {
  const rows = data.X.map((phi, t) => ({
    phi, rewards: data.y[t], next: data.X_next[t], discount: data.discount[t], arrival: arrival(data, t),
    ratio: data.importance_ratio[t], coefficient: data.trace_coefficient[t], weight: data.weight[t],
    episode: data.episode[t],
  }));
  return rows.filter((row) => row.next !== null);
}

/** A and b; the last transition of an episode keeps this share of its successor. */
function sums(steps, lmbda, share) {
  const [n, m] = [steps[0].phi.length, steps[0].rewards.length];
  let [A, b, z] = [zeros(n, n), zeros(n, m), Array(n).fill(0)];
  steps.forEach((s, k) => {
    const kept = steps[k + 1]?.episode === s.episode ? 1 : share;
    z = z.map((e, i) => s.ratio * (s.coefficient * lmbda * s.arrival * e + s.phi[i]));
    A = addOuter(A, s.weight, z, axpy(-kept * s.discount, s.next, s.phi));
    b = addOuter(b, s.weight, z, s.rewards);
  });
  return [A, b];
}

function checkLeastSquares(where, data) {
  const [steps, lmbda, expected] = [transitions(data), data.lmbda, data.expected];
  const shares = { boyan: 1, uncorrected: 0, mixed: 1 - lmbda };
  for (const [variant, share] of Object.entries(shares)) {
    const [A, b] = sums(steps, lmbda, share);
    compare(`${where}, A of ${variant}`, A, expected.A[variant]);
    compare(`${where}, b`, b, expected.b);
  }
  for (const s of expected.solutions) {
    const [A, b] = sums(steps.slice(0, s.transitions), lmbda, shares[s.variant]);
    const ridge = A.map((row, i) => row.map((a, j) => (i === j ? a + s.alpha : a)));
    compare(`${where}, weights of ${s.variant}`, solve(ridge, b), s.weights, TOLERANCE * s.condition);
  }
}

// ---------------------------------------------------------------- pairs of a state and an action

const TRACES = {
  retrace: (target, behavior) => Math.min(1, target / behavior),
  none: () => 0,
};

/** Features of pairs, those expected of successors, and coefficients; then as for any other rows. */
function checkActions(where, data) {
  data.states.forEach((phi, t) => {
    if (data.X_next[t] === null) return;
    const [pi, action] = [data.target_policy, data.actions[t]];
    const terminal = data.terminated[t];
    const taken = pi[t].flatMap((_, a) => phi.map((x) => (a === action ? x : 0)));
    const expected = pi[t].flatMap((_, a) => phi.map((_, i) => (terminal ? 0 : pi[t + 1][a] * data.states[t + 1][i])));
    const coefficient = TRACES[data.trace](pi[t][action], data.behavior_probability[t]);
    compare(`${where}, X of row ${t}`, taken, data.X[t]);
    compare(`${where}, X_next of row ${t}`, expected, data.X_next[t]);
    compare(`${where}, trace_coefficient of row ${t}`, coefficient, data.trace_coefficient[t]);
  });
  checkLeastSquares(where, data);
  const begins = (t) => t === 0 || data.episode[t] !== data.episode[t - 1];
  const firsts = data.episode.map((_, t) => t).filter((t) => begins(t) && data.X_next[t] !== null);
  const pairs = firsts.map((t) => data.target_policy[t].flatMap((p) => data.states[t].map((x) => p * x)));
  const initial = pairs.reduce((one, two) => axpy(1, one, two)).map((x) => x / firsts.length);
  compare(`${where}, initial`, initial, data.expected.initial);
  const shares = { boyan: 1, uncorrected: 0, mixed: 1 - data.lmbda };
  for (const s of data.expected.solutions) {
    const [A] = sums(transitions(data), data.lmbda, shares[s.variant]);
    const transposed = A.map((row, i) => row.map((_, j) => A[j][i] + (i === j ? s.alpha : 0)));
    const dual = solve(transposed, initial.map((x) => [x]));
    compare(`${where}, dual of ${s.variant}`, dual, s.dual, TOLERANCE * s.dual_condition);
  }
}

// ---------------------------------------------------------------- chunks

/** Sums over the rows from `start` to before `end`, and what a trace that enters them changes. */
function chunk(data, start, end) {
  const [n, m, lmbda] = [data.X[0].length, data.y[0].length, data.lmbda];
  const s = { A: zeros(n, n), B: zeros(n, n), b: zeros(n, m), z: Array(n).fill(0) };
  Object.assign(s, { p: Array(n).fill(0), h: Array(n).fill(0), c: Array(m).fill(0), D: 1 });
  for (let t = start; t < end; t++) {
    const [phi, gamma, rho] = [data.X[t], arrival(data, t), data.importance_ratio[t]];
    if (data.X_next[t] === null) {
      s.B = addOuter(s.B, gamma, s.z, phi);
      s.h = axpy(gamma * s.D, phi, s.h);
      [s.z, s.D] = [Array(n).fill(0), 0];
      continue;
    }
    const z = s.z.map((e, i) => rho * (lmbda * gamma * e + phi[i]));
    s.A = addOuter(s.A, 1, axpy(-gamma, s.z, z), phi);
    s.b = addOuter(s.b, 1, z, data.y[t]);
    s.p = axpy(gamma * (1 - rho * lmbda) * s.D, phi, s.p);
    s.D *= rho * lmbda * gamma;
    s.c = axpy(s.D, data.y[t], s.c);
    s.z = z;
  }
  return s;
}

/** The sums of two chunks of which the second follows the first. */
function merge(one, two) {
  return {
    A: addOuter(add(one.A, two.A), -1, one.z, two.p),
    B: addOuter(add(one.B, two.B), 1, one.z, two.h),
    b: addOuter(add(one.b, two.b), 1, one.z, two.c),
    z: axpy(two.D, one.z, two.z),
    p: axpy(one.D, two.p, one.p),
    h: axpy(one.D, two.h, one.h),
    c: axpy(one.D, two.c, one.c),
    D: one.D * two.D,
  };
}

function checkChunks(where, data) {
  const compareSums = (what, found, expected) => {
    for (const key of Object.keys(expected)) compare(`${where}, ${key} of ${what}`, found[key], expected[key]);
  };
  const parts = data.edges.slice(1).map((end, i) => chunk(data, data.edges[i], end));
  parts.forEach((part, i) => compareSums(`chunk ${i}`, part, data.expected.chunks[i]));
  compareSums("the whole, from the left", parts.reduce(merge), data.expected.whole);
  compareSums("the whole, from the right", parts.reduceRight((later, part) => merge(part, later)), data.expected.whole);
}

// ---------------------------------------------------------------- temporal differences

/** Weights after each transition. */
function temporalDifferences(data, kind) {
  let [theta, e, before] = [Array(data.X[0].length).fill(0), Array(data.X[0].length).fill(0), 0];
  return transitions(data).map((s) => {
    const [value, ahead] = [dot(s.phi, theta), dot(s.next, theta)];
    const error = s.rewards[0] + s.discount * ahead - value;
    e = e.map((x) => data.lmbda * s.arrival * x);
    if (kind === "true_online") {
      const drift = value - before;
      e = axpy(1 - data.step_size * dot(e, s.phi), s.phi, e);
      theta = axpy(-data.step_size * drift, s.phi, axpy(data.step_size * (error + drift), e, theta));
    } else {
      e = e.map((x, i) => s.ratio * ((kind === "replacing" && s.phi[i] !== 0 ? 0 : x) + s.phi[i]));
      theta = axpy(data.step_size * error, e, theta);
    }
    before = ahead;
    return theta;
  });
}

function checkTemporalDifferences(where, data) {
  for (const [kind, expected] of Object.entries(data.expected))
    temporalDifferences(data, kind).forEach((theta, t) => compare(`${where}, ${kind}, ${t}`, theta, expected[t]));
}

// ---------------------------------------------------------------- random processes

/** Words of MT19937, seeded as Matsumoto and Nishimura's init_genrand. */
function* words(seed) {
  const key = new Uint32Array(624);
  key[0] = seed;
  for (let i = 1; i < 624; i++) key[i] = Math.imul(1812433253, key[i - 1] ^ (key[i - 1] >>> 30)) + i;
  for (;;) {
    for (let i = 0; i < 624; i++) {
      const y = (key[i] & 0x80000000) | (key[(i + 1) % 624] & 0x7fffffff);
      key[i] = key[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    for (let y of key) {
      y ^= y >>> 11;
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      yield (y ^ (y >>> 18)) >>> 0;
    }
  }
}

class RandomState {
  constructor(seed) {
    this.words = words(seed);
    this.second = null;
  }
  word() {
    return this.words.next().value;
  }
  uniform() {
    const [a, b] = [this.word() >>> 5, this.word() >>> 6];
    return (a * 67108864 + b) / 9007199254740992;
  }
  integer(most) {
    const mask = 2 ** Math.ceil(Math.log2(most + 1)) - 1;
    let value;
    do value = this.word() & mask;
    while (value > most);
    return value;
  }
  normal() {
    if (this.second !== null) {
      const value = this.second;
      this.second = null;
      return value;
    }
    let x, y, square;
    do {
      x = 2 * this.uniform() - 1;
      y = 2 * this.uniform() - 1;
      square = x * x + y * y;
    } while (square >= 1 || square === 0);
    const factor = Math.sqrt((-2 * Math.log(square)) / square);
    this.second = factor * x;
    return factor * y;
  }
  choice(n, size) {
    const list = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = this.integer(i);
      [list[i], list[j]] = [list[j], list[i]];
    }
    return list.slice(0, size);
  }
}

const times = (count, make) => Array.from({ length: count }, (_, i) => make(i));

function unitLength(row) {
  const length = Math.sqrt(row.reduce((total, x) => total + x * x, 0));
  return row.map((x) => x / length);
}

function randomProcess(k, branching, seed) {
  const source = new RandomState(seed);
  times(k * k, () => source.uniform());
  const [successors, probabilities] = [[], []];
  for (let s = 0; s < k; s++) {
    successors.push(source.choice(k, branching));
    const cuts = [0, ...times(branching - 1, () => source.uniform()).sort((a, b) => a - b), 1];
    probabilities.push(times(branching, (i) => cuts[i + 1] - cuts[i]));
  }
  const rewards = times(k, () => times(k, () => source.normal()));
  times(k, () => source.uniform());
  const normal = times(k, () => unitLength(times(5, () => source.normal())));
  const width = k.toString(2).length;
  const binary = times(k, (s) => unitLength([...(s + 1).toString(2).padStart(width, "0")].map(Number)));
  return { successors, probabilities, rewards, normal, binary };
}

function simulate(model, rewardStd, count, seed) {
  const [source, states, rewards] = [new RandomState(seed), [0], []];
  for (let t = 0; t < count; t++) {
    const [s, u] = [states[t], source.uniform()];
    const order = model.successors[s].map((state, i) => [state, model.probabilities[s][i]]).sort(([a], [b]) => a - b);
    let total = 0;
    const chosen = order.find(([, probability]) => u < (total += probability)) ?? order.at(-1);
    states.push(chosen[0]);
    rewards.push(model.rewards[s][chosen[0]] + (rewardStd > 0 ? rewardStd * source.normal() : 0));
  }
  return { states, rewards };
}

function sha256(rows) {
  const bytes = Buffer.alloc(8 * rows.flat().length);
  rows.flat().forEach((x, i) => bytes.writeDoubleLE(x, 8 * i));
  return createHash("sha256").update(bytes).digest("hex");
}

/** Normal numbers are compared up to the tolerance, because `Math.log` may differ in the last bit; all else exactly. */
function checkProcess(where, data) {
  const model = randomProcess(data.n_states, data.branching, data.seed);
  const shown = data.successors.length;
  compare(`${where}, successors`, model.successors.slice(0, shown), data.successors, 0);
  for (const [key, tolerance] of [["probabilities", 0], ["binary", 0], ["rewards", TOLERANCE], ["normal", TOLERANCE]])
    compare(`${where}, ${key}`, model[key].slice(0, shown), hexadecimal(data[key]), tolerance);
  for (const key of ["probabilities", "binary"])
    compare(`${where}, ${key}: SHA-256`, Number(sha256(model[key]) === data.sha256[key]), 1);
  for (const run of data.runs) {
    const found = simulate(model, hexadecimal([data.reward_std])[0], run.rewards.length, run.seed);
    compare(`${where}, states of run ${run.seed}`, found.states, run.states, 0);
    compare(`${where}, rewards of run ${run.seed}`, found.rewards, hexadecimal(run.rewards));
  }
}

// ---------------------------------------------------------------- files

const CHECKS = {
  lstd: checkLeastSquares, steps: checkLeastSquares, weights: checkLeastSquares, actions: checkActions,
  chunks: checkChunks, td: checkTemporalDifferences, processes: checkProcess,
};

for (const [name, check] of Object.entries(CHECKS)) {
  const file = JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8"));
  compare(`${name}.json, version`, file.version, VERSION);
  for (const data of file.cases) check(`${name}.json, ${data.name}`, numbers(data));
  console.log(`${name}.json agrees`);
}
