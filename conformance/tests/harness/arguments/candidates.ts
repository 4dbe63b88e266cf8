/** Invalid values of every kind, and a rule that says which of them a parameter must refuse. */
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { isWide } from "../../../../src/tensor/shape.js";
import { Storage } from "../../../../src/tensor/storage.js";
import { Tensor, tensorAt } from "../../../../src/tensor/tensor.js";
import type { Taken } from "./types.js";
import { filled, type World } from "./world.js";

/** The name of a set of valid numbers. */
export type NumberDomain = keyof typeof NUMBERS;

const NEVER = [Number.NaN];
const INFINITE = [...NEVER, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e300];
const FRACTIONS = [...INFINITE, 1.5, -0.5];

/** The numbers that each domain refuses. */
const NUMBERS = {
  any: [],
  notNaN: NEVER,
  finite: INFINITE,
  atLeastZero: [...INFINITE, -1, -1e-9],
  rate: [...INFINITE, -1, 1, 1.5],
  share: [...INFINITE, -1, 1.0001],
  above: [...INFINITE, -1, 0],
  count: [...FRACTIONS, -1, 0, 2 ** 53],
  index: [...FRACTIONS, -1, 2 ** 53],
  bits16: [...FRACTIONS, -1, 2 ** 16],
  int32: [...FRACTIONS, 2 ** 31, -(2 ** 31) - 1, 2 ** 32],
  integer: [...FRACTIONS, 2 ** 53, 2 ** 32],
} as const satisfies Record<string, readonly number[]>;

/** A number that is valid in each domain. */
export const VALID: Readonly<Record<NumberDomain, number>> = {
  any: 3,
  notNaN: 3,
  finite: 0.5,
  atLeastZero: 1,
  rate: 0.5,
  share: 0.1,
  above: 448,
  count: 1,
  index: 1,
  bits16: 0xd7e8,
  int32: 3,
  integer: 1,
};

export interface Candidate {
  readonly label: string;
  readonly value: (world: World, valid: unknown) => unknown;
  /** True if the call must refuse the value. Otherwise it may accept it, without harm. */
  readonly wrong: boolean;
}

export interface Place {
  readonly taken: Taken;
  readonly numbers: NumberDomain | undefined;
  /** Whether tensors of any element type are accepted. */
  readonly anyType: boolean;
  /** Whether another argument is a tensor on the backend. */
  readonly accompanied: boolean;
  /** The valid value of the argument. */
  readonly valid: unknown;
}

class Foreign {}

/** A class whose `name` is not a string. */
class Nameless {
  readonly held = true;
  static readonly name = Symbol("nameless");
}

/** The label of a value that no argument accepts, whatever its type. */
export const OF_NO_TYPE = "a symbol";

/** All values to try for an argument. */
export function candidatesFor(place: Place): readonly Candidate[] {
  const { taken } = place;
  if (taken.anything) return [];
  return [...plain(place), ...numbers(place), ...objects(place), ...tensors(place)];
}

function of(label: string, value: unknown, wrong: boolean): Candidate {
  return { label, value: () => value, wrong };
}

const LONG_KEY = "n".repeat(1e6);

function plain({ taken: { kinds, literals, optional } }: Place): readonly Candidate[] {
  const named = ["no such name", "toString", "__proto__", "", "F32"];
  return [
    of("null", null, true),
    ...(optional ? [] : [of("undefined", undefined, true)]),
    ...[true, false].map((each) => of(String(each), each, !kinds.has("boolean"))),
    ...named.map((name) => of(`"${name}"`, name, !kinds.has("string") && !literals.has(name))),
    ...["true", "1"].map((text) => of(`"${text}"`, text, !kinds.has("string"))),
    of("1n", 1n, !kinds.has("bigint")),
    ...[-1n, 2n ** 64n].map((each) => of(`${each}n`, each, true)),
    of(OF_NO_TYPE, Symbol("wrong"), true),
    of("a function", () => undefined, !kinds.has("function")),
    of("[]", [], !kinds.has("array")),
    of("[null]", [null], true),
    of("[1.5]", [1.5], !kinds.has("array")),
    of("a Date", new Date(0), true),
    of("a Map", new Map(), true),
    of("an object of a class", new Foreign(), true),
    of("an object of a class without a name", new Nameless(), true),
    of("an object that is no text", Object.assign(Object.create(null), { toString: null }), true),
    ...(kinds.has("function") ? [] : [of("a class", Foreign, true)]),
    of("an unknown key", { nonsense: 1 }, true),
    of("a long unknown key", { [LONG_KEY]: 1 }, true),
  ];
}

function numbers({ taken, numbers: domain }: Place): readonly Candidate[] {
  const refused: readonly number[] = domain ? NUMBERS[domain] : [];
  // numbers that a call may accept are small, since some arguments are sizes
  const all = [...new Set([...Object.values(NUMBERS).flat(), 3, 100])].filter(
    (each) => refused.includes(each) || !taken.kinds.has("number") || Math.abs(each) < 200,
  );
  return all.map((each) => {
    const wrong = taken.kinds.has("number") ? refused.includes(each) : !taken.literals.has(each);
    return of(String(each), each, wrong);
  });
}

const BARE = "an object without prototype";

/** Variants of a valid options object. */
function objects({ taken, valid }: Place): readonly Candidate[] {
  const { fields, kinds, works } = taken;
  if (!kinds.has("object") || works || !isPlain(valid))
    return [of("{}", {}, !kinds.has("object")), of(BARE, Object.create(null), !kinds.has("object"))];
  const misses = [...fields.values()].some(({ optional }) => !optional);
  const keys = Object.keys(valid);
  const changed = (label: string, change: (now: object) => unknown, wrong: boolean): Candidate => ({
    label,
    value: (_world, now) => change(now as object),
    wrong,
  });
  const without = (now: object, key: string): object =>
    Object.fromEntries(Object.entries(now).filter(([each]) => each !== key));
  return [
    of("{}", {}, misses),
    of(BARE, Object.create(null), misses),
    changed("valid, with an unknown key", (now) => ({ ...now, nonsense: 1 }), true),
    changed("valid, of a class", (now) => Object.assign(new Foreign(), now), true),
    changed("valid, as entries", (now) => Object.entries(now), true),
    ...keys.flatMap((key) => [
      changed(`without ${key}`, (now) => without(now, key), fields.get(key)?.optional === false),
      changed(
        `valid, with ${key} misspelt`,
        (now) => ({ ...without(now, key), [`${key}_`]: Reflect.get(now, key) }),
        true,
      ),
    ]),
  ];
}

export function isPlain(value: unknown): value is object {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

const OTHER_TYPES = ["f32", "bf16", "f16", "i32", "u8", "u16", "u32", "e4m3", "e2m1", "e8m0"] as const;

/**
 * Whether an argument accepts instances of a class: its type names the class, or requires methods that the class has.
 */
function takes(
  { classes, works, fields }: Taken,
  target: { readonly prototype: object; readonly name: string },
) {
  if (classes.has(target.name)) return true;
  return works && [...fields].every(([key, { optional }]) => optional || key in target.prototype);
}

function tensors({ taken, anyType, accompanied, valid }: Place): readonly Candidate[] {
  const takesTensor = takes(taken, Tensor);
  const takesQuantized = takes(taken, QuantizedTensor);
  // an argument may be a module or scope that owns resources
  const isOwned =
    taken.works && [...taken.fields].every(([key, { optional }]) => optional || key === "dispose");
  const shape = valid instanceof Tensor ? valid.shape : undefined;
  const family = (dtype: string): string => (isWide(dtype as "f32") ? "wide" : dtype);
  const typed = (dtype: (typeof OTHER_TYPES)[number]): boolean => {
    if (!takesTensor) return true;
    if (isOwned) return false;
    if (taken.dtypes) return !taken.dtypes.has(dtype);
    return !anyType && valid instanceof Tensor && family(dtype) !== family(valid.dtype);
  };
  const codes = (shape_: readonly number[] | undefined): readonly number[] =>
    shape_ && (shape_.at(-1) ?? 1) % 2 === 0 ? shape_ : [2];
  return [
    ...OTHER_TYPES.map(
      (dtype): Candidate => ({
        label: `a tensor of ${dtype}`,
        value: (world) => world.tensor(dtype, dtype === "e2m1" ? codes(shape) : shape),
        wrong: typed(dtype),
      }),
    ),
    ...[[], [3], [2, 3, 5], [0, 7], [1, 1]].map(
      (other): Candidate => ({
        label: `a tensor of shape [${other}]`,
        value: (world) => world.tensor(valid instanceof Tensor ? valid.dtype : "f32", evenly(valid, other)),
        wrong: !takesTensor,
      }),
    ),
    {
      label: "a tensor that was disposed of",
      value: (world) => {
        const created = world.tensor(valid instanceof Tensor ? valid.dtype : "f32", shape);
        created.dispose();
        return created;
      },
      wrong: !isOwned,
    },
    {
      label: "a tensor of another backend",
      value: (world) =>
        world.tensor(valid instanceof Tensor ? valid.dtype : "f32", shape, world.backends.other),
      wrong: !takesTensor || (accompanied && !isOwned),
    },
    {
      label: "an object with the properties of a tensor",
      value: (world) => ({ dtype: "f32", shape: [2], address: 0, byteLength: 8, backend: world.backend }),
      wrong: true,
    },
    quantized("a quantized tensor", (world) => world.quantized(), !takesQuantized),
    quantized("a quantized tensor that was disposed of", disposedQuantized, !isOwned),
    quantized(
      "a quantized tensor of another backend",
      (world) => world.quantized(undefined, world.backends.other),
      !takesQuantized || (accompanied && !isOwned),
    ),
    {
      label: "a variable",
      value: (world) => new Variable(world.tensor("bf16")),
      wrong: !takes(taken, Variable),
    },
    { label: "a backend that was disposed of", value: ({ backends }) => backends.gone, wrong: !isOwned },
    { label: "the promise of a backend", value: ({ backend }) => Promise.resolve(backend), wrong: true },
  ];
}

function evenly(valid: unknown, shape: readonly number[]): readonly number[] {
  return valid instanceof Tensor && valid.dtype === "e2m1" ? [...shape, 2] : shape;
}

function quantized(label: string, value: (world: World) => QuantizedTensor, wrong: boolean): Candidate {
  return { label, value, wrong };
}

function disposedQuantized(world: World): QuantizedTensor {
  const quantized = world.quantized();
  quantized.dispose();
  return quantized;
}

/** Two tensors in one memory block, with the contents of `x` and `y`. The second starts `distance` bytes after the first. */
export function laid(x: Tensor, y: Tensor, distance: number): readonly [Tensor, Tensor] {
  const { backend } = x;
  const [first, second] = [Math.max(0, -distance), Math.max(0, distance)];
  const storage = new Storage(backend.memory, Math.max(first + x.byteLength, second + y.byteLength));
  const candidates = [
    tensorAt(backend, x.dtype, x.shape, storage.retain(), first),
    tensorAt(backend, y.dtype, y.shape, storage.retain(), second),
  ] as const;
  storage.release();
  for (const each of candidates) filled(each);
  return candidates;
}

/**
 * All distances at which two tensors overlap: by one byte at either end, shifted by one byte, aligned at one end, and completely.
 */
export function distances(x: Tensor, y: Tensor): readonly number[] {
  const [a, b] = [x.byteLength, y.byteLength];
  if (a === 0 || b === 0) return [];
  const all = [1 - b, a - 1, 0, 1, -1, a - b];
  return [...new Set(all)].filter((distance) => distance < a && -distance < b);
}
