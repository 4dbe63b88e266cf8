/**
 * The options of a quantizer's constructor, or of its name, reach the spec, the copies, their layout, and each
 * quantization.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError } from "../../../../src/errors.js";
import { BLOCK_FORMATS, type BlockFormat } from "../../../../src/formats/block.js";
import { FORMAT_ALIASES } from "../../../../src/formats/scalar.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../../src/ops/create.js";
import { activation } from "../../../../src/ops/elementwise/activation.js";
import { quantize } from "../../../../src/ops/quantize/quantize.js";
import { rmsNorm } from "../../../../src/ops/rows/norm.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import { Float8RowQuantizer } from "../../../../src/quantizers/float8-row.js";
import { FP4UE5M3Quantizer } from "../../../../src/quantizers/fp4-ue5m3.js";
import { Int4GroupQuantizer } from "../../../../src/quantizers/int4-group.js";
import { Int8RowQuantizer } from "../../../../src/quantizers/int8-row.js";
import {
  MXFP4Quantizer,
  MXFP6Quantizer,
  MXFP8Quantizer,
  MXINT8Quantizer,
} from "../../../../src/quantizers/mx.js";
import { quantizerNamed } from "../../../../src/quantizers/named.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import { Quantizer, type QuantizerOptions } from "../../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { layoutsOf, QUANTIZERS, sourceTypes, specsOf, USAGES } from "../../../arbitraries/specs.js";
import { drawnTensor, expectSame } from "../../harness/drawn-tensor.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { type Refusal, refusals, untyped } from "../../harness/refusals.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend();
const foreignBackend = useBackend();
const oneElement = (): Tensor<"f32"> => tensor(backend(), [1]);

type OptionValues = Record<string, unknown>;

/** How a spec is written as options of a class; with `brief`, defaults are omitted. */
interface Row {
  readonly make: (options: OptionValues) => Quantizer;
  /** The options that have the same name as the spec's field. */
  readonly sharedOptions: readonly (keyof QuantizeSpec)[];
  readonly otherOptions: (spec: QuantizeSpec) => OptionValues;
  /** The class's defaults that differ from the defaults of `makeSpec`. */
  readonly defaults?: Partial<QuantizeSpec>;
}

const noOptions = (): OptionValues => ({});
const CLASSES: Record<(typeof QUANTIZERS)[number], Row> = {
  "fp8-current": {
    make: (options) => new Float8CurrentScalingQuantizer(options),
    sharedOptions: ["format", "scaleRule", "elementScaling", "pow2Scales", "amaxEpsilon"],
    otherOptions: noOptions,
  },
  "fp8-delayed": {
    make: (options) => new Float8Quantizer({ scale: oneElement(), ...options }),
    sharedOptions: ["format"],
    otherOptions: noOptions,
  },
  "fp8-block": {
    make: (options) => new Float8BlockQuantizer(options),
    sharedOptions: ["format", "tile", "scaleRule", "elementScaling", "pow2Scales", "amaxEpsilon"],
    otherOptions: ({ compact }) => ({ dataLayout: compact ? "COMPACT" : undefined }),
    defaults: { pow2Scales: true },
  },
  "fp8-row": {
    make: (options) => new Float8RowQuantizer(options),
    sharedOptions: ["format", "scaleRule", "elementScaling", "pow2Scales", "amaxEpsilon", "amaxLimit"],
    otherOptions: noOptions,
  },
  "int8-row": {
    make: (options) => new Int8RowQuantizer(options),
    sharedOptions: ["scaleRule", "elementScaling", "amaxEpsilon", "amaxLimit"],
    otherOptions: noOptions,
  },
  "int4-group": {
    make: (options) => new Int4GroupQuantizer(options),
    sharedOptions: ["tile", "scaleRule", "elementScaling", "amaxEpsilon"],
    otherOptions: noOptions,
  },
  mxint8: {
    make: (options) => new MXINT8Quantizer(options),
    sharedOptions: ["format", "tile", "scaleRule", "elementScaling"],
    otherOptions: noOptions,
  },
  mxfp8: {
    make: (options) => new MXFP8Quantizer(options),
    sharedOptions: ["format", "tile", "scaleRule", "elementScaling", "stochastic"],
    otherOptions: noOptions,
  },
  mxfp6: {
    make: (options) => new MXFP6Quantizer(options),
    sharedOptions: ["format", "tile", "scaleRule", "elementScaling", "stochastic"],
    otherOptions: noOptions,
  },
  mxfp4: {
    make: (options) => new MXFP4Quantizer(options),
    sharedOptions: ["format", "tile", "scaleRule", "elementScaling", "stochastic"],
    otherOptions: noOptions,
  },
  "fp4-ue5m3": {
    make: (options) => new FP4UE5M3Quantizer(options),
    sharedOptions: ["tile", "elementScaling"],
    otherOptions: noOptions,
  },
  nvfp4: {
    make: (options) => new NVFP4Quantizer(options),
    sharedOptions: ["tile", "scaleRule", "elementScaling", "rht", "stochastic", "fourOverSix", "rowScaled"],
    otherOptions: ({ rht, rhtSigns, fourOverSix, e4m3Max }) => ({
      ...(rht ? { randomSigns: rhtSigns === 0 ? false : undefined } : {}),
      ...(e4m3Max === (fourOverSix === "none" ? 448 : 256) ? {} : { e4m3Max }),
    }),
  },
};

describe.each(QUANTIZERS)("%s", (name) => {
  const { make, sharedOptions, otherOptions, defaults } = CLASSES[name];
  const plainSpec = { ...makeSpec(name, {}), ...defaults };
  const choices = fc.record({
    spec: fc.constantFrom(...specsOf(name)),
    usage: fc.constantFrom(...USAGES),
    brief: fc.boolean(),
    layout: fc.nat(),
  });

  /** The options of a spec; with `brief`, defaults are omitted. */
  const fieldsOf = (spec: QuantizeSpec, brief: boolean): OptionValues =>
    Object.fromEntries(
      sharedOptions.flatMap((key) => (brief && spec[key] === plainSpec[key] ? [] : [[key, spec[key]]])),
    );

  it("has every spec that its options name, also if defaults are omitted", () => {
    for (const spec of specsOf(name))
      for (const brief of [false, true]) {
        const options = { ...fieldsOf(spec, brief), ...otherOptions(spec) };
        using _scope = new Scope();
        expect(make(options).spec, JSON.stringify(options)).toEqual(spec);
      }
  });

  it("has the spec, the copies and the layout of the options given to its class, or to its name", () => {
    fc.assert(
      fc.property(choices, ({ spec, usage, brief, layout }) => {
        using _scope = new Scope();
        const layouts = layoutsOf(spec);
        const scaleLayout = layouts[layout % layouts.length] as (typeof layouts)[number];
        const fields = fieldsOf(spec, brief);
        const contextOptions = {
          ...(brief && usage.rowwise ? {} : { rowwise: usage.rowwise }),
          ...(brief && !usage.columnwise ? {} : { columnwise: usage.columnwise }),
          ...(brief && scaleLayout === "logical" ? {} : { scaleLayout }),
        };
        const quantizers = [make({ ...fields, ...otherOptions(spec), ...contextOptions })];
        const { compact, rht, rhtSigns } = spec;
        // quantizerNamed has no option for the compact layout (of an all-gather) and none for a transform without
        // random signs
        if (!compact && (!rht || rhtSigns !== 0)) {
          const { e4m3Max } = otherOptions(spec) as { e4m3Max?: 448 | 256 };
          const scale = name === "fp8-delayed" ? { scale: oneElement() } : {};
          const { format, ...rest } = { format: spec.format, ...fields };
          quantizers.push(quantizerNamed(name, { format, ...rest, ...contextOptions, ...scale, e4m3Max }));
        }
        for (const quantizer of quantizers) {
          expect(quantizer.spec).toEqual(spec);
          expect(quantizer.usage).toEqual({ rowwise: usage.rowwise, columnwise: usage.columnwise });
          const emptyTensor = quantizer.makeEmpty(backend(), [32, 32]);
          expect([emptyTensor.spec, emptyTensor.usage, emptyTensor.scaleLayout, emptyTensor.dtype]).toEqual([
            spec,
            { rowwise: usage.rowwise, columnwise: usage.columnwise },
            scaleLayout,
            "bf16",
          ]);
        }
      }),
      { numRuns: draws(60) },
    );
  });

  it("gives results of its input's type by each of its methods, and advances the random state once for each", () => {
    for (const spec of sampleCases(specsOf(name))) {
      for (const dtype of sourceTypes(spec)) {
        using _scope = new Scope();
        const random = new RandomState(3n, 7n);
        const fields = Object.fromEntries(sharedOptions.map((key) => [key, spec[key]]));
        const randomOptions = spec.stochastic ? { random } : {};
        const quantizer = make({ ...fields, ...otherOptions(spec), ...randomOptions });
        const x = zeros(backend(), dtype, [64, 64]);
        const gamma = zeros(backend(), dtype, [64]);
        const methods: readonly (() => { readonly dtype: WideDType })[] = [
          () => quantizer.quantize(x),
          () => quantizer.activationQuantize(x, { kind: "relu" }),
          () => quantizer.activationQuantize(x, { kind: "relu", grad: x }),
          () => quantizer.normQuantize(x, { gamma }).out,
          () => quantizer.biasGradQuantize(x).out,
          () => {
            const target = quantizer.makeEmpty(backend(), x.shape, dtype);
            quantizer.updateQuantized(x, target);
            return target;
          },
        ];
        for (const [index, way] of methods.entries()) {
          expect(way().dtype).toBe(dtype);
          expect(random.offset).toBe(7n + (spec.stochastic ? BigInt(index + 1) : 0n));
        }
      }
    }
  });

  const row: BlockFormat = BLOCK_FORMATS[name];
  it("takes a format by any of its names", () => {
    for (const format of row.elements)
      for (const [alias, formatName] of [[format, format], ...Object.entries(FORMAT_ALIASES)])
        if (formatName === format) expect(makeSpec(name, { format: untyped(alias) }).format).toBe(format);
  });

  refusals("refuses invalid options", [
    ...(["format", "tile"] as const)
      .filter((option) => sharedOptions.includes(option))
      .map(
        (option): Refusal => [
          `a ${option} of another row`,
          () => make({ [option]: "e3m4" }),
          ArgumentError,
          [option, "e3m4"],
        ],
      ),
    ["one that there is not", () => make({ bogus: 1 }), ArgumentError, ["Quantizer", "bogus"]],
    ...(["rowwise", "columnwise", "scaleLayout"] as const).map(
      (option): Refusal => [
        `${option} 1`,
        () => make({ [option]: 1 }),
        ArgumentError,
        ["Quantizer", option, "1"],
      ],
    ),
  ]);
});

/** A third-party quantizer that checks nothing itself. */
class Theirs extends Quantizer {
  constructor(options: QuantizerOptions, spec = makeSpec("mxfp8", {})) {
    super(spec, options);
  }
}

const farTensor = (): Tensor<"f32"> => tensor(foreignBackend(), [1]);
refusals("refuses invalid tensors", [
  ...(["rowwise", "columnwise", "scaleLayout"] as const).map(
    (option): Refusal => [
      `of a class that checks nothing, ${option} 1`,
      () => new Theirs({ [option]: 1 } as never),
      ArgumentError,
      ["Theirs", option],
    ],
  ),
  [
    "of a spec that says nothing",
    () => new Theirs({}, { ...makeSpec("mxfp8", {}), tile: "1x16" }),
    ArgumentError,
    ["mxfp8", "1x16"],
  ],
  [
    "whose usage is set to 1",
    () => new Theirs({}).setUsage({ columnwise: untyped(1) }),
    ArgumentError,
    ["columnwise"],
  ],
  [
    "whose usage has another name",
    () => new Theirs({}).setUsage(untyped({ colwise: true })),
    ArgumentError,
    ["colwise"],
  ],
  [
    "whose target is no quantized tensor",
    () =>
      new Theirs({}).updateQuantized(
        zeros(backend(), "f32", [32, 32]),
        untyped(zeros(backend(), "f32", [32, 32])),
      ),
    DTypeError,
    ["updateQuantized", "target"],
  ],
  [
    "whose call has an option that there is not",
    () => new Theirs({}).quantize(zeros(backend(), "f32", [32, 32]), untyped({ random: 1 })),
    ArgumentError,
    ["quantize", "random"],
  ],
  [
    "whose source holds integers",
    () => {
      const quantizer = new Theirs({});
      quantizer.updateQuantized(zeros(backend(), "i32", [32, 32]), quantizer.makeEmpty(backend(), [32, 32]));
    },
    DTypeError,
    ["updateQuantized", "source", "i32"],
  ],
  [
    "whose scale and amax live on two backends",
    () => new Float8Quantizer({ scale: oneElement(), amax: farTensor() }),
    ArgumentError,
    ["backend"],
  ],
  [
    "whose two amaxes live on two backends",
    () => new NVFP4Quantizer({ amax: oneElement(), amaxColumnwise: farTensor() }),
    ArgumentError,
    ["backend"],
  ],
  ["whose seed is negative", () => new RandomState(-1n), ArgumentError, ["seed"]],
  ["whose seed is a number", () => new RandomState(untyped(1)), ArgumentError, ["seed"]],
  ["whose offset is 2^64", () => new RandomState(0n, 1n << 64n), ArgumentError, ["offset"]],
]);

it("a random state has its initial seed and offset, and later ones that are set", () => {
  const u64 = fc.bigInt({ min: 0n, max: (1n << 64n) - 1n });
  fc.assert(
    fc.property(u64, u64, u64, u64, (seed, offset, otherSeed, later) => {
      const random = new RandomState(seed, offset);
      expect(random.current).toEqual({ seed, offset });
      expect(random.next()).toEqual({ seed, offset });
      expect([random.seed, random.offset]).toEqual([seed, BigInt.asUintN(64, offset + 1n)]);
      Object.assign(random, { seed: otherSeed, offset: later });
      expect(random.current).toEqual({ seed: otherSeed, offset: later });
    }),
  );
  expect(new RandomState(4n).current).toEqual({ seed: 4n, offset: 0n });
});

testInScope("further options beside a name are used in each quantization", () => {
  const [scale, amax] = [tensor(backend(), [0.5]), tensor(backend(), [0])];
  const delayedQuantizer = quantizerNamed("fp8-delayed", { scale, amax }) as Float8Quantizer;
  expect([delayedQuantizer.scale, delayedQuantizer.amax]).toEqual([scale, amax]);
  delayedQuantizer.quantize(tensor(backend(), [1, -6]));
  expect(Number(amax.dataSync()[0])).toBe(6);
  const random = new RandomState(9n);
  expect((quantizerNamed("nvfp4", { random, stochastic: true }) as NVFP4Quantizer).random).toBe(random);
});

testInScope("a given amax replaces the tensor's own, in every rounding mode", () => {
  const [amax, amaxColumnwise] = [tensor(backend(), [48]), tensor(backend(), [96])];
  const x = tensor(backend(), new Float32Array(256).fill(1), [16, 16]);
  for (const stochastic of [false, true]) {
    const quantizedTensor = new NVFP4Quantizer({
      amax,
      amaxColumnwise,
      stochastic,
      columnwise: true,
    }).quantize(x);
    expect(
      (["rowwise", "columnwise"] as const).map(
        (direction) => quantizedTensor.copy(direction).amax?.dataSync()[0],
      ),
    ).toEqual([48, 96]);
  }
  const currentResult = new Float8CurrentScalingQuantizer({ amax }).quantize(x);
  expect(currentResult.copy("rowwise").scaleInv.dataSync()[0]).toBe(Math.fround(48 / 448));
});

it("f32 scales of blocks are powers of two unless told otherwise, under the rule that has the choice", () => {
  expect(new Float8BlockQuantizer().spec.pow2Scales).toBe(true);
  for (const scaleRule of BLOCK_FORMATS["fp8-block"].rules)
    expect(new Float8BlockQuantizer({ scaleRule }).spec.pow2Scales, scaleRule).toBe(scaleRule === "f32");
});

const STOCHASTIC = QUANTIZERS.filter((name) => CLASSES[name].sharedOptions.includes("stochastic"));
it.each(STOCHASTIC)("%s rounds by the bits at each offset of its random state", (name) => {
  using _scope = new Scope();
  const x = drawnTensor(backend(), 1, [32, 64], "f32");
  const quantizer = CLASSES[name].make({ stochastic: true, random: new RandomState(9n, 4n) });
  const layout = {
    spec: quantizer.spec,
    usage: quantizer.usage,
    scaleLayout: "logical",
    ops: quantizer,
  } as const;
  const results = [4n, 5n].map((offset) => {
    const quantizedTensor = quantizer.quantize(x);
    expectSame(`${name} ${offset}`, quantizedTensor, quantize(x, layout, { random: { seed: 9n, offset } }));
    return quantizedTensor.dequantize("f32").dataSync();
  });
  expect(results[0]).not.toEqual(results[1]);
});

testInScope(
  "a given scale quantizes the f32 values of a norm and of an activation; other scales those of the input's type",
  () => {
    const x = drawnTensor(backend(), 1, [32, 64], "bf16");
    const gamma = drawnTensor(backend(), 2, [64], "bf16");
    const values = {
      norm: rmsNorm(x, gamma, { outDtype: "f32" }).out,
      activation: activation(x, { kind: "gelu", outDtype: "f32" }),
    };
    for (const [quantizer, options] of [
      [new Float8Quantizer({ scale: oneElement() }), true],
      [new MXFP8Quantizer(), false],
    ] as const) {
      const fusedMethods = {
        norm: quantizer.normQuantize(x, { gamma }).out,
        activation: quantizer.activationQuantize(x, { kind: "gelu" }),
      };
      for (const key of ["norm", "activation"] as const) {
        const bits = (from: Tensor) => quantizer.quantize(from).dequantize("f32").dataSync();
        const [wide, narrow] = [bits(values[key]), bits(castTo(values[key], "bf16"))];
        expect(wide).not.toEqual(narrow);
        expect(fusedMethods[key].dequantize("f32").dataSync()).toEqual(options ? wide : narrow);
      }
    }
  },
);
