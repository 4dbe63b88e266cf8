// The approximate instructions of a GPU's special-function unit (docs/numerics.md 7.11), and CUDA's math functions.
import { SpecialFunction, Wide } from "../contract";
import { CHUNK } from "../core/scratch";
import { specialFunction } from "../core/special-instructions";
import { asF32 } from "../core/wide";
import { mathFunction, mathFunctionOfTwo } from "./math-functions";

/** The arguments of `specialFunctions`. */
@unmanaged
class SpecialFunctionsTask {
  src: usize;
  /** The second arguments, f32. */
  second: usize;
  srcType: u32;
  dst: usize;
  dstType: u32;
  kind: u32;
}

function resultOf(kind: u32, x: u32, y: u32): u32 {
  if (kind >= <u32>SpecialFunction.Divide) return mathFunctionOfTwo(kind, x, y);
  return kind >= <u32>SpecialFunction.Expf ? mathFunction(kind, x) : specialFunction(kind, x);
}

/**
 * dst[i] = f(src[i]), or f(src[i], second[i]) of a function of two arguments, for i in [begin, end), where `kind` is the
 * instruction or function f. Its type is that of src and dst. `scratch` has a buffer of the calling thread (core/scratch.ts).
 */
export function specialFunctions(task: SpecialFunctionsTask, scratch: usize, begin: usize, end: usize): void {
  const dst = task.dst;
  const dstType = task.dstType;
  const kind = task.kind;
  const second = kind >= <u32>SpecialFunction.Divide ? task.second : 0;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const values = asF32(task.src, task.srcType, i, count, scratch);
    for (let j: usize = 0; j < count; j++) {
      const y: u32 = second ? load<u32>(second + ((i + j) << 2)) : 0;
      const result = resultOf(kind, load<u32>(values + (j << 2)), y);
      if (dstType === Wide.F32) store<u32>(dst + ((i + j) << 2), result);
      else store<u16>(dst + ((i + j) << 1), result);
    }
  }
}
