/** Invalid values of every kind, and a rule that says which of them a parameter must refuse. */
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { isWide } from "../../../../src/tensor/shape.js";
import { Storage } from "../../../../src/tensor/storage.js";
import { Tensor, tensorAt } from "../../../../src/tensor/tensor.js";
import type { AcceptedTypes } from "./types.js";
import { fillTensor, type World } from "./world.js";

/** The name of a set of valid numbers. */
export type NumberDomain = keyof typeof NUMBERS;

const NAN_ONLY = [Number.NaN];
const INFINITE = [...NAN_ONLY, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e300];
const FRACTIONS = [...INFINITE, 1.5, -0.5];

/** The numbers that each domain refuses. */
const NUMBERS = {
  any: [],
  notNaN: NAN_ONLY,
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
  /** Whether the call must refuse the value. The call may accept or refuse any other value. */
  readonly mustRefuse: boolean;
}

export interface ArgumentPosition {
  readonly accepted: AcceptedTypes;
  readonly numbers: NumberDomain | undefined;
  /** Whether tensors of any element type are accepted. */
  readonly anyType: boolean;
  /** Whether another argument is a tensor on the backend. */
  readonly hasOtherTensor: boolean;
  /** The valid value of the argument. */
  readonly valid: unknown;
}

class Foreign {}

/** A class whose `name` is not a string. */
class Nameless {
  readonly marker = true;
  static readonly name = Symbol("nameless");
}

/** The label of a value that no argument accepts, whatever its type. */
export const OF_NO_TYPE = "a symbol";

/** All values to try for an argument. */
export function candidatesFor(position: ArgumentPosition): readonly Candidate[] {
  const { accepted } = position;
  if (accepted.acceptsAll) return [];
  return [
    ...primitiveCandidates(position),
    ...numberCandidates(position),
    ...objectCandidates(position),
    ...tensorCandidates(position),
  ];
}

function candidate(label: string, value: unknown, mustRefuse: boolean): Candidate {
  return { label, value: () => value, mustRefuse };
}

const LONG_KEY = "n".repeat(1e6);

function primitiveCandidates({
  accepted: { kinds, literals, optional },
}: ArgumentPosition): readonly Candidate[] {
  const names = ["no such name", "toString", "__proto__", "", "F32"];
  return [
    candidate("null", null, true),
    ...(optional ? [] : [candidate("undefined", undefined, true)]),
    ...[true, false].map((each) => candidate(String(each), each, !kinds.has("boolean"))),
    ...names.map((name) => candidate(`"${name}"`, name, !kinds.has("string") && !literals.has(name))),
    ...["true", "1"].map((literal) => candidate(`"${literal}"`, literal, !kinds.has("string"))),
    candidate("1n", 1n, !kinds.has("bigint")),
    ...[-1n, 2n ** 64n].map((each) => candidate(`${each}n`, each, true)),
    candidate(OF_NO_TYPE, Symbol("wrong"), true),
    candidate("a function", () => undefined, !kinds.has("function")),
    candidate("[]", [], !kinds.has("array")),
    candidate("[null]", [null], true),
    candidate("[1.5]", [1.5], !kinds.has("array")),
    candidate("a Date", new Date(0), true),
    candidate("a Map", new Map(), true),
    candidate("an object of a class", new Foreign(), true),
    candidate("an object of a class without a name", new Nameless(), true),
    candidate("an object that is no text", Object.assign(Object.create(null), { toString: null }), true),
    ...(kinds.has("function") ? [] : [candidate("a class", Foreign, true)]),
    candidate("an unknown key", { nonsense: 1 }, true),
    candidate("a long unknown key", { [LONG_KEY]: 1 }, true),
  ];
}

function numberCandidates({ accepted, numbers: domain }: ArgumentPosition): readonly Candidate[] {
  const refusedNumbers: readonly number[] = domain ? NUMBERS[domain] : [];
  // numbers that a call may accept are small, since some arguments are sizes
  const candidateNumbers = [...new Set([...Object.values(NUMBERS).flat(), 3, 100])].filter(
    (each) => refusedNumbers.includes(each) || !accepted.kinds.has("number") || Math.abs(each) < 200,
  );
  return candidateNumbers.map((candidateNumber) => {
    const mustRefuse = accepted.kinds.has("number")
      ? refusedNumbers.includes(candidateNumber)
      : !accepted.literals.has(candidateNumber);
    return candidate(String(candidateNumber), candidateNumber, mustRefuse);
  });
}

const BARE = "an object without prototype";

/** Variants of a valid options object. */
function objectCandidates({ accepted, valid }: ArgumentPosition): readonly Candidate[] {
  const { fields, kinds, hasMethods } = accepted;
  if (!kinds.has("object") || hasMethods || !isPlain(valid))
    return [
      candidate("{}", {}, !kinds.has("object")),
      candidate(BARE, Object.create(null), !kinds.has("object")),
    ];
  const lacksRequired = [...fields.values()].some(({ optional }) => !optional);
  const keys = Object.keys(valid);
  const changedOptions = (
    label: string,
    change: (options: object) => unknown,
    mustRefuse: boolean,
  ): Candidate => ({
    label,
    value: (_world, options) => change(options as object),
    mustRefuse,
  });
  const omitKey = (options: object, key: string): object =>
    Object.fromEntries(Object.entries(options).filter(([each]) => each !== key));
  return [
    candidate("{}", {}, lacksRequired),
    candidate(BARE, Object.create(null), lacksRequired),
    changedOptions("valid, with an unknown key", (options) => ({ ...options, nonsense: 1 }), true),
    changedOptions("valid, of a class", (options) => Object.assign(new Foreign(), options), true),
    changedOptions("valid, as entries", (options) => Object.entries(options), true),
    ...keys.flatMap((key) => [
      changedOptions(
        `without ${key}`,
        (options) => omitKey(options, key),
        fields.get(key)?.optional === false,
      ),
      changedOptions(
        `valid, with ${key} misspelt`,
        (options) => ({ ...omitKey(options, key), [`${key}_`]: Reflect.get(options, key) }),
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
function acceptsClass(
  { classes, hasMethods, fields }: AcceptedTypes,
  target: { readonly prototype: object; readonly name: string },
) {
  if (classes.has(target.name)) return true;
  return hasMethods && [...fields].every(([key, { optional }]) => optional || key in target.prototype);
}

function tensorCandidates({
  accepted,
  anyType,
  hasOtherTensor,
  valid,
}: ArgumentPosition): readonly Candidate[] {
  const takesTensor = acceptsClass(accepted, Tensor);
  const takesQuantized = acceptsClass(accepted, QuantizedTensor);
  // an argument may be a module or scope that owns resources
  const isOwned =
    accepted.hasMethods && [...accepted.fields].every(([key, { optional }]) => optional || key === "dispose");
  const shape = valid instanceof Tensor ? valid.shape : undefined;
  const family = (dtype: string): string => (isWide(dtype as "f32") ? "wide" : dtype);
  const mustRefuseType = (dtype: (typeof OTHER_TYPES)[number]): boolean => {
    if (!takesTensor) return true;
    if (isOwned) return false;
    if (accepted.dtypes) return !accepted.dtypes.has(dtype);
    return !anyType && valid instanceof Tensor && family(dtype) !== family(valid.dtype);
  };
  const codes = (shape_: readonly number[] | undefined): readonly number[] =>
    shape_ && (shape_.at(-1) ?? 1) % 2 === 0 ? shape_ : [2];
  return [
    ...OTHER_TYPES.map(
      (dtype): Candidate => ({
        label: `a tensor of ${dtype}`,
        value: (world) => world.tensor(dtype, dtype === "e2m1" ? codes(shape) : shape),
        mustRefuse: mustRefuseType(dtype),
      }),
    ),
    ...[[], [3], [2, 3, 5], [0, 7], [1, 1]].map(
      (otherShape): Candidate => ({
        label: `a tensor of shape [${otherShape}]`,
        value: (world) =>
          world.tensor(valid instanceof Tensor ? valid.dtype : "f32", withEvenWidth(valid, otherShape)),
        mustRefuse: !takesTensor,
      }),
    ),
    {
      label: "a tensor that was disposed of",
      value: (world) => {
        const disposedTensor = world.tensor(valid instanceof Tensor ? valid.dtype : "f32", shape);
        disposedTensor.dispose();
        return disposedTensor;
      },
      mustRefuse: !isOwned,
    },
    {
      label: "a tensor of another backend",
      value: (world) =>
        world.tensor(valid instanceof Tensor ? valid.dtype : "f32", shape, world.backends.otherBackend),
      mustRefuse: !takesTensor || (hasOtherTensor && !isOwned),
    },
    {
      label: "an object with the properties of a tensor",
      value: (world) => ({ dtype: "f32", shape: [2], address: 0, byteLength: 8, backend: world.backend }),
      mustRefuse: true,
    },
    quantizedCandidate("a quantized tensor", (world) => world.quantize(), !takesQuantized),
    quantizedCandidate("a quantized tensor that was disposed of", disposedQuantized, !isOwned),
    quantizedCandidate(
      "a quantized tensor of another backend",
      (world) => world.quantize(undefined, world.backends.otherBackend),
      !takesQuantized || (hasOtherTensor && !isOwned),
    ),
    {
      label: "a variable",
      value: (world) => new Variable(world.tensor("bf16")),
      mustRefuse: !acceptsClass(accepted, Variable),
    },
    {
      label: "a backend that was disposed of",
      value: ({ backends }) => backends.disposedBackend,
      mustRefuse: !isOwned,
    },
    { label: "the promise of a backend", value: ({ backend }) => Promise.resolve(backend), mustRefuse: true },
  ];
}

function withEvenWidth(valid: unknown, shape: readonly number[]): readonly number[] {
  return valid instanceof Tensor && valid.dtype === "e2m1" ? [...shape, 2] : shape;
}

function quantizedCandidate(
  label: string,
  value: (world: World) => QuantizedTensor,
  mustRefuse: boolean,
): Candidate {
  return { label, value, mustRefuse };
}

function disposedQuantized(world: World): QuantizedTensor {
  const quantized = world.quantize();
  quantized.dispose();
  return quantized;
}

/** Two tensors in one memory block, with the contents of `x` and `y`. The second starts `distance` bytes after the first. */
export function overlappingTensors(x: Tensor, y: Tensor, distance: number): readonly [Tensor, Tensor] {
  const { backend } = x;
  const [xOffset, yOffset] = [Math.max(0, -distance), Math.max(0, distance)];
  const storage = new Storage(backend.memory, Math.max(xOffset + x.byteLength, yOffset + y.byteLength));
  const views = [
    tensorAt(backend, x.dtype, x.shape, storage.retain(), xOffset),
    tensorAt(backend, y.dtype, y.shape, storage.retain(), yOffset),
  ] as const;
  storage.release();
  for (const view of views) fillTensor(view);
  return views;
}

/**
 * All distances at which two tensors overlap: by one byte at either end, shifted by one byte, aligned at one end, and completely.
 */
export function distances(x: Tensor, y: Tensor): readonly number[] {
  const [a, b] = [x.byteLength, y.byteLength];
  if (a === 0 || b === 0) return [];
  const overlaps = [1 - b, a - 1, 0, 1, -1, a - b];
  return [...new Set(overlaps)].filter((distance) => distance < a && -distance < b);
}
