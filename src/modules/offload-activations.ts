/** Activation offloading: tensors that the backward pass needs are moved to memory of the host until then. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError, OutOfMemoryError } from "../errors.js";
import { isCapturing } from "../ops/graph.js";
import { onSideStream } from "../ops/side-stream.js";
import { callable, describe, integer, isArray, optionsOf, requireSynchronous } from "../options.js";
import { gradFnOf, type Node } from "../tape/node.js";
import { recordedNodes } from "../tape/recorded-nodes.js";
import { transientValue } from "../tape/uses.js";
import { membersOf, type Value } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import type { Storage } from "../tensor/storage.js";
import { storageOf } from "../tensor/tensor.js";

/** Options of `offloadActivations`. */
export interface OffloadOptions {
  /** The smallest number of bytes of memory that is moved. Views share memory. Default 2^20. */
  readonly minBytes?: number | undefined;
}

const DEFAULT_MIN_BYTES = 2 ** 20;
const checkOptions = optionsOf<OffloadOptions>({ minBytes: integer(1, Number.MAX_SAFE_INTEGER) });

/**
 * Calls `body`, and moves the activations that it saves for the backward pass to memory of the host, for which
 * TransformerEngine has `get_cpu_offload_context`. Their memory on the backend is free until then. Call it once for each layer:
 *
 *     for (const layer of layers) x = offloadActivations(() => layer.forward(x));
 *
 * It moves the saved tensors and the inputs of the operations in `body`, except leaves such as parameters, the results of `body`,
 * and memory of fewer than `minBytes` bytes, which views share. A GPU copies
 * them on its side stream, from and to pinned memory, while it computes the next layer. The first use of a moved tensor moves all
 * tensors of its call back, and begins to move those of the call before it. Any use does so: no result changes, only time and
 * memory. Without a second stream, as on the reference, copies run in order. Nothing is moved if nothing is recorded.
 *
 * @throws `ArgumentError` for a `body` that is not a function, is async, or returns anything but a variable or an array of
 * variables; for an invalid option; and during the capture of a graph on a GPU. `OutOfMemoryError` if the host has no memory.
 * Errors of `body` propagate.
 */
export function offloadActivations<R extends Variable | readonly Variable[]>(
  body: () => R,
  options: OffloadOptions = {},
): R {
  callable("offloadActivations", "body", body);
  const { minBytes = DEFAULT_MIN_BYTES } = checkOptions("offloadActivations", options);
  const { result, nodes } = recordedNodes(body);
  requireSynchronous("offloadActivations", result, "operations after an await are not seen");
  const results = variablesIn(result);
  const storages = activationsOf(nodes, results).filter(({ bytes }) => bytes >= minBytes);
  const [first] = nodes;
  if (!first || storages.length === 0) return result;
  new OffloadedCall((first.inputs[0] ?? (first.results[0] as Variable)).backend, storages).offload();
  return result;
}

function variablesIn(result: Variable | readonly Variable[]): readonly Variable[] {
  const variables = isArray(result) ? result : [result];
  const index = variables.findIndex((each) => !(each instanceof Variable));
  if (index < 0) return variables as readonly Variable[];
  throw new ArgumentError(
    `offloadActivations: body returned ${describe(variables[index])}; it must return a variable or an array of variables`,
  );
}

/** Returns the memory of the activations that the nodes keep for the backward pass. */
function activationsOf(nodes: readonly Node[], results: readonly Variable[]): readonly Storage[] {
  const inputs = nodes.flatMap((node) => node.inputs);
  const leaves = inputs.filter((input) => !gradFnOf(input));
  const activations = inputs.filter((input) => gradFnOf(input)).map(({ value }) => value);
  const saved = nodes.flatMap((node) => node.saved.filter((value) => value !== undefined));
  const kept = storagesOf([...results.map(({ value }) => value), ...leaves.map(transientValue)]);
  return [...storagesOf([...activations, ...saved])].filter((storage) => !kept.has(storage));
}

function storagesOf(values: readonly Value[]): Set<Storage> {
  const tensors = values.flatMap(membersOf).filter(({ disposed, isMeta }) => !disposed && !isMeta);
  return new Set(tensors.map(storageOf));
}

/** The calls of each backend whose activations were moved to the host and have not been used since, in the order of the calls. */
const pendingCalls = new WeakMap<Backend, OffloadedCall[]>();

/** The activations of one call of `offloadActivations`. */
class OffloadedCall {
  readonly #backend: Backend;
  readonly #storages: readonly Storage[];

  constructor(backend: Backend, storages: readonly Storage[]) {
    this.#backend = backend;
    this.#storages = storages;
  }

  /** Moves the activations to the host. */
  offload(): void {
    const pending = (pendingCalls.get(this.#backend) ?? []).filter((call) => call.#isAlive);
    pendingCalls.set(this.#backend, [...pending, this]);
    onSideStream(this.#backend, () => {
      for (const storage of this.#storages) storage.moveToHost(() => this.#use());
    });
  }

  /** Whether some activation is alive. */
  get #isAlive(): boolean {
    return this.#storages.some(({ disposed }) => !disposed);
  }

  /** Moves all activations of the call back for the first use of one, and begins to move those of the call before it. */
  #use(): void {
    const pending = pendingCalls.get(this.#backend) ?? [];
    const index = pending.indexOf(this);
    if (index < 0) return;
    pending.splice(index, 1);
    this.#moveBack();
    const before = pending[index - 1];
    if (before) before.#prefetch();
  }

  /** Begins to move all activations back. Those for which there is no memory stay on the host until they are used. */
  #prefetch(): void {
    if (isCapturing(this.#backend)) return;
    try {
      onSideStream(this.#backend, () => this.#moveBack());
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error;
    }
  }

  #moveBack(): void {
    for (const storage of this.#storages) storage.moveBack();
  }
}
