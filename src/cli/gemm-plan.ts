/** Plans of products as JSON files. */
import { readFile } from "node:fs/promises";
import { FileError } from "../errors.js";
import { DATAPATHS, type DatapathName } from "../formats/datapath.js";
import { algorithmFault, type GemmAlgorithm } from "../formats/gemm-algorithm.js";
import { fileError } from "../io/safetensors.js";
import type { GemmPlan } from "../ops/gemm-plan.js";

/** Reads what `--print-plan` printed. Throws `FileError` that names the file and the field. */
export async function readPlan(path: string): Promise<GemmPlan> {
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw fileError(path, "cannot be read", cause);
  });
  let json: Readonly<Record<string, unknown>> | null;
  try {
    json = JSON.parse(text) as typeof json;
  } catch (cause) {
    throw new FileError(`${path}: is not valid JSON; gemm --print-plan prints a plan`, { cause });
  }
  const { datapath, splitAccumulator, splitK, algorithm } = json ?? {};
  const fail = (field: string, value: unknown, needed: string): FileError =>
    new FileError(`${path}: ${field} is ${JSON.stringify(value) ?? "absent"}; ${needed} is needed`);
  if (!isDatapath(datapath)) throw fail("datapath", datapath, `one of ${Object.keys(DATAPATHS).join(", ")}`);
  if (typeof splitAccumulator !== "boolean") throw fail("splitAccumulator", splitAccumulator, "a boolean");
  if (!isCount(splitK)) throw fail("splitK", splitK, "a whole number from 1");
  if (algorithm === undefined) return { datapath, splitAccumulator, splitK };
  const fault = algorithmFault(algorithm);
  if (fault)
    throw fail(`algorithm.${fault[0]}`, (algorithm as Record<string, unknown> | null)?.[fault[0]], fault[1]);
  return { datapath, splitAccumulator, splitK, algorithm: algorithm as GemmAlgorithm };
}

function isDatapath(value: unknown): value is DatapathName {
  return typeof value === "string" && Object.hasOwn(DATAPATHS, value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 1;
}
