/** The validated options of the training demo. */
import { availableParallelism } from "node:os";
import { ArgumentError } from "lockstep";

const MAX_PROCESSES = 64;
const MAX_SEEDS = 100;
/** MX formats require rows in multiples of this number. */
const ROWS = 32;

/**
 * Parses the numeric options and applies defaults. `full` has the number of steps of a full run and the number of held-out
 * digits. Throws `ArgumentError` for a number out of range.
 */
export function settingsOf(values, full) {
  const { backend, out: directory, write } = values;
  const seeds = numberOf("seeds", values, 1, MAX_SEEDS);
  const cores = Math.min(availableParallelism(), MAX_PROCESSES);
  const processes = numberOf("threads", values, 1, MAX_PROCESSES) ?? cores;
  const steps = numberOf("steps", values, 1, full.steps) ?? full.steps;
  const digits = numberOf("digits", values, ROWS, full.digits) ?? full.digits;
  if (digits % ROWS !== 0) throw new ArgumentError(`--digits is ${digits}; it must be a multiple of ${ROWS}`);
  if (write && (seeds < 3 || steps < full.steps || digits < full.digits))
    throw new ArgumentError("--write is for a whole run: at least three seeds, all steps and all digits");
  return { backend, processes, directory, seeds, write, steps, digits };
}

function numberOf(name, { [name]: text }, least, most) {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text !== "" && Number.isInteger(value) && value >= least && value <= most) return value;
  throw new ArgumentError(`--${name} is "${text}"; it must be a whole number from ${least} to ${most}`);
}
