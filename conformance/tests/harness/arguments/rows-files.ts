/** Rows of checkpoints and of tensors in files. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Checkpoint, openCheckpoint } from "../../../../src/checkpoints/index.js";
import {
  type PutTensor,
  SafetensorsFile,
  saveCheckpoint,
  saveShardedCheckpoint,
  saveTensors,
} from "../../../../src/io/index.js";
import { loadTokenizer, type Tokenizer } from "../../../../src/models/index.js";
import { Linear } from "../../../../src/modules/linear.js";
import { constantInit } from "../../../../src/modules/parameter.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { TINY, tinyModel, writeHub } from "../../models/tiny-model.js";
import { inWorld } from "./law.js";
import type { Row, Rows } from "./row.js";
import { singleRankGroup } from "./rows-distributed.js";
import { TOKENIZER_CONFIG, TOKENIZER_JSON } from "./tokenizer.js";
import { type Backends, World } from "./world.js";

/** A checkpoint that compressed-tensors quantized. */
export const LIBRARY_CHECKPOINT = "conformance/vectors/checkpoints/ct-mxfp8/model.safetensors";

/** A folder with a checkpoint of the run that `createRun` creates. `end` deletes the folder. */
export class CheckpointFolder {
  readonly #path = mkdtempSync(join(tmpdir(), "lockstep-arguments-"));

  /** The path of a saved run. */
  readonly savedRun = join(this.#path, "saved.safetensors");
  /** The path to save runs to. */
  readonly outputPath = join(this.#path, "written.safetensors");

  /** The path of a saved run of several ranks. */
  readonly savedShards = join(this.#path, "shards");
  /** The path of a file with an f32 tensor "x" of four elements. */
  readonly plainTensors = join(this.#path, "tensors.safetensors");
  /** The path of a file with a tensor "w" that this library quantized. */
  readonly quantizedTensors = join(this.#path, "quantized.safetensors");
  /** The paths of the rules and of the log of an inspector. */
  readonly rules = join(this.#path, "rules.json");
  readonly log = join(this.#path, "log.jsonl");
  /** The path of a folder that conversions write. */
  readonly conversionFolder = join(this.#path, "converted");
  /** The path of a folder with a language model and a tokenizer. */
  readonly languageModel = join(this.#path, "model");
  #opened: SafetensorsFile | undefined;
  #tokenizer: Tokenizer | undefined;
  #checkpoints: { readonly library: Checkpoint; readonly lockstep: Checkpoint } | undefined;

  /** Fills the folder, also again after `end`: test files of one worker share it. */
  async fill(backends: Backends): Promise<void> {
    mkdirSync(this.#path, { recursive: true });
    await inWorld(backends, (world) => saveCheckpoint(this.savedRun, createRun(world)));
    await this.#fillShards(backends);
    await inWorld(backends, (world) => saveTensors(this.plainTensors, { x: world.tensor("f32", [4]) }));
    writeFileSync(this.rules, JSON.stringify([{ layers: ["linear"], LogTensorStats: {} }]));
    await writeHub(this.languageModel, tinyModel(TINY));
    this.#opened = await SafetensorsFile.open(this.plainTensors);
    await inWorld(backends, (world) => saveTensors(this.quantizedTensors, { w: world.quantize() }));
    writeFileSync(join(this.languageModel, "tokenizer.json"), TOKENIZER_JSON);
    writeFileSync(join(this.languageModel, "tokenizer_config.json"), TOKENIZER_CONFIG);
    this.#tokenizer = await loadTokenizer(this.languageModel);
    this.#checkpoints = {
      library: await openCheckpoint(LIBRARY_CHECKPOINT),
      lockstep: await openCheckpoint(this.quantizedTensors),
    };
  }

  /** Disposes of the run when it is saved. */
  async #fillShards(backends: Backends): Promise<void> {
    const world = new World(backends);
    try {
      await saveShardedCheckpoint(this.savedShards, { ...createRun(world), group: singleRankGroup(world) });
    } finally {
      world.dispose();
    }
  }

  /** The open file `plainTensors`. */
  get file(): SafetensorsFile {
    if (this.#opened) return this.#opened;
    throw new Error("the folder was not filled");
  }

  /** The open checkpoints `LIBRARY_CHECKPOINT` and `quantizedTensors`. */
  get checkpoints(): { readonly library: Checkpoint; readonly lockstep: Checkpoint } {
    if (this.#checkpoints) return this.#checkpoints;
    throw new Error("the folder was not filled");
  }

  /** The tokenizer of `languageModel`. */
  get tokenizer(): Tokenizer {
    if (this.#tokenizer) return this.#tokenizer;
    throw new Error("the folder was not filled");
  }

  async end(): Promise<void> {
    await this.#opened?.close();
    await this.#checkpoints?.library.close();
    await this.#checkpoints?.lockstep.close();
    rmSync(this.#path, { recursive: true });
  }
}

function createRun(w: World) {
  const module = w.own(new Linear(w.backend, 16, 32, { initMethod: constantInit(0.5), random: w.random }));
  for (const [name, { tensor }] of module.namedParameters()) w.watch(`e ${name}`, tensor);
  const optimizer = w.own(new SGD(module, { learningRate: 1, momentum: 0.5 }));
  return { module, optimizer, random: w.random };
}

export function fileRows(folder: CheckpointFolder): Rows {
  const entry: Row = {
    calls: [() => ["x"]],
    self: () => folder.file,
    isUnbound: true,
    survivesDispose: true,
  };
  const readInto: Row = {
    calls: [() => [folder.file.entry("x"), 4, new Uint8Array(4)]],
    self: () => folder.file,
    isUnbound: true,
    survivesDispose: true,
    isSlow: true,
    numbers: { begin: "index" },
    exemptions: Object.fromEntries(
      ["begin", "end", "name", "dtype", "shape"].map((field) => [
        `entry.${field}`,
        "an entry comes from the table of its file, which no other object can replace",
      ]),
    ),
  };
  return {
    saveCheckpoint: {
      calls: [(w) => [folder.outputPath, { ...createRun(w), extra: { step: 1 } }]],
      isSlow: true,
    },
    saveShardedCheckpoint: {
      calls: [
        (w) => [
          folder.savedShards,
          { ...createRun(w), group: singleRankGroup(w), nameOf: (name: string) => name, extra: { step: 1 } },
        ],
      ],
      isSlow: true,
    },
    loadShardedCheckpoint: {
      calls: [
        (w) => [
          folder.savedShards,
          { ...createRun(w), group: singleRankGroup(w), nameOf: (name: string) => name, restoreRandom: true },
        ],
      ],
      isSlow: true,
    },
    loadCheckpoint: {
      calls: [(w) => [folder.savedRun, createRun(w)]],
      isSlow: true,
    },
    saveTensors: {
      calls: [
        (w) => [folder.outputPath, { x: w.tensor("f32"), w: w.quantize() }, { metadata: { note: "text" } }],
        (w) => [folder.outputPath, new Map([["x", w.tensor("u8")]])],
      ],
      isSlow: true,
      exemptions: { tensors: "every name may be given", "options.metadata": "every key may be given" },
    },
    loadTensors: {
      calls: [(w) => [folder.plainTensors, w.backend, { names: ["x"] }]],
      isSlow: true,
    },
    openInspector: {
      calls: [
        (w) => [w.own(new Linear(w.backend, 32, 32)), { rules: folder.rules, log: folder.log, step: 0 }],
      ],
      numbers: { "options.step": "index" },
      isSlow: true,
    },
    writeSafetensors: {
      calls: [
        () => [
          folder.outputPath,
          { tensors: [{ name: "a", dtype: "U8", shape: [2] }], metadata: { note: "text" } },
          (put: PutTensor) => put("a", Uint8Array.of(1, 2)),
        ],
      ],
      isSlow: true,
      numbers: { "plan.tensors.shape": "index" },
      exemptions: { "plan.metadata": "every key may be given" },
    },
    "SafetensorsFile.read": {
      calls: [() => [folder.file.entry("x"), 4, 8]],
      self: () => folder.file,
      isUnbound: true,
      survivesDispose: true,
      isSlow: true,
      numbers: {
        begin: "index",
        end: "index",
      },
      exemptions: Object.fromEntries(
        ["begin", "end", "name", "dtype", "shape"].map((field) => [
          `entry.${field}`,
          "an entry comes from the table of its file, which no other object can replace",
        ]),
      ),
    },
    "SafetensorsFile.readInto": readInto,
    "SafetensorsFile.entry": entry,
    "TensorSource.entry": entry,
    "TensorSource.readInto": readInto,
  };
}
