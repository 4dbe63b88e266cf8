/** Learning rates by the number of the step. */
import { ArgumentError } from "../errors.js";
import { cosSin, PI, ratio, toNumber } from "../modules/rotary/fixed-point.js";
import { atLeastZero, integer, needed, oneOf, optionsOf } from "../options.js";

/** The decay of a rate: the factor of (learningRate - minLearningRate) after `done` of `all` steps of the decay. */
const DECAYS = {
  constant: () => 1,
  linear: (done: number, all: number) => 1 - done / all,
  cosine: (done: number, all: number) => (1 + toNumber(cosSin(ratio(PI, BigInt(done), BigInt(all)))[0])) / 2,
  /** The cooldown of a warmup-stable-decay schedule. */
  sqrt: (done: number, all: number) => 1 - Math.sqrt(done / all),
} as const satisfies Record<string, (done: number, all: number) => number>;

/** The form of the decay of a learning rate. */
export type DecayStyle = keyof typeof DECAYS;

/** Options of `learningRateSchedule`. */
export interface LearningRateScheduleOptions {
  /** The rate after the warmup. */
  readonly learningRate: number;
  /** The rate after the last step, toward which the decay falls. Default 0, or `learningRate` for `constant`. */
  readonly minLearningRate?: number | undefined;
  /**
   * The number of steps over which the rate rises linearly; the rate of the first step is learningRate / warmupSteps. Default 0.
   */
  readonly warmupSteps?: number | undefined;
  /** The number of steps at the end over which the rate falls. Default: all steps after the warmup. */
  readonly decaySteps?: number | undefined;
  /** The number of steps in all. */
  readonly totalSteps: number;
  /** How the rate falls. Default `cosine`. */
  readonly decay?: DecayStyle | undefined;
}

const steps = integer(0);
const checkOptions = optionsOf<LearningRateScheduleOptions>({
  learningRate: needed(atLeastZero),
  minLearningRate: atLeastZero,
  warmupSteps: steps,
  decaySteps: steps,
  totalSteps: needed(integer(1)),
  decay: oneOf(Object.keys(DECAYS)),
});

/**
 * Returns a function from the number of a step, counted from 1, to its learning rate: a linear warmup, a stable part and a decay.
 *
 * In step s ≤ warmupSteps the rate is learningRate · s / warmupSteps. With p = (s - 1 - totalSteps + decaySteps) / decaySteps, at
 * least 0 and at most 1, it is then min + (learningRate - min) · f(p), where f(p) is 1 - p (`linear`), (1 + cos(πp)) / 2
 * (`cosine`), 1 - √p (`sqrt`) or 1 (`constant`). The arithmetic is f64 and cos(πp) is the nearest f64, so a rate is the same
 * number on every machine.
 *
 * @throws `ArgumentError` for an unknown option, an invalid value, or more steps of warmup and decay than steps. The function
 * throws it for a step that is not a positive integer.
 */
export function learningRateSchedule(options: LearningRateScheduleOptions): (step: number) => number {
  const user = "learningRateSchedule";
  const {
    learningRate,
    totalSteps,
    warmupSteps = 0,
    decay = "cosine",
    ...rest
  } = checkOptions(user, options);
  const { decaySteps = Math.max(0, totalSteps - warmupSteps) } = rest;
  const { minLearningRate = decay === "constant" ? learningRate : 0 } = rest;
  if (warmupSteps + decaySteps > totalSteps)
    throw new ArgumentError(
      `${user}: warmupSteps ${warmupSteps} and decaySteps ${decaySteps} are more than the ${totalSteps} steps in all; give fewer`,
    );
  return (step) => {
    integer(1)(user, "step", step);
    if (step <= warmupSteps) return (learningRate * step) / warmupSteps;
    const decayed = step - 1 - totalSteps + decaySteps;
    if (decayed <= 0) return learningRate;
    if (decayed >= decaySteps) return minLearningRate;
    return minLearningRate + (learningRate - minLearningRate) * DECAYS[decay](decayed, decaySteps);
  };
}
