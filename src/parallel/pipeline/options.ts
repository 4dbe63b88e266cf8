/** Options of pipelines, and their checks. */
import type { Module } from "../../modules/module.js";
import {
  anyListOf,
  callable,
  type Domain,
  fieldOf,
  instance,
  integer,
  isArray,
  listOf,
  needed,
  nested,
  optionsOf,
} from "../../options.js";
import type { VariableLike } from "../../tape/differentiable.js";
import type { Variable } from "../../tape/variable.js";
import { wideDType } from "../../tensor/require.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import { checkModule } from "../arguments.js";
import { DataParallel } from "../data/data-parallel.js";
import { checkMicrobatches } from "./schedule.js";

/** The layers of a stage: a module with one input and one result. */
export type PipelineStage = Module & { forward(x: VariableLike): Variable };

/** The activations that a stage receives from the previous stage. */
export interface PipelineInput {
  /** The shape of the activations of one microbatch. */
  readonly shape: Shape;
  /** The dtype of the activations. Default bf16. */
  readonly dtype?: WideDType | undefined;
}

/** Options of `Pipeline`. All ranks may pass the same options, except `input`. */
export interface PipelineOptions {
  /** The number of microbatches of a step, at most 65,536. It must be the same on all ranks. */
  readonly microbatches: number;
  /** The activations that this rank receives. Required, except on a first rank with one stage, which ignores the option. */
  readonly input?: PipelineInput | undefined;
  /** Returns the loss of a microbatch, a variable with one element. Required on the last rank; other ranks do not call it. */
  readonly loss?: ((output: Variable, microbatch: number) => Variable) | undefined;
  /** How stage `chunk` of this rank computes a microbatch, for example within `autocast`. Default: `stage.forward(x)`. */
  readonly forward?: ((x: Variable, microbatch: number, chunk: number) => Variable) | undefined;
  /**
   * Reduces the gradients of the stage over ranks with other samples, in the backward pass of the last microbatch. With several
   * stages: a list, one for each stage.
   */
  readonly dataParallel?: DataParallel | readonly DataParallel[] | undefined;
}

/** Accepts one value or a non-empty list of them, and returns a list. */
const oneOrMore =
  (each: Domain): Domain =>
  (caller, name, value) =>
    isArray(value) ? listOf(each)(caller, name, value) : [each(caller, name, value)];

export const checkStages = oneOrMore((caller, name, value) => {
  const stage = checkModule(caller, name, value);
  callable(caller, `${name}.forward`, fieldOf(caller, name, stage, "forward"));
  return stage;
});

export const checkPipelineOptions = optionsOf<PipelineOptions>({
  microbatches: needed(checkMicrobatches),
  input: nested(optionsOf<PipelineInput>({ shape: needed(anyListOf(integer(1))), dtype: wideDType })),
  loss: callable,
  forward: callable,
  dataParallel: oneOrMore(instance(DataParallel, "a DataParallel")),
});
