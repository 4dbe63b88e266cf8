/** Opens checkpoints in a browser or in memory. */

import { type BlobLike, requireBlob, SafetensorsBlob } from "../io/safetensors-blob.js";
import { optionsOf, text } from "../options.js";
import { Checkpoint } from "./checkpoint.js";
import { recognizeElementwise } from "./recognize/elementwise-weights.js";
import { claimIn, parseObject } from "./stored/config/claim.js";

/** Options of `openCheckpointBlob`. */
export interface OpenBlobOptions {
  /** The name of the file in errors. Default: "blob". */
  readonly name?: string | undefined;
  /** The text of config.json. Default: no such file. */
  readonly modelConfig?: string | undefined;
  /** The text of hf_quant_config.json. Default: no such file. */
  readonly quantConfig?: string | undefined;
}

const checkOptions = optionsOf<OpenBlobOptions>({ name: text, modelConfig: text, quantConfig: text });

/** The names of the configurations in errors and claims. */
const CONFIG_NAMES = ["config.json", "hf_quant_config.json"] as const;

/**
 * Opens a safetensors file that is a `Blob`, such as a `File` that a user chose. It is read in pieces, and needs no file system.
 * Weights are recognized by their tensors and by the configurations.
 *
 * @throws `FileError` for bytes that are not safetensors, and for a configuration that is not a JSON object; `ArgumentError` for
 * anything but a blob and options.
 */
export async function openCheckpointBlob(blob: BlobLike, options: OpenBlobOptions = {}): Promise<Checkpoint> {
  requireBlob("openCheckpointBlob", blob);
  const { name = "blob", modelConfig, quantConfig } = checkOptions("openCheckpointBlob", options);
  const file = await SafetensorsBlob.open(name, blob);
  const [model, modelopt] = [modelConfig, quantConfig].map((json, i) =>
    json === undefined ? undefined : parseObject(CONFIG_NAMES[i] as string, json),
  );
  const claim = claimIn(CONFIG_NAMES, model, modelopt);
  const tensors = new Map([...file.tensors].map(([key, entry]) => [key, { entry, shard: file }]));
  const files = { shards: [file], tensors, metadata: file.metadata };
  const recognition = await recognizeElementwise(files, claim);
  const findings = [...recognition.recognized.findings, ...recognition.findings];
  return Checkpoint.of({ ...recognition, path: name, files, claim, findings, close: async () => {} });
}
