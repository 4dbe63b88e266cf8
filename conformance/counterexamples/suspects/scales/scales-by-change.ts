/** Correct scales that are changed or stored in wrong positions. */
import { OTHER_RULES } from "../../../../src/dialects/identify/expected.js";
import { f32Bits, floorLog2 } from "../../../../src/explain/binary.js";
import type { Region } from "../../../../src/explain/blocks.js";
import { roundTo } from "../../../../src/explain/rounding.js";
import type { RuleResult } from "../../../../src/explain/scale-rules.js";
import { div, mul, roundedTo } from "../../../../src/explain/steps.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { factsOf, valueOfCode } from "../../../../src/formats/derive.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import type { View } from "../view.js";
import type { ScaleSuspect } from "./scale-suspect.js";

/** Changes the correct scale; elements are scaled by the changed scale. */
export function ofChanges(spec: QuantizeSpec): ScaleSuspect[] {
  const type = blockFormat(spec.quantizer).scale;
  const changed = (
    words: string,
    change: (result: RuleResult, view: View, block: number) => number | undefined,
  ): ScaleSuspect => ({
    words,
    of(view, block) {
      const correct = view.expected[block] as RuleResult;
      const code = change(correct, view, block);
      return code === undefined ? undefined : code === correct.code ? correct : view.resultOf(code, block);
    },
  });
  const value = (words: string, change: (scale: number) => number) =>
    changed(words, ({ scale }) => f32Bits(change(scale)));
  const other = OTHER_RULES[type].map(({ name, formula, of }) =>
    changed(
      `the scale is ${name === "one" ? "1 in every block" : `the ${name}: ${formula}`}`,
      (_, view, block) => {
        const scale = of(view.amaxIn(view.blocks[block]?.region as Region), spec.format);
        return type === "f32" ? f32Bits(scale) : scale;
      },
    ),
  );
  if (type === "f32")
    return [
      ...other,
      value("scales are rounded to bf16", (scale) => roundedTo(scale, "bf16")),
      value("scales are rounded to f16", (scale) => roundedTo(scale, "f16")),
      value("scales are rounded up to powers of two", (scale) => 2 ** Math.ceil(Math.log2(scale))),
      value("scales are rounded down to powers of two", (scale) => 2 ** Math.floor(Math.log2(scale))),
      { ...value("the reciprocal of the scale is stored", (scale) => div(1, scale)), isStorage: true },
      ...[2, 4, 8, 0.5, 0.25].map((n) => value(`scales are ${n} times as large`, (scale) => mul(scale, n))),
      ...[2 ** -126, 1e-12, 1e-10, 1e-8].map((n) =>
        value(`scales are at least ${n}`, (scale) => Math.max(scale, Math.fround(n))),
      ),
      value("scales that are subnormal in f32 are flushed to zero", (scale) =>
        scale < 2 ** -126 ? 0 : scale,
      ),
    ];
  const { maxCode } = factsOf(type);
  const last = type === "e8m0" ? 254 : maxCode;
  // the NaN code is not changed
  const coded = (words: string, change: (code: number, correct: RuleResult) => number) =>
    changed(words, (correct) =>
      correct.code > last ? correct.code : Math.min(Math.max(change(correct.code, correct), 0), last),
    );
  if (type === "e8m0")
    return [
      ...other,
      { ...changed("the reciprocal of the scale is stored", ({ code }) => 254 - code), isStorage: true },
      ...[1, 2, 3, 4, 7, 8, -1, -2, -3, -4, -7, -8].map((n) =>
        coded(
          `scales are 2^${n} times as large: the exponent of the largest element, or the bias of the scale, is wrong`,
          (code) => code + n,
        ),
      ),
      {
        ...changed(
          "the exponent of the scale is stored without its bias of 127",
          ({ code }) => (code - 127) & 255,
        ),
        isStorage: true,
      },
      ...[1, 2, 7, 27, 64, 87, 100, 113, 117, 127].map((n) =>
        coded(`scales are at least 2^${n - 127}: small ones are clamped`, (code) => Math.max(code, n)),
      ),
      ...frexpScales(spec),
      ...[126, 127, 253].map((n) =>
        coded(`scales are at most 2^${n - 127}: large ones are clamped`, (code) => Math.min(code, n)),
      ),
    ];
  return [
    ...other,
    ...(["tiesToAway", "towardZero", "towardPositive"] as const).map((rounding) =>
      changed(
        `scales are rounded ${ROUNDED[rounding]}, not to nearest even`,
        ({ rounding: scaleRounding, code }) =>
          scaleRounding
            ? roundTo(scaleRounding.value, { format: "e4m3", rounding, overflow: "saturate" }).code
            : code,
      ),
    ),
    ...[1, 8, -8].map((n) => coded(`the codes of scales are ${n} too large`, (code) => code + n)),
    ...[0x01, 0x08, 0x20].map((n) =>
      coded(`scales are at least ${valueOfCode("e4m3", n)}: small ones are clamped`, (code) =>
        Math.max(code, n),
      ),
    ),
    coded("subnormal scales are flushed to zero", (code) => (code < 8 ? 0 : code)),
  ];
}

/** Powers of two with the exponent of frexp, or of an amax rounded to a power of two. */
function frexpScales({ format }: QuantizeSpec): ScaleSuspect[] {
  const { max, maxExponent } = factsOf(format);
  const power = (words: string, exponentOf: (amax: number) => number): ScaleSuspect => ({
    words,
    of(view, block) {
      const amax = view.amaxOf(block);
      const exponent = amax === 0 ? -127 : amax === Infinity ? 127 : exponentOf(amax);
      return view.resultOf(Math.min(Math.max(exponent, -127), 127) + 127, block);
    },
  });
  const next = (x: number): number => (x === 0 ? -127 : x === Infinity ? 127 : floorLog2(x) + 1);
  const frexp = "the exponent of the scale is that of frexp: one too many where amax / max is a power of two";
  return [
    power(`${frexp} (amax * fl(1 / max))`, (amax) => next(mul(amax, div(1, max)))),
    power(`${frexp} (amax / max)`, (amax) => next(div(amax, max))),
    power(
      "the exponent of the scale is that of frexp of the amax: one too many",
      (amax) => floorLog2(amax) + 1 - maxExponent,
    ),
    ...[-1, 0, 1].map((by) =>
      power(
        `the amax is rounded to a power of two, up from a mantissa of 1.5, and divided by 2^${maxExponent + by}`,
        (amax) => floorLog2(amax) + (amax >= 1.5 * 2 ** floorLog2(amax) ? 1 : 0) - maxExponent - by,
      ),
    ),
  ];
}

const ROUNDED = {
  tiesToAway: "half away from zero",
  towardZero: "down",
  towardPositive: "up",
} as const;

/** The correct scales in wrong positions. */
export function ofPlaces(): ScaleSuspect[] {
  const moved = (words: string, from: (view: View, block: number) => number | undefined): ScaleSuspect => ({
    words,
    isStorage: true,
    of(view, block) {
      const at = from(view, block);
      return at === undefined ? undefined : (view.expected[at] ?? view.resultOf(0, block));
    },
  });
  return [
    moved("scales are stored transposed", ({ across, blocks }, block) => {
      const down = blocks.length / across;
      return (block % down) * across + Math.floor(block / down);
    }),
    moved(
      "scales are stored in the swizzled layout of tensor cores (tiles of 128 x 4), read here as plain rows",
      unswizzled,
    ),
  ];
}

/** The plain index of the scale at an index of the swizzled layout. */
function unswizzled({ across, blocks }: View, at: number): number {
  const tiles = Math.ceil(across / 4);
  const [tile, within] = [Math.floor(at / 512), at % 512];
  const row = Math.floor(tile / tiles) * 128 + Math.floor((within % 16) / 4) * 32 + Math.floor(within / 16);
  const column = (tile % tiles) * 4 + (within % 4);
  return row < blocks.length / across && column < across ? row * across + column : -1;
}
