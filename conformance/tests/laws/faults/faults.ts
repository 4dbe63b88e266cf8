/** Faults of kernels, each a small change of the reference's answer, and the name that the tool must give it. */
import { roundTo } from "../../../../src/explain/rounding.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { type Fault, inAmax, inCodes, inInput, inScales, scramble } from "./stages.js";

const { fround } = Math;
const TINY = 2 ** -126;

const isNearest = ({ stochastic, elementScaling }: QuantizeSpec): boolean =>
  !stochastic && !/Half/.test(elementScaling);
const hasNaN = ({ format }: QuantizeSpec): boolean => factsOf(format).hasNaN;
const scaleIs =
  (...types: readonly string[]) =>
  ({ quantizer }: QuantizeSpec): boolean =>
    types.includes(blockFormat(quantizer).scale) && blockFormat(quantizer).scaleSource !== "given";
const isFloat = ({ format }: QuantizeSpec): boolean => !/int|s2f6/.test(format);
const bf16 = (x: number): number => {
  if (!Number.isFinite(x)) return x;
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0] as number;
  return new Float32Array(
    Uint32Array.of((bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000).buffer,
  )[0] as number;
};
const roundBy =
  (rounding: Parameters<typeof roundTo>[1]["rounding"], overflow: "saturate" | "nonfinite" = "saturate") =>
  (_: number, { y, spec: { format } }: { readonly y: number; readonly spec: QuantizeSpec }): number =>
    roundTo(y, { format, rounding, overflow }).code;

/** Faults with a name. */
export const NAMED: readonly Fault[] = [
  inAmax("the stored amax is 1", () => 1, { causePattern: /1 is stored/ }),
  inAmax("the stored amax is 0", () => 0, { causePattern: /0 is stored/ }),
  inAmax("one over the amax is stored", (x) => 1 / x, { causePattern: /reciprocal|one over/ }),
  inAmax("twice the amax is stored", (x) => x * 2, { causePattern: /2 (\* amax|times as large)/ }),
  inAmax("half the amax is stored", (x) => x / 2, { causePattern: /amax \/ 2|0\.5 times/ }),
  inInput("subnormal inputs are flushed", (x) => (Math.abs(x) < TINY ? x * 0 : x), {
    causePattern: /subnormal/,
  }),
  inInput("NaN inputs count as zero", (x) => (Number.isNaN(x) ? 0 : x), { causePattern: /NaN/ }),
  inInput("NaN and infinities count as zero", (x) => (Number.isFinite(x) ? x : 0), {
    causePattern: /infinit/,
  }),
  inInput(
    "infinities count as the largest number",
    (x, largest) => (Math.abs(x) === Infinity ? Math.sign(x) * largest : x),
    {
      causePattern: /infinit/,
      isFor: (spec) => isFloat(spec),
    },
  ),
  inInput("the sign of inputs is lost", Math.abs, { causePattern: /sign/ }),
  inCodes("all codes are 0", () => 0, { causePattern: /all codes are 0/ }),
  inCodes("the sign of codes is lost", (code, { signBit }) => code & (signBit - 1), {
    causePattern: /sign/,
    isFor: isFloat,
  }),
  inCodes("+0 for -0", (code, { signBit }) => (code === signBit ? 0 : code), {
    causePattern:
      /\+0 for -0|-0 becomes|-0 counts|loses its sign|-0 is lost|addsZero|plusZero|divideAdd|multiplyTypedAdd|plus/i,
    isFor: (spec) => isFloat(spec) && !/fnuz/.test(spec.format),
  }),
  inCodes(
    "the sign of NaN is kept",
    (code, { x, isNegative, signBit }) => (Number.isNaN(x) && isNegative ? code | signBit : code),
    {
      causePattern: /sign of NaN is kept/,
      isFor: (spec) => hasNaN(spec) && !/fnuz/.test(spec.format),
    },
  ),
  inCodes("NaN becomes 0", (code, { y }) => (Number.isNaN(y) ? 0 : code), {
    causePattern: /NaN/,
    isFor: hasNaN,
  }),
  inCodes("infinities become 0", (code, { y }) => (Math.abs(y) === Infinity ? 0 : code), {
    causePattern: /infinit/,
  }),
  inCodes("ties go away from zero", roundBy("tiesToAway"), {
    causePattern: /half away|HalfAway/,
    isFor: isNearest,
  }),
  inCodes("ties go toward zero", roundBy("tiesToZero"), {
    causePattern: /toward zero|nearer to zero/,
    isFor: isNearest,
  }),
  inCodes("truncation", roundBy("towardZero"), { causePattern: /truncated/ }),
  inCodes("rounding up", roundBy("towardPositive"), { causePattern: /rounded up/ }),
  inCodes("rounding to odd", roundBy("toOdd"), { causePattern: /to odd/ }),
  inCodes(
    "no saturation",
    (code, { y, spec }) => (isBeyond(y, spec) ? roundBy("tiesToEven", "nonfinite")(code, { y, spec }) : code),
    {
      causePattern: /saturation is missing/,
      isFor: (spec) => hasNaN(spec),
    },
  ),
  inCodes(
    "subnormal codes are flushed",
    (code, { spec: { format }, signBit }) => {
      const smallest = 2 ** ({ e4m3: 3, e5m2: 2, e2m3: 3, e3m2: 2, e2m1: 1 }[format as "e4m3"] ?? 0);
      return (code & (signBit - 1)) < smallest ? code & signBit : code;
    },
    {
      causePattern: /subnormal codes|smallest normal/,
      isFor: ({ format }) => /^(e4m3|e5m2|e2m3|e3m2|e2m1)$/.test(format),
    },
  ),
  inCodes(
    "double rounding through bf16",
    (_, { y, spec }) => roundBy("tiesToEven")(0, { y: bf16(y), spec }),
    {
      causePattern: /bf16|divide/,
      isFor: (spec) =>
        isNearest(spec) && !/plusZero|minusZero|Add|Typed|Plus|Minus/.test(spec.elementScaling),
    },
  ),
  inCodes("nearest in place of stochastic", roundBy("tiesToEven"), {
    causePattern: /not stochastically/,
    isFor: ({ stochastic }) => stochastic,
  }),
  inCodes(
    "a divisor of 0 for subnormal scales",
    (code, { x, spec, block }) =>
      block.scale < TINY ? roundBy("tiesToEven")(code, { y: fround(x / 0), spec }) : code,
    {
      causePattern: /subnormal|0 \/ 0/,
      isFor: (spec) => isNearest(spec) && isFloat(spec) && scaleIs("f32", "e8m0")(spec),
    },
  ),
  inScales(
    "the scale of zeros is NaN",
    (code, view, block) => (view.amaxOf(block) === 0 ? nanOf(view.spec) : code),
    {
      causePattern: /block of zeros is NaN|would be 0 is NaN/,
      isFor: scaleIs("f32", "e8m0", "e4m3"),
    },
  ),
  inScales(
    "the scale of zeros is 1",
    (code, view, block) => (view.amaxOf(block) === 0 ? oneOf(view.spec) : code),
    {
      causePattern: /block of zeros is 1|would be 0 is 1|amax is at least|scales are at least/,
      isFor: scaleIs("f32", "e8m0", "e4m3"),
    },
  ),
  inScales("all scales are 0", () => 0, { causePattern: /every scale is/ }),
  inScales("all scales are 1", (_, { spec }) => oneOf(spec), {
    causePattern: /every scale is 1|the scale is 1 in every block/,
    isFor: scaleIs("f32", "e8m0", "e4m3"),
  }),
  inScales("one too large, elements too", (code) => Math.min(code + 1, 254), {
    causePattern: /2\^1 times as large|frexp/,
    isFor: scaleIs("e8m0"),
    recodes: true,
  }),
  inScales("one too large where stored", (code) => Math.min(code + 1, 254), {
    causePattern: /2\^1 times as large/,
    isFor: scaleIs("e8m0"),
  }),
  inScales("the reciprocal is stored", (code) => (254 - code) & 255, {
    causePattern: /reciprocal/,
    isFor: scaleIs("e8m0"),
  }),
  inScales("one over each f32 scale is stored", (code) => f32(1 / value(code)), {
    causePattern: /reciprocal/,
    isFor: scaleIs("f32"),
  }),
  inScales("f32 scales through bf16", (code) => f32(bf16(value(code))), {
    causePattern: /rounded to bf16/,
    isFor: scaleIs("f32"),
    recodes: true,
  }),
  inScales("small scales are clamped", (code) => Math.max(code, 113), {
    causePattern: /at least 2\^-14/,
    isFor: scaleIs("e8m0"),
    recodes: true,
  }),
  inScales("subnormal e4m3 scales are flushed", (code) => (code < 8 ? 0 : code), {
    causePattern: /subnormal scales/,
    isFor: scaleIs("e4m3"),
    recodes: true,
  }),
  inScales(
    "the exponent of frexp",
    (code, view, block) => {
      const amax = view.amaxOf(block);
      if (amax === 0 || amax === Infinity) return code;
      const quotient = fround(amax * fround(1 / factsOf(view.spec.format).max));
      return quotient === 2 ** Math.round(Math.log2(quotient)) && quotient > 2 ** -127
        ? Math.min(code + 1, 254)
        : code;
    },
    { causePattern: /frexp|FloorLog2|e8m0/, isFor: (spec) => spec.scaleRule === "e8m0Up", recodes: true },
  ),
  inScales(
    "NaN makes the scale NaN",
    (code, view, block) => (view.valuesOf(block).some(Number.isNaN) ? nanOf(view.spec) : code),
    { causePattern: /NaN/, isFor: scaleIs("f32", "e8m0") },
  ),
];

/** Faults that have no name, for which the tool must not state a cause. */
export const UNNAMED: readonly Fault[] = [
  inAmax("the stored amax is one unit too large", (x) => value(f32(x) + 1)),
  inAmax("the stored amax is that of odd elements squared", (x) => fround(x * x + 3)),
  inCodes("one code of each row is flipped", (code, { row, column }) =>
    column === (row * 7 + 3) % 11 ? code ^ 1 : code,
  ),
  inCodes("codes flip where a hash says so", (code, { row, column }) =>
    scramble(row, column) % 97 === 0 ? code ^ 2 : code,
  ),
  inCodes(
    "codes of every fifth column are those of half the value",
    (code, { column, y, spec }) =>
      column % 5 === 0 ? roundBy("tiesToEven")(code, { y: y / 2, spec }) : code,
    { isFor: isFloat },
  ),
  inCodes(
    "positive ties go up, others to even",
    (code, { y, spec }) => (y > 0 && y < 1 ? roundBy("tiesToAway")(code, { y, spec }) : code),
    { isFor: isNearest },
  ),
  inCodes(
    "columns from 3 on have the sign of the row's parity",
    (code, { row, column, signBit }) => (column >= 3 && row % 2 === 1 ? code ^ signBit : code),
    { isFor: isFloat },
  ),
  inCodes("small values gain a step", (code, { y, spec, signBit }) =>
    Math.abs(y) < 1 && Math.abs(y) > factsOf(spec.format).minNormal / 4 && (code & (signBit - 1)) < 4
      ? code + 1
      : code,
  ),
  inScales(
    "one scale in thirteen is larger",
    (code, _, block) => (scramble(block, 5) % 13 === 0 ? code + 1 : code),
    {
      isFor: scaleIs("e8m0", "e4m3"),
    },
  ),
  inScales(
    "one f32 scale in thirteen is one unit larger",
    (code, _, block) => (scramble(block, 6) % 13 === 0 ? code + 1 : code),
    {
      isFor: scaleIs("f32"),
    },
  ),
  inScales("scales depend on the parity of their code", (code) => (code % 3 === 1 ? code ^ 2 : code), {
    isFor: scaleIs("e8m0", "e4m3"),
    recodes: true,
  }),
];

function isBeyond(y: number, { format }: QuantizeSpec): boolean {
  const { result } = roundTo(y, { format, rounding: "tiesToEven", overflow: "nonfinite" });
  return !Number.isNaN(y) && !Number.isFinite(result);
}

function value(bits: number): number {
  return new Float32Array(Uint32Array.of(bits).buffer)[0] as number;
}

function f32(x: number): number {
  return new Uint32Array(Float32Array.of(x).buffer)[0] as number;
}

const ONES = { f32: 0x3f800000, e8m0: 127, e4m3: 0x38, ue5m3: 0x78 } as const;
const NANS = { f32: 0x7fc00000, e8m0: 255, e4m3: 0x7f, ue5m3: 0xff } as const;

function oneOf({ quantizer }: QuantizeSpec): number {
  return ONES[blockFormat(quantizer).scale];
}

function nanOf({ quantizer }: QuantizeSpec): number {
  return NANS[blockFormat(quantizer).scale];
}
