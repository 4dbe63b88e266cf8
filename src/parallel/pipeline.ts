/** Pipeline parallelism: each rank computes some layers, and microbatches pass through the ranks. */
import type { ProcessGroup } from "../distributed/group.js";
import { ArgumentError, DisposedError, DistributedError, DTypeError } from "../errors.js";
import type { Module } from "../modules/module.js";
import { empty } from "../ops/create.js";
import { anyListOf, callable, describe, instance, integer, needed, nested, optionsOf } from "../options.js";
import { type VariableLike, variable } from "../tape/differentiable.js";
import { type Value, wideOf } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import { wideDType } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { checkGroup, checkModule, requireSameBackend } from "./arguments.js";
import { DataParallel } from "./data-parallel.js";
import { type PipelineAction, type PipelineActionKind, pipelineSchedule } from "./pipeline-schedule.js";

/** The layers of one stage: a module with one input and one result. */
export type PipelineStage = Module & { forward(x: VariableLike): Variable };

/** What a stage receives from the one before it. */
export interface PipelineInput {
  /** The shape of a microbatch's activations. */
  readonly shape: Shape;
  /** Their type. Default bf16. */
  readonly dtype?: WideDType | undefined;
}

/** Options of `Pipeline`. The ranks may all give the same ones, but for `input`. */
export interface PipelineOptions {
  /** The number of microbatches of a step, the same on all ranks. */
  readonly microbatches: number;
  /** What this stage receives. Needed on all ranks but the first, and not read there. */
  readonly input?: PipelineInput | undefined;
  /** The loss of a microbatch, of one element. Needed on the last rank, and not called on others. */
  readonly loss?: ((output: Variable, microbatch: number) => Variable) | undefined;
  /** How the stage computes a microbatch, for example within `autocast`. Default: `stage.forward(x)`. */
  readonly forward?: ((x: Variable, microbatch: number) => Variable) | undefined;
  /** What reduces the gradients of the stage over other ranks, at the end of the last microbatch. */
  readonly dataParallel?: DataParallel | undefined;
}

const checkOptions = optionsOf<PipelineOptions>({
  microbatches: needed(integer(1)),
  input: nested(optionsOf<PipelineInput>({ shape: needed(anyListOf(integer(1))), dtype: wideDType })),
  loss: callable,
  forward: callable,
  dataParallel: instance(DataParallel, "a DataParallel"),
});

/** What a stage has of one microbatch, from the first action to the last. */
class Microbatch {
  /** Owns all that the actions make. */
  readonly scope = new Scope();
  x: Variable | undefined;
  /** The result of the stage; on the last rank the loss. */
  result: Variable | undefined;
  gradOutput: Tensor | undefined;

  constructor(readonly number: number) {
    this.scope.close();
  }

  dispose(isReceived: boolean): void {
    if (isReceived) this.x?.zeroGrad();
    this.scope.dispose();
  }
}

/** One step of one stage. */
interface Running {
  readonly input: ((microbatch: number) => VariableLike) | undefined;
  readonly losses: Tensor[];
}

/**
 * One stage of a model that is divided by layers among the ranks of a group: rank 0 has the first layers, the last rank the
 * last ones and the loss. A step computes microbatches by the 1F1B schedule (`pipelineSchedule`) and adds up their gradients.
 *
 * Gradients, losses and delayed scales have the bits of one process that runs all stages, the forward and the backward pass of
 * one microbatch after the other, if each stage has a random state of its own. At most `ranks - rank` microbatches are live.
 *
 * @throws `ArgumentError` for what is no module with `forward` or no group, for a group on another backend, for an option
 * outside its domain, without `input` behind the first rank or `loss` on the last one, and for a `dataParallel` of another
 * module.
 */
export class Pipeline {
  readonly #options: PipelineOptions;
  readonly #schedule: readonly PipelineAction[];
  readonly #act: Readonly<Record<PipelineActionKind, (of: Microbatch, running: Running) => void>> = {
    recvForward: (of) => this.#recvForward(of),
    forward: (of, running) => this.#forward(of, running),
    sendForward: ({ result }) => this.#send("the result of a stage", result?.value, 1),
    recvBackward: (of) => this.#recvBackward(of),
    backward: (of) => this.#backward(of),
    sendBackward: (of) => this.#sendBackward(of),
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
    this.#options = checkOptions(user, options);
    requireSameBackend(user, stage, group);
    const { microbatches, input, loss, dataParallel } = options;
    if (!this.isFirst && !input)
      throw new ArgumentError(
        `${user}: rank ${group.rank} receives activations; give input: { shape, dtype }, what the stage before it computes`,
      );
    if (this.isLast && !loss)
      throw new ArgumentError(
        `${user}: the last rank computes the loss; give loss: (output, microbatch) => …`,
      );
    if (dataParallel && dataParallel.module !== stage)
      throw new ArgumentError(`${user}: dataParallel reduces another module; make it of the stage`);
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
   * Computes all microbatches, and adds their gradients to those of the stage's parameters, in the order of microbatches.
   * `input` gives the input of a microbatch on the first rank; other ranks do not call it. Returns the losses of the
   * microbatches on the last rank, and nothing on others. It enqueues and returns, as an operation does.
   *
   * A step that fails ends the group: other ranks throw `DistributedError`. Rethrows what `input`, the stage or the loss throws.
   *
   * @throws `ArgumentError` for an input that is not a function, or none on the first rank, for a `forward` or
   * `loss` that gives no variable, and for a result that does not depend on the input; `DTypeError` for a result that is not f32,
   * bf16 or f16, and for a gradient of another type than its input; `DisposedError` for a group that was disposed of,
   * `DistributedError` for one that has failed and for neighbours whose results do not fit `input`.
   */
  step(input?: (microbatch: number) => VariableLike): readonly Tensor[] {
    if (input !== undefined) callable("step", "input", input);
    if (this.isFirst && !input)
      throw new ArgumentError("step: the first rank needs the microbatches; give input: (microbatch) => …");
    const running: Running = { input, losses: [] };
    const live = new Map<number, Microbatch>();
    const last = this.isFirst ? "backward" : "sendBackward";
    try {
      for (const { kind, microbatch } of this.#schedule) {
        const of = live.get(microbatch) ?? new Microbatch(microbatch);
        live.set(microbatch, of);
        of.scope.within(() => this.#act[kind](of, running));
        if (kind === last && live.delete(microbatch)) of.dispose(!this.isFirst);
      }
      return running.losses;
    } catch (error) {
      for (const each of running.losses) each.dispose();
      this.#endGroup(error);
      throw error;
    } finally {
      for (const of of live.values()) of.dispose(!this.isFirst);
    }
  }

  #recvForward(of: Microbatch): void {
    const { shape, dtype = "bf16" } = this.#options.input as PipelineInput;
    const { backend, rank } = this.group;
    of.x = new Variable(this.group.recv(empty(backend, dtype, shape), rank - 1), true);
  }

  #forward(of: Microbatch, { input, losses }: Running): void {
    const { forward, loss } = this.#options;
    const { number, scope } = of;
    of.x ??= variable((input as (microbatch: number) => VariableLike)(number));
    of.result = requireVariable("forward", forward ? forward(of.x, number) : this.stage.forward(of.x));
    if (!this.isLast || !loss) return;
    of.result = requireVariable("loss", loss(of.result, number));
    losses.push(scope.keep(of.result.tensor));
  }

  #recvBackward(of: Microbatch): void {
    const { dtype, shape } = (of.result as Variable).tensor;
    const { backend, rank } = this.group;
    of.gradOutput = this.group.recv(empty(backend, dtype, shape), rank + 1);
  }

  /** Frozen layers at the beginning of the model have no backward pass. */
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

  #send(what: string, value: Value | undefined, by: 1 | -1): void {
    if (value) this.group.send(wideOf(what, value), this.group.rank + by);
  }

  /** Ends the group rather than let other ranks wait for what this one does not send. */
  #endGroup(error: unknown): void {
    const failed = error instanceof DistributedError || error instanceof DisposedError;
    if (failed || this.group.size === 1) return;
    const why = error instanceof Error ? error.message : String(error);
    this.group.abort(`stage ${this.group.rank} of the pipeline failed: ${why}`);
  }
}

/** Throws `ArgumentError` unless a function of the caller's gave a variable. */
function requireVariable(name: string, given: unknown): Variable {
  if (given instanceof Variable) return given;
  throw new ArgumentError(`step: ${name} returned ${describe(given)}; it must return a Variable`);
}
