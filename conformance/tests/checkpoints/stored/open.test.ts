/** Folders, indexes and shards: tensors are found in any shard, and findings name missing, damaged or wrongly listed ones. */
import { mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { FindingName } from "../../../../src/checkpoints/judge/findings.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import { FileError } from "../../../../src/errors.js";
import { draws } from "../../harness/draws.js";
import {
  FIXTURES,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  VECTORS,
  writeContents,
} from "../files/checkpoints.js";

const INDEX = "model.safetensors.index.json";

interface Index {
  metadata: { total_size: number };
  weight_map: Record<string, string>;
}

/** Writes a fixture as shards: tensor i goes to the shard `shardOf(i)`. */
async function writeSharded(
  folder: string,
  fixture: string,
  shardOf: (index: number) => number,
): Promise<Index> {
  const { tensors, metadata, json } = await readContents(join(VECTORS, fixture));
  const shards = new Map<string, Map<string, StoredTensor>>();
  const index: Index = { metadata: { total_size: 0 }, weight_map: {} };
  for (const [tensorIndex, [name, tensor]] of [...tensors].entries()) {
    const file = `model-${shardOf(tensorIndex)}.safetensors`;
    shards.set(file, (shards.get(file) ?? new Map()).set(name, tensor));
    index.weight_map[name] = file;
    index.metadata.total_size += tensor.bytes.length;
  }
  for (const [file, shardTensors] of shards) {
    const part = join(folder, "part");
    mkdirSync(part);
    await writeContents(part, { tensors: shardTensors, metadata, json: new Map() });
    writeFileSync(join(folder, file), readFileSync(join(part, "model.safetensors")));
    rmSync(part, { recursive: true });
  }
  for (const [name, value] of json) writeFileSync(join(folder, name), JSON.stringify(value));
  writeIndex(folder, index);
  return index;
}

function writeIndex(folder: string, index: unknown): void {
  writeFileSync(join(folder, INDEX), JSON.stringify(index));
}

/** Moves begin and end of every tensor of a file, except the first, by 32 bytes toward the start, so that tensors overlap. */
function overlapTensors(path: string): void {
  const bytes = readFileSync(path);
  const length = Number(bytes.readBigUInt64LE(0));
  const header: Record<string, { data_offsets?: [number, number] }> = JSON.parse(
    bytes.toString("utf8", 8, 8 + length),
  );
  for (const entry of Object.values(header)) {
    const [begin, end] = entry.data_offsets ?? [0, 0];
    if (begin > 0) entry.data_offsets = [begin - 32, end - 32];
  }
  const text = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([size, text, bytes.subarray(8 + length)]));
}

describe("a sharded checkpoint", () => {
  it("has the report of one file, however its tensors are divided", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...FIXTURES),
        fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 40 }),
        async (fixture, division) => {
          await inFolder(async (folder) => {
            await writeSharded(folder, fixture, (index) => division[index % division.length] ?? 1);
            const {
              path: _,
              shards: _count,
              claim: _claim,
              ...whole
            } = await reportOf(join(VECTORS, fixture));
            for (const path of [folder, join(folder, INDEX)]) {
              const { path: _own, shards, claim: _said, ...otherFields } = await reportOf(path);
              expect(shards).toBeLessThanOrEqual(4);
              const sortLists = (report: typeof whole) => ({
                ...report,
                weights: report.weights.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
                unquantized: report.unquantized.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
                findings: report.findings.map(({ name }) => name).toSorted(),
              });
              expect(sortLists(otherFields)).toEqual(sortLists(whole));
            }
          });
        },
      ),
      { numRuns: draws(15) },
    );
  });

  const PLANTS: readonly (readonly [FindingName, string, (folder: string, index: Index) => void])[] = [
    ["shard-missing", "a shard is missing", (folder) => rmSync(join(folder, "model-1.safetensors"))],
    [
      "shard-damaged",
      "a shard is truncated",
      (folder) => truncateSync(join(folder, "model-1.safetensors"), 3000),
    ],
    [
      "shard-damaged",
      "a shard lost its last byte",
      (folder) => {
        const path = join(folder, "model-1.safetensors");
        truncateSync(path, readFileSync(path).length - 1);
      },
    ],
    ["shard-damaged", "a shard is empty", (folder) => truncateSync(join(folder, "model-1.safetensors"), 0)],
    [
      "shard-damaged",
      "tensors of a shard overlap",
      (folder) => overlapTensors(join(folder, "model-1.safetensors")),
    ],
    [
      "index-absent-tensor",
      "the index promises what no shard has",
      (folder, index) =>
        writeIndex(folder, { ...index, weight_map: { ...index.weight_map, more: "model-1.safetensors" } }),
    ],
    [
      "index-absent-tensor",
      "the index names the wrong shard",
      (folder, index) => {
        const [name = "", file] = Object.entries(index.weight_map)[0] ?? [];
        writeIndex(folder, {
          ...index,
          weight_map: {
            ...index.weight_map,
            [name]: file === "model-1.safetensors" ? "model-2.safetensors" : "model-1.safetensors",
          },
        });
      },
    ],
    [
      "index-unlisted-tensor",
      "the index omits a tensor",
      (folder, index) => {
        const [name = ""] = Object.keys(index.weight_map);
        const { [name]: _, ...map } = index.weight_map;
        writeIndex(folder, { ...index, weight_map: map });
      },
    ],
    [
      "index-total-size",
      "the index has another size",
      (folder, index) => writeIndex(folder, { ...index, metadata: { total_size: 1 } }),
    ],
    [
      "tensor-duplicated",
      "two shards have a tensor",
      (folder, index) => {
        writeFileSync(join(folder, "model-9.safetensors"), readFileSync(join(folder, "model-1.safetensors")));
        writeIndex(folder, { ...index, weight_map: { ...index.weight_map, more: "model-9.safetensors" } });
      },
    ],
  ];
  it.each(PLANTS)("%s: %s", async (name, _, plant) => {
    await inFolder(async (folder) => {
      plant(folder, await writeSharded(folder, "ct-nvfp4", (index) => 1 + (index % 2)));
      const { findings } = await reportOf(folder);
      expect(findings.map((finding) => finding.name)).toContain(name);
    });
  });

  it.each([
    ["names a file elsewhere", { weight_map: { a: "../a.safetensors" } }],
    ["names an absolute path", { weight_map: { a: "/etc/passwd" } }],
    ["names a hidden file", { weight_map: { a: ".a" } }],
    ["names a path with a zero byte", { weight_map: { a: "a\0b" } }],
    ["has no map", {}],
    ["has a list for a map", { weight_map: [] }],
    ["maps to numbers", { weight_map: { a: 1 } }],
    ["is a list", []],
  ])("is refused if its index %s", async (_, index) => {
    await inFolder(async (folder) => {
      writeIndex(folder, index);
      await expect(openCheckpointFiles(folder)).rejects.toThrow(FileError);
    });
  });
});

describe("a folder", () => {
  it("without safetensors files, and a path to nothing, are refused", async () => {
    await inFolder(async (folder) => {
      for (const path of [folder, join(folder, "none"), join(folder, INDEX), "a\0b"])
        await expect(openCheckpointFiles(path)).rejects.toThrow(FileError);
    });
  });

  it("is read with its model.safetensors alone, if there is one", async () => {
    await inFolder(async (folder) => {
      const contents = await readContents(join(VECTORS, "ct-mxfp4"));
      await writeContents(folder, contents);
      writeFileSync(join(folder, "other.safetensors"), "nothing");
      expect((await reportOf(folder)).findings).toEqual([]);
    });
  });
});
