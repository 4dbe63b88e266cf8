/** `lockstep convert`: converts the weights of a checkpoint to another form. */

import type { WeightChanges } from "../../checkpoints/convert/changes/weight-changes.js";
import { WIDE_TARGETS } from "../../checkpoints/convert/dequantize/round.js";
import { LOCKSTEP_TARGETS } from "../../checkpoints/convert/targets/lockstep.js";
import { DIALECT_TARGETS, parseTarget } from "../../checkpoints/convert/targets/named.js";
import {
  type ConversionMethod,
  type ConversionReport,
  type ConversionTarget,
  convertCheckpoint,
} from "../../checkpoints/index.js";
import { waitForFiles } from "../../io/files.js";
import { READING, readPath } from "../checkpoint-report.js";
import { defineCommand } from "../command.js";
import { writeTokenizerOf } from "../gguf-outputs.js";
import { flag, type Option, required, value } from "../options.js";
import { tensorsOption } from "../tensor-globs.js";

const number = (value: number): string => Number(value.toPrecision(3)).toString();

/** The error of a weight: its relative root mean square, and the signal-to-noise ratio in dB. */
function errorOf({ noise, signal }: WeightChanges): { readonly relativeRms: number; readonly sqnr: number } {
  const share = noise === 0 ? 0 : noise / signal;
  return { relativeRms: Math.sqrt(share), sqnr: -10 * Math.log10(share) };
}

/** The names of the methods in the output. Programs may read them. `carried` is the name of the library's `repacked`. */
const OUTPUT_WORDS: Readonly<Record<ConversionMethod, string>> = {
  dequantized: "dequantized",
  repacked: "carried",
  quantized: "quantized",
};

function changesLine(changes: WeightChanges): string {
  const { name, method, elements, changed, max } = changes;
  const word = OUTPUT_WORDS[method];
  if (changed === 0) return `${name}: ${word}, exact, ${elements} values`;
  const { relativeRms, sqnr } = errorOf(changes);
  return `${name}: ${word}, relative RMS error ${number(relativeRms)}, SQNR ${sqnr.toFixed(2)} dB, ${number(max)} apart at most`;
}

/** The errors of a converted weight as JSON. */
function changesJson(changes: WeightChanges) {
  const { name, method, elements, changed, max, relative } = changes;
  return { name, way: OUTPUT_WORDS[method], elements, changed, max, relative, ...errorOf(changes) };
}

/** The JSON output for a planned or finished conversion. */
function reportJson(report: ConversionReport) {
  const { output, to, methods, kept, skipped, dropped, shards, bytes, written, changes } = report;
  return {
    output,
    to,
    converted: Object.keys(methods),
    ways: Object.fromEntries(Object.entries(methods).map(([name, method]) => [name, OUTPUT_WORDS[method]])),
    kept,
    left: skipped,
    dropped,
    shards,
    bytes,
    written,
    ...(written ? { changes: changes.map(changesJson) } : {}),
  };
}

function reportLines({
  output,
  to,
  methods,
  kept,
  skipped,
  dropped,
  shards,
  bytes,
  written,
  changes,
}: ConversionReport) {
  const weights = Object.entries(methods);
  const summary = `${output}: ${weights.length} weights to ${to}, ${kept.length} still quantized, ${bytes} bytes in ${shards.length} shards`;
  return [
    ...(written
      ? changes.map(changesLine)
      : weights.map(([name, method]) => `${name}: ${OUTPUT_WORDS[method]} to ${to}`)),
    ...Object.entries(skipped).map(([name, reason]) => `${name}: stays as it is: ${reason}`),
    ...dropped.map((name) => `not needed any more: ${name}`),
    written ? summary : `${summary} (not written)`,
  ];
}

const OUTPUT_FOLDER = required({ short: "o", placeholder: "DIR", help: "folder to make", file: "made" });

const TO: Option<ConversionTarget> = {
  ...value<ConversionTarget>({
    placeholder: [...WIDE_TARGETS, "DIALECT"].join("|"),
    help: `what weights become: ${WIDE_TARGETS.join(" or ")}, codes and scales of ${DIALECT_TARGETS.join(", ")}, or what quantize writes: ${[...LOCKSTEP_TARGETS.keys()].join(", ")}`,
    parse: (name) => parseTarget(name).name,
    fallback: "bf16",
  }),
  required: true,
};

export const convert = defineCommand({
  name: "convert",
  summary:
    "converts the weights of a checkpoint to BF16 or F32, or to the codes and scales of another library",
  details: [
    "PATH is a safetensors file, the index of a sharded checkpoint, the folder of either, or a GGUF file. DIR gets the same shards, or GGUF files, the index, a config.json that says what is quantized, and the other files of the folder. Anything that verify calls an error stops the conversion before it begins; what is written is judged in the same way.",
    "To BF16 and F32: a value is code times scale, rounded to F32 and, for bf16, that to BF16. To a dialect: the weights of linear layers are quantized as its library does; embeddings, the output layer, routers and norms stay as they are, unless --tensors names them. Codes and scales of a quantized checkpoint are repacked without rounding where the other form can hold them (the output calls these carried); other weights are quantized anew from their exact values.",
    "For each weight it says whether the conversion was exact, and if not, the relative RMS error, the SQNR and the largest difference. Values that would become NaN or infinite are an error. The output appears when it is complete; an interrupted run is continued by the same command.",
    "From a GGUF file, tensors keep their names. config.json and the files of the tokenizer follow from the metadata; the output says which of them cannot be written.",
  ],
  example: "model.safetensors -o converted --to ct-nvfp4",
  inputs: ["PATH"],
  options: {
    output: OUTPUT_FOLDER,
    to: TO,
    tensors: tensorsOption("convert only these weights and copy all others as they are"),
    as: READING.as,
    "dry-run": flag("say what would be written, and write nothing"),
    force: flag("write over the files of DIR if it exists"),
  },
  errorFields: readPath,
  async run({ session, values, inputs: [path = ""] }) {
    const { output, to, tensors, as, force, "dry-run": dryRun } = values;
    using _waiting = waitForFiles();
    const bar = session.transferBar();
    const options = { to, tensors, as, force, dryRun, onProgress: bar.report };
    try {
      const openBackend = () => session.backend();
      const report = await convertCheckpoint(path, output, { ...options, openBackend });
      if (report.written) {
        const missing = await writeTokenizerOf(path, output, to.startsWith("gguf-"));
        const lines = Object.entries(missing ?? {}).map(
          ([name, reason]) => `${name}: is not written: ${reason}`,
        );
        session.summary({ ...reportJson(report), ...(missing ? { missing } : {}) }, [
          ...lines,
          ...reportLines(report),
        ]);
      } else session.result(reportJson(report), reportLines(report));
    } finally {
      bar.finish();
    }
    return 0;
  },
});
