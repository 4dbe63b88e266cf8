/** Captured graphs: a CUDA graph on a GPU, a list of operations on the reference. */
import { type Backend, type CapturedWork, requireBackend } from "../backends/backend.js";
import { ArgumentError, DisposedError, UnsupportedError } from "../errors.js";
import { callable } from "../options.js";

/** Captured work that can be replayed; made by `captureGraph`. */
export class Graph<T = void> {
  #work: CapturedWork | undefined;

  /** @internal */
  constructor(
    work: CapturedWork,
    /** What the captured function returned: tensors that every `replay()` writes, once the first has. */
    readonly result: T,
  ) {
    this.#work = work;
  }

  /**
   * Enqueues all operations of the captured function again, on the same memory: inputs are read with their current values, and
   * outputs are overwritten. Throws `DisposedError` after `dispose()`, and if the backend was disposed of.
   */
  replay(): this {
    if (!this.#work) throw new DisposedError("a captured graph");
    this.#work.replay();
    return this;
  }

  /**
   * Frees the memory that only the graph uses; waits for running replays. Tensors of `result` stay alive. Safe to call twice.
   */
  dispose(): void {
    const work = this.#work;
    this.#work = undefined;
    work?.dispose();
  }

  /** As `dispose`, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * Captures the operations of `body`, which is called once: they are recorded, not done, until `replay()` does them, as often as
 * is wanted. On a GPU they are one CUDA graph, which starts its kernels without the host, and memory for intermediate results is
 * taken once. The bits are those of calling `body` each time:
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
 * What JavaScript decides is decided once: options, learning rates, whether a weight is quantized anew. Values that the host
 * writes in `body` are written again by each replay. Tensors from before that `body` uses live as long as the graph. Gradients
 * that are there already are added to, as they were before the capture: let go of them first. Scales of delayed scaling are
 * updated where an `autocast` region ends within `body`. Several graphs and ordinary calls may alternate.
 *
 * @throws ArgumentError for a body that waits, such as by reading a tensor, is async, or captures itself. UnsupportedError on a
 * backend that captures nothing, and for operations in which each run differs by what the host counts or draws: stochastic
 * rounding, the step of AdamW, the first step of SGD with momentum. DisposedError for a backend that was disposed of. What
 * `body` throws; nothing is captured then.
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
    const value = body();
    requireSynchronous(value);
    result = { value };
  });
  if (result) return new Graph(work, result.value);
  work.dispose();
  throw new ArgumentError(`captureGraph: the ${backend.name} backend did not call the body`);
}

/** Throws `ArgumentError` for the promise of an async function. */
function requireSynchronous(value: unknown): void {
  if (typeof (value as { then?: unknown } | undefined | null)?.then !== "function") return;
  // the body goes on after the capture and then fails; that is already reported by the error below
  (value as Promise<unknown>).then(undefined, () => {});
  throw new ArgumentError("captureGraph: the body is async; what it does after an await cannot be captured");
}
