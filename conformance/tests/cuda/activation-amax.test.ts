/** The amax of an activation, which a GPU computes together with the activation, for shapes of each of its kernels. */
import { describe } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Answer } from "../../operations/operation.js";
import { downloadQuantized } from "../../operations/quantize/quantized.js";
import { PlainTensor, upload } from "../../values/plain.js";
import { describeOnGpu, SEED, useGpu } from "../harness/gpu/gpu.js";
import { testInScope } from "../harness/suite.js";

/**
 * Rows, and columns of one half. The first two shapes use the kernels of single elements and of packs of eight. The others have
 * more than 2^22 elements, from which tables are used: rows that end within a step of the grid, a row longer than such a step,
 * and rows of one pack.
 */
const SHAPES = [
  [37, 13],
  [37, 264],
  [2081, 2080],
  [4, 1_200_008],
  [524_389, 8],
] as const;

/** The position of the element of the largest magnitude, as a fraction of all elements. */
const POSITIONS = [0, 0.37, 1];

/** Numbers of either sign from 2^-14 to 2^3, a few zeros and NaNs outside the tables, and one element of 2^6. */
function numbers(shape: Shape, position: number, seed: number): PlainTensor<"bf16"> {
  const next = splitmix32(seed);
  const codes = Uint16Array.from({ length: elementCount(shape) }, () => {
    const word = next();
    if (word >>> 20 === 0) return word % 2 === 0 ? 0 : 0x7fc0;
    return (word & 0x807f) | ((113 + ((word >>> 20) % 17)) << 7);
  });
  codes[Math.round(position * (codes.length - 1))] = (127 + 6) << 7;
  return new PlainTensor("bf16", shape, codes);
}

describeOnGpu("activations quantized under current scaling are the reference's", () => {
  const { gpu, reference } = useGpu();

  describe.each(SHAPES)("%i x %i", (rows, columns) => {
    for (const [i, position] of POSITIONS.entries()) {
      for (const gated of [false, true]) {
        for (const backward of [false, true]) {
          testInScope(
            `${gated ? "gated" : "plain"}${backward ? ", its gradient" : ""}, largest at ${position}`,
            () => {
              const x = numbers([rows, gated ? 2 * columns : columns], position, SEED + 1);
              const grad = numbers([rows, columns], position, SEED + 2);
              const kind = (["silu", "gelu", "qgelu"] as const)[i] ?? "silu";
              const clamp = kind === "silu" && gated && rows % 2 === 1;
              const run = (backend: Backend): Answer => {
                using _scope = new Scope();
                const options = {
                  kind,
                  gated,
                  ...(clamp && { clamp: { limit: 6 } }),
                  ...(backward && { grad: upload(backend, grad) }),
                };
                const quantizer = new Float8CurrentScalingQuantizer({ columnwise: true });
                return { ...downloadQuantized(quantizer.activationQuantize(upload(backend, x), options)) };
              };
              assertSameAnswer(run(gpu()), run(reference()));
            },
          );
        }
      }
    }
  });
});
