/** Plans of products in JSON files. */
import { ArgumentError, FileError } from "../../errors.js";
import { type GemmPlan, planFault } from "../../ops/gemm/plan.js";
import { valueAt } from "../../options.js";
import type { Files } from "../files.js";

/** A limit that is far above the size of any plan. */
const MAX_PLAN_BYTES = 1 << 20;

/** The options that a plan replaces. */
const PLANNED = ["datapath", "split-accumulator", "split-k"] as const;

/** Throws `ArgumentError` if there is a plan and an option that it replaces. */
export function requireUnplanned(planPath: string | undefined, given: ReadonlySet<string>): void {
  const planned = PLANNED.find((option) => given.has(option));
  if (planPath !== undefined && planned)
    throw new ArgumentError(`--${planned} is part of the plan; give one of them`);
}

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
