// The parameters of the reference's exports, as assembly/ declares them: read from what its compiler writes, so that a call by
// names is held to the signature by TypeScript (src/backends/wasm/call.ts).

/** [name, [[parameter, type], ...], result] of each function of the bindings. */
function functionsIn(bindings) {
  return [...bindings.matchAll(/export function (\w+)\(([^)]*)\): (\w+);/g)].map(([, name, list, result]) => [
    name,
    list === "" ? [] : list.split(", ").map((each) => each.split(": ")),
    result,
  ]);
}

/** Module and declarations of the parameters. */
export function parametersOf(bindings) {
  const functions = functionsIn(bindings);
  const names = functions.map(
    ([name, parameters]) => `  ${name}: [${parameters.map(([each]) => `"${each}"`).join(", ")}],\n`,
  );
  const types = functions.map(([name, parameters]) => {
    const lines = parameters.map(([each, type]) => `    readonly ${each}: ${type};\n`);
    return `  readonly ${name}: {\n${lines.join("")}  };\n`;
  });
  return {
    module: `export const PARAMETERS = {\n${names.join("")}};\n`,
    declarations: `/** What each export takes, by name. */
export interface Arguments {
${types.join("")}}

/** The names of each export's parameters, in order. */
export declare const PARAMETERS: { readonly [K in keyof Arguments]: readonly (keyof Arguments[K])[] };
`,
  };
}
