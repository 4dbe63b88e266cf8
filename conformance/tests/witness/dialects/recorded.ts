/** The recorded results of the packages: the files of conformance/vectors/dialects, which scripts/witness/dialects records. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { crc32, inflateRawSync } from "node:zlib";
import type { DrawnDType } from "./draws.js";

const FOLDER = new URL("../../../vectors/dialects/", import.meta.url);
/** Bytes per element of each recorded type. A NaN of a type that has several is recorded as the canonical one. */
export const ELEMENT_BYTES = { f32: 4, i32: 4, bf16: 2, u8: 1, i8: 1, e4m3: 1, e5m2: 1, e8m0: 1 } as const;

/** The position and length in the binary file of an array, deflated after its bytes were grouped by significance. */
type Stored = readonly [at: number, length: number];

export interface RecordedResult {
  readonly type: keyof typeof ELEMENT_BYTES;
  readonly shape: readonly number[];
  /** The SHA-256 of all bytes, little-endian. */
  readonly sha256: string;
  /** The CRC-32 of each run of this many rows: `runs` holds them as u32. */
  readonly rowsPerRun: number;
  readonly runs: Stored;
  /** The distance n of the recorded rows: `rows` holds rows 0, n, 2n, ... It is 1 for scales. */
  readonly everyRow: number;
  readonly rows: Stored;
}

export interface RecordedCase {
  readonly case: string;
  readonly dtype: DrawnDType;
  readonly shape: readonly [number, number];
  /** Whether the input is one tensor, or each row is one. */
  readonly tensors: "one" | "rows";
  /** The difference from the dialect in this case: the block of a sweep. */
  readonly options?: Readonly<Record<string, unknown>>;
  /** The SHA-256 of the input's bit patterns. */
  readonly inputs: string;
  /** "exact" where the recorder's own model of the package has the same bits. */
  readonly model?: unknown;
  /** `codes`, `values` (dequantized), and the scales by the package's names. */
  readonly results?: Readonly<Record<string, RecordedResult>>;
  /** The type and the first line of the exception that the package raised. */
  readonly raises?: string;
}

export interface RecordedDialect {
  readonly dialect: string;
  readonly function: string;
  readonly elements: string;
  readonly block: string | readonly number[];
  readonly facts: Readonly<Record<string, string>>;
  readonly cases: readonly RecordedCase[];
}

export interface RecordedPackage {
  readonly origin: { readonly package: string; readonly version: string; readonly machine: string };
  readonly dialects: readonly RecordedDialect[];
  readonly bytes: Uint8Array;
}

export function recordedPackages(): RecordedPackage[] {
  const files = readdirSync(FOLDER).filter((file) => file.endsWith(".json"));
  return files.sort().map((file) => ({
    ...JSON.parse(readFileSync(new URL(file, FOLDER), "utf8")),
    bytes: readFileSync(new URL(file.replace(/json$/, "bin"), FOLDER)),
  }));
}

/** An array of the binary file. */
function storedBytes({ bytes }: RecordedPackage, [offset, length]: Stored, elementBytes: number): Uint8Array {
  const planes = inflateRawSync(bytes.subarray(offset, offset + length));
  const count = planes.length / elementBytes;
  const out = new Uint8Array(planes.length);
  for (let plane = 0; plane < elementBytes; plane++)
    for (let i = 0; i < count; i++) out[i * elementBytes + plane] = planes[plane * count + i] as number;
  return out;
}

export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** The bytes of the recorded rows: all of them, or each `everyRow`-th. */
export function recordedRows(from: RecordedPackage, result: RecordedResult): Uint8Array {
  return storedBytes(from, result.rows, ELEMENT_BYTES[result.type]);
}

/** The number of rows of a result, and the bytes of a row. A result of one dimension has rows of one element. */
export function rowsOf({ type, shape }: RecordedResult): {
  readonly rows: number;
  readonly rowBytes: number;
} {
  const [rows, ...rest] = shape;
  if (rows === undefined) throw new Error("a recorded result has at least one dimension");
  return { rows, rowBytes: rest.reduce((product, size) => product * size, 1) * ELEMENT_BYTES[type] };
}

/**
 * The position where `bytes` differ from a result: undefined if they are equal; the element, if its row was recorded; otherwise
 * the rows that contain it. The rows that `leftOut` lists, and rows whose checksum covers one of them, are not compared.
 */
export function difference(
  from: RecordedPackage,
  result: RecordedResult,
  bytes: Uint8Array,
  leftOut: (row: number) => boolean = () => false,
): string | undefined {
  if (sha256(bytes) === result.sha256) return undefined;
  let isWhole = true;
  const { rows, rowBytes } = rowsOf(result);
  if (bytes.length !== rows * rowBytes) return `${bytes.length} bytes, of ${rows * rowBytes}`;
  const recordedSubset = recordedRows(from, result);
  for (let row = 0; row < rows; row += result.everyRow) {
    if (leftOut(row)) continue;
    for (let i = 0; i < rowBytes; i++) {
      const [expected, actual] = [
        recordedSubset[(row / result.everyRow) * rowBytes + i],
        bytes[row * rowBytes + i],
      ];
      if (expected !== actual) {
        const element = Math.floor(i / ELEMENT_BYTES[result.type]);
        return `row ${row}, element ${element}: byte ${expected} recorded, ${actual} given`;
      }
    }
  }
  const runs = new DataView(storedBytes(from, result.runs, 4).buffer);
  for (let run = 0; run < runs.byteLength / 4; run++) {
    const [begin, past] = [run * result.rowsPerRun, Math.min((run + 1) * result.rowsPerRun, rows)];
    const isLeftOut = Array.from({ length: past - begin }, (_, i) => begin + i).some(leftOut);
    if (isLeftOut) isWhole = false;
    else if (crc32(bytes.subarray(begin * rowBytes, past * rowBytes)) !== runs.getUint32(4 * run, true))
      return `rows ${begin} to ${past - 1}, none of the recorded ones`;
  }
  return isWhole ? "the SHA-256 alone: the recorded runs of rows contradict it" : undefined;
}
