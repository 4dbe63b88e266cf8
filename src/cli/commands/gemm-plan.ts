/** Plans of products in JSON files. */
import { FileError } from "../../errors.js";
import { type GemmPlan, planFault } from "../../ops/gemm/plan.js";
import type { Files } from "../files.js";

/** A limit that is far above the size of any plan. */
const MAX_PLAN_BYTES = 1 << 20;

/** Reads a plan that `--print-plan` printed. Throws `FileError`, which names the file and the field, for an invalid plan. */
export async function readPlan(files: Files, path: string): Promise<GemmPlan> {
  const text = await files.text(path, "a plan", MAX_PLAN_BYTES);
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new FileError(`${path}: is not valid JSON; gemm --print-plan prints a plan`, { cause });
  }
  const fault = planFault(json);
  if (!fault) return json as GemmPlan;
  const [field, needed] = fault;
  const given = JSON.stringify(valueAt(json, field)) ?? "absent";
  throw new FileError(`${path}: ${field} is ${given}; ${needed} is needed`);
}

/** Returns the value at a path of field names that are separated by dots, or undefined if a field is missing. */
function valueAt(json: unknown, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>((value, field) => (value as Record<string, unknown> | null | undefined)?.[field], json);
}
