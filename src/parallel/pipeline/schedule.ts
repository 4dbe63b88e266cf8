/** The schedule of a pipeline stage: the order of its forward and backward passes over microbatches, as plain data. */
import { ArgumentError } from "../../errors.js";
import { integer, needed, optionsOf } from "../../options.js";

/** The kind of a step of a stage. */
export type PipelineActionKind =
  | "recvForward"
  | "forward"
  | "sendForward"
  | "recvBackward"
  | "backward"
  | "sendBackward";

/** A step of a stage. `recvForward` and `sendForward` transfer activations, `recvBackward` and `sendBackward` gradients. */
export interface PipelineAction {
  /** The kind of the step. */
  readonly kind: PipelineActionKind;
  /** The index of the microbatch, from 0. */
  readonly microbatch: number;
}

/** The maximum number of stages, which is the maximum number of ranks of a group. */
const MAX_STAGES = 1024;
/** The maximum number of microbatches. A schedule lists up to six actions for each. */
const MAX_MICROBATCHES = 2 ** 16;

/** Checks a number of microbatches. */
export const checkMicrobatches = integer(1, MAX_MICROBATCHES);

/** The position of a stage in a pipeline, and its number of microbatches. */
export interface PipelinePlace {
  /** The index of the stage, from 0. */
  readonly stage: number;
  /** The number of stages, at most 1,024. */
  readonly stages: number;
  /** The number of microbatches of a step, at most 65,536. */
  readonly microbatches: number;
}

const checkPlace = optionsOf<PipelinePlace>(
  {
    stage: needed(integer(0)),
    stages: needed(integer(1, MAX_STAGES)),
    microbatches: needed(checkMicrobatches),
  },
  "place",
);

/**
 * Returns the actions of a stage in order, by the schedule 1F1B (one forward, one backward). First, a stage runs the forward
 * passes that later stages need before they can begin a backward pass. Then it alternates between a forward and a backward pass.
 * Finally it runs the remaining backward passes. Forward passes run in the order of microbatches, and so do backward passes. At
 * most `stages - stage` microbatches are between their forward and their backward pass.
 *
 * Two neighbouring stages exchange their messages in the same order. Therefore a `send` may block until the neighbour runs the
 * corresponding `recv`, as on a GPU: a stage receives a gradient before it sends the activation that it computed before.
 *
 * @throws `ArgumentError` for a number outside of its domain, and for a stage that is not below the number of stages.
 */
export function pipelineSchedule(place: PipelinePlace): readonly PipelineAction[] {
  const { stage, stages, microbatches } = checkPlace("pipelineSchedule", place);
  if (stage >= stages)
    throw new ArgumentError(
      `pipelineSchedule: stage is ${stage}; there are ${stages} stages, numbered from 0; give one from 0 to ${stages - 1}`,
    );
  const [isFirst, isLast] = [stage === 0, stage === stages - 1];
  const warmup = Math.min(stages - 1 - stage, microbatches);
  const act = (kind: PipelineActionKind, microbatch: number, isNeeded = true): readonly PipelineAction[] =>
    isNeeded ? [{ kind, microbatch }] : [];
  const forward = (i: number) => [...act("recvForward", i, !isFirst), ...act("forward", i)];
  const backward = (i: number) => [...act("backward", i), ...act("sendBackward", i, !isFirst)];
  const each = (
    count: number,
    actionsOf: (i: number) => readonly PipelineAction[],
  ): readonly PipelineAction[] => Array.from({ length: count }, (_, i) => actionsOf(i)).flat();
  return [
    ...each(warmup, (i) => [...forward(i), ...act("sendForward", i, !isLast)]),
    ...each(microbatches - warmup, (i) => [
      ...forward(warmup + i),
      ...act("recvBackward", i, !isLast),
      ...act("sendForward", warmup + i, !isLast),
      ...backward(i),
    ]),
    ...each(warmup, (i) => [
      ...act("recvBackward", microbatches - warmup + i, !isLast),
      ...backward(microbatches - warmup + i),
    ]),
  ];
}
