/**
 * A small quantizer written like kernels in the field, block by block in f32, with a switch for each known mistake. It shares no
 * code with the library.
 */
import { decode, encode } from "./narrow.js";

/** The settings of a kernel, which differ by convention. */
export interface Convention {
  readonly block: number;
  readonly format: "e4m3" | "e5m2" | "e2m1";
  /** The scale of an amax: its stored code or value, and the factor or divisor of elements. */
  readonly scale:
    | "e8m0-up"
    | "e8m0-floor"
    | "e8m0-ceil"
    | "e8m0-even"
    | "e8m0-quotient"
    | "f32-multiply"
    | "f32-divide"
    | "nvfp4";
}

/** A mistake, by the stage of the kernel that it changes. */
export interface Mistake {
  /** Changes an input first. */
  readonly load?: (x: number) => number;
  /** The amax of a block, which is block `b` of its row; also receives the values of the row and of the matrix. */
  readonly amax?: (block: Float32Array, row: Float32Array, b: number, matrix: Float32Array) => number;
  /** The wrong settings. */
  readonly convention?: Partial<Convention>;
  /** Changes the stored scale; with `redo`, elements are scaled by the changed one. */
  readonly scale?: (scale: Scale, amax: number) => number;
  readonly redo?: boolean;
  /** Changes the scaled value before it is rounded. */
  readonly scaled?: (y: number, x: number, scale: Scale) => number;
  /** Rounds a scaled value to a code. */
  readonly round?: (y: number, format: Convention["format"]) => number;
  /** Changes the stored tensors. */
  readonly store?: (storedValues: StoredValues) => StoredValues;
  /** The amax of the tensor, for two-level scales. */
  readonly tensorAmax?: (amax: number) => number;
  /** Keeps the scales of the previous call. */
  readonly isStale?: boolean;
}

/** A scale of a block: its stored bits, its value, and the factor of elements. */
export interface Scale {
  readonly code: number;
  readonly value: number;
  readonly factor: number;
}

/** The stored tensors of a kernel, one code for each element. */
export interface StoredValues {
  readonly codes: number[];
  readonly scales: number[];
  readonly rows: number;
  readonly columns: number;
  readonly blocksPerRow: number;
  readonly amax?: number;
}

const f = Math.fround;
const MAX = { e4m3: 448, e5m2: 57344, e2m1: 6 } as const;
const EMAX = { e4m3: 8, e5m2: 15, e2m1: 2 } as const;

export const bits = (x: number): number => new Uint32Array(Float32Array.of(x).buffer)[0] as number;
const exponent = (x: number): number => {
  const word = bits(x);
  return word >>> 23 === 0 ? Math.floor(Math.log2(x)) : (word >>> 23) - 127;
};
const clamp = (code: number): number => Math.min(Math.max(code, 0), 254);
/** The value of an e8m0 code. */
const power = (code: number): number => (code === 255 ? Number.NaN : 2 ** (code - 127));

function upward(value: number): number {
  if (value === Infinity) return 254;
  if (value === 0) return 0;
  const powerOfTwo = exponent(value);
  return clamp((2 ** powerOfTwo === value ? powerOfTwo : powerOfTwo + 1) + 127);
}

/** The scale of a block under a convention. */
function scaleOf(amax: number, { scale, format }: Convention, tensorAmax: number): Scale {
  const max = MAX[format];
  const e8m0 = (code: number): Scale => ({ code, value: power(code), factor: 1 / power(code) });
  switch (scale) {
    case "e8m0-up":
      return e8m0(Number.isNaN(amax) ? 255 : upward(f(amax * f(1 / max))));
    case "e8m0-quotient":
      return e8m0(Number.isNaN(amax) ? 255 : upward(f(amax / max)));
    case "e8m0-floor":
      if (amax === Infinity) return e8m0(254);
      return e8m0(amax === 0 ? 0 : clamp(exponent(amax) - EMAX[format] + 127));
    case "e8m0-ceil": {
      if (amax === Infinity) return e8m0(254);
      const exponentOfAmax = amax === 0 ? -200 : exponent(amax);
      return e8m0(
        clamp((2 ** exponentOfAmax === amax ? exponentOfAmax : exponentOfAmax + 1) - EMAX[format] + 127),
      );
    }
    case "e8m0-even": {
      if (amax === Infinity) return e8m0(254);
      if (amax === 0) return e8m0(0);
      const m = { e4m3: 3, e5m2: 2, e2m1: 1 }[format];
      const exponentOfAmax = exponent(amax);
      const carry = Math.floor(amax / 2 ** (exponentOfAmax - m) + 0.5) >= 2 ** (m + 1) ? 1 : 0;
      return e8m0(clamp(exponentOfAmax + carry - EMAX[format] + 127));
    }
    case "f32-multiply": {
      const m = amax > 0 && amax < Infinity ? Math.min(f(max / amax), (2 - 2 ** -23) * 2 ** 127) : 1;
      return { code: bits(f(1 / m)), value: f(1 / m), factor: m };
    }
    case "f32-divide": {
      const scaleValue = f(amax / max);
      return { code: bits(scaleValue), value: scaleValue, factor: Number.NaN };
    }
    case "nvfp4": {
      const largest = (2 - 2 ** -23) * 2 ** 127;
      const quotient = f(2688 / tensorAmax);
      const tensorScale = tensorAmax === 0 || quotient === 0 ? 1 : Math.min(quotient, largest);
      const code = encode(Math.min(f(amax * f(tensorScale * f(1 / 6))), largest), "e4m3");
      const value = decode(code, "e4m3");
      return { code, value, factor: Math.min(f(1 / f(value * f(1 / tensorScale))), largest) };
    }
  }
}

const largestIn = (values: Float32Array): number =>
  values.reduce((largest, x) => Math.max(largest, Number.isNaN(x) ? 0 : Math.abs(x)), 0);

/** A kernel with or without a mistake. It has state between calls, like a kernel with buffers. */
export function quantizer(
  right: Convention,
  mistake: Mistake = {},
): (x: Float32Array, columns: number) => StoredValues {
  const convention = { ...right, ...mistake.convention };
  let previousScales: number[] | undefined;
  return (input, columns) => {
    const x = mistake.load ? input.map(mistake.load) : input;
    const rows = columns === 0 ? 0 : x.length / columns;
    const blocksPerRow = Math.ceil(columns / convention.block);
    const tensorAmax = (mistake.tensorAmax ?? ((amax) => amax))(largestIn(x));
    const [codes, scales]: [number[], number[]] = [[], []];
    for (let rowIndex = 0; rowIndex < rows; rowIndex++) {
      const row = x.subarray(rowIndex * columns, (rowIndex + 1) * columns);
      for (let b = 0; b < blocksPerRow; b++) {
        const block = row.subarray(b * convention.block, (b + 1) * convention.block);
        const amax = (mistake.amax ?? largestIn)(block, row, b, x);
        const scale = scaleOf(amax, convention, tensorAmax);
        const code = mistake.scale?.(scale, amax) ?? scale.code;
        const isE8m0 = convention.scale.startsWith("e8m0");
        const value = isE8m0 ? power(code) : (new Float32Array(Uint32Array.of(code).buffer)[0] as number);
        const blockScale =
          mistake.redo && code !== scale.code ? { code, value, factor: f(1 / value) } : scale;
        scales.push(code);
        for (const element of block) {
          const y =
            convention.scale === "f32-divide"
              ? f(element / blockScale.value)
              : f(element * blockScale.factor);
          codes.push(
            (mistake.round ?? encode)(mistake.scaled?.(y, element, blockScale) ?? y, convention.format),
          );
        }
      }
    }
    const storedValues = { codes, scales, rows, columns, blocksPerRow, amax: tensorAmax };
    const scalesBefore = previousScales;
    previousScales = scales;
    const stale =
      mistake.isStale && scalesBefore && scalesBefore.length === scales.length
        ? { ...storedValues, scales: scalesBefore }
        : storedValues;
    return mistake.store ? mistake.store(stale) : stale;
  };
}
