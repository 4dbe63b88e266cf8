/** Plans of products in JSON files. */
import { ArgumentError, FileError } from "../../errors.js";
import { JsonError, parseJson } from "../../io/json/json-read.js";
import { shownJson } from "../../io/json/json-shown.js";
import { type GemmPlan, planFault } from "../../ops/gemm/plan.js";
import { valueAt } from "../../options.js";
import type { Files } from "../files.js";

/** A limit far above the size of any plan. */
const MAX_PLAN_BYTES = 1 << 20;

/** The options that a plan replaces. */
const PLANNED = ["datapath", "split-accumulator", "split-k"] as const;

/** Throws `ArgumentError` if there is a plan and an option that it replaces. */
export function requireUnplanned(planPath: string | undefined, usedOptions: ReadonlySet<string>): void {
  const planned = PLANNED.find((option) => usedOptions.has(option));
  if (planPath !== undefined && planned)
    throw new ArgumentError(`--${planned} is part of the plan; give one of them`);
}

/** Reads a plan that `--print-plan` printed. Throws `FileError`, which names the file and the field, for an invalid plan. */
export async function readPlan(files: Files, path: string): Promise<GemmPlan> {
  const text = await files.text(path, "a plan", MAX_PLAN_BYTES);
  let json: unknown;
  try {
    json = parseJson(text);
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause;
    throw new FileError(`${path}: ${cause.message}; gemm --print-plan prints a plan`, { cause });
  }
  const fault = planFault(json);
  if (!fault) return json as GemmPlan;
  const [field, expected] = fault;
  throw new FileError(`${path}: ${field} is ${shownJson(valueAt(json, field))}; ${expected} is needed`);
}
