/** Concurrent execution: on a GPU, operations on a second stream. On the reference, operations run in order. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { callable, requireSynchronous } from "../options.js";

/**
 * Calls `body` once and returns its result. On a GPU, the work that `body` enqueues runs on a second stream: it starts after all
 * work that was enqueued before this call, and runs concurrently with work that is enqueued later. No explicit synchronization
 * is needed: an operation, a read or a disposal outside of `body` that accesses memory which `body` has used or allocated waits
 * for the work of `body`. Results therefore have the same bits on every backend. Its main use is to overlap collective operations
 * with computation:
 *
 *     const sum = onSideStream(backend, () => group.allReduce(gradient));
 *     const next = gemm(x, w); // runs while ranks exchange
 *     const step = add(next, sum); // runs after both
 *
 * Views of a tensor count as the same memory. A collective operation must be inside `body` on all ranks, or on none. Inside
 * another `onSideStream`, during a graph capture, and on a backend that does not run work concurrently, such as the reference,
 * `body` runs in order with all other work.
 *
 * @throws `ArgumentError` for an argument that is not a backend, for a body that is not a function or is async, and for a body
 * that captures or replays a graph on a GPU; `DisposedError` for a disposed backend. Errors of `body` propagate.
 */
export function onSideStream<R>(backend: Backend, body: () => R): R {
  requireBackend("onSideStream", backend);
  callable("onSideStream", "body", body);
  const result = backend.onSideStream ? backend.onSideStream(body) : body();
  requireSynchronous("onSideStream", result, "what it does after an await runs in its turn");
  return result;
}
