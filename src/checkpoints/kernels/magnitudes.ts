/** Tables for assembly/checkpoints/statistics.ts: the magnitudes of a code type, and the codes that are NaN. */
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";

/** The byte offsets of the fields of a table. */
const KIND = {
  squares: 0,
  magnitudes: 2048,
  ranks: 4096,
  unit: 4112,
  mask: 4120,
  lastNumber: 4121,
  largest: 4122,
  isInteger: 4123,
  isUnsignedZero: 4124,
  bytes: 4128,
} as const;

const LOGARITHMS = new Map<string, Float64Array>();

/** `lastNumber` of a code type without NaN: no rank is larger. */
const NO_NAN = 255;

const CACHE = new Map<string, Uint8Array>();

/** The table of integer codes up to `max`. The magnitude of each rank is the rank. */
export function integerMagnitudes(max: number): Uint8Array {
  const magnitudes = Array.from({ length: 256 }, (_, rank) => rank);
  return table({ squares: magnitudes.map((each) => each ** 2), magnitudes, mask: 0xff, largest: max });
}

/** The table of codes of one byte each. */
export function byteMagnitudes(type: CodeTypeName): Uint8Array {
  return cached(`bytes of ${type}`, () => {
    const { values, max, bits } = CODE_TYPES[type];
    const isInteger =
      values.every(Number.isInteger) && values.some((value) => value < 0 && value === -max - 1);
    const sign = isInteger ? 0 : 2 ** (bits - 1);
    const mask = isInteger ? 0xff : sign - 1;
    const magnitudeOf = (byte: number): number => (isInteger ? (byte << 24) >> 24 : (values[byte] ?? 0));
    const magnitudes = Array.from({ length: 256 }, (_, rank) =>
      isInteger ? rank : (values[rank & mask] ?? 0),
    );
    const firstNaN = isInteger ? -1 : magnitudes.slice(0, mask + 1).findIndex(Number.isNaN);
    return table({
      squares: Array.from({ length: 256 }, (_, byte) => magnitudeOf(byte) ** 2),
      magnitudes,
      mask,
      lastNumber: firstNaN < 0 ? NO_NAN : firstNaN - 1,
      largest: magnitudes.indexOf(max),
      isInteger,
      isUnsignedZero: !isInteger && bits === 8 && Number.isNaN(values[sign]),
    });
  });
}

/** The table of 4-bit codes. Each byte holds two codes. */
export function nibbleMagnitudes(type: CodeTypeName): Uint8Array {
  return cached(`pairs of ${type}`, () => {
    const { values, max } = CODE_TYPES[type];
    const unit = values.every(Number.isInteger) ? 1 : 0.25;
    const ranks = Array.from(values, (value) => value ** 2 / unit);
    return table({
      magnitudes: Array.from({ length: 256 }, (_, rank) => Math.sqrt(rank * unit)),
      ranks,
      unit,
      mask: 15,
      largest: max ** 2 / unit,
    });
  });
}

/** Half the binary logarithm of the sum of squares of `wide` 4-bit codes, indexed by the sum of their ranks. */
export function nibbleLogarithms(type: CodeTypeName, wide: number): Float64Array {
  const key = `${type} ${wide}`;
  const cachedTable = LOGARITHMS.get(key);
  if (cachedTable) return cachedTable;
  const doubles = new Float64Array(nibbleMagnitudes(type).buffer);
  const unit = doubles[KIND.unit / 8] as number;
  const { max } = CODE_TYPES[type];
  const magnitudes = Float64Array.from(
    { length: (wide * max ** 2) / unit + 1 },
    (_, sum) => Math.log2(sum * unit) / 2,
  );
  LOGARITHMS.set(key, magnitudes);
  return magnitudes;
}

/** The magnitude of each rank in a table, and the unit of the sums of squares (1 for one-byte codes). */
export function ranksOf(kind: Uint8Array): { readonly magnitudes: Float64Array; readonly unit: number } {
  const doubles = new Float64Array(kind.buffer, kind.byteOffset, kind.length / 8);
  const tableIndex = KIND.magnitudes / 8;
  return { magnitudes: doubles.subarray(tableIndex, tableIndex + 256), unit: doubles[KIND.unit / 8] || 1 };
}

interface Fields {
  readonly squares?: readonly number[];
  readonly magnitudes: readonly number[];
  readonly ranks?: readonly number[];
  readonly unit?: number;
  readonly mask: number;
  readonly lastNumber?: number;
  readonly largest: number;
  readonly isInteger?: boolean;
  readonly isUnsignedZero?: boolean;
}

function table(fields: Fields): Uint8Array {
  const bytes = new Uint8Array(KIND.bytes);
  const doubles = new Float64Array(bytes.buffer);
  // store 0 for the square of NaN
  (fields.squares ?? []).forEach((square, i) => {
    doubles[KIND.squares / 8 + i] = Number.isNaN(square) ? 0 : square;
  });
  doubles.set(fields.magnitudes, KIND.magnitudes / 8);
  bytes.set(fields.ranks ?? [], KIND.ranks);
  doubles[KIND.unit / 8] = fields.unit ?? 0;
  bytes[KIND.mask] = fields.mask;
  bytes[KIND.lastNumber] = fields.lastNumber ?? NO_NAN;
  bytes[KIND.largest] = fields.largest;
  bytes[KIND.isInteger] = Number(fields.isInteger ?? false);
  bytes[KIND.isUnsignedZero] = Number(fields.isUnsignedZero ?? false);
  return bytes;
}

function cached(key: string, make: () => Uint8Array): Uint8Array {
  const cachedTable = CACHE.get(key);
  if (cachedTable) return cachedTable;
  const created = make();
  CACHE.set(key, created);
  return created;
}
