/** `lockstep dialects`: lists the dialects, which are quantizers that reproduce other libraries. */
import { DIALECT_NAMES, DIALECTS, type Dialect } from "../../dialects/table.js";
import { defineCommand } from "../command.js";

export const dialects = defineCommand({
  name: "dialects",
  summary: "lists the dialects of --dialect: whose scales, rounding and files they have, and by which source",
  example: "--json",
  inputs: [],
  without: ["backend", "threads"],
  options: {},
  async run({ session }) {
    const rows: readonly (Dialect & { readonly name: string })[] = DIALECT_NAMES.map((name) => ({
      name,
      ...DIALECTS[name],
    }));
    const width = Math.max(...DIALECT_NAMES.map((name) => name.length));
    session.result(
      { dialects: rows },
      rows.map(({ name, forms, summary, source }) => {
        const quantizers = forms.map(({ quantizer }) => quantizer).join(", ");
        return `${name.padEnd(width)}  ${quantizers}: ${summary} (${source})`;
      }),
    );
    return 0;
  },
});
