/** How a callable is called validly: what the law of arguments starts from. */
import type { NumberDomain } from "./candidates.js";
import type { World } from "./world.js";

export interface Row {
  /** Valid calls, which together give every option that is declared. */
  readonly calls: readonly ((world: World) => readonly unknown[])[];
  /** Of a method: what it is called on. */
  readonly self?: (world: World) => object;
  /** Of a method: what it is called on keeps nothing on a backend, or nothing that the call uses. */
  readonly unbound?: boolean;
  /** What numbers each numeric argument takes, by its path. */
  readonly numbers?: Readonly<Record<string, NumberDomain>>;
  /** Tensors that may have any element type, by path. */
  readonly anyType?: readonly string[];
  /** Tensors that the call writes, by path; "self" is what a method is called on. */
  readonly writes?: readonly string[];
  /** Arguments that what is written may be, exactly: the call works in place. */
  readonly inPlace?: readonly string[];
  /** Whether a disposed `self` may still be asked. */
  readonly outlives?: boolean;
  /** It takes long: only what must be refused is tried. */
  readonly costly?: boolean;
  /** Arguments that are not held to anything, by path, each with its reason. */
  readonly free?: Readonly<Record<string, string>>;
}

export type Rows = Readonly<Record<string, Row>>;
