/** Tensors as readable text, as `String(tensor)` and `console.log(tensor)` print them. */

import { messageOf } from "../errors.js";
import { isScalarFormat, valueOfCode } from "../formats/derive.js";
import { printable } from "../text/printable.js";
import { viewAs } from "./data.js";
import { memoryOf } from "./memory.js";
import { storageBits } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** The number of elements that are shown. */
const SHOWN = 8;

/** The symbol of the method that `console.log` and `util.inspect` of Node call. */
export const INSPECT = Symbol.for("nodejs.util.inspect.custom");

/** Returns a text such as `Tensor(f32 [2, 3] wasm) [0, 1, 2, 3, 4, 5]`. It reads at most eight elements and never throws. */
export function showTensor(x: Tensor): string {
  return `Tensor(${x.dtype} [${x.shape.join(", ")}] ${backendName(x)}) ${firstValues(x)}`;
}

/** Returns the first elements as a list, or the reason why they cannot be read. */
export function firstValues(x: Tensor): string {
  if (x.isMeta) return "without memory";
  if (x.disposed) return "disposed";
  if (memoryOf(x.backend).closed) return "its backend is disposed";
  try {
    const count = Math.min(x.size, SHOWN);
    const bytes = Math.ceil((count * storageBits(x.dtype)) / 8);
    const read = bytes === 0 ? new Uint8Array(0) : memoryOf(x.backend).readSync(x.address, bytes);
    const strings = elementsOf(x, read, count).map(numberText);
    return `[${[...strings, ...(x.size > count ? [`... ${x.size - count} more`] : [])].join(", ")}]`;
  } catch (error) {
    return printable(`cannot be read: ${messageOf(error)}`);
  }
}

/** Returns the name of a tensor's backend. */
export function backendName({ backend }: Tensor): string {
  return printable(String(backend.name));
}

/** Returns the first `count` elements, given their bytes. Of two FP4 codes in a byte, the even one is in the low half. */
function elementsOf({ dtype }: Tensor, bytes: Uint8Array, count: number): readonly number[] {
  const words = viewAs(dtype, bytes);
  const perWord = storageBits(dtype) === 4 ? 2 : 1;
  return Array.from({ length: count }, (_, i) => {
    const word = words[Math.floor(i / perWord)] as number;
    return isScalarFormat(dtype) ? valueOfCode(dtype, word >> (i % perWord === 0 ? 0 : 4)) : word;
  });
}

/** Returns the shortest text that rounds to the same f32. */
function numberText(value: number): string {
  if (Object.is(value, -0)) return "-0";
  if (Number.isInteger(value) || !Number.isFinite(value)) return String(value);
  for (let digits = 1; digits < 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(Number(value.toPrecision(9)));
}
