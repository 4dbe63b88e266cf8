/** `lockstep operators`: lists the operators of PyTorch that have a model. */
import { OPERATORS } from "../../referee/table.js";
import { defineCommand } from "../command.js";

export const operators = defineCommand({
  name: "operators",
  summary:
    "lists the operators of PyTorch that replay computes: their models, and the GPUs that confirmed them",
  details: [
    "An operator that moves bytes has the same result on every chip. A model of arithmetic without a witness is unverified: no GPU was compared with it.",
  ],
  example: "--json",
  inputs: [],
  without: ["backend", "threads"],
  options: {},
  async run({ session }) {
    const rows = Object.entries(OPERATORS).map(([name, row]) => {
      const { parameters, kind, definition, witness, inPlace = false } = row;
      return { name, parameters: parameters.split(" "), kind, definition, inPlace, witness: witness ?? null };
    });
    const width = Math.max(...rows.map(({ name }) => name.length));
    session.result(
      { operators: rows },
      rows.map(({ name, kind, definition, witness }) => {
        const status = witness
          ? `${witness.chip}, PyTorch ${witness.torch}: ${witness.inputs}`
          : kind === "moves"
            ? "moves bytes"
            : "unverified";
        return `${name.padEnd(width)}  ${definition} (${status})`;
      }),
    );
    return 0;
  },
});
