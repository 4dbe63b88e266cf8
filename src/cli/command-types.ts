/** The types of commands. */
import type { OptionTable, Values } from "./options.js";
import type { CliIo, Session } from "./session.js";

/** 0 done and holds, 1 a comparison or a conformance check failed, 2 bad usage or bad input. */
export type ExitCode = 0 | 1 | 2;

/** The arguments of a command. */
export interface Call<T extends OptionTable> {
  readonly session: Session;
  readonly values: Values<T>;
  readonly inputs: readonly string[];
  /** The options that were on the command line. */
  readonly given: ReadonlySet<string>;
}

export interface CommandSpec<T extends OptionTable> {
  readonly name: string;
  readonly summary: string;
  /** Paragraphs below the summary. */
  readonly details?: readonly string[];
  /** Names of the files it reads, in order; a last name that ends in "…" stands for one or more. */
  readonly inputs: readonly string[];
  readonly options: T;
  readonly run: (call: Call<T>) => Promise<ExitCode>;
}

/** A command, without the types of its options. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  readonly inputs: readonly string[];
  /** All options it takes, those of every command included. */
  readonly options: OptionTable;
  readonly run: (io: CliIo, args: readonly string[]) => Promise<ExitCode>;
}
