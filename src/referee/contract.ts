/** The contract of a run: the chip, the versions and the settings that decide its bits. */
import { FileError } from "../errors.js";
import { isObject, type JsonObject } from "../io/json/json-object.js";
import { parseFile } from "./run.js";
import { OPERATORS, type Witness } from "./table.js";

const CONTRACT_FORMAT = "lockstep.contract";

/** The contract of a run, as recorded. */
export interface Contract {
  /** The chip whose bits the run has: `h200`, or the name of a device without a row. Null for a run of PyTorch on a CPU. */
  readonly chip: string | null;
  /** `device`: the chip computed the run. `reference`: `lockstep.torch.reference` computed the run. */
  readonly computedBy: "device" | "reference";
  /** Versions by name: torch, cuda, driver, cublas, lockstep. Null if a version is unknown. */
  readonly versions: Readonly<Record<string, string | null>>;
  /** Settings that change bits, by name. */
  readonly settings: Readonly<Record<string, string | number | boolean | null>>;
}

const isNullableString = (value: unknown): value is string | null =>
  value === null || typeof value === "string";

/** Parses a contract. Throws `FileError` if the file is not a contract. */
export function readContract(path: string, text: string): Contract {
  const value = parseFile(path, text);
  const fail = (problem: string): never => {
    throw new FileError(`${path}: ${problem}`);
  };
  if (!isObject(value) || value.format !== CONTRACT_FORMAT || value.version !== 1)
    return fail(`it is not a contract; format must be "${CONTRACT_FORMAT}" and version 1`);
  const { chip, computed_by: computedBy, versions, settings } = value;
  if (!isNullableString(chip)) return fail("chip must be a string or null");
  if (computedBy !== "device" && computedBy !== "reference")
    return fail('computed_by must be "device" or "reference"');
  if (!isObject(versions) || !Object.values(versions).every(isNullableString))
    return fail("versions must be an object of strings and nulls");
  const isPlain = (setting: unknown): boolean =>
    isNullableString(setting) || typeof setting === "number" || typeof setting === "boolean";
  if (!isObject(settings) || !Object.values(settings).every(isPlain))
    return fail("settings must be an object of strings, numbers, booleans and nulls");
  return {
    chip,
    computedBy,
    versions: versions as Contract["versions"],
    settings: settings as Contract["settings"],
  };
}

/** A term in which two contracts differ. */
export interface ContractDifference {
  readonly term: string;
  readonly a: unknown;
  readonly b: unknown;
}

export function contractTerms({ chip, computedBy, versions, settings }: Contract): JsonObject {
  const prefixTerms = (prefix: string, terms: JsonObject): [string, unknown][] =>
    Object.entries(terms).map(([name, term]) => [`${prefix}.${name}`, term]);
  return Object.fromEntries([
    ["chip", chip],
    ["computed_by", computedBy],
    ...prefixTerms("versions", versions),
    ...prefixTerms("settings", settings),
  ]);
}

/** The terms in which two contracts differ, by name. A term that a contract lacks has the value undefined. */
export function contractDifferences(a: Contract, b: Contract): readonly ContractDifference[] {
  const [x, y] = [contractTerms(a), contractTerms(b)];
  const names = [...new Set([...Object.keys(x), ...Object.keys(y)])];
  return names.filter((term) => x[term] !== y[term]).map((term) => ({ term, a: x[term], b: y[term] }));
}

/** The settings that the models of products need. */
const REQUIRED_SETTINGS: Readonly<Record<string, string | number | boolean | null>> = {
  float32_matmul_precision: "highest",
  allow_fp16_accumulation: false,
};

/** Whether the models of the table hold for a contract. They hold if the check finds no problems. */
export interface ContractCheck {
  readonly problems: readonly string[];
  /** The names of the rows that a GPU has confirmed under the contract. */
  readonly witnessed: readonly string[];
  /** The names of the other rows that compute, which no GPU has confirmed under the contract. */
  readonly unverified: readonly string[];
}

/** Checks a contract against the table of operators. */
export function checkContract({ chip, versions, settings }: Contract): ContractCheck {
  const chips = [
    ...new Set(Object.values(OPERATORS).flatMap(({ witness }) => (witness ? [witness.chip] : []))),
  ];
  const problems = Object.entries(REQUIRED_SETTINGS).flatMap(([name, requirement]) =>
    settings[name] === undefined || settings[name] === requirement
      ? []
      : [`settings.${name} is ${settings[name]}; the models need ${requirement}`],
  );
  if (chip === null || !chips.includes(chip))
    problems.unshift(`chip is ${chip ?? "not a GPU"}; the models are of ${chips.join(", ")}`);
  const rows = Object.entries(OPERATORS).filter(([, { kind }]) => kind === "computes");
  const names = (holds: boolean): readonly string[] =>
    rows.filter(([, { witness }]) => covers(witness, chip, versions.torch) === holds).map(([name]) => name);
  return { problems, witnessed: names(true), unverified: names(false) };
}

/** Whether a witness has this chip and this version of PyTorch. */
export function covers(
  witness: Witness | undefined,
  chip: string | null,
  torch: string | null | undefined,
): boolean {
  return witness !== undefined && witness.chip === chip && `${torch}.`.startsWith(`${witness.torch}.`);
}
