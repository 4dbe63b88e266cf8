/** Captured graphs: a CUDA graph on a GPU, a list of operations on the reference backend. */

import { type Backend, type CapturedWork, requireBackend } from "../backends/backend.js";
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError, DisposedError, UnsupportedError } from "../errors.js";
import { callable, requireSynchronous } from "../options.js";

/** The backends on which a graph is being captured. */
const capturing = new WeakSet<Backend>();

/** @internal Whether a graph is being captured on `backend`. */
export function isCapturing(backend: Backend): boolean {
  return capturing.has(backend);
}

/**
 * @internal Throws `UnsupportedError` while a graph is captured on `backend`. Call it before state is created that later calls
 * read and write: each replay would create it anew.
 */
export function requireNoCapture(backend: Backend, caller: string, state: string): void {
  if (!capturing.has(backend)) return;
  throw new UnsupportedError(
    `${caller} in a captured graph`,
    `${state} would be created anew by each replay; run the step once before the capture`,
  );
}

/** Captured operations that can be replayed. `captureGraph` creates it. */
export class Graph<T = void> {
  static {
    guardReceivers(this, (x) => isObject(x) && #work in x);
  }

  #work: CapturedWork | undefined;

  /** @internal `captureGraph` creates graphs. */
  constructor(
    work: CapturedWork,
    /**
     * The return value of the captured function. Its tensors contain results after the first `replay()`; each replay overwrites
     * them.
     */
    readonly result: T,
  ) {
    this.#work = work;
  }

  /**
   * Enqueues all captured operations again, on the same memory. Inputs are read with their current values, and outputs are
   * overwritten. Throws `DisposedError` after `dispose()` or if the backend is disposed.
   */
  replay(): this {
    if (!this.#work) throw new DisposedError("a captured graph");
    this.#work.replay();
    return this;
  }

  /**
   * Frees the memory that only the graph uses, after running replays have finished. Tensors of `result` stay alive. A second
   * call does nothing.
   */
  dispose(): void {
    const work = this.#work;
    this.#work = undefined;
    work?.dispose();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * Captures the operations of `body` into a graph. `body` is called once; its operations are recorded but not executed. Each
 * `replay()` executes them. On a GPU they become one CUDA graph: its kernels start without the host, and memory for
 * intermediate results is allocated once. A replay computes the same bits as a call of `body` would:
 *
 *     using graph = captureGraph(backend, () => {
 *       using _ = new Scope();
 *       layer.forward(x).backward(dy);
 *     });
 *     for (const batch of batches) {
 *       x.write(batch);
 *       graph.replay();
 *     }
 *
 * What JavaScript computes in `body` is computed once, at the capture: options, learning rates, whether a weight is quantized
 * again. Data that the host writes to tensors in `body` are written again by each replay. Tensors that existed before and that
 * `body` uses stay alive as long as the graph. If a parameter already has a gradient at the capture, each replay adds that old
 * gradient to the new one; call `zeroGrad()` before the capture. Delayed scaling updates its scales in a replay if its
 * `autocast` region ends within `body`; run a first step before the capture, which creates the scales. Several graphs and
 * ordinary calls may alternate.
 *
 * @throws `ArgumentError` if `body` waits (for example by reading a tensor), is async, or captures a graph itself.
 * `UnsupportedError` if the backend cannot capture, for the first step of a layer under delayed scaling, and for operations that
 * depend on a host counter: stochastic rounding, the step of AdamW, the first step of SGD with momentum. `DisposedError` for a
 * disposed backend. Errors of `body` propagate; nothing is captured then.
 */
export function captureGraph<T = void>(backend: Backend, body: () => T): Graph<T> {
  requireBackend("captureGraph", backend);
  callable("captureGraph", "body", body);
  if (!backend.capture)
    throw new UnsupportedError(
      "captureGraph",
      `the ${backend.name} backend captures nothing; call the body each time`,
    );
  let result: { readonly value: T } | undefined;
  const work = backend.capture(() => {
    capturing.add(backend);
    try {
      const value = body();
      requireSynchronous("captureGraph", value, "what it does after an await cannot be captured");
      result = { value };
    } finally {
      capturing.delete(backend);
    }
  });
  if (result) return new Graph(work, result.value);
  work.dispose();
  throw new ArgumentError(`captureGraph: the ${backend.name} backend did not call the body`);
}
