/** Fused activations of so many bf16 values that a GPU looks them up in tables: the bits equal those without tables. */
import { describe } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { Float8Quantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Answer } from "../../operations/operation.js";
import { scalar } from "../../operations/quantize/quantize.js";
import { downloadQuantized } from "../../operations/quantize/quantized.js";
import { download, PlainTensor, upload } from "../../values/plain.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";
import { testInScope } from "../harness/suite.js";

/** The number of rows, and of columns of one half: more than 2^22 elements together. */
const [ROWS, COLUMNS] = [2080, 2080];

/** The number of elements that a thread reads together. */
const TOGETHER = 8;

/**
 * All 16-bit patterns in order: eight neighbours have similar magnitudes, so the table has either all of them or none.
 * Then groups of eight ordinary numbers with one arbitrary pattern, and groups of eight arbitrary patterns.
 */
function patterns(shape: Shape, seed: number): PlainTensor<"bf16"> {
  const next = splitmix32(seed);
  const ordinary = (word: number): number => (word & 0x807f) | ((111 + ((word >>> 16) % 24)) << 7);
  const codes = Uint16Array.from({ length: elementCount(shape) }, (_, i) => i);
  for (let i = 1 << 16; i < codes.length; i += TOGETHER) {
    const how = next() % 4;
    for (let k = i; k < Math.min(i + TOGETHER, codes.length); k++) {
      const word = next();
      const any = how === 0 || (how === 1 && k % TOGETHER === next() % TOGETHER);
      codes[k] = any ? word : ordinary(word);
    }
  }
  return new PlainTensor("bf16", shape, codes);
}

describeOnGpu("quantized activations of 16-bit inputs are the reference's", () => {
  const { gpu, reference } = useGpu();

  describe.each(["gelu", "silu", "qgelu", "sigmoid"] as const)("%s", (kind) => {
    for (const gated of [false, true]) {
      for (const backward of [false, true]) {
        testInScope(`${gated ? "gated" : "plain"}${backward ? ", its gradient" : ""}`, () => {
          const x = patterns([ROWS, gated ? 2 * COLUMNS : COLUMNS], 1);
          const grad = patterns([ROWS, COLUMNS], 2);
          const run = (backend: Backend): Answer => {
            using _scope = new Scope();
            const source = upload(backend, x);
            const options = { kind, gated, ...(backward && { grad: upload(backend, grad) }) };
            const amax = upload(backend, scalar(0));
            const scale = upload(backend, scalar(0.5));
            const both = { columnwise: true };
            const fp8 = new Float8Quantizer({ ...both, scale, amax }).activationQuantize(source, options);
            const mx = new MXFP8Quantizer(both).activationQuantize(source, options);
            const [first, second] = [fp8, mx].map((each) => Object.entries(downloadQuantized(each)));
            return Object.fromEntries([
              ...(first ?? []).map(([name, part]) => [`fp8.${name}`, part] as const),
              ...(second ?? []).map(([name, part]) => [`mx.${name}`, part] as const),
              ["fp8.amax", download(amax)],
            ]);
          };
          assertSameAnswer(run(gpu()), run(reference()));
        });
      }
    }
  });
});
