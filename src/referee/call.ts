/** The arguments of a recorded operation, by position or name. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import type { FileDType } from "../io/dtypes.js";
import { MAX_RANK, type Shape } from "../tensor/shape.js";
import { NotModelled } from "./not-modelled.js";
import type { Value } from "./value.js";

/** An element type as an argument. */
export interface DTypeArgument {
  readonly dtype: FileDType;
}

/** An argument that no model reads, such as a layout or a device, as PyTorch prints it. */
export interface OtherArgument {
  readonly other: string;
}

/** An argument of an operator. Its tensors have been read into memory. */
export type Argument =
  | null
  | boolean
  | number
  | string
  | Value
  | DTypeArgument
  | OtherArgument
  | readonly Argument[];

/** Whether an argument is a tensor. */
export function isValue(argument: Argument | undefined): argument is Value {
  return typeof argument === "object" && argument !== null && "bytes" in argument;
}

/** The state of PyTorch's CUDA generator before an operator. */
export interface GeneratorState {
  readonly seed: bigint;
  /** The number of 32-bit words that each thread skips. */
  readonly offset: number;
}

/** The source of an operator's random numbers. */
export interface Randomness {
  /** Absent if the operator draws no random numbers, or the state was not recorded. */
  readonly generator?: GeneratorState;
  /** A recorded result that shows the drawn numbers, such as the mask of dropout. */
  readonly drawn?: Value;
}

function describeArgument(argument: Argument | undefined): string {
  if (argument === undefined) return "missing";
  if (isValue(argument)) return `a tensor ${argument.dtype} [${argument.shape}]`;
  return JSON.stringify(argument).slice(0, 80);
}

/**
 * One call of an operator: typed access to its arguments by the names of `parameters`. Methods throw `ArgumentError` if an
 * argument is missing or has another type.
 */
export class Call {
  readonly #byName: ReadonlyMap<string, Argument>;

  constructor(
    /** The backend that computes. */
    readonly backend: Backend,
    parameters: readonly string[],
    args: readonly Argument[],
    kwargs: Readonly<Record<string, Argument>>,
    readonly randomness: Randomness = {},
  ) {
    const surplus = args.length - parameters.length;
    if (surplus > 0)
      throw new ArgumentError(`${args.length} arguments by position; it takes ${parameters.join(", ")}`);
    this.#byName = new Map([
      ...args.map((argument, i) => [parameters[i] as string, argument] as const),
      ...Object.entries(kwargs),
    ]);
  }

  /** All arguments by name. Positional arguments come first, in order. */
  get arguments(): ReadonlyMap<string, Argument> {
    return this.#byName;
  }

  /** The argument, or undefined if it is absent or None. */
  get(name: string): Argument | undefined {
    return this.#byName.get(name) ?? undefined;
  }

  /** Throws `NotModelled` if an argument is neither absent nor None nor `value`. */
  requireDefault(name: string, value: Argument): void {
    const argument = this.get(name);
    if (argument !== undefined && argument !== value)
      throw new NotModelled(`${name} is ${describeArgument(argument)}`);
  }

  #fail(name: string, expected: string): never {
    const argument = this.get(name);
    if (typeof argument === "object" && argument !== null && "other" in argument)
      throw new NotModelled(`${name} is ${argument.other}`);
    throw new ArgumentError(`${name} is ${describeArgument(this.get(name))}; ${expected} is needed`);
  }

  tensor(name: string): Value {
    const argument = this.get(name);
    return isValue(argument) ? argument : this.#fail(name, "a tensor");
  }

  /** A tensor or a number. */
  operand(name: string): Value | number {
    const argument = this.get(name);
    if (typeof argument === "boolean") throw new NotModelled(`${name} is ${argument}`);
    return typeof argument === "number" ? argument : this.tensor(name);
  }

  number(name: string, fallback?: number): number {
    const argument = this.get(name) ?? fallback;
    return typeof argument === "number" ? argument : this.#fail(name, "a number");
  }

  integer(name: string, fallback?: number): number {
    const number = this.number(name, fallback);
    return Number.isSafeInteger(number) ? number : this.#fail(name, "an integer");
  }

  boolean(name: string, fallback: boolean): boolean {
    const argument = this.get(name) ?? fallback;
    return typeof argument === "boolean" ? argument : this.#fail(name, "true or false");
  }

  integers(name: string): readonly number[] {
    const argument = this.get(name);
    if (!Array.isArray(argument) || argument.length > MAX_RANK * 1024) this.#fail(name, "a list of integers");
    return argument.map((element) =>
      Number.isSafeInteger(element) ? (element as number) : this.#fail(name, "a list of integers"),
    );
  }

  tensors(name: string): readonly Value[] {
    const argument = this.get(name);
    if (!Array.isArray(argument)) this.#fail(name, "a list of tensors");
    return argument.map((each) => (isValue(each) ? each : this.#fail(name, "a list of tensors")));
  }

  dtype(name: string): FileDType | undefined {
    const argument = this.get(name);
    if (argument === undefined) return undefined;
    if (typeof argument === "object" && argument !== null && "dtype" in argument) return argument.dtype;
    return this.#fail(name, "an element type");
  }

  /** A dimension of `shape`, counted from the front. */
  dimension(name: string, { length }: Shape, fallback?: number): number {
    const dim = this.integer(name, fallback);
    const dimIndex = dim < 0 ? dim + Math.max(length, 1) : dim;
    return dimIndex >= 0 && dimIndex < Math.max(length, 1)
      ? dimIndex
      : this.#fail(name, `a dimension of ${length}`);
  }
}

/** Computes the results of one call. Throws `NotModelled` for arguments without a rule. */
export type Model = (call: Call) => readonly Value[];
