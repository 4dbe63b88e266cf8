/** The command line: finds and runs the command, and turns errors into one line and an exit status. */
import { ArgumentError, LockstepError, messageOf } from "../errors.js";
import { nearest } from "../text/nearest.js";
import { printable } from "../text/printable.js";
import type { Command, ExitCode } from "./command-types.js";
import { apply } from "./commands/apply.js";
import { buildCuda } from "./commands/build-cuda.js";
import { compare } from "./commands/compare.js";
import { conform } from "./commands/conform.js";
import { contract } from "./commands/contract.js";
import { convert } from "./commands/convert.js";
import { decode } from "./commands/decode.js";
import { dequantize } from "./commands/dequantize.js";
import { dialects } from "./commands/dialects.js";
import { diff } from "./commands/diff.js";
import { encode } from "./commands/encode.js";
import { explain } from "./commands/explain.js";
import { fuzz } from "./commands/fuzz.js";
import { gemm } from "./commands/gemm.js";
import { generate } from "./commands/generate.js";
import { identify } from "./commands/identify.js";
import { info } from "./commands/info.js";
import { inspect } from "./commands/inspect.js";
import { launch } from "./commands/launch.js";
import { operators } from "./commands/operators.js";
import { perplexity } from "./commands/perplexity.js";
import { quantize } from "./commands/quantize.js";
import { replay } from "./commands/replay.js";
import { serveCommand } from "./commands/serve.js";
import { sweep } from "./commands/sweep.js";
import { verify } from "./commands/verify.js";
import { failureJson, isJsonRequested } from "./failure.js";
import { programHelp } from "./help.js";
import { VERSION } from "./manifest.js";
import type { CliIo } from "./session.js";

/** The commands that other programs may send to `serve`. */
export const ON_FILES: readonly Command[] = [
  info,
  encode,
  decode,
  sweep,
  quantize,
  dequantize,
  gemm,
  compare,
  explain,
  fuzz,
  dialects,
  diff,
  identify,
  generate,
  perplexity,
  operators,
  apply,
  replay,
  contract,
];

export const COMMANDS: readonly Command[] = [
  ...ON_FILES,
  inspect,
  verify,
  convert,
  serveCommand(ON_FILES),
  conform,
  launch,
  buildCuda,
];

/** Runs a command line (without the program's name) and returns its exit status. It never throws. */
export async function runCli(args: readonly string[], io: CliIo): Promise<ExitCode> {
  const [name, ...otherArgs] = args;
  try {
    if (name === "help" && otherArgs[0] !== undefined) return await find(otherArgs[0]).run(io, ["--help"]);
    if (name === "--help" || name === "-h" || name === "help") {
      io.stdout.write(programHelp(VERSION, COMMANDS));
      return 0;
    }
    if (name === "--version") {
      io.stdout.write(`${VERSION}\n`);
      return 0;
    }
    return await find(name).run(io, otherArgs);
  } catch (error) {
    // a command prints its errors as JSON itself
    if (!isCommand(name) && isJsonRequested(args)) io.stdout.write(failureJson(error));
    io.stderr.write(errorLine(name, describe(error)));
    return 2;
  }
}

const isCommand = (name: string | undefined): boolean => COMMANDS.some((command) => command.name === name);

function find(name: string | undefined): Command {
  const command = COMMANDS.find((candidate) => candidate.name === name);
  if (command) return command;
  const names = COMMANDS.map((candidate) => candidate.name);
  const problem =
    name === undefined ? "no command was given" : `"${name}" is not a command${nearest(name, names)}`;
  throw new ArgumentError(`${problem}; there are ${names.join(", ")}; lockstep --help tells more`);
}

/**
 * Returns the line for an error. The line begins with the command's name, unless the message already begins with it or with the
 * name of the function that the command calls (`convertCheckpoint`). Operations share names with commands.
 */
function errorLine(name: string | undefined, message: string): string {
  if (!isCommand(name)) return `lockstep: ${message}\n`;
  const prefix = new RegExp(`^(tensor ".*?": )?${name}(Checkpoint)?: `, "s");
  return `lockstep ${name}: ${message.replace(prefix, "$1")}\n`;
}

/** Returns the message of an error in one line. With LOCKSTEP_DEBUG=1 it returns the stack trace. */
function describe(error: unknown): string {
  if (process.env.LOCKSTEP_DEBUG === "1" && error instanceof Error && error.stack)
    return error.stack.split("\n").map(printable).join("\n");
  const message = messageOf(error);
  const text =
    error instanceof LockstepError ? message : `unexpected error: ${message} (LOCKSTEP_DEBUG=1 shows where)`;
  return printable(text.replace(/\s*\n\s*/g, " "));
}
