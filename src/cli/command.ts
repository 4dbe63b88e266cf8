/** Definition of commands: parsing, checks, help and cleanup. */
import { ArgumentError } from "../errors.js";
import type { Command, CommandSpec, ExitCode } from "./command-types.js";
import { failureJson, isJsonRequested } from "./failure.js";
import type { Files } from "./files.js";
import { commandHelp } from "./help.js";
import {
  type Option,
  type OptionTable,
  type Parsed,
  parseOptions,
  type Values,
  valuesOf,
} from "./options.js";
import { type CliIo, Session } from "./session.js";
import { FORCE, GENERAL } from "./shared-options.js";

/**
 * Returns a command that prints its help on request. Otherwise it parses and checks the arguments, runs, and frees what it
 * opened. With --json, an error is also printed as JSON before it is thrown.
 */
export function defineCommand<T extends OptionTable>(spec: CommandSpec<T>): Command {
  const writes = Object.values(spec.options).some(({ file }) => file === "written");
  const general = Object.entries(GENERAL).filter(([name]) => !spec.without?.includes(name));
  const table: OptionTable = {
    ...spec.options,
    ...(writes ? FORCE : {}),
    ...Object.fromEntries<Option<unknown>>(general),
  };
  return {
    name: spec.name,
    summary: spec.summary,
    inputs: spec.inputs,
    options: table,
    async run(io, args) {
      if (args.includes("--help") || args.includes("-h")) {
        io.stdout.write(commandHelp(spec, table));
        return 0;
      }
      let fields: Readonly<Record<string, unknown>> = {};
      try {
        const parsed = parseOptions(table, args);
        requireInputs(spec.inputs, parsed.positionals);
        requireOptions(table, parsed);
        fields = spec.errorFields?.(parsed.positionals) ?? {};
        return await runParsed(spec, io, table, parsed);
      } catch (error) {
        if ("json" in table && isJsonRequested(args)) io.stdout.write(failureJson(error, fields));
        throw error;
      }
    },
  };
}

async function runParsed<T extends OptionTable>(
  spec: CommandSpec<T>,
  io: CliIo,
  table: OptionTable,
  parsedOptions: Parsed,
): Promise<ExitCode> {
  const { positionals: inputs, usedOptions } = parsedOptions;
  const session = new Session(spec.name, io, generalOf(parsedOptions));
  try {
    if (!usedOptions.has("force")) await requireDistinct(session.files, table, parsedOptions);
    return await spec.run({ session, values: valuesOf(spec.options, parsedOptions), inputs, usedOptions });
  } finally {
    await session.dispose();
  }
}

function requireOptions(table: OptionTable, { usedOptions }: Parsed): void {
  for (const [name, { required, placeholder }] of Object.entries(table)) {
    if (required && !usedOptions.has(name))
      throw new ArgumentError(`--${name}${placeholder ? ` ${placeholder}` : ""} is needed`);
  }
}

/** The values of the general options. Options that the command does not accept have their defaults. */
function generalOf({ values, ...parsed }: Parsed): Values<typeof GENERAL> {
  const fallbacks = Object.entries(GENERAL).map(([name, { fallback }]) => [name, fallback]);
  return valuesOf(GENERAL, { ...parsed, values: { ...Object.fromEntries(fallbacks), ...values } });
}

/** Throws `ArgumentError` if an output file is also an input file, even if the paths differ (for example through links). */
async function requireDistinct(
  files: Files,
  table: OptionTable,
  { values, positionals, usedOptions }: Parsed,
): Promise<void> {
  const pathsOf = (file: "read" | "written") =>
    Object.keys(table).filter((name) => table[name]?.file === file && usedOptions.has(name));
  const read = [...positionals, ...pathsOf("read").map((name) => String(values[name]))];
  for (const name of pathsOf("written")) {
    const output = String(values[name]);
    const overwrittenInput = await files.sameFile(output, read);
    if (overwrittenInput === undefined) continue;
    throw new ArgumentError(
      `--${name} ${output} is the input ${overwrittenInput}, which would be lost; give another file, or --force`,
    );
  }
}

function requireInputs(names: readonly string[], inputs: readonly string[]): void {
  const missingName = names[inputs.length];
  const nameList = names.length > 1 ? `: ${names.join(" ")}` : "";
  if (missingName !== undefined) throw new ArgumentError(`${missingName} is needed${nameList}`);
  if (inputs.includes(""))
    throw new ArgumentError(`${names.join(" ")}: an empty string was given; give a file's path`);
  const surplusInput = inputs[names.length];
  if (surplusInput === undefined || names.at(-1)?.endsWith("…")) return;
  throw new ArgumentError(
    `"${surplusInput}" is one argument too many; it takes ${names.join(" ") || "options only"}`,
  );
}
