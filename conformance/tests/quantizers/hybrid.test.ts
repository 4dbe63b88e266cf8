/** HybridQuantizer: each copy has the bits of its own quantizer. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import {
  type CopyQuantizer,
  HybridQuantizer,
  type HybridQuantizerOptions,
  IdentityQuantizer,
} from "../../../src/quantizers/hybrid.js";
import { MXFP4Quantizer, MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { normal } from "../../../src/random.js";
import { type Value, wideOf } from "../../../src/tape/value.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { refusals, untyped } from "../harness/refusals.js";
import { useBackend } from "../harness/suite.js";

const SHAPE = [64, 128] as const;
const backend = useBackend();

const MAKE = {
  identity: () => new IdentityQuantizer(),
  current: () => new Float8CurrentScalingQuantizer(),
  block: () => new Float8BlockQuantizer(),
  mxfp8: () => new MXFP8Quantizer({ format: "e5m2" }),
  mxfp4: () => new MXFP4Quantizer(),
  nvfp4: () => new NVFP4Quantizer(),
} as const satisfies Record<string, () => CopyQuantizer>;
const names = fc.constantFrom(...(Object.keys(MAKE) as (keyof typeof MAKE)[]));

function source(seed: number, dtype: WideDType): Tensor<WideDType> {
  const values = normal({ seed: BigInt(seed), offset: 0n }, SHAPE[0] * SHAPE[1], 1);
  return castTo(tensor(backend(), values, SHAPE), dtype);
}

/** All tensors of a value. */
const bits = (value: Value | undefined): unknown =>
  value && (value instanceof QuantizedTensor ? value.members : [value]).map((each) => [...each.dataSync()]);

/** One copy by its own quantizer. */
function copyOf(name: keyof typeof MAKE, x: Tensor, direction: "rowwise" | "columnwise"): Value {
  const quantizer = MAKE[name]();
  if (quantizer instanceof IdentityQuantizer) return x;
  return quantizer
    .setUsage({ rowwise: direction === "rowwise", columnwise: direction === "columnwise" })
    .quantize(x);
}

it("makes the rowwise copy by one quantizer, and the columnwise one by the other, from the source that it names", () => {
  const drawn = fc.record({
    ...{ rowwise: names, columnwise: names, seed: fc.nat(100) },
    columnwiseSource: fc.constantFrom("original", "rowwiseDequantized"),
    usage: fc.constantFrom([true, true], [true, false], [false, true]),
  });
  fc.assert(
    fc.property(drawn, ({ rowwise, columnwise, columnwiseSource, usage, seed }) => {
      using _ = new Scope();
      // the Hadamard transform of NVFP4 takes bf16
      const dtype = columnwise === "nvfp4" ? "bf16" : (["bf16", "f32", "f16"] as const)[seed % 3];
      const x = source(seed, dtype as WideDType);
      const hybrid = new HybridQuantizer({
        ...{ rowwiseQuantizer: MAKE[rowwise](), columnwiseQuantizer: MAKE[columnwise]() },
        columnwiseSource,
      });
      const t = hybrid.setUsage({ rowwise: usage[0], columnwise: usage[1] }).quantize(x);
      const first = copyOf(rowwise, x, "rowwise");
      const values =
        columnwiseSource === "original" || !(first instanceof QuantizedTensor) ? x : first.dequantize();
      expect(bits(t.rowwise)).toEqual(usage[0] ? bits(first) : undefined);
      expect(bits(t.columnwise)).toEqual(
        usage[1] ? bits(copyOf(columnwise, values, "columnwise")) : undefined,
      );
      const decoded = (t.rowwise ?? t.columnwise) as Value;
      expect(bits(t.dequantize("f32"))).toEqual(
        bits(
          decoded instanceof QuantizedTensor
            ? decoded.dequantize("f32")
            : castTo(wideOf("t", decoded), "f32"),
        ),
      );
      expect([t.shape, t.dtype]).toEqual([[...SHAPE], dtype]);
    }),
    {
      numRuns: draws(40),
      // the only copy is in high precision and has the values of the codes
      examples: [
        [
          {
            ...{ rowwise: "current", columnwise: "identity", seed: 0 },
            ...{ columnwiseSource: "rowwiseDequantized", usage: [false, true] },
          },
        ],
      ],
    },
  );
});

it.each<[string, () => Quantizer | HybridQuantizer]>([
  ["a quantizer", () => new MXFP8Quantizer()],
  [
    "a hybrid quantizer",
    () =>
      new HybridQuantizer({
        rowwiseQuantizer: new MXFP8Quantizer(),
        columnwiseQuantizer: new IdentityQuantizer(),
      }),
  ],
])("setUsage of %s changes only the copies that it names", (_, make) => {
  const choice = fc.boolean();
  const calls = fc.array(fc.record({ rowwise: choice, columnwise: choice }, { requiredKeys: [] }));
  fc.assert(
    fc.property(calls, (usages) => {
      const quantizer = make();
      let expected = quantizer.usage;
      for (const usage of usages) {
        expected = { ...expected, ...usage };
        expect(quantizer.setUsage(usage).usage).toEqual(expected);
      }
    }),
    {
      examples: [[[{ columnwise: false }, { rowwise: true }]], [[{ rowwise: false }, { columnwise: true }]]],
    },
  );
});

it("gives copies that the caller owns", () => {
  using _ = new Scope();
  const options = { rowwiseQuantizer: new MXFP8Quantizer(), columnwiseQuantizer: new IdentityQuantizer() };
  const x = source(1, "bf16");
  const before = backend().memoryUse().live;
  {
    using t = new HybridQuantizer({ ...options, columnwiseSource: "rowwiseDequantized" }).quantize(x);
    expect((t.columnwise as Tensor).disposed).toBe(false);
  }
  expect(backend().memoryUse().live).toBe(before);
  using shared = new IdentityQuantizer().quantize(x);
  x.write(source(2, "bf16").dataSync());
  expect(bits(shared)).toEqual(bits(x));
});

describe("HybridQuantizer", () => {
  const one = new MXFP8Quantizer();
  const make = (options: Partial<HybridQuantizerOptions>) =>
    new HybridQuantizer({ rowwiseQuantizer: one, columnwiseQuantizer: new MXFP8Quantizer(), ...options });
  refusals("refuses", [
    ["one object twice", () => make({ columnwiseQuantizer: one }), ArgumentError, ["one object"]],
    ["null", () => make({ rowwiseQuantizer: untyped(null) }), ArgumentError, ["rowwiseQuantizer", "null"]],
    [
      "a hybrid one",
      () => make({ columnwiseQuantizer: untyped(make({})) }),
      ArgumentError,
      ["columnwiseQuantizer"],
    ],
    [
      "another source",
      () => make({ columnwiseSource: untyped("both") }),
      ArgumentError,
      ["columnwiseSource", "both"],
    ],
  ]);
});
