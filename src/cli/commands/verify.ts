/** `lockstep verify`: fails if loaders would read a checkpoint wrong. */
import { verifyCheckpoint } from "../../checkpoints/index.js";
import { findingLine, READING, readPath, withProgress } from "../checkpoint-report.js";
import { defineCommand } from "../command.js";

export const verify = defineCommand({
  name: "verify",
  summary:
    "checks that a quantized checkpoint is read as it was meant; exits with 1 if anything would be read wrong",
  details: [
    "PATH is a safetensors file, the index of a sharded checkpoint, the folder of either, or a GGUF file. Every finding has a name, a severity, the tensor or the file, what is wrong, and what to do. Findings of severity error lead to exit status 1; warnings and notes do not.",
    "The configuration is compared with the tensors weight by weight, and weights with each other: what most of a kind have, each must have. Whatever looks quantized and is of no known convention is an error; --as names one.",
    "With --original, values are compared with those that were quantized, and the reading that would give them is named: reciprocal scales, exchanged nibbles, swizzled or transposed scales, another FP8, a lost scale. Each element has a bound of half a step of its code. PATH may be quantized itself.",
    "A file that cannot be read leads to exit status 2.",
  ],
  example: "model.safetensors",
  inputs: ["PATH"],
  without: ["backend", "threads"],
  options: READING,
  errorFields: readPath,
  async run({ session, values, inputs: [path = ""] }) {
    const report = await withProgress(session, values, (options) => verifyCheckpoint(path, options));
    const { ok, quantized, unquantized, findings } = report;
    const errors = findings.filter(({ severity }) => severity === "error").length;
    const checked = `${quantized} quantized tensors, ${unquantized} others`;
    const json = { path, ok, quantized, findings };
    const lines = findings.map(findingLine);
    if (!ok) session.result(json, [...lines, `${path}: ${errors} errors in ${checked}`]);
    else if (lines.length > 0) session.result(json, [...lines, `${path}: no error in ${checked}`]);
    else session.summary(json, [`${path}: no error in ${checked}`]);
    return ok ? 0 : 1;
  },
});
