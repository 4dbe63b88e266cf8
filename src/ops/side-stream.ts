/** Work beside other work: a second stream on a GPU, in its turn on the reference. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { callable, requireSynchronous } from "../options.js";

/**
 * Calls `body` once and returns its result. On a GPU, what `body` enqueues runs on a second stream: after all work enqueued
 * before this call, and beside the work enqueued after it. Nothing has to be waited for: an operation, a read or a disposal
 * outside of `body` that concerns memory which `body` has used, or has made, comes after the work of `body`. So results have
 * the same bits on every backend, and tensors are used as always. Collectives are what it is for:
 *
 *     const sum = onSideStream(backend, () => group.allReduce(gradient));
 *     const next = gemm(x, w); // runs while ranks exchange
 *     const step = add(next, sum); // runs behind both
 *
 * Views of one tensor are one memory. Inside another `onSideStream`, while a graph is captured, and on a backend that runs one
 * thing at a time, such as the reference, `body` runs in its turn.
 *
 * @throws `ArgumentError` for what is no backend, for a body that is no function or is async, and for a body that captures
 * or replays a graph on a GPU; `DisposedError` for a disposed backend. Errors of `body` propagate.
 */
export function onSideStream<R>(backend: Backend, body: () => R): R {
  requireBackend("onSideStream", backend);
  callable("onSideStream", "body", body);
  const result = backend.onSideStream ? backend.onSideStream(body) : body();
  requireSynchronous("onSideStream", result, "what it does after an await runs in its turn");
  return result;
}
