/** The types of commands. */
import type { OptionTable, Values } from "./options.js";
import type { CliIo, Session } from "./session.js";

/** The exit status: 0 for success, 1 if a comparison or a conformance check failed, 2 for wrong usage or invalid input. */
export type ExitCode = 0 | 1 | 2;

/** The arguments with which a command runs. */
export interface Call<T extends OptionTable> {
  readonly session: Session;
  readonly values: Values<T>;
  readonly inputs: readonly string[];
  /** The names of the options that were on the command line. */
  readonly usedOptions: ReadonlySet<string>;
}

export interface CommandSpec<T extends OptionTable> {
  readonly name: string;
  readonly summary: string;
  /** Further paragraphs of the help, below the summary. */
  readonly details?: readonly string[];
  /** An example for the help: the arguments after the command's name. It uses files that earlier examples write. */
  readonly example: string;
  /** The names of the input files, in order. If the last name ends with "…", it stands for one or more files. */
  readonly inputs: readonly string[];
  readonly options: T;
  /** General options that the command does not accept. Default: none. */
  readonly without?: readonly string[];
  /** Returns further fields of the JSON object that is printed for an error with --json. Default: no fields. */
  readonly errorFields?: (inputs: readonly string[]) => Readonly<Record<string, unknown>>;
  readonly run: (call: Call<T>) => Promise<ExitCode>;
}

/** A command, without the types of its options. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  readonly inputs: readonly string[];
  /** All options of the command, including the general options. */
  readonly options: OptionTable;
  readonly run: (io: CliIo, args: readonly string[]) => Promise<ExitCode>;
}
