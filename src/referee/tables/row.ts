/** The type of a row of the table of operators, and functions that build rows. */
import type { Call, Model } from "../call.js";
import type { ProductOptions } from "../products.js";

/** A comparison of a row with a GPU. */
export interface Witness {
  readonly chip: string;
  /** The version of PyTorch, up to its minor number. */
  readonly torch: string;
  /** The inputs that were compared. */
  readonly inputs: string;
}

/** The model of an operator. */
export interface OperatorRow {
  /** The names of the parameters that may be given by position, in order. */
  readonly parameters: string;
  /** `moves`: the result consists of bytes of the inputs or constants, on every chip. `computes`: the result is computed. */
  readonly kind: "moves" | "computes";
  /** The definition of the result, as one phrase. */
  readonly definition: string;
  readonly model: Model;
  /** The GPU whose bits the model gives. Absent if the model was compared with no GPU. */
  readonly witness?: Witness;
  /** Whether the witness holds for a call, by the kind and size of its inputs. By default, it holds for every call. */
  readonly isCompared?: (call: Call) => boolean;
  /** Returns the options of `gemm`, if the model is one product. */
  readonly product?: (call: Call) => ProductOptions;
  /** Whether the sums of a call may have one of several orders. A result that no order gives is then not judged. */
  readonly variesInOrder?: (call: Call) => boolean;
  /** The number of outputs at the end that PyTorch allocates and does not write. Any bytes of them are right. */
  readonly unwritten?: number;
  /** The index of the result that shows the drawn numbers. Without the generator's state, the model reads the recorded result. */
  readonly drawn?: number;
  /** Whether the model holds only for inputs in row-major order without gaps, because the order of the inputs decides bits. */
  readonly dependsOnOrder?: (call: Call) => boolean;
  /** Whether the row is also for the operator that writes its result into `self`, whose name ends with an underscore. */
  readonly inPlace?: true;
}

/** A comparison with an H200 under PyTorch 2.11. */
export const H200: Omit<Witness, "inputs"> = { chip: "h200", torch: "2.11" };

/** Rows by schema: name and overload, without the overload "default". */
export type OperatorRows = Readonly<Record<string, OperatorRow>>;

/** The row of an operator that moves bytes. */
export function moveRow(parameters: string, definition: string, model: Model): OperatorRow {
  return { parameters, kind: "moves", definition, model };
}

/** The row of an operator that computes. */
export function computeRow(parameters: string, definition: string, model: Model): OperatorRow {
  return { parameters, kind: "computes", definition, model };
}

/** The row of an operator and of its in-place variant, whose name ends with an underscore. */
export const withInPlaceVariant = (row: OperatorRow): OperatorRow => ({ ...row, inPlace: true });

/** A row that an H200 confirmed. `inputs` says what was compared. */
export const withWitness = (row: OperatorRow, inputs: string): OperatorRow => ({
  ...row,
  witness: { ...H200, inputs },
});
