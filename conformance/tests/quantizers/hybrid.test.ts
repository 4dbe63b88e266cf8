/** HybridQuantizer: each copy has the bits of its own quantizer. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { FakeQuantizer } from "../../../src/quantizers/fake.js";
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
import { pairwise } from "../../arbitraries/covering.js";
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
  fakeBlock: () => new FakeQuantizer(new Float8BlockQuantizer()),
  fakeMxfp4: () => new FakeQuantizer(new MXFP4Quantizer()),
} as const satisfies Record<string, () => CopyQuantizer>;
const NAMES = Object.keys(MAKE) as (keyof typeof MAKE)[];

function source(seed: number, dtype: WideDType): Tensor<WideDType> {
  const values = normal({ seed: BigInt(seed), offset: 0n }, SHAPE[0] * SHAPE[1], 1);
  return castTo(tensor(backend(), values, SHAPE), dtype);
}

/** All tensors of a value. */
const bits = (value: Value | undefined): unknown =>
  value &&
  (value instanceof QuantizedTensor ? value.members : [value]).map((member) => [...member.dataSync()]);

/** One copy by its own quantizer. */
function copyOf(name: keyof typeof MAKE, x: Tensor, direction: "rowwise" | "columnwise"): Value {
  const quantizer = MAKE[name]();
  if (quantizer instanceof IdentityQuantizer) return x;
  const usage = { rowwise: direction === "rowwise", columnwise: direction === "columnwise" };
  if (!(quantizer instanceof FakeQuantizer)) return quantizer.setUsage(usage).quantize(x);
  return quantizer.quantizer
    .setUsage(usage)
    .quantize(x)
    .dequantize(x.dtype as WideDType);
}

const TABLE = {
  rowwise: NAMES,
  columnwise: NAMES,
  columnwiseSource: ["original", "rowwiseDequantized"],
  usage: ["rowwise", "columnwise", "both"],
  dtype: ["bf16", "f32", "f16"],
} as const;
let state = 1;
const CASES = [
  // the only copy is in high precision and has the values of the codes
  {
    ...({ rowwise: "current", columnwise: "identity", columnwiseSource: "rowwiseDequantized" } as const),
    ...({ usage: "columnwise", dtype: "bf16" } as const),
  },
  ...pairwise(TABLE, (bound) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % bound;
  }),
];

it.each(
  CASES.map(
    (hybridCase, i) =>
      [
        hybridCase.rowwise,
        hybridCase.columnwise,
        hybridCase.columnwiseSource,
        hybridCase.usage,
        hybridCase.dtype,
        i,
      ] as const,
  ),
)(
  "makes the rowwise copy by %s, and the columnwise one by %s from the %s values: %s of %s",
  (rowwise, columnwise, columnwiseSource, usage, dtype, i) => {
    using _ = new Scope();
    const x = source(i, dtype);
    const hybrid = new HybridQuantizer({
      ...{ rowwiseQuantizer: MAKE[rowwise](), columnwiseQuantizer: MAKE[columnwise]() },
      columnwiseSource,
    });
    const [hasRowwise, hasColumnwise] = [usage !== "columnwise", usage !== "rowwise"];
    const quantizedTensor = hybrid.setUsage({ rowwise: hasRowwise, columnwise: hasColumnwise }).quantize(x);
    const rowwiseCopy = copyOf(rowwise, x, "rowwise");
    const values =
      rowwiseCopy instanceof QuantizedTensor ? rowwiseCopy.dequantize() : wideOf("t", rowwiseCopy);
    const columnwiseCopy = copyOf(columnwise, columnwiseSource === "original" ? x : values, "columnwise");
    expect(bits(quantizedTensor.rowwise)).toEqual(hasRowwise ? bits(rowwiseCopy) : undefined);
    expect(bits(quantizedTensor.columnwise)).toEqual(hasColumnwise ? bits(columnwiseCopy) : undefined);
    const sourceCopy = hasRowwise ? rowwiseCopy : columnwiseCopy;
    expect(bits(quantizedTensor.dequantize("f32"))).toEqual(
      bits(
        sourceCopy instanceof QuantizedTensor
          ? sourceCopy.dequantize("f32")
          : castTo(wideOf("t", sourceCopy), "f32"),
      ),
    );
    expect([quantizedTensor.shape, quantizedTensor.dtype]).toEqual([[...SHAPE], dtype]);
  },
);

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
  const liveBefore = backend().memoryUse().live;
  {
    using quantizedTensor = new HybridQuantizer({
      ...options,
      columnwiseSource: "rowwiseDequantized",
    }).quantize(x);
    expect((quantizedTensor.columnwise as Tensor).disposed).toBe(false);
  }
  expect(backend().memoryUse().live).toBe(liveBefore);
  using sharedResult = new IdentityQuantizer().quantize(x);
  x.write(source(2, "bf16").dataSync());
  expect(bits(sharedResult)).toEqual(bits(x));
});

describe("HybridQuantizer", () => {
  const quantizer = new MXFP8Quantizer();
  const make = (options: Partial<HybridQuantizerOptions>) =>
    new HybridQuantizer({
      rowwiseQuantizer: quantizer,
      columnwiseQuantizer: new MXFP8Quantizer(),
      ...options,
    });
  refusals("refuses", [
    ["one object twice", () => make({ columnwiseQuantizer: quantizer }), ArgumentError, ["one object"]],
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
