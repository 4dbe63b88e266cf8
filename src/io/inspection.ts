/** An inspector whose rules and records are files. */
import { appendFile, readFile } from "node:fs/promises";
import { FileError } from "../errors.js";
import { Inspector, type TensorRecord } from "../modules/inspection/inspector.js";
import type { InspectionRule } from "../modules/inspection/rules.js";
import { Module } from "../modules/module.js";
import { type Domain, instance, integer, needed, optionsOf } from "../options.js";
import { fileError, requirePath } from "./files.js";
import { JsonError, parseJson } from "./json/json-read.js";

/** Options of `openInspector`. */
export interface OpenInspectorOptions {
  /** The path of a JSON file that contains a list of `InspectionRule`. */
  readonly rules: string;
  /** The path of the file that records are appended to, one JSON object in each line. */
  readonly log: string;
  /** The number of the first step. Default 0. */
  readonly step?: number | undefined;
}

/** An `Inspector` that appends its records to a file. */
export interface FileInspector {
  /** The number of the current step. */
  readonly step: number;
  /** Ends the step as `Inspector.endStep` does, and appends its records to the file. NaN and infinities are null there. */
  endStep(): Promise<readonly TensorRecord[]>;
  /** Ends the inspection. A second call does nothing. */
  dispose(): void;
  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void;
}

const requireModule = instance(Module, "a module");
const path: Domain = (caller, name, value) => {
  requirePath(caller, value, name);
  return value;
};
const checkOptions = optionsOf<OpenInspectorOptions>({
  rules: needed(path),
  log: needed(path),
  step: integer(0),
});

/**
 * Reads rules from a JSON file and starts an inspection of `module` under these rules. Records are appended to another file.
 *
 * @throws `FileError` for a file that cannot be read or written, or that is not JSON; `ArgumentError` for rules and a module that
 * `Inspector` does not take, a path that is not a nonempty string, an unknown option or an invalid option value. In each case
 * nothing has changed.
 */
export async function openInspector(module: Module, options: OpenInspectorOptions): Promise<FileInspector> {
  requireModule("openInspector", "module", module);
  const { rules, log, step } = checkOptions("openInspector", options);
  const ownRules = await readRules(rules);
  await append(log, "");
  const inspector = new Inspector(module, ownRules, { step });
  return {
    get step() {
      return inspector.step;
    },
    async endStep() {
      const records = inspector.endStep();
      await append(log, records.map((record) => `${JSON.stringify(record)}\n`).join(""));
      return records;
    },
    dispose: () => inspector.dispose(),
    [Symbol.dispose]: () => inspector.dispose(),
  };
}

async function append(file: string, lines: string): Promise<void> {
  await appendFile(file, lines).catch((cause: unknown) => {
    throw fileError(file, "cannot be written", cause);
  });
}

async function readRules(file: string): Promise<readonly InspectionRule[]> {
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    throw fileError(file, "cannot be read", cause);
  });
  try {
    return parseJson(text) as readonly InspectionRule[];
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new FileError(`${file}: its rules ${error.message}`, { cause: error });
  }
}
