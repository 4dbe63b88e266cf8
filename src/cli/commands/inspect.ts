/** `lockstep inspect`: describes the tensors of a checkpoint. */
import { inspectCheckpoint } from "../../checkpoints/index.js";
import {
  findingLine,
  READING,
  readPath,
  reportJson,
  weightLine,
  wholeLines,
  withProgress,
} from "../checkpoint-report.js";
import { defineCommand } from "../command.js";

export const inspect = defineCommand({
  name: "inspect",
  summary:
    "says which convention each tensor of a checkpoint has, what its scales and codes are, and what is wrong",
  details: [
    "PATH is a safetensors file, the index of a sharded checkpoint (model.safetensors.index.json), the folder of either, or a GGUF file. The configuration beside it (config.json, hf_quant_config.json) is compared with the tensors.",
    "For each quantized tensor it prints the convention, the block that shares a scale, the range of scales, the codes that occur, the shares of zero and of the largest code, and the error against --original. It exits with 0 whatever it finds; verify does not.",
  ],
  example: "model.safetensors --json",
  inputs: ["PATH"],
  without: ["backend", "threads"],
  options: READING,
  errorFields: readPath,
  async run({ session, values, inputs: [path = ""] }) {
    const report = await withProgress(session, values, (options) => inspectCheckpoint(path, options));
    session.result(reportJson(report), [
      ...wholeLines(report),
      ...report.weights.map(weightLine),
      ...report.findings.map(findingLine),
    ]);
    return 0;
  },
});
