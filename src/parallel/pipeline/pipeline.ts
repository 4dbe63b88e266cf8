/** Pipeline parallelism: each rank computes some of the layers, and microbatches pass from rank to rank. */
import { guardReceivers, isObject } from "../../brand.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { ArgumentError, DisposedError, DistributedError, DTypeError, messageOf } from "../../errors.js";
import type { Module } from "../../modules/module.js";
import { empty } from "../../ops/create.js";
import {
  anyListOf,
  callable,
  describe,
  instance,
  integer,
  needed,
  nested,
  optionsOf,
} from "../../options.js";
import { type VariableLike, variableOf } from "../../tape/differentiable.js";
import { type Value, wideOf } from "../../tape/value.js";
import { Variable } from "../../tape/variable.js";
import { wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { checkGroup, checkModule, requireSameBackend } from "../arguments.js";
import { DataParallel } from "../data/data-parallel.js";
import {
  checkMicrobatches,
  type PipelineAction,
  type PipelineActionKind,
  pipelineSchedule,
} from "./schedule.js";

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
  /** The activations that this stage receives. Required on all ranks except the first, which ignores it. */
  readonly input?: PipelineInput | undefined;
  /** Returns the loss of a microbatch, a variable with one element. Required on the last rank; not called on others. */
  readonly loss?: ((output: Variable, microbatch: number) => Variable) | undefined;
  /** How the stage computes a microbatch, for example within `autocast`. Default: `stage.forward(x)`. */
  readonly forward?: ((x: Variable, microbatch: number) => Variable) | undefined;
  /** Reduces the gradients of the stage over ranks with other samples, in the backward pass of the last microbatch. */
  readonly dataParallel?: DataParallel | undefined;
}

const checkOptions = optionsOf<PipelineOptions>({
  microbatches: needed(checkMicrobatches),
  input: nested(optionsOf<PipelineInput>({ shape: needed(anyListOf(integer(1))), dtype: wideDType })),
  loss: callable,
  forward: callable,
  dataParallel: instance(DataParallel, "a DataParallel"),
});

/** The state of one microbatch on this stage, from its first action to its last. */
class Microbatch {
  /** Owns all tensors that the actions create. */
  readonly scope = new Scope();
  x: Variable | undefined;
  /** The result of the stage. On the last rank it is the loss. */
  result: Variable | undefined;
  gradOutput: Tensor | undefined;

  constructor(readonly number: number) {
    // each action opens the scope again with `within`
    this.scope.close();
  }

  /** Frees all tensors of the microbatch. The gradient of a received input is freed too; other inputs belong to the caller. */
  dispose(isReceived: boolean): void {
    if (isReceived) this.x?.zeroGrad();
    this.scope.dispose();
  }
}

/** The state of a stage during one step. */
interface StepState {
  readonly input: ((microbatch: number) => VariableLike) | undefined;
  readonly losses: Tensor[];
}

/**
 * A stage of a model whose layers are distributed over the ranks of a group: rank 0 has the first layers, and the last rank has
 * the last layers and the loss. A step runs microbatches by the 1F1B schedule (`pipelineSchedule`) and accumulates their
 * gradients.
 *
 * If each stage has its own random state, gradients, losses and delayed scales have the same bits as in a single process that
 * runs all stages, one microbatch after the other, each forward and then backward. At most `ranks - rank` microbatches are kept
 * in memory at a time.
 *
 * @throws `ArgumentError` for an argument that is not a module with `forward` or not a group, for a group on another backend,
 * for an invalid option value, if `input` is missing on a rank other than the first or `loss` on the last, and for a
 * `dataParallel` of another module.
 */
export class Pipeline {
  static {
    guardReceivers(this, (x) => isObject(x) && #options in x);
  }

  readonly #options: PipelineOptions;
  readonly #schedule: readonly PipelineAction[];
  readonly #actions: Readonly<Record<PipelineActionKind, (microbatch: Microbatch, step: StepState) => void>> =
    {
      recvForward: (microbatch) => this.#recvForward(microbatch),
      forward: (microbatch, step) => this.#forward(microbatch, step),
      sendForward: ({ result }) => this.#send("the result of a stage", result?.value, 1),
      recvBackward: (microbatch) => this.#recvBackward(microbatch),
      backward: (microbatch) => this.#backward(microbatch),
      sendBackward: (microbatch) => this.#sendBackward(microbatch),
    };

  constructor(
    /** The layers of this rank. */
    readonly stage: PipelineStage,
    /** The ranks of the pipeline, in the order of stages. */
    readonly group: ProcessGroup,
    options: PipelineOptions,
  ) {
    const user = "Pipeline";
    checkModule(user, "stage", stage);
    callable(user, "stage.forward", stage.forward);
    checkGroup(user, "group", group);
    const ownOptions = checkOptions(user, options);
    this.#options = ownOptions;
    requireSameBackend(user, stage, group);
    const { microbatches, input, loss, dataParallel } = ownOptions;
    if (!this.isFirst && !input)
      throw new ArgumentError(
        `${user}: rank ${group.rank} receives activations; give input: { shape, dtype } of the previous stage's result`,
      );
    if (this.isLast && !loss)
      throw new ArgumentError(
        `${user}: the last rank computes the loss; give loss: (output, microbatch) => …`,
      );
    if (dataParallel && dataParallel.module !== stage)
      throw new ArgumentError(`${user}: dataParallel reduces another module; create it with the stage`);
    for (const parameter of stage.parameters()) parameter.pipeline = group;
    this.#schedule = pipelineSchedule({ stage: group.rank, stages: group.size, microbatches });
  }

  /** Whether this rank has the first stage. */
  get isFirst(): boolean {
    return this.group.rank === 0;
  }

  /** Whether this rank has the last stage. */
  get isLast(): boolean {
    return this.group.rank === this.group.size - 1;
  }

  /**
   * Runs all microbatches and adds their gradients to the gradients of the stage's parameters, in the order of microbatches. On
   * the first rank, `input` returns the input of a microbatch; other ranks do not call it. Returns the losses of the
   * microbatches on the last rank, and nothing on others. Like an operation, it returns before the enqueued work has run.
   *
   * A step that fails aborts the group: other ranks throw `DistributedError`. Rethrows what `input`, the stage or the loss
   * throws.
   *
   * @throws `ArgumentError` for an input that is not a function or is missing on the first rank, for a `forward` or `loss` that
   * does not return a variable, and for a result that does not depend on the input; `DTypeError` for a result that is not f32,
   * bf16 or f16, and for a gradient of another dtype than its input; `DisposedError` for a group that was disposed of,
   * `DistributedError` for a group that has failed and for a neighbour whose result does not fit `input`.
   */
  step(input?: (microbatch: number) => VariableLike): readonly Tensor[] {
    if (input !== undefined) callable("step", "input", input);
    if (this.isFirst && !input)
      throw new ArgumentError("step: the first rank needs the microbatches; give input: (microbatch) => …");
    const state: StepState = { input, losses: [] };
    const live = new Map<number, Microbatch>();
    const lastKind = this.isFirst ? "backward" : "sendBackward";
    try {
      for (const { kind, microbatch: number } of this.#schedule) {
        const microbatch = live.get(number) ?? new Microbatch(number);
        live.set(number, microbatch);
        const subject = `microbatch ${number} of ${this.#options.microbatches}`;
        const act = (): void => this.group.withSubject(subject, () => this.#actions[kind](microbatch, state));
        microbatch.scope.within(act);
        if (kind === lastKind && live.delete(number)) microbatch.dispose(!this.isFirst);
      }
      return state.losses;
    } catch (error) {
      for (const loss of state.losses) loss.dispose();
      this.#abortGroup(error);
      throw error;
    } finally {
      for (const microbatch of live.values()) microbatch.dispose(!this.isFirst);
    }
  }

  #recvForward(microbatch: Microbatch): void {
    const { shape, dtype = "bf16" } = this.#options.input as PipelineInput;
    const { backend, rank } = this.group;
    microbatch.x = new Variable(this.group.recv(empty(backend, dtype, shape), rank - 1), true);
  }

  #forward(microbatch: Microbatch, { input, losses }: StepState): void {
    const { forward, loss } = this.#options;
    const { number, scope } = microbatch;
    microbatch.x ??= variableOf(
      "Pipeline",
      `the result of input(${number})`,
      (input as (microbatch: number) => VariableLike)(number),
    );
    const { x } = microbatch;
    const output = requireVariable("forward", forward ? forward(x, number) : this.stage.forward(x));
    microbatch.result = output;
    if (!this.isLast || !loss) return;
    microbatch.result = requireVariable("loss", loss(output, number));
    losses.push(scope.keep(microbatch.result.tensor));
  }

  #recvBackward(microbatch: Microbatch): void {
    const { dtype, shape } = (microbatch.result as Variable).tensor;
    const { backend, rank } = this.group;
    microbatch.gradOutput = this.group.recv(empty(backend, dtype, shape), rank + 1);
  }

  /** Runs the backward pass of a microbatch. Frozen layers at the beginning of the model have none. */
  #backward({ number, result, gradOutput }: Microbatch): void {
    if (!result?.requiresGrad) return;
    const { dataParallel, microbatches } = this.#options;
    const pass = (): void => result.backward(gradOutput);
    if (dataParallel && number < microbatches - 1) dataParallel.noSync(pass);
    else pass();
  }

  #sendBackward({ x }: Microbatch): void {
    const { grad, value } = x as Variable;
    if (!grad)
      throw new ArgumentError(
        "step: the result of the stage does not depend on its input; give the input to the layers in forward",
      );
    if (grad.dtype !== value.dtype)
      throw new DTypeError(
        `step: the gradient of the stage's input is ${grad.dtype}; it must be ${value.dtype}, as the input is`,
      );
    this.#send("the gradient of the stage's input", grad, -1);
  }

  /** Sends a tensor to the next (1) or the previous (-1) stage. `name` names it in messages. */
  #send(name: string, value: Value | undefined, direction: 1 | -1): void {
    if (value) this.group.send(wideOf(name, value), this.group.rank + direction);
  }

  /** Aborts the group after an error, because the other ranks would wait for messages that this rank does not send. */
  #abortGroup(error: unknown): void {
    const failed = error instanceof DistributedError || error instanceof DisposedError;
    if (failed || this.group.size === 1) return;
    const why = messageOf(error);
    this.group.abort(`stage ${this.group.rank} of the pipeline failed: ${why}`);
  }
}

/** Throws `ArgumentError` unless a function of the caller returned a variable. */
function requireVariable(name: string, result: unknown): Variable {
  if (result instanceof Variable) return result;
  throw new ArgumentError(`step: ${name} returned ${describe(result)}; it must return a Variable`);
}
