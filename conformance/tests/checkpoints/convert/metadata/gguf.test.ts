/**
 * The metadata of a converted GGUF model is the input's metadata except entries about storage. Each file of the output has every
 * entry once.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { openGgufFile } from "../../../../../src/checkpoints/gguf/open.js";
import { draws } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";
import { convertTo, inFolder } from "../../files/checkpoints.js";
import { ggufBytes, type Piece, TYPE, u8, u32 } from "../../gguf/files.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

/** The type numbers of metadata values. */
const [U16, U32, I32, BOOL, TEXT] = [2, 4, 5, 7, 8];
const u16 = (value: number): Uint8Array => Uint8Array.of(value & 255, value >> 8);

type Entry = readonly [key: string, value: string | number | boolean, pieces: readonly Piece[]];

/** Entries about the model, and entries about the storage of its tensors. */
const OF_MODEL: readonly Entry[] = [
  ["general.architecture", "llama", [u32(TEXT), "llama"]],
  ["general.name", "größer", [u32(TEXT), "größer"]],
  ["llama.block_count", 3, [u32(U32), u32(3)]],
  ["llama.splits", 7, [u32(U32), u32(7)]],
  ["tokenizer.ggml.add_bos_token", true, [u32(BOOL), u8(1)]],
];
const OF_STORAGE: readonly Entry[] = [
  ["general.file_type", 1, [u32(U32), u32(1)]],
  ["general.quantization_version", 1, [u32(U32), u32(1)]],
  ["general.alignment", 32, [u32(U32), u32(32)]],
];
const splitOf = (splitIndex: number, count: number, tensors: number): readonly Entry[] => [
  ["split.no", splitIndex, [u32(U16), u16(splitIndex)]],
  ["split.count", count, [u32(U16), u16(count)]],
  ["split.tensors.count", tensors, [u32(I32), u32(tensors)]],
];

const valuesOf = (entries: readonly Entry[]) =>
  Object.fromEntries(entries.map(([key, value]) => [key, value]));
const ROW = new Uint8Array(Float32Array.from({ length: 4 * 64 }, (_, i) => Math.cos(i)).buffer);

/** Writes a model of some files with one tensor each. */
function writeModel(folder: string, count: number, entries: readonly Entry[], saysSplit: boolean): void {
  mkdirSync(folder);
  for (let splitIndex = 0; splitIndex < count; splitIndex++) {
    const split = saysSplit || count > 1 ? splitOf(splitIndex, count, count) : [];
    const metadata = [...(splitIndex === 0 ? entries : []), ...split].map(([key, , pieces]) => [
      key,
      ...pieces,
    ]);
    const tensors = [
      { name: `blk.${splitIndex}.attn_q.weight`, dimensions: [64, 4], type: TYPE.f32, offset: 0 },
    ];
    const ends = [splitIndex + 1, count].map((number) => String(number).padStart(5, "0"));
    const name = count === 1 ? "model.gguf" : `model-${ends.join("-of-")}.gguf`;
    writeFileSync(join(folder, name), ggufBytes({ metadata, tensors, data: ROW }));
  }
}

/** The metadata of a file, its number of tensors, and its bytes as characters. */
async function factsOf(path: string) {
  const file = await openGgufFile(path);
  const { facts, keys } = file;
  await file.close();
  return { ...facts, keys, bytes: readFileSync(path).toString("latin1") };
}

it("is copied into the first file, with the output's own numbers of files", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3 }),
      fc.subarray([...OF_MODEL]),
      fc.subarray([...OF_STORAGE]),
      fc.boolean(),
      fc.constantFrom(["gguf-mxfp4", 38], ["gguf-nvfp4", 39]),
      (count, model, storage, saysSplit, [target, fileType]) =>
        inFolder(async (folder) => {
          writeModel(join(folder, "in"), count, [...storage, ...model], saysSplit);
          const out = join(folder, "out");
          await convertTo(backend(), join(folder, "in"), out, String(target));
          const names = readdirSync(out)
            .filter((name) => name.endsWith(".gguf"))
            .toSorted();
          expect(names).toHaveLength(count);
          const files = await Promise.all(names.map((name) => factsOf(join(out, name))));
          const total = files.reduce((sum, { tensors }) => sum + tensors, 0);
          for (const [splitIndex, { metadata, keys, bytes }] of files.entries()) {
            const ownMetadata = { "general.file_type": Number(fileType), "general.quantization_version": 2 };
            const firstMetadata = { "general.architecture": "unknown", ...valuesOf(model), ...ownMetadata };
            expect(metadata).toEqual({
              ...(splitIndex === 0 ? firstMetadata : {}),
              ...(count > 1 ? valuesOf(splitOf(splitIndex, count, total)) : {}),
            });
            for (const key of keys) expect(bytes.split(Buffer.from(key).toString("latin1"))).toHaveLength(2);
          }
        }),
    ),
    {
      numRuns: draws(60, 5),
      // the numbers of files of a split model
      examples: [[2, [...OF_MODEL], [], true, ["gguf-mxfp4", 38]]],
    },
  );
});
