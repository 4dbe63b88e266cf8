/** `lockstep convert`: converts the weights of a checkpoint to another form. */

import { WIDE_TARGETS } from "../../checkpoints/convert/dequantize/round.js";
import { planConversion } from "../../checkpoints/convert/plan/plan.js";
import type { ConversionMethod } from "../../checkpoints/convert/plan/steps.js";
import { LOCKSTEP_TARGETS } from "../../checkpoints/convert/targets/lockstep.js";
import { type NamedTarget, parseTarget, QUANTIZED_TARGETS } from "../../checkpoints/convert/targets/table.js";
import {
  writeConversion as convertCheckpoint,
  requireFree,
  type WeightChanges,
} from "../../checkpoints/convert/write.js";
import type { Checkpoint } from "../../checkpoints/stored/open.js";
import { ArgumentError } from "../../errors.js";
import { waitForFiles } from "../../io/files.js";
import { READING, tellingErrors, withCheckpoint } from "../checkpoint-report.js";
import { defineCommand } from "../command.js";
import { flag, type Option, required, value } from "../options.js";
import { tensorsOption } from "../tensor-globs.js";

const number = (value: number): string => Number(value.toPrecision(3)).toString();

/** The error of a weight: its relative root mean square, and the signal-to-noise ratio in dB. */
function errorOf({ noise, signal }: WeightChanges): { readonly relativeRms: number; readonly sqnr: number } {
  const share = noise === 0 ? 0 : noise / signal;
  return { relativeRms: Math.sqrt(share), sqnr: -10 * Math.log10(share) };
}

/** The words of the output for the methods. Programs may read them: `carried` is what the library calls repacked. */
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

const OUTPUT_FOLDER = required({ short: "o", placeholder: "DIR", help: "folder to make", file: "made" });

const TO: Option<NamedTarget> = {
  ...value<NamedTarget>({
    placeholder: [...WIDE_TARGETS, "DIALECT"].join("|"),
    help: `what weights become: ${WIDE_TARGETS.join(" or ")}, codes and scales of ${QUANTIZED_TARGETS.join(", ")}, or what quantize writes: ${[...LOCKSTEP_TARGETS.keys()].join(", ")}`,
    parse: parseTarget,
    fallback: parseTarget("bf16"),
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
  async run({ session, values, inputs: [path = ""] }) {
    const { output, to, tensors, as, force, "dry-run": dry } = values;
    using _waiting = waitForFiles();
    await requireFree(output, force);
    const body = async (checkpoint: Checkpoint): Promise<void> => {
      const plan = await planConversion(checkpoint, {
        target: to,
        tensors,
        as,
        backend: () => session.backend(),
      });
      if (checkpoint.shards.length === 0) throw new ArgumentError(`${path}: has no shard that can be read`);
      const { converted, kept, left, dropped, bytes } = plan;
      const shards = plan.shards.map(({ name, steps }) => ({ name, tensors: steps.length }));
      const names = [...converted.keys()];
      const json = {
        output,
        to: to.name,
        converted: names,
        ways: Object.fromEntries([...converted].map(([name, method]) => [name, OUTPUT_WORDS[method]])),
        kept,
        left: Object.fromEntries(left),
        dropped,
        shards,
        bytes,
      };
      const summary = `${output}: ${names.length} weights to ${to.name}, ${kept.length} still quantized, ${bytes} bytes in ${shards.length} shards`;
      const rest = [
        ...[...left].map(([name, why]) => `${name}: stays as it is: ${why}`),
        ...dropped.map((name) => `not needed any more: ${name}`),
      ];
      if (dry) {
        session.result({ ...json, written: false }, [
          ...[...converted].map(([name, method]) => `${name}: ${OUTPUT_WORDS[method]} to ${to.name}`),
          ...rest,
          `${summary} (not written)`,
        ]);
        return;
      }
      const progress = session.progress(bytes, "B");
      try {
        const changes = await convertCheckpoint(checkpoint, plan, output, {
          force,
          onBytes: (count) => progress.add(count),
        });
        session.summary({ ...json, written: true, changes: changes.map(changesJson) }, [
          ...changes.map(changesLine),
          ...rest,
          summary,
        ]);
      } finally {
        progress.finish();
      }
    };
    await tellingErrors(session, path, () => withCheckpoint(path, body));
    return 0;
  },
});
