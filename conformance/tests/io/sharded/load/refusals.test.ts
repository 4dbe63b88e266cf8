/**
 * Loading changes nothing if it throws: for a false index with a correct digest, and for a run that the checkpoint does not fit.
 */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import { DisposedError, FileError } from "../../../../../src/errors.js";
import { SafetensorsFile } from "../../../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../../../src/io/safetensors-writer.js";
import {
  type ShardedIndex,
  type StoredPart,
  type StoredTensor,
  shardPath,
} from "../../../../../src/io/sharded/index-file.js";
import { loadShardedCheckpoint } from "../../../../../src/io/sharded/load.js";
import { saveShardedCheckpoint } from "../../../../../src/io/sharded/save.js";
import { Module } from "../../../../../src/modules/module.js";
import { Parameter, wideTensor } from "../../../../../src/modules/parameter.js";
import { AdamW } from "../../../../../src/optimizers/adamw.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { partAlong } from "../../../../../src/tensor/part.js";
import { elementCount } from "../../../../../src/tensor/shape.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { useFolder } from "../../folder.js";

const backends = useBackends(3);
const groupsOf = (size: number): ProcessGroup[] => loopbackOver(backends.slice(0, size), 20_000);

let folder = "";
let path = "";
useFolder((createdFolder) => {
  folder = createdFolder;
  path = join(folder, "checkpoint.index.json");
});

const ROWS = 6;

/** A run with a parameter whose rows are divided among ranks, and one that all ranks have. */
class Run extends Module {
  readonly optimizer: AdamW;
  override readonly random: RandomState;

  constructor(
    readonly group: ProcessGroup,
    readonly firstValue: number,
  ) {
    super(group.backend, { dtype: "f32", random: new RandomState(9n) });
    this.random = new RandomState(BigInt(firstValue), 3n);
    const { backend, rank, size } = group;
    const count = ROWS / size;
    const ownValues = Float32Array.from({ length: count * 2 }, (_, i) => firstValue + 2 * rank * count + i);
    const rows = this.addParameter("rows", new Parameter(wideTensor(backend, ownValues, [count, 2], "f32")));
    rows.part = partAlong([ROWS, 2], 0, [[rank * count, (rank + 1) * count]]);
    this.addParameter(
      "all",
      new Parameter(wideTensor(backend, Float32Array.of(firstValue, 5, 7), [3], "bf16")),
    );
    this.optimizer = new AdamW(this, { learningRate: 0.1 });
    for (const slot of this.optimizer.slots.values()) slot.steps = firstValue;
  }

  get state() {
    const { group, optimizer, random } = this;
    return { module: this, group, optimizer, random };
  }

  /** The tensors, by their names. */
  tensors() {
    const slots = [...this.optimizer.slots].flatMap(([name, { master, buffers }]) =>
      [["master", master] as const, ...buffers].map(([field, x]) => [`${name} ${field}`, x] as const),
    );
    const ownParameters = [...this.namedParameters()].map(([name, { tensor }]) => [name, tensor] as const);
    return new Map([...ownParameters, ...slots]);
  }

  bits(): string {
    const { optimizer, random } = this;
    const values = [...this.tensors()].map(([name, x]) => `${name} ${x.disposed ? "" : x.dataSync()}`);
    return [
      ...values,
      ...[...optimizer.slots.values()].map(({ steps }) => steps),
      random.seed,
      random.offset,
    ].join("\n");
  }

  end(): void {
    this.optimizer.dispose();
    this.dispose();
  }
}

const runsOf = (size: number, firstValue: number): Run[] =>
  groupsOf(size).map((group) => new Run(group, firstValue));
const loadAll = (runs: readonly Run[]) =>
  Promise.all(
    runs.map((run) =>
      loadShardedCheckpoint(folder, run.state)
        .then(() => "loaded")
        .catch((error: unknown) => error),
    ),
  );

async function save(): Promise<void> {
  const runs = runsOf(2, 40);
  await Promise.all(runs.map((run) => saveShardedCheckpoint(folder, run.state)));
  for (const run of runs) run.end();
}

type Json = unknown[] | { [key: string]: unknown };

/** The positions of an index where something can be changed: an object or a list, a key, and the value. */
function placesOf(json: unknown): [Json, string, unknown][] {
  if (typeof json !== "object" || json === null) return [];
  return Object.entries(json).flatMap(([key, value]) => [[json as Json, key, value], ...placesOf(value)]);
}

/** An index with the digest of its contents. */
function textOf(index: object): string {
  const body = JSON.stringify(index).slice(0, -1);
  return `${body},\n"sha256":"${createHash("sha256").update(body).digest("hex")}"}\n`;
}

/** The objects and lists of all tensors except one. */
function equalRanges(tensors: ShardedIndex["tensors"]): ReadonlySet<Json> {
  const otherTensors = Object.entries(tensors).filter(([name]) => name !== "module.rows");
  return new Set(otherTensors.flatMap(([, value]) => placesOf({ value }).map(([object]) => object)));
}

/** The replacements for a value: other values of its kind, which are wrong in most positions. */
function othersOf(value: unknown): readonly unknown[] {
  if (typeof value === "number") return [0, value + 1, -1, 0.5];
  if (typeof value === "string") return ["", "-1", String(2n ** 64n), "U8"];
  return [[], {}, [3], [6, 2], [[0, 3]], [[[0, 3]], [[0, 2]]]];
}

/** Loads on some ranks. If one rank refuses, all must refuse with a FileError and stay unchanged. */
async function outcome(size: number): Promise<"loaded" | "refused"> {
  const runs = runsOf(size, 80);
  try {
    const bitsBefore = runs.map((run) => run.bits());
    const results = await loadAll(runs);
    if (results.every((result) => result === "loaded")) {
      const slots = runs.flatMap(({ optimizer }) => [...optimizer.slots.values()]);
      for (const { steps } of slots) expect(Number.isSafeInteger(steps) && steps >= 0).toBe(true);
      return "loaded";
    }
    for (const result of results) expect(result).toBeInstanceOf(FileError);
    expect(runs.map((run) => run.bits())).toEqual(bitsBefore);
    return "refused";
  } finally {
    for (const run of runs) run.end();
  }
}

describe("a checkpoint that cannot be loaded", () => {
  it("changes nothing and throws FileError on all ranks, whatever its index says", async () => {
    await save();
    const text = readFileSync(path, "utf8");
    const { sha256: _, ...savedIndex } = JSON.parse(text) as ShardedIndex & { sha256: string };
    for (const [placeIndex, [, , value]] of placesOf(savedIndex).entries())
      for (const [i, otherValue] of ["dropped", null, ...othersOf(value)].entries()) {
        const index = structuredClone(savedIndex);
        const [object, key] = placesOf(index)[placeIndex] as [Json, string, unknown];
        if (equalRanges(index.tensors).has(object)) continue;
        if (i > 0) Object.assign(object, { [key]: otherValue });
        else if (Array.isArray(object)) object.splice(Number(key), 1);
        else delete object[key];
        writeFileSync(path, textOf(index));
        await outcome(1 + ((placeIndex + i) % 3)).catch((cause: unknown) => {
          throw new Error(`with ${key} as ${JSON.stringify(otherValue)} in ${JSON.stringify(object)}`, {
            cause,
          });
        });
      }
  });

  it.each([
    ["file", [2, 3], false],
    ["file", [6], false],
    ["file and its index", [6], true],
    ["file and its index", [3], true],
    ["file and its index", [6, 2], true],
  ] as const)("changes nothing if a %s say that rows of [3, 2] are %j", async (_, shape, storedShapes) => {
    await save();
    const { sha256: __, ...index } = JSON.parse(readFileSync(path, "utf8")) as ShardedIndex & {
      sha256: string;
    };
    const bytes = new Uint8Array(4 * elementCount(shape));
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const rows = index.tensors["module.rows"] as StoredTensor;
    const [firstPart, ...otherParts] = rows.parts as [StoredPart, ...StoredPart[]];
    const part = {
      ...firstPart,
      ...(storedShapes ? { stored: shape } : {}),
      copies: firstPart.copies.map((copy) => ({ ...copy, sha256 })),
    };
    const tensors = {
      ...index.tensors,
      "module.rows": { ...rows, parts: [part, ...otherParts] },
    };
    writeFileSync(path, textOf({ ...index, tensors }));
    const shard = shardPath(folder, index, 0);
    const file = await SafetensorsFile.open(shard);
    const plans = [...file.tensors.values()].map((tensor) =>
      tensor.name === "module.rows" ? { ...tensor, shape } : tensor,
    );
    const values = new Map<string, Uint8Array>();
    for (const entry of file.tensors.values()) values.set(entry.name, await file.read(entry));
    await file.close();
    values.set("module.rows", bytes);
    await writeSafetensors(
      shard,
      { tensors: plans.map(({ name, dtype, shape }) => ({ name, dtype, shape })) },
      async (writeTensor) => {
        for (const [name, tensorBytes] of values) await writeTensor(name, tensorBytes);
      },
    );
    for (const size of [1, 2, 3]) expect(await outcome(size)).toBe("refused");
  });

  it("changes nothing if a tensor of the run was disposed of, on whichever rank", async () => {
    await save();
    const [run] = runsOf(1, 0) as [Run];
    const names = [...run.tensors().keys()];
    run.end();
    expect(names).toHaveLength(8);
    for (const name of names)
      for (const rank of [0, 1]) {
        const runs = runsOf(2, 80);
        runs[rank]?.tensors().get(name)?.dispose();
        const bitsBefore = runs.map((run) => run.bits());
        const results = await loadAll(runs);
        expect(results[rank]).toBeInstanceOf(DisposedError);
        expect(results[1 - rank]).toBeInstanceOf(FileError);
        expect(runs.map((run) => run.bits())).toEqual(bitsBefore);
        for (const run of runs) run.end();
      }
  });
});
