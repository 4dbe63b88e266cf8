#!/usr/bin/env node
/** The command line: finds the command, turns errors into one line and an exit status. */
import { existsSync, realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { ArgumentError, LockstepError } from "../errors.js";
import { fileError } from "../io/files.js";
import { removeTemporaries, watchTemporaries } from "../io/temporaries.js";
import { buildCuda } from "./build-cuda.js";
import type { Command, ExitCode } from "./command.js";
import { compare } from "./compare.js";
import { conform } from "./conform.js";
import { decode } from "./decode.js";
import { dequantize } from "./dequantize.js";
import { encode } from "./encode.js";
import { fuzz } from "./fuzz.js";
import { gemm } from "./gemm.js";
import { programHelp } from "./help.js";
import { info } from "./info.js";
import { quantize } from "./quantize.js";
import type { CliIo } from "./session.js";
import { sweep } from "./sweep.js";
import { VERSION } from "./version.js";

export const COMMANDS: readonly Command[] = [
  info,
  encode,
  decode,
  sweep,
  quantize,
  dequantize,
  gemm,
  compare,
  conform,
  fuzz,
  buildCuda,
];

/** Runs one command line, without the program's name, and gives its exit status. Never throws. */
export async function runCli(args: readonly string[], io: CliIo): Promise<ExitCode> {
  const [name, ...rest] = args;
  try {
    if (name === "--help" || name === "-h" || name === "help") {
      io.stdout.write(programHelp(VERSION, COMMANDS));
      return 0;
    }
    if (name === "--version") {
      io.stdout.write(`${VERSION}\n`);
      return 0;
    }
    return await find(name).run(io, rest);
  } catch (error) {
    io.stderr.write(errorLine(name, describe(error)));
    return 2;
  }
}

function find(name: string | undefined): Command {
  const command = COMMANDS.find((candidate) => candidate.name === name);
  if (command) return command;
  const given = name === undefined ? "no command was given" : `"${name}" is not a command`;
  const names = COMMANDS.map((candidate) => candidate.name).join(", ");
  throw new ArgumentError(`${given}; there are ${names}; lockstep --help tells more`);
}

/** The line begins with the command's name; where the error does too, an operation's name being the command's, once. */
function errorLine(name: string | undefined, said: string): string {
  if (!COMMANDS.some((command) => command.name === name)) return `lockstep: ${said}\n`;
  const own = new RegExp(`^(tensor ".*?": )?${name}: `, "s");
  return `lockstep ${name}: ${said.replace(own, "$1")}\n`;
}

/** One line; with LOCKSTEP_DEBUG=1 the stack. */
function describe(error: unknown): string {
  if (process.env.LOCKSTEP_DEBUG === "1" && error instanceof Error && error.stack) return error.stack;
  const message = error instanceof Error ? error.message : String(error);
  const text =
    error instanceof LockstepError ? message : `unexpected error: ${message} (LOCKSTEP_DEBUG=1 shows where)`;
  return text.replace(/\s*\n\s*/g, " ");
}

const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

function leave(signal: NodeJS.Signals): void {
  removeTemporaries();
  process.exit(signal in SIGNALS ? SIGNALS[signal as keyof typeof SIGNALS] : 1);
}

/** While a file is unfinished, signals remove it; at other times they end the process at once, computing or not. */
function handleSignals(unfinished: boolean): void {
  for (const signal of Object.keys(SIGNALS)) {
    if (unfinished) process.on(signal, leave);
    else process.off(signal, leave);
  }
}

/**
 * A reader that has seen enough, `head` for one, ends the run without a complaint. An output that takes nothing for
 * another reason, a full disk for one, is told of.
 */
function endWithOutput(error: Error & { readonly code?: string }): void {
  removeTemporaries();
  if (error.code === "EPIPE") process.exit(0);
  const said = fileError("standard output", "cannot be written", error);
  process.stderr.write(errorLine(process.argv[2], said.message));
  process.exit(2);
}

function isProgram(): boolean {
  const script = process.argv[1];
  return (
    script !== undefined && existsSync(script) && realpathSync(script) === fileURLToPath(import.meta.url)
  );
}

if (isProgram()) {
  watchTemporaries(handleSignals);
  process.stdout.on("error", endWithOutput);
  process.stderr.on("error", () => {}); // the exit status tells what no line can
  process.exitCode = await runCli(process.argv.slice(2), process);
}
