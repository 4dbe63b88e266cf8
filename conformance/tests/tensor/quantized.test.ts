/** Quantized tensors and their quantizers after the first quantization: updates, usage, lifetimes. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DisposedError, ShapeError } from "../../../src/errors.js";
import { BLOCK_FORMATS } from "../../../src/formats/block.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import {
  DIRECTIONS,
  type QuantizedCopy,
  QuantizedTensor,
  type QuantizeSpec,
} from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { asMatrix } from "../../../src/tensor/shape.js";
import { makeSpec, requireSpec } from "../../../src/tensor/spec.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { anyRows, drawnBlock } from "../../arbitraries/matrices.js";
import { words } from "../../arbitraries/random.js";
import { quantizeSpec, scaleLayout } from "../../arbitraries/specs.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { downloadQuantized, SpecQuantizer } from "../../operations/quantize/quantized.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();
const otherBackend = useBackend();
const BOTH = { rowwise: true, columnwise: true } as const;
const ROWWISE = { rowwise: true, columnwise: false } as const;
const COLUMNWISE = { rowwise: false, columnwise: true } as const;

/** A matrix of arbitrary values, different for each seed. */
function source(rows: number, columns: number, seed: number): Tensor<"f32"> {
  const values = Float32Array.from(words(seed, rows * columns), (bits) => (bits - 2 ** 31) * 2 ** -28);
  return tensor(backend(), values, [rows, columns]);
}

describe("the noop flag", () => {
  const codesAfterUpdate = (flag: number) => {
    const quantizer = new MXFP8Quantizer(BOTH);
    const quantizedTensor = quantizer.quantize(source(32, 64, 1));
    const noop = tensor(backend(), [flag]);
    quantizer.updateQuantized(source(32, 64, 2), quantizedTensor, { noop });
    return downloadQuantized(quantizedTensor);
  };
  const newQuantizer = (seed: number) =>
    downloadQuantized(new MXFP8Quantizer(BOTH).quantize(source(32, 64, seed)));

  testInScope("of exactly one leaves codes and scales unchanged", () =>
    assertSameAnswer(codesAfterUpdate(1), newQuantizer(1)),
  );

  testInScope("of any other value does not", () => {
    for (const flag of [0, 2, 1 - 2 ** -24, -1, Number.NaN, Infinity])
      assertSameAnswer(codesAfterUpdate(flag), newQuantizer(2));
  });
});

describe("quantizing into a tensor again", () => {
  for (const [name, quantizer] of [
    ["fp8-current", () => new Float8CurrentScalingQuantizer(BOTH)],
    ["fp8-block", () => new Float8BlockQuantizer({ ...BOTH, scaleLayout: "padded" })],
    ["mxfp8", () => new MXFP8Quantizer({ ...BOTH, scaleLayout: "swizzled" })],
    ["nvfp4", () => new NVFP4Quantizer(BOTH)],
  ] as const) {
    testInScope(`${name}: quantize_ gives what a new one would have, in the same memory`, () => {
      const quantizedTensor = quantizer().quantize(source(64, 32, 1));
      const addresses = quantizedTensor.members.map((member) => member.address);
      expect(quantizedTensor.quantize_(source(64, 32, 2))).toBe(quantizedTensor);
      expect(quantizedTensor.members.map((member) => member.address)).toEqual(addresses);
      assertSameAnswer(
        downloadQuantized(quantizedTensor),
        downloadQuantized(quantizer().quantize(source(64, 32, 2))),
      );
    });
  }

  testInScope("fills only the copies that were not dropped", () => {
    const quantizedTensor = new MXFP8Quantizer(BOTH)
      .quantize(source(32, 32, 1))
      .updateUsage({ rowwise: false });
    quantizedTensor.quantize_(source(32, 32, 2));
    const expected = new MXFP8Quantizer(COLUMNWISE).quantize(source(32, 32, 2));
    assertSameAnswer(downloadQuantized(quantizedTensor), downloadQuantized(expected));
  });

  testInScope("refuses another shape, and then changes nothing", () => {
    const quantizedTensor = new MXFP8Quantizer(BOTH).quantize(source(32, 64, 1));
    const bytesBefore = downloadQuantized(quantizedTensor);
    expect(() => quantizedTensor.quantize_(source(64, 32, 2))).toThrow(ShapeError);
    expect(() => quantizedTensor.quantize_(source(64, 32, 2))).toThrow("x is [64,32], the target [32,64]");
    assertSameAnswer(downloadQuantized(quantizedTensor), bytesBefore);
  });
});

describe("usage", () => {
  testInScope("is the quantizer's, until setUsage changes it", () => {
    const quantizer = new MXFP8Quantizer();
    expect(quantizer.quantize(source(32, 32, 1)).usage).toEqual(ROWWISE);
    quantizer.setUsage({ columnwise: true });
    expect(quantizer.quantize(source(32, 32, 1)).usage).toEqual(BOTH);
    quantizer.setUsage({ rowwise: false });
    expect(quantizer.quantize(source(32, 32, 1)).usage).toEqual(COLUMNWISE);
  });

  testInScope("dropping a copy frees its memory at once, and keeps the other", () => {
    const quantizedTensor = new NVFP4Quantizer(BOTH).quantize(source(32, 64, 1));
    const { rowwise, columnwise } = quantizedTensor;
    const blocksBefore = backend().memoryUse().blocks;
    quantizedTensor.updateUsage({ rowwise: false });
    expect(quantizedTensor.usage).toEqual(COLUMNWISE);
    expect(backend().memoryUse().blocks).toBe(blocksBefore - 3);
    expect([rowwise?.data.disposed, columnwise?.data.disposed]).toEqual([true, false]);
    expect(() => quantizedTensor.copy("rowwise")).toThrow(
      /rowwise copy of this nvfp4 tensor.*quantize with rowwise usage/,
    );
  });

  const derivable: Readonly<Record<string, (usage: typeof BOTH | typeof ROWWISE) => Quantizer>> = {
    "fp8-current": (usage) => new Float8CurrentScalingQuantizer(usage),
    "fp8-block 128x128": (usage) => new Float8BlockQuantizer({ ...usage, tile: "128x128" }),
    "fp8-block 128x128, padded": (usage) =>
      new Float8BlockQuantizer({ ...usage, tile: "128x128", scaleLayout: "padded" }),
  };
  for (const [name, make] of Object.entries(derivable)) {
    testInScope(
      `${name}: the columnwise copy derived from the rowwise one is equal to the one that quantize gives, and is updated like it`,
      () => {
        for (const [rows, columns] of [
          [130, 700],
          [3, 5],
          [0, 4],
        ] as const) {
          const x = source(rows, columns, 1);
          const quantizedTensor = make(ROWWISE).quantize(x).updateUsage({ columnwise: true });
          assertSameAnswer(downloadQuantized(quantizedTensor), downloadQuantized(make(BOTH).quantize(x)));
          const next = source(rows, columns, 2);
          assertSameAnswer(
            downloadQuantized(quantizedTensor.quantize_(next)),
            downloadQuantized(make(BOTH).quantize(next)),
          );
        }
      },
    );
  }

  testInScope(
    "deriving the columnwise and dropping the rowwise copy in one call leaves only the columnwise copy",
    () => {
      const quantizedTensor = new Float8CurrentScalingQuantizer().quantize(source(4, 6, 1));
      expect(quantizedTensor.updateUsage(COLUMNWISE).usage).toEqual(COLUMNWISE);
      expect(quantizedTensor.copy("columnwise").data.shape).toEqual([6, 4]);
      expect(quantizedTensor.dequantize()).toMatchObject({ shape: [4, 6], dtype: "f32" });
    },
  );

  for (const [name, make] of [
    ["fp8-block 1x128", () => new Float8BlockQuantizer()],
    ["mxfp8 1x32", () => new MXFP8Quantizer()],
    ["nvfp4 1x16", () => new NVFP4Quantizer()],
  ] as const) {
    testInScope(`${name}: a columnwise copy cannot be derived, because it needs the source`, () => {
      const quantizedTensor = make().quantize(source(32, 32, 1));
      const derive = () => quantizedTensor.updateUsage(COLUMNWISE);
      expect(derive).toThrow(ArgumentError);
      expect(derive).toThrow(`${name} tensor does not follow from its rowwise one, because its `);
      expect(quantizedTensor.usage).toEqual(ROWWISE);
    });
  }

  testInScope("a rowwise copy is never derived", () => {
    const quantizedTensor = new Float8CurrentScalingQuantizer(COLUMNWISE).quantize(source(4, 6, 1));
    expect(() => quantizedTensor.updateUsage({ rowwise: true })).toThrow(ArgumentError);
  });
});

describe("lifetimes", () => {
  testInScope("a scope keeps all members of a quantized tensor, or none", () => {
    const blocksBefore = backend().memoryUse().blocks;
    const make = (isKept: boolean) => {
      using scope = new Scope();
      const quantizedTensor = new NVFP4Quantizer(BOTH).quantize(source(16, 16, 1));
      return isKept ? scope.keep(quantizedTensor) : quantizedTensor;
    };
    expect(make(false).members.map(({ disposed }) => disposed)).toEqual(Array(6).fill(true));
    expect(backend().memoryUse().blocks).toBe(blocksBefore);
    const keptTensor = make(true);
    expect(backend().memoryUse().blocks).toBe(blocksBefore + 6);
    keptTensor.dispose();
    keptTensor.dispose();
    expect(backend().memoryUse().blocks).toBe(blocksBefore);
    expect(() => keptTensor.quantize_(source(16, 16, 1))).toThrow(DisposedError);
  });

  testInScope("a quantization that is refused leaks no memory", () => {
    const x = source(32, 33, 1);
    const useBefore = backend().memoryUse();
    expect(() => new MXFP8Quantizer(BOTH).quantize(x)).toThrow(ShapeError);
    expect(backend().memoryUse()).toEqual(useBefore);
  });
});

describe("copies of any quantizer", () => {
  const quantizeAgain = (spec: QuantizeSpec): QuantizedTensor =>
    new SpecQuantizer(spec, { ...BOTH, scaleLayout: "logical" }).makeEmpty(backend(), [32, 64]);
  const membersOf = ({ data, scaleInv, amax }: QuantizedCopy): readonly Tensor[] =>
    amax ? [data, scaleInv, amax] : [data, scaleInv];
  const aSpec = quantizeSpec();
  const aDirection = fc.constantFrom(...DIRECTIONS);

  it("that are dropped free their memory at once, and no other", () => {
    fc.assert(
      fc.property(aSpec, aDirection, (spec, direction) => {
        using _scope = new Scope();
        const quantizedTensor = quantizeAgain(spec);
        const blocksBefore = backend().memoryUse().blocks;
        const droppedMembers = membersOf(quantizedTensor.copy(direction));
        quantizedTensor.updateUsage({ [direction]: false });
        expect(blocksBefore - backend().memoryUse().blocks).toBe(droppedMembers.length);
        expect(droppedMembers.map(({ disposed }) => disposed)).not.toContain(false);
        expect(quantizedTensor.usage[direction]).toBe(false);
        expect(quantizedTensor.members.map(({ disposed }) => disposed)).not.toContain(true);
      }),
    );
  });

  it("that are shared live as long as either tensor, whichever is disposed of first", () => {
    fc.assert(
      fc.property(aSpec, fc.boolean(), (spec, ownFirst) => {
        using _scope = new Scope();
        const liveBefore = backend().memoryUse().live;
        const quantizedTensor = quantizeAgain(spec);
        const sharers = [quantizedTensor, quantizedTensor.share()] as const;
        const [firstSharer, last] = ownFirst ? sharers : [sharers[1], sharers[0]];
        const live = backend().memoryUse().live;
        firstSharer.dispose();
        expect(backend().memoryUse().live).toBe(live);
        expect(last.members.map(({ disposed }) => disposed)).not.toContain(true);
        last.dispose();
        expect(backend().memoryUse().live).toBe(liveBefore);
      }),
    );
  });

  it("are refused if one of their tensors lives on another backend", () => {
    const field = fc.constantFrom("data", "scaleInv", "amax");
    fc.assert(
      fc.property(aSpec, aDirection, field, (spec, direction, field) => {
        using _scope = new Scope();
        const quantizedTensor = quantizeAgain(spec);
        const ownField = quantizedTensor.copy(direction)[field];
        if (!ownField) return;
        const fields = {
          spec,
          shape: quantizedTensor.shape,
          dtype: quantizedTensor.dtype,
          scaleLayout: quantizedTensor.scaleLayout,
          ops: quantizedTensor.quantizer,
        };
        const foreign = new Tensor(otherBackend(), ownField.dtype, ownField.shape);
        const copies = { rowwise: quantizedTensor.rowwise, columnwise: quantizedTensor.columnwise };
        const mixedCopies = {
          ...copies,
          [direction]: { ...quantizedTensor.copy(direction), [field]: foreign },
        };
        expect(new QuantizedTensor({ ...fields, ...copies }).usage).toEqual(BOTH);
        expect(() => new QuantizedTensor({ ...fields, ...mixedCopies })).toThrow(/different backends/);
      }),
    );
  });
});

describe("a spec", () => {
  testInScope("that was accepted is checked again unless it is frozen", () => {
    const spec = { ...new MXFP8Quantizer().spec };
    requireSpec(spec);
    expect(() => requireSpec(Object.assign(spec, { tile: "1x16" }))).toThrow(ArgumentError);
  });

  it("has no limit of amaxes that is zero as f32", () => {
    const limit = fc.double({ min: 0, max: 2 ** -149, minExcluded: true, noNaN: true });
    fc.assert(
      fc.property(limit, (amaxLimit) => {
        const make = () => makeSpec("fp8-row", { amaxLimit });
        if (Math.fround(amaxLimit) === 0) expect(make).toThrow(ArgumentError);
        else expect(make().amaxLimit).toBe(amaxLimit);
      }),
    );
  });
});

testInScope("a columnwise copy derived inside a scope lives as long as the rowwise one", () => {
  const quantizedTensor = new Float8CurrentScalingQuantizer(ROWWISE).quantize(source(16, 32, 1));
  const inner = new Scope();
  quantizedTensor.updateUsage({ columnwise: true });
  inner.dispose();
  expect(quantizedTensor.copy("columnwise").data.dataSync()).toHaveLength(16 * 32);
});

testInScope("a quantizer refuses a target of another spec, and says which field differs", () => {
  const quantizedTensor = new MXFP8Quantizer({ format: "e5m2" }).quantize(source(32, 32, 1));
  const update = () => new MXFP8Quantizer().updateQuantized(source(32, 32, 2), quantizedTensor);
  expect(update).toThrow(ArgumentError);
  expect(update).toThrow("the target was made with format e5m2, this quantizer has e4m3");
});

describe("the layout of a copy", () => {
  const cases = quantizeSpec().chain((spec) =>
    fc.record({
      spec: fc.constant(spec),
      shape: anyRows(BLOCK_FORMATS[spec.quantizer].multiple, drawnBlock(spec.tile), 2 ** 12),
      layout: scaleLayout(spec),
    }),
  );

  /** Compares the geometry of the copies with the geometry that the spec determines. */
  function expectGeometry(quantizedTensor: QuantizedTensor): void {
    for (const direction of DIRECTIONS) {
      const copy = quantizedTensor[direction];
      if (!copy) continue;
      expect(copy.geometry).toEqual(
        copyGeometry(
          quantizedTensor.spec,
          asMatrix(quantizedTensor.shape),
          direction,
          quantizedTensor.scaleLayout,
        ),
      );
      expect(copy.data.shape).toEqual(copy.geometry.dataShape);
      expect(copy.scaleInv.shape).toEqual(copy.geometry.scaleShape);
    }
  }

  it("is the spec's, however the copy was made, and not another tensor's", () => {
    fc.assert(
      fc.property(cases, ({ spec, shape, layout }) => {
        using _scope = new Scope();
        const quantizer = new SpecQuantizer(spec, { ...BOTH, scaleLayout: layout });
        const emptyTensor = quantizer.makeEmpty(backend(), shape);
        expectGeometry(emptyTensor);
        expectGeometry(emptyTensor.share());
        const { dtype, rowwise, columnwise } = emptyTensor;
        const [ops, fields] = [quantizer, { spec, shape, dtype, scaleLayout: layout }];
        expectGeometry(new QuantizedTensor({ ...fields, ops, rowwise, columnwise }));
        const [rows, columns] = asMatrix(shape);
        const taller = new SpecQuantizer(spec, { ...ROWWISE, scaleLayout: "logical" });
        const otherTensor = taller.makeEmpty(backend(), [2 * rows, columns]);
        const { geometry } = otherTensor.copy("rowwise");
        const falseCopy = { ...emptyTensor.copy("columnwise"), geometry };
        expectGeometry(new QuantizedTensor({ ...fields, ops, columnwise: falseCopy }));
      }),
      { numRuns: draws(200), seed: derivedSeed(5) },
    );
  });

  testInScope("is the tensor's own if a columnwise copy is derived", () => {
    for (const layout of ["logical", "padded"] as const) {
      for (const quantizer of [
        new Float8CurrentScalingQuantizer({ ...ROWWISE, scaleLayout: layout }),
        new Float8BlockQuantizer({ ...ROWWISE, scaleLayout: layout, tile: "128x128" }),
      ]) {
        const quantizedTensor = quantizer.quantize(source(130, 300, 1)).updateUsage({ columnwise: true });
        expect(quantizedTensor.columnwise).toBeDefined();
        expectGeometry(quantizedTensor);
      }
    }
  });
});

describe("a quantized tensor of another shape, and a clone", () => {
  it("have the codes and scales of the quantized tensor of that shape, for any spec", () => {
    const property = fc.property(
      quantizeSpec(),
      fc.nat(),
      fc.integer({ min: 1, max: 3 }),
      fc.boolean(),
      (spec, seed, outer, areBoth) => {
        using _ = new Scope();
        const inputs = { scale: tensor(backend(), [4]), random: { seed: 1n, offset: 2n } };
        const usage = { ...(areBoth ? BOTH : ROWWISE), scaleLayout: "logical" } as const;
        const quantizer = new SpecQuantizer(spec, usage, inputs);
        const wide = castTo(source(32 * outer, 256, seed), spec.rht ? "bf16" : "f32");
        const shape = [outer, 32, 256];
        const quantizedTensor = quantizer.quantize(wide);
        const flat = downloadQuantized(quantizedTensor);
        const reshaped = quantizedTensor.reshape(shape);
        expect(reshaped.shape).toEqual(shape);
        assertSameAnswer(downloadQuantized(reshaped.reshape([32 * outer, 256])), flat);
        assertSameAnswer(downloadQuantized(quantizedTensor.clone()), flat);
      },
    );
    fc.assert(property, { numRuns: draws(60) });
  });

  testInScope("share memory, or have separate memory, as documented", () => {
    const quantizer = new MXFP8Quantizer(BOTH);
    const [quantizedTensor, expected] = [1, 2].map((seed) => quantizer.quantize(source(32, 64, seed))) as [
      QuantizedTensor,
      QuantizedTensor,
    ];
    const expectedBytes = downloadQuantized(quantizedTensor);
    const [clone, reshaped] = [quantizedTensor.clone(), quantizedTensor.reshape([2, 16, 64])];
    quantizedTensor.quantize_(source(32, 64, 2));
    assertSameAnswer(downloadQuantized(clone), expectedBytes);
    assertSameAnswer(downloadQuantized(reshaped.reshape([32, 64])), downloadQuantized(expected));
    quantizedTensor.dispose();
    expect(reshaped.dequantize().shape).toEqual([2, 16, 64]);
    expect(() => quantizedTensor.clone()).toThrow(DisposedError);
    expect(() => quantizedTensor.reshape([2, 16, 64])).toThrow(DisposedError);
  });

  testInScope("are refused where rows would have other elements", () => {
    const quantizedTensor = new MXFP8Quantizer(BOTH).quantize(source(32, 64, 1));
    for (const shape of [[64, 32], [32, 32], [2048], [32, 64, 1]])
      expect(() => quantizedTensor.reshape(shape)).toThrow(ShapeError);
  });
});
