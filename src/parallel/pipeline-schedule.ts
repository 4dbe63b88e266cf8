/** The order in which a stage of a pipeline works through microbatches, as plain data. */
import { ArgumentError } from "../errors.js";
import { integer, needed, optionsOf } from "../options.js";

/** What a stage does with one microbatch. */
export type PipelineActionKind =
  | "recvForward"
  | "forward"
  | "sendForward"
  | "recvBackward"
  | "backward"
  | "sendBackward";

/** One step of a stage. `recv` and `send` of `Forward` are of activations, those of `Backward` are of gradients. */
export interface PipelineAction {
  /** What is done. */
  readonly kind: PipelineActionKind;
  /** The microbatch, from 0. */
  readonly microbatch: number;
}

/** One stage of a pipeline, and how much it has to do. */
export interface PipelinePlace {
  /** The stage, from 0. */
  readonly stage: number;
  /** The number of stages. */
  readonly stages: number;
  /** The number of microbatches of a step. */
  readonly microbatches: number;
}

const checkPlace = optionsOf<PipelinePlace>({
  stage: needed(integer(0)),
  stages: needed(integer(1)),
  microbatches: needed(integer(1)),
});

/**
 * Returns the actions of a stage in their order: one forward, one backward (1F1B). A stage first computes the forward passes
 * that the stages behind it need to begin; then every forward pass is followed by a backward pass; at last come the backward
 * passes that are left. Both run in the order of microbatches. At most `stages - stage` microbatches are between their forward
 * and their backward pass.
 *
 * The messages between two neighbours have one order on both sides. So a `send` may wait until its `recv` is there, as on a
 * GPU: a gradient is received before the activation is sent that was computed before it.
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
  const ahead = Math.min(stages - 1 - stage, microbatches);
  const act = (kind: PipelineActionKind, microbatch: number, done = true): readonly PipelineAction[] =>
    done ? [{ kind, microbatch }] : [];
  const forward = (i: number) => [...act("recvForward", i, !isFirst), ...act("forward", i)];
  const backward = (i: number) => [...act("backward", i), ...act("sendBackward", i, !isFirst)];
  const each = (count: number, of: (i: number) => readonly PipelineAction[]): readonly PipelineAction[] =>
    Array.from({ length: count }, (_, i) => of(i)).flat();
  return [
    ...each(ahead, (i) => [...forward(i), ...act("sendForward", i, !isLast)]),
    ...each(microbatches - ahead, (i) => [
      ...forward(ahead + i),
      ...act("recvBackward", i, !isLast),
      ...act("sendForward", ahead + i, !isLast),
      ...backward(i),
    ]),
    ...each(ahead, (i) => [
      ...act("recvBackward", microbatches - ahead + i, !isLast),
      ...backward(microbatches - ahead + i),
    ]),
  ];
}
