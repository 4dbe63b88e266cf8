/**
 * The kernels for any scale rule and element scaling, run on the CPU, are bitwise equal to the reference: they quantize any
 * matrix, copy, layout and flag as it does, and so do the calls that lead to them.
 */
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { type BlockFormatName, blockFormat, quantizersWith, tileSize } from "../../../src/formats/block.js";
import { type ScaleRuleName, tensorScaleRole } from "../../../src/formats/scale-rules.js";
import { tensor } from "../../../src/ops/create.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { storageBits, WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import { matrixShape } from "../../arbitraries/matrices.js";
import { specsOf } from "../../arbitraries/specs.js";
import { assertSameAnswer, lawNamed, over } from "../../laws/laws.js";
import type { Inputs } from "../../laws/run-options.js";
import { backendSubject, type OperationName } from "../../operations/operations.js";
import { dequantizeCase } from "../../operations/quantize/dequantize.js";
import { quantizeCaseBy } from "../../operations/quantize/quantize.js";
import { downloadQuantized, SpecQuantizer } from "../../operations/quantize/quantized.js";
import { fromCodes, upload } from "../../values/plain.js";
import { amaxesOf, matrixOfAmaxes, tensorAmaxesOf } from "../arbitraries/amaxes.js";
import { shardInputs } from "../arbitraries/shards.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

/**
 * The number of inputs for each quantizer. From 1000 on, every amax of every type is tried with every format and scaling, and in
 * every tensor. Below 1000, the amaxes of bf16 are divided among formats and scalings.
 */
const RUNS = Number(process.env.RUNS ?? 120);
const SEED = Number(process.env.SEED ?? 1);
const TIMEOUT = 3_600_000;

const BOTH = { rowwise: true, columnwise: true, scaleLayout: "logical" } as const;
const COLUMNWISE = { rowwise: false, columnwise: true, scaleLayout: "logical" } as const;
/**
 * The e8m0 rules that only the kernel for any rule supports. This kernel supports the other rules with scalings that are not one
 * multiplication.
 */
const ONLY_ANY_RULES: readonly ScaleRuleName[] = [
  "e8m0EvenShort",
  "e8m0UpLog2",
  "e8m0UpLeast",
  "e8m0FloorLog2",
  "e8m0UpNormal",
];

/** The bits of infinity, of 1 and of the sign. */
const WIDE_BITS = {
  f32: { infinity: 0x7f800000, one: 0x3f800000, sign: 0x80000000 },
  bf16: { infinity: 0x7f80, one: 0x3f80, sign: 0x8000 },
  f16: { infinity: 0x7c00, one: 0x3c00, sign: 0x8000 },
} as const;

/** Whether two codes share a byte under f32 scales, as in quantizers that have only kernels for any rule. */
function isPackedGroup(name: BlockFormatName): boolean {
  const { scale, elements } = blockFormat(name);
  return scale === "f32" && elements.every((format) => storageBits(format) < 8);
}

function isOfAnyRule(spec: QuantizeSpec): boolean {
  const { quantizer, scaleRule, elementScaling, stochastic } = spec;
  if (spec.rowScaled) return spec.fourOverSix === "none";
  if (isPackedGroup(quantizer)) return true;
  if (blockFormat(quantizer).scale === "e4m3") return tensorScaleRole(scaleRule) !== "amax";
  return stochastic || elementScaling !== "multiply" || ONLY_ANY_RULES.includes(scaleRule);
}

const NAMES = quantizersWith("scaleRule").filter(
  (name) => blockFormat(name).scale !== "f32" || isPackedGroup(name),
);
const specsBy = (name: BlockFormatName): readonly QuantizeSpec[] => specsOf(name).filter(isOfAnyRule);

describeOnStandIn("kernels for any rule", (addon) => {
  let gpu: Backend;
  let reference: Backend;
  beforeAll(async () => {
    gpu = openCuda(addon);
    reference = await openBackend("wasm", { datapath: gpu.datapath });
  });
  afterAll(async () => {
    for (const backend of [gpu, reference]) await backend.dispose();
  });

  const check = async (operation: OperationName, inputs: Inputs): Promise<void> => {
    const law = over(inputs, lawNamed(`${operation} agrees with the reference`));
    const parameters = { runs: RUNS, seed: SEED };
    const {
      failure,
      runs,
      declined: declinedCount,
    } = await law.check(backendSubject(gpu), backendSubject(reference), parameters);
    expect(failure).toBeUndefined();
    expect(declinedCount.filter(({ reason }) => !/^quantize: a noop flag/.test(reason))).toEqual([]);
    expect(runs).toBeGreaterThan(RUNS * 0.9);
  };

  it.each(NAMES)(
    "quantize to %s as the reference does",
    (name) => check("quantize", { quantize: quantizeCaseBy(fc.constantFrom(...specsBy(name))) }),
    TIMEOUT,
  );

  it("quantize shards that are rounded stochastically as the reference does", async () => {
    const specs = NAMES.flatMap(specsBy).filter(({ stochastic }) => stochastic);
    const inputs = shardInputs((multiple, block) => matrixShape(multiple, block, 2048), specs);
    await check("quantize", inputs);
  });

  it("dequantize as the reference does", async () => {
    const cases = dequantizeCase(undefined, ["nvfp4"]);
    await check("dequantize", {
      dequantize: cases.filter(({ spec }) => tensorScaleRole(spec.scaleRule) === "divisor"),
    });
  });

  /** Quantizes columns of these amaxes on both backends. */
  const compare = (
    spec: QuantizeSpec,
    dtype: WideDType,
    amaxes: readonly number[],
    tensorAmax: number | undefined,
  ): void => {
    const [, block] = tileSize(spec.tile);
    const matrix = matrixOfAmaxes(amaxes, dtype, block, { isColumnwise: true, seed: SEED });
    const [actual, expected] = [gpu, reference].map((backend) => {
      using _scope = new Scope();
      const amax = tensorAmax === undefined ? undefined : tensor(backend, [tensorAmax]);
      return downloadQuantized(
        new SpecQuantizer(spec, COLUMNWISE, { amax }).quantize(upload(backend, matrix)),
      );
    });
    assertSameAnswer(actual as never, expected as never);
  };

  /** Rows of plus and minus one with a NaN in each block: quiet and signaling, of either sign, ending in either bit. */
  const nansInBlocks = (dtype: WideDType) => {
    const { infinity, one, sign } = WIDE_BITS[dtype];
    const quietBit = (sign - infinity) / 2;
    const kinds = [1, 2, quietBit, quietBit + 1, 2 * quietBit - 2, 2 * quietBit - 1]
      .map((payload) => infinity + payload)
      .flatMap((bits) => [bits, bits + sign]);
    const shape = [4 * kinds.length, 64] as const;
    const codes = Array.from({ length: shape[0] * shape[1] }, (_, code) => {
      const [row, column] = [Math.floor(code / shape[1]), code % shape[1]];
      const holdsNaN = column % 16 === (row * 7) % 16;
      return holdsNaN ? (kinds[row % kinds.length] as number) : one + (column % 2) * sign;
    });
    return fromCodes(dtype, shape, codes);
  };

  it.each(NAMES)(
    "take any NaN for NaN in %s, by every rule and scaling",
    (name) => {
      for (const spec of specsBy(name).filter((spec) => !spec.stochastic && spec.amaxEpsilon === 0))
        for (const dtype of WIDE_DTYPES) {
          const [gpuResult, referenceResult] = [gpu, reference].map((backend) => {
            using _scope = new Scope();
            const x = upload(backend, nansInBlocks(dtype));
            return downloadQuantized(new SpecQuantizer(spec, BOTH).quantize(x));
          });
          assertSameAnswer(gpuResult as never, referenceResult as never);
        }
    },
    TIMEOUT,
  );

  /** Each quantizer and rule with its formats and scalings, for line tiles. */
  const groups = NAMES.flatMap((name) => {
    const specs = specsBy(name).filter(({ tile }) => tileSize(tile)[0] === 1);
    const rules = [...new Set(specs.map(({ scaleRule }) => scaleRule))];
    return rules.map((rule) => ({ name, rule, specs: specs.filter(({ scaleRule }) => scaleRule === rule) }));
  });

  it.each(groups)(
    "give the blocks of $name with each amax the scales and codes of the reference, by $rule",
    ({ specs }) => {
      const cases = specs.flatMap((spec) =>
        tensorAmaxesOf(spec).map((tensorAmax) => ({ spec, whole: tensorAmax })),
      );
      for (const dtype of RUNS < 1000 ? (["bf16"] as const) : WIDE_DTYPES) {
        const amaxes = amaxesOf(dtype);
        const shares = RUNS < 1000 ? cases.length : 1;
        for (const [i, { spec, whole: tensorAmax }] of cases.entries())
          compare(
            spec,
            dtype,
            amaxes.filter((_, index) => index % shares === i % shares),
            tensorAmax,
          );
      }
    },
    TIMEOUT,
  );
});
