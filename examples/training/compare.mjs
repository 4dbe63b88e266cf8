/** Compares the accuracy of a recipe with bf16, digit by digit. */

/** The number of standard errors that are added to a recipe's allowance. */
const SIGMAS = 2;

/**
 * The paired difference of two recipes in percentage points. `ours` and `theirs` have, for each seed, a 1 for each
 * digit that was recognised. Let d[i] be the mean over seeds of ours - theirs for digit i of n. `mean` is the mean of
 * d, and `error` its standard error, sqrt(sum of (d[i] - mean)^2 / (n - 1) / n).
 */
export function pairedDifference(ours, theirs) {
  const count = ours[0].length;
  const differences = Array.from({ length: count }, (_, digit) =>
    meanOf(ours.map((right, seed) => right[digit] - theirs[seed][digit])),
  );
  const mean = meanOf(differences);
  const squares = differences.reduce((sum, difference) => sum + (difference - mean) ** 2, 0);
  return { mean: 100 * mean, error: 100 * Math.sqrt(squares / (count - 1) / count) };
}

/**
 * A recipe's row in the table, from its runs and the runs of bf16 with the same seeds. The loss is the mean over the last `epoch`
 * steps.
 */
export function rowOf({ name, allowance }, runs, baseline, epoch) {
  const right = runs.map((run) => run.right);
  const difference = pairedDifference(
    right,
    baseline.map((run) => run.right),
  );
  return {
    name,
    accuracy: 100 * meanOf(right.map(meanOf)),
    difference,
    ...(allowance === undefined ? {} : verdict(difference, allowance)),
    loss: meanOf(runs.map(({ losses }) => meanOf(losses.slice(-epoch)))),
    seconds: meanOf(runs.map((run) => run.seconds)),
    cpuSeconds: meanOf(runs.map((run) => run.cpuSeconds)),
    curve: runs[0].losses.map((_, step) => meanOf(runs.map(({ losses }) => losses[step]))),
  };
}

/** The criterion: the recipe may be worse than bf16 by its allowance plus two standard errors. A NaN fails. */
export function verdict({ mean, error }, allowance) {
  const least = -(allowance + SIGMAS * error);
  return { allowance, least, passes: mean >= least };
}

/** One sentence for each row that fails its criterion. */
export function failuresOf(rows) {
  return rows
    .filter(({ passes }) => passes === false)
    .map(({ name, difference, allowance }) => {
      const [off, error] = [-difference.mean, difference.error].map((points) => points.toFixed(2));
      return `${name} is ${off} points worse than bf16; ${allowance} + ${SIGMAS} x ${error} are allowed`;
    });
}

function meanOf(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
