/** A backend that declines one operation. */
import type { Backend, Support } from "../../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { GuardedBackend } from "../../../operations/guarded.js";

export class RefusingBackend extends GuardedBackend {
  constructor(
    inner: Backend,
    readonly refusedOperation: OpName,
  ) {
    super(inner);
  }

  override supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return op === this.refusedOperation ? { ok: false, reason: `no ${op} here` } : super.supports(op, args);
  }
}
