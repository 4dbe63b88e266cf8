/** `lockstep apply`: computes one operation of PyTorch by the model in its row of the table. */
import { FileError } from "../../errors.js";
import { NotModelled } from "../../referee/not-modelled.js";
import { computeOperation } from "../../referee/replay.js";
import { parseFile, readOperation } from "../../referee/run.js";
import { callWitness } from "../../referee/table.js";
import { defineCommand } from "../command.js";
import { withFile } from "../pieces.js";
import { OUTPUT } from "../shared-options.js";

/** The metadata key of the operation. */
const OPERATION = "operation";

export const apply = defineCommand({
  name: "apply",
  summary:
    "computes an operation of PyTorch to the bits of a GPU: one of lockstep operators, with tensors in a file",
  details: [
    `The metadata "${OPERATION}" of IN have the operation as JSON, as log.json of a recorded run has it: {"schema": "aten::mm", "args": [{"tensor": "a", "dtype": "BF16", "shape": [2, 3]}, …]}. Writes the results as the tensors 0, 1, …. If the operation is not modelled, the exit status is 1 and nothing is written.`,
  ],
  example: "operation.safetensors -o result.safetensors",
  inputs: ["IN"],
  options: { output: OUTPUT },
  async run({ session, values: { output }, inputs: [path = ""] }) {
    const backend = await session.backend();
    return withFile(session.files.open(path), async (file) => {
      const text = file.metadata[OPERATION];
      if (text === undefined)
        throw new FileError(`${path}: the metadata "${OPERATION}" are needed and not there`);
      const location = `${path}: metadata "${OPERATION}"`;
      const operation = readOperation(location, parseFile(location, text));
      try {
        const { results, row, writesSelf, call } = await computeOperation(
          { backend, file },
          location,
          operation,
        );
        const tensors = results.map(({ dtype, shape, bytes }, i) => ({
          name: String(i),
          dtype,
          shape,
          bytes,
        }));
        await session.files.write(output, { tensors }, async (put) => {
          for (const { name, bytes } of tensors) await put(name, bytes);
        });
        const report = {
          output,
          schema: operation.schema,
          modelled: true,
          writesSelf,
          witness: callWitness(row, call) ?? null,
        };
        session.summary(report, [`${output}: ${operation.schema}, ${row.definition}`]);
        return 0;
      } catch (error) {
        if (!(error instanceof NotModelled)) throw error;
        const report = { schema: operation.schema, modelled: false, reason: error.message };
        session.result(report, [`${operation.schema} is not modelled: ${error.message}`]);
        return 1;
      }
    });
  },
});
