/** The description of a callable for the law of arguments: its valid calls and its properties. */
import type { NumberDomain } from "./candidates.js";
import type { World } from "./world.js";

export interface Row {
  /** Valid calls, which together use every declared option. */
  readonly calls: readonly ((world: World) => readonly unknown[])[];
  /** For a method: the object to call it on. */
  readonly self?: (world: World) => object;
  /** For a method: true if the object has no state on a backend, or none that the call uses. */
  readonly isUnbound?: boolean;
  /** The domain of each numeric argument, by path, unless its name has one domain everywhere. */
  readonly numbers?: Readonly<Record<string, NumberDomain>>;
  /** The tensors that may have any element type, by path. */
  readonly anyType?: readonly string[];
  /** The tensors that the call writes, by path; "self" is the method's object. */
  readonly writes?: readonly string[];
  /** The arguments that an output may be identical to: the call can work in place. */
  readonly inPlace?: readonly string[];
  /** Whether the method may be called after its object was disposed of. */
  readonly survivesDispose?: boolean;
  /** True if the call is slow: then only trials that must be refused are made. */
  readonly isSlow?: boolean;
  /** The arguments that the law does not test, by path, each with the reason. */
  readonly exemptions?: Readonly<Record<string, string>>;
  /** The function that refuses arguments and is named by the errors, if the call passes them on to another one. */
  readonly refusingFunction?: string;
}

/** The domains of numbers whose names have one meaning everywhere. */
const DOMAINS_BY_NAME: Readonly<Record<string, NumberDomain>> = { dim: "integer" };

/** The domain of the numbers at a path. */
export function domainOf({ numbers }: Pick<Row, "numbers">, path: string): NumberDomain | undefined {
  return numbers?.[path] ?? DOMAINS_BY_NAME[path.slice(path.lastIndexOf(".") + 1)];
}

export type Rows = Readonly<Record<string, Row>>;

/** A row whose calls may be omitted, because they are derived from the declarations (derived.ts). */
export interface DerivedRow extends Omit<Row, "calls"> {
  readonly calls?: Row["calls"];
  /** Values of derived calls that do not follow from a type, by path. */
  readonly values?: Readonly<Record<string, unknown>>;
}

export type DerivedRows = Readonly<Record<string, DerivedRow>>;
