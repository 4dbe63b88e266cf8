/**
 * Frozen cases of quantization (separate, fused with an activation or a norm, and with a bias gradient), of dequantization, and
 * of the Hadamard transform.
 */
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormatName } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import type { ScalarFormat } from "../../../../src/formats/scalar.js";
import { RHT_SIGNS } from "../../../../src/ops/quantize/hadamard.js";
import { copyGeometry } from "../../../../src/tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizeSpec,
  type ScaleLayout,
} from "../../../../src/tensor/quantized.js";
import { elementCount, WIDE_DTYPES, type WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { words } from "../../../arbitraries/random.js";
import type { Quantization } from "../../../operations/quantize/quantize.js";
import { fromCodes, type PlainTensor } from "../../../values/plain.js";
import { gridWideValues } from "../gemm/products.js";
import { type FrozenCase, frozenCase, values } from "./case.js";

/**
 * Quantizers and element formats added after the recording, the oldest first. Their specs come last, because the index of a spec
 * is the seed of its inputs.
 */
const LATER_ADDITIONS: readonly (readonly [BlockFormatName, readonly ScalarFormat[]])[] = [
  ["fp8-row", ["e4m3", "e5m2"]],
  ...(["fp8-current", "fp8-delayed", "fp8-block", "fp8-row"] as const).map(
    (name) => [name, ["e4m3fnuz", "e5m2fnuz"]] as const,
  ),
  ["int8-row", ["int8"]],
  ["mxint8", ["s2f6"]],
];

/** Quantizers and formats added after stochastic rounding of MX formats. */
const LATEST_ADDITIONS: typeof LATER_ADDITIONS = [
  ["fp4-ue5m3", ["e2m1"]],
  ["int4-group", ["int4"]],
];

/** The specs of a quantizer with these element formats and every tile. */
function plainSpecs(name: BlockFormatName, formats: readonly ScalarFormat[]): readonly QuantizeSpec[] {
  return formats.flatMap((format) =>
    BLOCK_FORMATS[name].tiles.map((tile) => makeSpec(name, { format, tile })),
  );
}

function isLaterAddition(name: BlockFormatName, format: ScalarFormat): boolean {
  return [...LATER_ADDITIONS, ...LATEST_ADDITIONS].some(
    ([quantizer, formats]) => quantizer === name && formats.includes(format),
  );
}

/** Specs that together have every format, tile and option. */
function specs(): readonly QuantizeSpec[] {
  return [
    ...BLOCK_FORMAT_NAMES.flatMap((name) =>
      plainSpecs(
        name,
        BLOCK_FORMATS[name].elements.filter((format) => !isLaterAddition(name, format)),
      ),
    ),
    makeSpec("fp8-block", { compact: true, pow2Scales: false }),
    makeSpec("fp8-current", { pow2Scales: true, amaxEpsilon: 0.5 }),
    makeSpec("nvfp4", { rht: true, rhtSigns: 0xd7e8, stochastic: true }),
    makeSpec("nvfp4", { fourOverSix: "mae", e4m3Max: 256 }),
    makeSpec("nvfp4", { fourOverSix: "mse", e4m3Max: 448, tile: "16x16" }),
    ...LATER_ADDITIONS.flatMap(([name, formats]) => plainSpecs(name, formats)),
    makeSpec("mxfp8", { stochastic: true }),
    makeSpec("mxfp6", { format: "e3m2", stochastic: true, tile: "32x32" }),
    makeSpec("mxfp4", { stochastic: true }),
    ...LATEST_ADDITIONS.flatMap(([name, formats]) => plainSpecs(name, formats)),
    makeSpec("nvfp4", { rowScaled: true }),
    makeSpec("nvfp4", { rowScaled: true, fourOverSix: "mae", e4m3Max: 256 }),
  ];
}

function specLabel(spec: QuantizeSpec, ...details: readonly string[]): string {
  const { quantizer, format, tile, rht, stochastic, fourOverSix, compact, amaxEpsilon, rowScaled } = spec;
  const label = [
    quantizer,
    format,
    tile,
    ...details,
    rht ? "rht" : stochastic ? "stochastic" : "",
    fourOverSix === "none" ? "" : fourOverSix,
    compact ? "compact" : "",
    amaxEpsilon ? "epsilon" : "",
    rowScaled ? "rowScaled" : "",
  ];
  return label.filter((part) => part).join(" ");
}

function inputShape(spec: QuantizeSpec): readonly [rows: number, columns: number] {
  return BLOCK_FORMATS[spec.quantizer].multiple === 1 ? [131, 267] : [160, 288];
}

/** The scale layout that cuBLASLt requires; if it requires none, the padded layout. */
function kernelScaleLayout({ quantizer }: QuantizeSpec): ScaleLayout {
  return BLOCK_FORMATS[quantizer].padding === "tiles" ? "swizzled" : "padded";
}

function bothCopies(spec: QuantizeSpec, offset: number): Quantization {
  return {
    spec,
    usage: { rowwise: true, columnwise: true },
    scaleLayout: kernelScaleLayout(spec),
    random: { seed: 7n, offset: BigInt(offset) },
    scale: 3.5,
  };
}

/** The input types of a spec: with the Hadamard transform, bf16 only. */
function inputTypes({ rht }: QuantizeSpec): readonly WideDType[] {
  return rht ? ["bf16"] : WIDE_DTYPES;
}

function quantizeCases(): readonly FrozenCase[] {
  return specs().flatMap((spec, i) =>
    inputTypes(spec).map((dtype) =>
      frozenCase("quantize", specLabel(spec, dtype), {
        ...bothCopies(spec, i),
        x: values(dtype, inputShape(spec), 100 + i),
      }),
    ),
  );
}

/** Cases of fused activations: plain and gated, forward and backward. */
function activationCases(): readonly FrozenCase[] {
  return specs().flatMap((spec, i) => {
    const [rows, columns] = inputShape(spec);
    const x = values("bf16", [rows, columns], 400 + i);
    const gatedInput = values("bf16", [rows, 2 * columns], 430 + i);
    const quantization = bothCopies(spec, i);
    const withSpec = (label: string) => `${specLabel(spec)}, ${label}`;
    const cases = [
      frozenCase("activationQuantize", withSpec("gelu"), { ...quantization, x, kind: "gelu", gated: false }),
      frozenCase("activationQuantize", withSpec("gated silu"), {
        ...quantization,
        x: gatedInput,
        kind: "silu",
        gated: true,
      }),
    ];
    const backward = {
      ...quantization,
      x,
      kind: "gelu" as const,
      gated: false,
      grad: values("bf16", x.shape, 460 + i),
    };
    return [...cases, frozenCase("activationQuantize", withSpec("gelu's gradient"), backward)];
  });
}

/** Cases of fused norms, with and without beta. */
function normCases(): readonly FrozenCase[] {
  return specs().flatMap((spec, i) => {
    const [rows, columns] = inputShape(spec);
    const x = gridWideValues("bf16", [rows, columns], 490 + i);
    const [gamma, beta] = [
      gridWideValues("f32", [columns], 520 + i),
      gridWideValues("f32", [columns], 550 + i),
    ];
    const norm = { ...bothCopies(spec, i), x, gamma, zeroCenteredGamma: false, eps: 1e-5 };
    return [
      frozenCase("normQuantize", `${specLabel(spec)}, LayerNorm`, { ...norm, beta }),
      frozenCase("normQuantize", `${specLabel(spec)}, RMSNorm`, norm),
    ];
  });
}

/** Cases of fused bias gradients with more rows than one chunk. */
function biasGradCases(): readonly FrozenCase[] {
  return specs().map((spec, i) => {
    const x = gridWideValues("bf16", inputShape(spec), 580 + i);
    return frozenCase("biasGradQuantize", specLabel(spec), { ...bothCopies(spec, i), x, biasType: "f32" });
  });
}

/** Scale codes: f32 bit patterns of every size, or all bytes of the scale format. */
function scaleCodes({ quantizer }: QuantizeSpec, count: number, seed: number): number[] {
  const isWide = BLOCK_FORMATS[quantizer].scale === "f32";
  return Array.from(words(seed, count), (word) =>
    isWide ? (word & 0x7fffff) | ((64 + (word >>> 25)) << 23) : word % 256,
  );
}

function drawnScales(spec: QuantizeSpec, direction: Direction, seed: number): PlainTensor {
  const { scaleType, scaleShape } = copyGeometry(spec, inputShape(spec), direction, "logical");
  return fromCodes(scaleType, scaleShape, scaleCodes(spec, elementCount(scaleShape), seed));
}

/** The code of 2688, and codes of larger amaxes for further lines. */
function amaxCodes(count: number): number[] {
  return Array.from({ length: count }, (_, i) => 0x45280000 + i * 0x1357);
}

/** Cases of dequantization: all codes under scales of all sizes. */
function dequantizeCases(): readonly FrozenCase[] {
  return specs().flatMap((spec, i) =>
    WIDE_DTYPES.map((dtype) => {
      const shape = inputShape(spec);
      const { dataType, dataShape, amaxShape } = copyGeometry(spec, shape, "rowwise", "logical");
      const codes = words(500 + i, elementCount(dataShape)).map(
        (word) => word % 2 ** factsOf(spec.format).bits,
      );
      const scaleInv = drawnScales(spec, "rowwise", 530 + i);
      return frozenCase("dequantize", specLabel(spec, dtype), {
        spec,
        shape,
        direction: "rowwise",
        scaleLayout: "logical",
        data: fromCodes(dataType, dataShape, codes),
        scaleInv,
        logicalScales: scaleInv,
        ...(amaxShape ? { amax: fromCodes("f32", amaxShape, amaxCodes(elementCount(amaxShape))) } : {}),
        dtype,
      });
    }),
  );
}

function relayoutCases(): readonly FrozenCase[] {
  return specs().flatMap((spec, i) =>
    DIRECTIONS.map((direction) =>
      frozenCase("relayout", specLabel(spec, direction), {
        spec,
        shape: inputShape(spec),
        direction,
        from: "logical",
        to: kernelScaleLayout(spec),
        scales: drawnScales(spec, direction, 560 + i),
      }),
    ),
  );
}

function hadamardCases(): readonly FrozenCase[] {
  const x = values("bf16", [160, 75], 590) as PlainTensor<"bf16">;
  return [
    frozenCase("hadamard", "without signs", { x, signs: 0 }),
    frozenCase("hadamard", "with signs", { x, signs: RHT_SIGNS }),
  ];
}

export const QUANTIZED_CASES: readonly FrozenCase[] = [
  ...quantizeCases(),
  ...activationCases(),
  ...normCases(),
  ...biasGradCases(),
  ...dequantizeCases(),
  ...relayoutCases(),
  ...hadamardCases(),
];
