/** Damaged files for tests: the files of a checkpoint with changes drawn from a seed. */

/** The files of a checkpoint by their names. `path` is the file to open; "" stands for the folder. */
export interface Files {
  readonly path: string;
  readonly files: ReadonlyMap<string, Uint8Array>;
}

/** Draws from a seed. */
export class Draws {
  #state: number;

  constructor(seed: number) {
    this.#state = Math.imul(seed, 0x9e3779b1) >>> 0;
  }

  /** A number from 0 on, below `count`. */
  nextBelow(bound: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let hash = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    hash ^= hash + Math.imul(hash ^ (hash >>> 7), hash | 61);
    return Math.floor((((hash ^ (hash >>> 14)) >>> 0) / 2 ** 32) * bound);
  }

  oneOf<T>(items: readonly T[]): T {
    return items[this.nextBelow(items.length)] as T;
  }
}

const HUGE_SIZES = [
  0n,
  1n,
  255n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 40n,
  2n ** 53n,
  2n ** 62n,
  2n ** 63n,
  2n ** 64n - 1n,
];
const ODD_VALUES: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e300, 2 ** 53, 4294967296, "", "x", "BF16", "F4", "__proto__", [], {}, [[[]]]],
  ...[[0, 1], [-1], [2 ** 40, 2 ** 40], { a: 1 }, ["q", 3], "re:(a+)+$", "re:.*", "*".repeat(200)],
];
const NAMES = [
  ...[
    "m.weight",
    "m.weight_scale",
    "m.weight_packed",
    "m.weight_global_scale",
    "m.weight_scale_2",
    "m.weight_scale_inv",
  ],
  ...[
    "m_blocks",
    "m_scales",
    "m._weight_qdata",
    "m._weight_scale",
    "__metadata__",
    "__proto__",
    "m.block_scales",
    "",
  ],
];
const DTYPES = [
  "F32",
  "BF16",
  "U8",
  "I8",
  "I32",
  "F8_E4M3",
  "F8_E8M0",
  "F4",
  "F64",
  "BOOL",
  "F6_E2M3",
  "C64",
  "Q4",
];
const DEEP = 20_000;

type Json = Record<string, unknown>;
type Change = (draws: Draws, bytes: Uint8Array) => Uint8Array;

const flipBits: Change = (draws, bytes) => {
  const out = bytes.slice();
  const limit = draws.nextBelow(2) ? Math.min(out.length, 2048) : out.length;
  for (let i = draws.nextBelow(8); i >= 0 && limit > 0; i--) {
    const position = draws.nextBelow(limit);
    out[position] = (out[position] as number) ^ (1 << draws.nextBelow(8));
  }
  return out;
};

const truncate: Change = (draws, bytes) => bytes.slice(0, draws.nextBelow(bytes.length + 1));

const appendBytes: Change = (draws, bytes) => {
  const extraBytes = Uint8Array.from({ length: 1 + draws.nextBelow(64) }, () => draws.nextBelow(256));
  return Buffer.concat([bytes, extraBytes]);
};

const copyWithin: Change = (draws, bytes) => {
  const out = bytes.slice();
  const length = draws.nextBelow(Math.min(64, out.length) + 1);
  const from = draws.nextBelow(out.length - length + 1);
  out.copyWithin(draws.nextBelow(out.length - length + 1), from, from + length);
  return out;
};

/** Replaces a count, a length or an offset. */
const replaceSize: Change = (draws, bytes) => {
  const out = Buffer.from(bytes);
  if (out.length < 8) return out;
  const position = draws.nextBelow(Math.min(out.length - 7, 4096));
  out.writeBigUInt64LE(draws.oneOf(HUGE_SIZES), position);
  return out;
};

/** Puts an odd value somewhere into a tree. */
function disturb(draws: Draws, value: unknown, depth = 0): unknown {
  const isTree = typeof value === "object" && value !== null;
  if (!isTree || depth > 6 || draws.nextBelow(4) === 0) return draws.oneOf(ODD_VALUES);
  if (Array.isArray(value)) {
    const index = draws.nextBelow(value.length + 1);
    return [...value.slice(0, index), disturb(draws, value[index], depth + 1), ...value.slice(index + 1)];
  }
  const entries = Object.entries(value);
  if (entries.length === 0) return draws.oneOf(ODD_VALUES);
  const [key] = draws.oneOf(entries);
  if (draws.nextBelow(6) === 0) return Object.fromEntries(entries.filter(([name]) => name !== key));
  return { ...value, [key]: disturb(draws, (value as Json)[key], depth + 1) };
}

/** Changes JSON text: a value, the nesting, a repeated key, or text that is not JSON. */
function disturbText(draws: Draws, text: string): string {
  const kind = draws.nextBelow(8);
  if (kind === 0) return text.replace("{", `{"deep":${"[".repeat(DEEP)}${"]".repeat(DEEP)},`);
  if (kind === 1) return "[".repeat(DEEP);
  if (kind === 2) return text.slice(0, draws.nextBelow(text.length + 1));
  try {
    const json: unknown = JSON.parse(text);
    const firstEntry = Object.entries(json as Json)[draws.nextBelow(3)];
    if (kind === 3 && firstEntry)
      return text.replace("{", `{${JSON.stringify(firstEntry[0])}:${JSON.stringify(firstEntry[1])},`);
    return JSON.stringify(disturb(draws, json));
  } catch {
    return text;
  }
}

/** Changes the header of a safetensors file. The length field has the new length, or in one of eight draws a huge number. */
const changeHeader: Change = (draws, bytes) => {
  if (bytes.length < 8) return bytes;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = Number(view.getBigUint64(0, true));
  if (length > bytes.length - 8) return flipBits(draws, bytes);
  const text = new TextDecoder().decode(bytes.subarray(8, 8 + length));
  const changedText = draws.nextBelow(3) === 0 ? disturbText(draws, text) : disturbHeader(draws, text);
  const out = new TextEncoder().encode(changedText);
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(draws.nextBelow(8) === 0 ? draws.oneOf(HUGE_SIZES) : BigInt(out.length));
  return Buffer.concat([size, out, bytes.subarray(8 + length)]);
};

interface Entry {
  dtype?: unknown;
  shape?: unknown;
  data_offsets?: unknown;
}

function disturbHeader(draws: Draws, text: string): string {
  let json: Record<string, Entry>;
  try {
    json = JSON.parse(text);
  } catch {
    return text;
  }
  if (typeof json !== "object" || json === null) return text;
  const names = Object.keys(json);
  const name = draws.oneOf(names);
  const entry = { ...json[name] };
  const otherEntry = json[draws.oneOf(names)];
  const dims = [0, 1, 2, 3, 16, 31, 32, 64, 2 ** 31, 2 ** 53, -1];
  const changes: readonly (() => void)[] = [
    () => Object.assign(entry, { dtype: draws.oneOf(DTYPES) }),
    () =>
      Object.assign(entry, { shape: Array.from({ length: draws.nextBelow(6) }, () => draws.oneOf(dims)) }),
    () => Object.assign(entry, { data_offsets: otherEntry?.data_offsets }),
    () =>
      Object.assign(entry, {
        shape: otherEntry?.shape,
        dtype: otherEntry?.dtype,
        data_offsets: otherEntry?.data_offsets,
      }),
    () => Object.assign(entry, { data_offsets: [draws.oneOf(dims), draws.oneOf(dims)] }),
    () => Object.assign(entry, { shape: [...((entry.shape as number[] | undefined) ?? [])].reverse?.() }),
  ];
  draws.oneOf(changes)();
  const kind = draws.nextBelow(4);
  if (kind === 0) {
    const { [name]: entryToRename, ...otherEntries } = json;
    return JSON.stringify({ ...otherEntries, [draws.oneOf(NAMES)]: entryToRename });
  }
  if (kind === 1) {
    const { [name]: _, ...otherEntries } = json;
    return JSON.stringify(otherEntries);
  }
  return JSON.stringify({ ...json, [name]: entry });
}

const changeText: Change = (draws, bytes) =>
  new TextEncoder().encode(disturbText(draws, new TextDecoder().decode(bytes)));

const BYTE_CHANGES = [flipBits, truncate, appendBytes, copyWithin, replaceSize] as const;

/** The change, or a flipped bit if the JSON is already nested too deep for another change. */
function applyChange(draws: Draws, change: Change, bytes: Uint8Array): Uint8Array {
  try {
    return change(draws, bytes);
  } catch (error) {
    if (error instanceof RangeError) return flipBits(draws, bytes);
    throw error;
  }
}

/** The files with one to three changes. */
export function damageFiles(draws: Draws, { path, files }: Files): Files {
  const out = new Map<string, Uint8Array>(
    [...files].map(([name, bytes]) => [name, new Uint8Array(bytes)] as const),
  );
  for (let i = draws.nextBelow(3); i >= 0; i--) {
    const [name, bytes] = draws.oneOf([...out]);
    const kinds: readonly Change[] = name.endsWith(".json")
      ? [changeText, changeText, changeText, ...BYTE_CHANGES]
      : name.endsWith(".safetensors")
        ? [changeHeader, changeHeader, changeHeader, changeHeader, ...BYTE_CHANGES]
        : [replaceSize, replaceSize, ...BYTE_CHANGES];
    if (draws.nextBelow(40) === 0 && out.size > 1) out.delete(name);
    else if (bytes.length > 0) out.set(name, applyChange(draws, draws.oneOf(kinds), bytes));
  }
  return { path, files: out };
}
