// The approximate instructions of a GPU's special-function unit (docs/numerics.md 7.11), and CUDA's math functions.
import { SpecialFunction, Wide } from "../contract";
import { CHUNK } from "../core/scratch";
import { specialFunction } from "../core/special-instructions";
import { asF32 } from "../core/wide";
import { mathFunction } from "./math-functions";

/** The arguments of `specialFunctions`. */
@unmanaged
class SpecialFunctionsTask {
  src: usize;
  srcType: u32;
  dst: usize;
  dstType: u32;
  kind: u32;
}

/**
 * dst[i] = f(src[i]) for i in [begin, end), where `kind` is the instruction or function f. Its type is that of src and dst.
 * `scratch` has a buffer of the calling thread (core/scratch.ts).
 */
export function specialFunctions(task: SpecialFunctionsTask, scratch: usize, begin: usize, end: usize): void {
  const dst = task.dst;
  const dstType = task.dstType;
  const kind = task.kind;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const values = asF32(task.src, task.srcType, i, count, scratch);
    for (let j: usize = 0; j < count; j++) {
      const x = load<u32>(values + (j << 2));
      const result = kind < <u32>SpecialFunction.Expf ? specialFunction(kind, x) : mathFunction(kind, x);
      if (dstType === Wide.F32) store<u32>(dst + ((i + j) << 2), result);
      else store<u16>(dst + ((i + j) << 1), result);
    }
  }
}
