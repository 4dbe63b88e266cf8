/** Help texts, generated from the option tables that the parser uses. */
import type { Command, CommandSpec } from "./command-types.js";
import type { Option, OptionTable } from "./options.js";
import { GENERAL } from "./shared-options.js";

const WIDTH = 100;

/** Breaks text into lines of at most WIDTH columns. All lines but the first are indented. */
function wrap(text: string, indent: number): string {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last === undefined || last.length + word.length + 1 > WIDTH - indent) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines.join(`\n${" ".repeat(indent)}`);
}

function optionLine(name: string, row: Option<unknown>): string {
  const spelled = `${row.short ? `-${row.short}, ` : ""}--${name}${row.placeholder ? ` ${row.placeholder}` : ""}`;
  const notes = row.required ? " (required)" : row.shown ? ` (default ${row.shown})` : "";
  return `  ${spelled}\n      ${wrap(row.help + notes, 6)}\n`;
}

function optionLines(table: OptionTable): string {
  return Object.entries(table)
    .map(([name, row]) => optionLine(name, row))
    .join("");
}

/** Returns the help of one command. `sharedOptions` includes the general options. */
export function commandHelp<T extends OptionTable>(spec: CommandSpec<T>, sharedOptions: OptionTable): string {
  const { name, summary, details = [], example, inputs, options } = spec;
  const requirements = Object.entries(options).flatMap(([option, row]) => {
    const name = row.short ? `-${row.short}` : `--${option}`;
    return row.required ? [` ${name}${row.placeholder ? ` ${row.placeholder}` : ""}`] : [];
  });
  const usage = `lockstep ${name}${inputs.map((input) => ` ${input}`).join("")}${requirements.join("")} [options]`;
  const rows = (isGeneral: boolean): OptionTable =>
    Object.fromEntries(Object.entries(sharedOptions).filter(([option]) => option in GENERAL === isGeneral));
  const ownRows = rows(false);
  const commandOptions = Object.keys(ownRows).length > 0 ? `\nOptions:\n${optionLines(ownRows)}` : "";
  const paragraphs = [summary, ...details].map((text) => `${wrap(text, 0)}\n`).join("\n");
  return `${usage}\n\n${paragraphs}\nExample:\n  lockstep ${name} ${example}\n${commandOptions}\nGeneral options:\n${optionLines(rows(true))}`;
}

/** Returns the help of the program. */
export function programHelp(version: string, commands: readonly Command[]): string {
  const width = Math.max(...commands.map(({ name }) => name.length));
  const lines = commands.map(({ name, summary }) => `  ${name.padEnd(width)}  ${wrap(summary, width + 4)}\n`);
  return `lockstep ${version}: low-precision tensors whose CPU and GPU results are the same bits

lockstep COMMAND [arguments] [options]

${lines.join("")}
lockstep COMMAND --help, or lockstep help COMMAND, prints the options and an example of a command.
Tensors are read from and written to safetensors files.
Exit status: 0: success. 1: a comparison, a conformance check or a rank of launch failed. 2: invalid
usage or input; one line on stderr says what was given and what is needed.
`;
}
