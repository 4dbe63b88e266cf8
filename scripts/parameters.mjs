// The parameters of the reference's exports, read from the output of the AssemblyScript compiler, so that TypeScript checks calls
// with named arguments against the signatures (src/backends/wasm/call.ts).

/** The arguments that a job supplies to each of its parts: scratch memory and the range. */
const OF_THE_PART = ["scratch", "begin", "end"];

/** [name, [[parameter, type], ...]] for each function of the bindings. */
function functionsIn(bindings) {
  return [...bindings.matchAll(/export function (\w+)\(([^)]*)\): \w+;/g)].map(([, name, list]) => [
    name,
    list === "" ? [] : list.split(", ").map((each) => each.split(": ")),
  ]);
}

/** The source of a module with one function per export, which orders its arguments, and of its declarations. */
export function parametersOf(bindings) {
  const functions = functionsIn(bindings);
  const ordering = functions.map(([name, parameters]) => {
    const values = parameters.map(([each]) => (OF_THE_PART.includes(each) ? each : `a.${each}`));
    return `  ${name}: (a, ${OF_THE_PART.join(", ")}) => [${values.join(", ")}],\n`;
  });
  const types = functions.map(([name, parameters]) => {
    const lines = parameters.map(([each, type]) => `    readonly ${each}: ${type};\n`);
    return `  readonly ${name}: {\n${lines.join("")}  };\n`;
  });
  return {
    module: `export const ORDERED = {\n${ordering.join("")}};\n`,
    declarations: `/** What each export takes, by name. */
export interface Arguments {
${types.join("")}}

type Value = number | boolean;

/** The arguments of each export, in the order of its parameters. */
export declare const ORDERED: {
  readonly [K in keyof Arguments]: (
    args: Readonly<Record<string, Value>>,
    ${OF_THE_PART.map((each) => `${each}: number`).join(",\n    ")},
  ) => Value[];
};
`,
  };
}
