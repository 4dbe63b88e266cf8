/** The schedule of a pipeline stage: the order of its forward and backward passes over microbatches, as plain data. */
import { ArgumentError } from "../../errors.js";
import { integer, needed, optionsOf } from "../../options.js";
import type { PipelineAction, PipelineActionKind } from "./action.js";
import { interleavedSchedule } from "./interleaved.js";

/** The maximum number of stages, which is the maximum number of ranks of a group. */
const MAX_STAGES = 1024;
/** The maximum number of microbatches. A schedule lists up to six actions for each. */
const MAX_MICROBATCHES = 2 ** 16;
/** The maximum number of chunks of a rank. */
const MAX_CHUNKS = 64;
/** The maximum number of forward passes of all ranks in an interleaved schedule, which is computed for all ranks at once. */
const MAX_PASSES = 2 ** 20;

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
  /**
   * The number of chunks of each rank, at most 64. Default 1. With several chunks, the number of microbatches must be a multiple
   * of the number of stages, and all ranks together run at most 2^20 forward passes.
   */
  readonly chunks?: number | undefined;
}

const checkPlace = optionsOf<PipelinePlace>(
  {
    stage: needed(integer(0)),
    stages: needed(integer(1, MAX_STAGES)),
    microbatches: needed(checkMicrobatches),
    chunks: integer(1, MAX_CHUNKS),
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
 * With several chunks a rank, the schedule is the interleaved 1F1B of Megatron-LM. The idle time at the beginning and the end is
 * divided by the number of chunks, and the number of messages is multiplied by it. Chunk c of a rank follows chunk c of the
 * previous rank, and chunk c of the first rank follows chunk c - 1 of the last rank.
 *
 * @throws `ArgumentError` for a number outside of its domain, for a stage that is not below the number of stages, and, with
 * several chunks, for a number of microbatches that is not a multiple of the number of stages and for more than 2^20 forward
 * passes.
 */
export function pipelineSchedule(place: PipelinePlace): readonly PipelineAction[] {
  const { stage, stages, microbatches, chunks = 1 } = checkPlace("pipelineSchedule", place);
  if (stage >= stages)
    throw new ArgumentError(
      `pipelineSchedule: stage is ${stage}; there are ${stages} stages, numbered from 0; give one from 0 to ${stages - 1}`,
    );
  if (chunks > 1) {
    requireInterleaved(stages, microbatches, chunks);
    return interleavedSchedule(stage, { ranks: stages, chunks, microbatches });
  }
  const [isFirst, isLast] = [stage === 0, stage === stages - 1];
  const warmup = Math.min(stages - 1 - stage, microbatches);
  const actionsFor = (
    kind: PipelineActionKind,
    microbatch: number,
    isNeeded = true,
  ): readonly PipelineAction[] => (isNeeded ? [{ kind, microbatch, chunk: 0 }] : []);
  const forward = (i: number) => [...actionsFor("recvForward", i, !isFirst), ...actionsFor("forward", i)];
  const backward = (i: number) => [...actionsFor("backward", i), ...actionsFor("sendBackward", i, !isFirst)];
  const repeat = (
    count: number,
    actionsOf: (i: number) => readonly PipelineAction[],
  ): readonly PipelineAction[] => Array.from({ length: count }, (_, i) => actionsOf(i)).flat();
  return [
    // the last stage has no warmup
    ...repeat(warmup, (i) => [...forward(i), ...actionsFor("sendForward", i)]),
    ...repeat(microbatches - warmup, (i) => [
      ...forward(warmup + i),
      ...actionsFor("recvBackward", i, !isLast),
      ...actionsFor("sendForward", warmup + i, !isLast),
      ...backward(i),
    ]),
    ...repeat(warmup, (i) => [
      ...actionsFor("recvBackward", microbatches - warmup + i),
      ...backward(microbatches - warmup + i),
    ]),
  ];
}

/** Throws `ArgumentError` for numbers of microbatches that ranks with several chunks cannot run. */
function requireInterleaved(stages: number, microbatches: number, chunks: number): void {
  if (microbatches % stages !== 0)
    throw new ArgumentError(
      `pipelineSchedule: there are ${microbatches} microbatches for ${stages} stages; with several chunks, give a multiple of ${stages}`,
    );
  const passes = stages * chunks * microbatches;
  if (passes > MAX_PASSES)
    throw new ArgumentError(
      `pipelineSchedule: ${stages} stages with ${chunks} chunks run ${passes} forward passes of ${microbatches} microbatches; give at most ${MAX_PASSES}`,
    );
}
