/** Simplifies a failing input for people: few blocks, most elements zero, the others simple. */
import type { Cases, OperationName } from "../../operations/operations.js";
import { PlainTensor } from "../../values/plain.js";
import { Budget, type Fails, type Simpler, simplest } from "./budget.js";
import { simplerTensor } from "./elements.js";
import { simplerQuantizations } from "./quantize.js";

/** The limits on questions and milliseconds for one counterexample. */
const WORTH = { questions: 1500, milliseconds: 15_000 };
/** The limits if each question may run into a deadline. */
const COSTLY = { questions: 40, milliseconds: 10_000 };

/** Yields cases with fewer blocks and options, by operation. */
const STRUCTURE: { readonly [K in OperationName]?: Simpler<Cases[K]> } = { quantize: simplerQuantizations };

/** Tensors that are derived from other tensors of the input and not simplified separately. */
const DERIVED: { readonly [K in OperationName]?: readonly string[] } = {
  dequantize: ["scaleInv", "logicalScales"],
};

/**
 * A simpler input that also fails. `keepsShape`: only elements are changed, because the domain of inputs is unknown. `isCostly`:
 * the subject gave no answer, so each question may run into the deadline.
 */
export async function shrunk<K extends OperationName>(
  operation: K,
  input: Cases[K],
  fails: Fails<Cases[K]>,
  { keepsShape = false, isCostly = false } = {},
): Promise<Cases[K]> {
  const worth = isCostly ? COSTLY : WORTH;
  const budget = new Budget(worth.questions, worth.milliseconds);
  let current = input;
  const structure = STRUCTURE[operation];
  if (structure && !keepsShape) current = await simplest(current, structure, fails, budget);
  for (const path of tensorPaths(current)) {
    if (DERIVED[operation]?.includes(path)) continue;
    const currentTensor = at(current, path);
    const isFactor = /scale|amax/i.test(path);
    const simple = await simplerTensor(
      currentTensor,
      (tensor) => fails(replaced(current, path, tensor)),
      budget,
      isFactor,
    );
    current = replaced(current, path, simple);
  }
  return current;
}

/** The paths of the tensors of an input. */
function tensorPaths(value: unknown, prefix = ""): readonly string[] {
  if (value instanceof PlainTensor) return [prefix];
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return [];
  return Object.entries(value).flatMap(([name, each]) =>
    tensorPaths(each, prefix === "" ? name : `${prefix}.${name}`),
  );
}

function at(value: unknown, path: string): PlainTensor {
  return path
    .split(".")
    .reduce<unknown>((each, name) => (each as Readonly<Record<string, unknown>>)[name], value) as PlainTensor;
}

/** The input with the tensor at a path replaced. */
function replaced<C>(value: C, path: string, tensor: PlainTensor): C {
  const [name = "", ...rest] = path.split(".");
  const fields = value as Readonly<Record<string, unknown>>;
  const child = rest.length === 0 ? tensor : replaced(fields[name], rest.join("."), tensor);
  if (Array.isArray(value)) return value.map((each, i) => (String(i) === name ? child : each)) as C;
  return { ...fields, [name]: child } as C;
}
