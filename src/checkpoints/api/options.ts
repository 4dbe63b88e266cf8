/** Options that functions of `lockstep/checkpoints` share. */
import { ArgumentError } from "../../errors.js";
import { boolean, callable, type Domain, listOf, oneOf, optionsOf, outside, text } from "../../options.js";
import { CONVENTION_NAMES, type ConventionName } from "../stored/conventions.js";

/** The progress of reading or writing. */
export interface TransferProgress {
  /** The bytes so far. */
  readonly bytes: number;
  /** The bytes at the end. */
  readonly totalBytes: number;
}

/** Options of `openCheckpoint`. */
export interface OpenCheckpointOptions {
  /** The convention of every quantized weight, regardless of its tensors. Default: recognized for each weight. */
  readonly as?: ConventionName | undefined;
}

/** Options of `inspectCheckpoint` and `verifyCheckpoint`. */
export interface InspectCheckpointOptions extends OpenCheckpointOptions {
  /** Names of the weights to read; `*` stands for any characters, `?` for one character. Default: all. */
  readonly tensors?: readonly string[] | undefined;
  /** The path of the checkpoint before quantization. Values are compared with it. Default: none. */
  readonly original?: string | undefined;
  /** Called before the first codes are read, and after each read. */
  readonly onProgress?: ((progress: TransferProgress) => void) | undefined;
}

const path: Domain = (caller, name, value) => {
  if (typeof value === "string" && value !== "") return value;
  throw outside(caller, name, value, "the path of a file or a folder");
};

/** Throws `ArgumentError` unless the value is a path. */
export function requireCheckpointPath(caller: string, name: string, value: unknown): void {
  path(caller, name, value);
}

const convention: Domain = oneOf(CONVENTION_NAMES);

/** Checks the options of `openCheckpoint`. */
export const checkOpen = optionsOf<OpenCheckpointOptions>({ as: convention });

/** Checks the options of `inspectCheckpoint` and `verifyCheckpoint`. */
export const checkInspect = optionsOf<InspectCheckpointOptions>({
  as: convention,
  tensors: listOf(text),
  original: path,
  onProgress: callable,
});

/** The domains of the options of `convertCheckpoint`. */
export const DOMAINS = { as: convention, tensors: listOf(text), flag: boolean, callable } as const;

/** A check that applies `parse` to a string. Its `ArgumentError` names the function and the option. */
export function parsedBy(parse: (value: string) => unknown): Domain {
  return (caller, name, value) => {
    const string = text(caller, name, value) as string;
    try {
      parse(string);
    } catch (error) {
      if (!(error instanceof ArgumentError)) throw error;
      throw new ArgumentError(`${caller}: ${name}: ${error.message}`, { cause: error });
    }
    return string;
  };
}

/** Returns a function that adds bytes and reports progress. Reports 0 bytes at once. */
export function progressOf(
  totalBytes: number,
  onProgress: ((progress: TransferProgress) => void) | undefined,
): (count: number) => void {
  let bytes = 0;
  const report = (count: number): void => {
    bytes += count;
    onProgress?.({ bytes, totalBytes });
  };
  report(0);
  return report;
}
