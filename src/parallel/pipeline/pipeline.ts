/** Pipeline parallelism: each rank computes some of the layers, and microbatches pass from rank to rank. */
import { guardReceivers, isObject } from "../../brand.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { ArgumentError, DisposedError, DistributedError, DTypeError, messageOf } from "../../errors.js";
import { empty } from "../../ops/create.js";
import { callable, describe } from "../../options.js";
import { type VariableLike, variableOf } from "../../tape/differentiable.js";
import { type Value, wideOf } from "../../tape/value.js";
import { Variable } from "../../tape/variable.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { checkGroup, requireSameBackend } from "../arguments.js";
import type { DataParallel } from "../data/data-parallel.js";
import type { PipelineAction, PipelineActionKind } from "./action.js";
import { keyOf, Microbatch, type Step, type StepState } from "./microbatch.js";
import {
  checkPipelineOptions,
  checkStages,
  type PipelineInput,
  type PipelineOptions,
  type PipelineStage,
} from "./options.js";
import { pipelineSchedule } from "./schedule.js";

/**
 * The stages of one rank, of a model whose layers are distributed over the ranks of a group: rank 0 has the first layers, and the
 * last rank has the last layers and the loss. A step runs microbatches by the 1F1B schedule (`pipelineSchedule`) and accumulates
 * their gradients. A rank with a list of stages has one part of the model in each; stage c of a rank follows stage c of the
 * previous rank, and stage c of rank 0 follows stage c - 1 of the last rank. All ranks have equally many stages.
 *
 * If each stage has its own random state, gradients, losses and delayed scales have the same bits as in a single process that
 * runs all stages, one microbatch after the other, each forward and then backward. A rank with one stage keeps at most
 * `ranks - rank` microbatches in memory at a time; with several, at most 2 * (ranks - 1 - rank) + (stages - 1) * ranks + 1.
 *
 * @throws `ArgumentError` for an argument that is not a module with `forward`, a list of different modules or a group, for a
 * group on another backend, for an invalid option value, if `input` is missing on a rank that receives activations or `loss` on
 * the last, for a `dataParallel` of another module, and, with several stages, for a number of microbatches that is not a multiple
 * of the number of ranks.
 */
export class Pipeline {
  static {
    guardReceivers(this, (x) => isObject(x) && #options in x);
  }

  /** The stages of this rank, in the order of layers. */
  readonly stages: readonly PipelineStage[];
  readonly #options: PipelineOptions;
  readonly #dataParallel: readonly DataParallel[];
  readonly #schedule: readonly PipelineAction[];
  readonly #actions: Readonly<Record<PipelineActionKind, (microbatch: Microbatch, step: StepState) => void>> =
    {
      recvForward: (microbatch, step) => this.#recvForward(microbatch, step),
      forward: (microbatch, step) => this.#forward(microbatch, step),
      sendForward: (microbatch, step) =>
        this.#send("the result of a stage", microbatch.result?.value, 1, microbatch, step),
      recvBackward: (microbatch, step) => this.#recvBackward(microbatch, step),
      backward: (microbatch) => this.#backward(microbatch),
      sendBackward: (microbatch, step) => this.#sendBackward(microbatch, step),
    };

  constructor(
    /** The stages of this rank: one stage, or a list of at most 64. */
    stages: PipelineStage | readonly PipelineStage[],
    /** The ranks of the pipeline, in the order of stages. */
    readonly group: ProcessGroup,
    options: PipelineOptions,
  ) {
    const caller = "Pipeline";
    this.stages = checkStages(caller, "stages", stages) as readonly PipelineStage[];
    if (new Set(this.stages).size < this.stages.length)
      throw new ArgumentError(`${caller}: stages has a module twice; give each stage layers of its own`);
    checkGroup(caller, "group", group);
    this.#options = checkPipelineOptions(caller, options);
    for (const stage of this.stages) requireSameBackend(caller, stage, group);
    const { microbatches, input, loss, dataParallel = [] } = this.#options;
    const chunks = this.stages.length;
    if (!(this.isFirst && chunks === 1) && !input)
      throw new ArgumentError(
        `${caller}: rank ${group.rank} receives activations; give input: { shape, dtype } of the previous stage's result`,
      );
    if (this.isLast && !loss)
      throw new ArgumentError(
        `${caller}: the last rank computes the loss; give loss: (output, microbatch) => …`,
      );
    this.#dataParallel = [dataParallel].flat();
    const reduced = this.#dataParallel.map(({ module }) => module);
    const reducesStages = reduced.length === chunks && this.stages.every((stage, i) => stage === reduced[i]);
    if (reduced.length > 0 && !reducesStages)
      throw new ArgumentError(
        `${caller}: dataParallel reduces another module; create one with each stage, in their order`,
      );
    this.#schedule = pipelineSchedule({ stage: group.rank, stages: group.size, microbatches, chunks });
    for (const stage of this.stages) for (const parameter of stage.parameters()) parameter.pipeline = group;
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
    const state: StepState = { input, losses: [], transfers: new Map() };
    const live = new Map<string, Microbatch>();
    try {
      for (const { kind, microbatch: number, chunk } of this.#schedule) {
        const key = keyOf(number, chunk);
        const microbatch = live.get(key) ?? new Microbatch(number, chunk);
        live.set(key, microbatch);
        const subject = this.#subjectOf(kind, microbatch);
        const act = (): void => this.group.withSubject(subject, () => this.#actions[kind](microbatch, state));
        microbatch.scope.within(act);
        const isReceived = this.#isReceived(microbatch);
        if (kind === (isReceived ? "sendBackward" : "backward") && live.delete(key))
          microbatch.dispose(isReceived);
      }
      return state.losses;
    } catch (error) {
      for (const loss of state.losses) loss.dispose();
      this.#abortGroup(error);
      throw error;
    } finally {
      for (const microbatch of live.values()) microbatch.dispose(this.#isReceived(microbatch));
      for (const tensor of state.transfers.values()) tensor.dispose();
    }
  }

  /**
   * Describes the transfer or computation of an action. The description names the stage whose pass computed the tensor, so it is
   * equal on the sender and the receiver of a message.
   */
  #subjectOf(kind: PipelineActionKind, { number, chunk }: Microbatch): string {
    const { rank, size } = this.group;
    const chunks = this.stages.length;
    const place = chunk * size + rank;
    const maker = kind === "recvForward" ? place - 1 : kind === "recvBackward" ? place + 1 : place;
    const ofStage = chunks > 1 ? `, stage ${maker} of ${chunks * size}` : "";
    return `microbatch ${number} of ${this.#options.microbatches}${ofStage}`;
  }

  /** Whether the input of a stage comes from another stage. */
  #isReceived({ chunk }: Microbatch): boolean {
    return !this.isFirst || chunk > 0;
  }

  #recvForward(microbatch: Microbatch, step: StepState): void {
    const { shape, dtype = "bf16" } = this.#options.input as PipelineInput;
    microbatch.x = new Variable(
      this.#recv(empty(this.group.backend, dtype, shape), -1, microbatch, step),
      true,
    );
  }

  #forward(microbatch: Microbatch, { input, losses }: StepState): void {
    const { forward, loss } = this.#options;
    const { number, chunk, scope } = microbatch;
    const stage = this.stages[chunk] as PipelineStage;
    microbatch.x ??= variableOf(
      "Pipeline",
      `the result of input(${number})`,
      (input as (microbatch: number) => VariableLike)(number),
    );
    const { x } = microbatch;
    const output = requireVariable("forward", forward ? forward(x, number, chunk) : stage.forward(x));
    microbatch.result = output;
    if (!this.isLast || chunk < this.stages.length - 1 || !loss) return;
    microbatch.result = requireVariable("loss", loss(output, number));
    losses.push(scope.keep(microbatch.result.tensor));
  }

  #recvBackward(microbatch: Microbatch, step: StepState): void {
    const { dtype, shape } = (microbatch.result as Variable).tensor;
    microbatch.gradOutput = this.#recv(empty(this.group.backend, dtype, shape), 1, microbatch, step);
  }

  /** Runs the backward pass of a microbatch. Frozen layers at the beginning of the model have no backward pass. */
  #backward({ number, chunk, result, gradOutput }: Microbatch): void {
    if (!result?.requiresGrad) return;
    const { microbatches } = this.#options;
    const dataParallel = this.#dataParallel[chunk];
    const pass = (): void => result.backward(gradOutput);
    if (dataParallel && number < microbatches - 1) dataParallel.noSync(pass);
    else pass();
  }

  #sendBackward(microbatch: Microbatch, step: StepState): void {
    const { grad, value } = microbatch.x as Variable;
    if (!grad)
      throw new ArgumentError(
        "step: the result of the stage does not depend on its input; give the input to the layers in forward",
      );
    if (grad.dtype !== value.dtype)
      throw new DTypeError(
        `step: the gradient of the stage's input is ${grad.dtype}; it must be ${value.dtype}, as the input is`,
      );
    this.#send("the gradient of the stage's input", grad, -1, microbatch, step);
  }

  /**
   * Returns the rank that has the next (1) or the previous (-1) stage of a microbatch, and the index of that stage on the rank.
   */
  #neighbour({ chunk }: Microbatch, step: Step): { readonly rank: number; readonly chunk: number } {
    const { rank, size } = this.group;
    const place = chunk * size + rank + step;
    return { rank: place % size, chunk: Math.floor(place / size) };
  }

  /** Sends a tensor to the next (1) or the previous (-1) stage. `name` names it in messages. */
  #send(
    name: string,
    value: Value | undefined,
    to: Step,
    microbatch: Microbatch,
    { transfers }: StepState,
  ): void {
    if (!value) return;
    const x = wideOf(name, value);
    const { rank, chunk } = this.#neighbour(microbatch, to);
    if (rank === this.group.rank)
      transfers.set(keyOf(microbatch.number, chunk, to), microbatch.scope.keep(x.clone()));
    else this.group.send(x, rank);
  }

  /** Receives into `out` the tensor that the next (1) or the previous (-1) stage sends. */
  #recv(
    out: Tensor<WideDType>,
    from: Step,
    microbatch: Microbatch,
    { transfers }: StepState,
  ): Tensor<WideDType> {
    const { rank } = this.#neighbour(microbatch, from);
    if (rank !== this.group.rank) return this.group.recv(out, rank);
    const key = keyOf(microbatch.number, microbatch.chunk, from === 1 ? -1 : 1);
    const x = transfers.get(key) as Tensor<WideDType>;
    if (x.dtype !== out.dtype || String(x.shape) !== String(out.shape))
      throw new ArgumentError(
        `step: the result of a stage is ${x.dtype} [${x.shape}]; input says ${out.dtype} [${out.shape}]`,
      );
    out.paste(x, 0);
    transfers.delete(key);
    x.dispose();
    return out;
  }

  /** Aborts the group after an error. Otherwise the other ranks would wait for messages that this rank does not send. */
  #abortGroup(error: unknown): void {
    const isGroupError = error instanceof DistributedError || error instanceof DisposedError;
    if (isGroupError || this.group.size === 1) return;
    const reason = messageOf(error);
    this.group.abort(`stage ${this.group.rank} of the pipeline failed: ${reason}`);
  }
}

/** Throws `ArgumentError` unless a function of the caller returned a variable. */
function requireVariable(name: string, result: unknown): Variable {
  if (result instanceof Variable) return result;
  throw new ArgumentError(`step: ${name} returned ${describe(result)}; it must return a Variable`);
}
