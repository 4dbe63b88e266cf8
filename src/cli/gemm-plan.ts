/** Plans of products as JSON files. */
import { readFile } from "node:fs/promises";
import { FileError } from "../errors.js";
import { fileError } from "../io/files.js";
import { type GemmPlan, planFault } from "../ops/gemm-plan.js";

/** Reads what `--print-plan` printed. Throws `FileError` that names the file and the field. */
export async function readPlan(path: string): Promise<GemmPlan> {
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw fileError(path, "cannot be read", cause);
  });
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

/** What lies at a path of fields, with dots between them. */
function valueAt(json: unknown, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>((value, field) => (value as Record<string, unknown> | null | undefined)?.[field], json);
}
