/** Reading and writing close every file that they open, whether they succeed or throw. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { loadCheckpoint, saveCheckpoint } from "../../../../src/io/checkpoint.js";
import { SafetensorsFile } from "../../../../src/io/safetensors.js";
import { loadShardedCheckpoint } from "../../../../src/io/sharded/load.js";
import { saveShardedCheckpoint } from "../../../../src/io/sharded/save.js";
import { loadTensors, saveTensors } from "../../../../src/io/tensors.js";
import { Linear } from "../../../../src/modules/linear.js";
import { tensor } from "../../../../src/ops/create.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { partAlong } from "../../../../src/tensor/part.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { draws } from "../../harness/draws.js";
import { useFileSystem } from "../../harness/file-system.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { useFolder } from "../folder.js";

const open = new Set<string>();

/** The file system module, which lists the files that are open. */
useFileSystem((fileSystem) => {
  let numOpened = 0;
  return {
    async open(...args: Parameters<typeof fileSystem.open>) {
      const handle = await fileSystem.open(...args);
      const key = `${++numOpened} ${args[0]}`;
      open.add(key);
      const close = handle.close.bind(handle);
      handle.close = async () => {
        await close();
        open.delete(key);
      };
      return handle;
    },
  };
});

const backends = useBackends(2);
const groups = () => loopbackOver([...backends], 20_000);
let folder = "";
let path = "";
useFolder((createdFolder) => {
  folder = createdFolder;
  path = join(folder, "a.safetensors");
  open.clear();
});

/** Runs `body`, which may throw, and returns the files that it leaves open. */
async function openFilesAfter(body: () => Promise<unknown>): Promise<string[]> {
  await body().catch(() => undefined);
  return [...open];
}

/** Some bytes with one byte changed, or without the last bytes. */
const damagedBytes = (bytes: Uint8Array): fc.Arbitrary<Uint8Array> =>
  fc
    .tuple(fc.nat(bytes.length - 1), fc.integer({ min: 0, max: 255 }), fc.boolean())
    .map(([position, mask, isTruncated]) => {
      if (isTruncated) return bytes.slice(0, position);
      const alteredBytes = bytes.slice();
      alteredBytes[position] = (alteredBytes[position] as number) ^ mask;
      return alteredBytes;
    });

describe("no file stays open", () => {
  it("after a file was read or refused, whichever of its bytes is damaged", async () => {
    const [backend] = backends as readonly [(typeof backends)[0]];
    using scope = new Scope();
    const random = new RandomState(3n);
    const module = scope.keep(new Linear(backend, 32, 32, { dtype: "f32", random }));
    const x = tensor(backend, new Float32Array(1024), [32, 32]);
    const weight = new MXFP8Quantizer().quantize(x);
    await saveTensors(path, { x, weight });
    const tensors = readFileSync(path);
    await saveCheckpoint(path, { module, random });
    const checkpoint = readFileSync(path);
    const file = fc.constantFrom(tensors, checkpoint).chain(damagedBytes);
    await fc.assert(
      fc.asyncProperty(file, async (bytes) => {
        writeFileSync(path, bytes);
        expect(await openFilesAfter(async () => (await SafetensorsFile.open(path)).close())).toEqual([]);
        expect(await openFilesAfter(() => loadCheckpoint(path, { module, random }))).toEqual([]);
        const loading = async () => {
          const loadedFile = await loadTensors(path, backend);
          for (const tensorToFree of loadedFile.tensors.values()) tensorToFree.dispose();
        };
        expect(await openFilesAfter(loading)).toEqual([]);
      }),
      { numRuns: draws(60) },
    );
    module.dispose();
  });

  it.each(["/", "/dev/null", "missing"])("after %s was refused", async (name) => {
    const givenPath = name === "missing" ? join(folder, name) : name;
    expect(await openFilesAfter(() => SafetensorsFile.open(givenPath))).toEqual([]);
  });

  it("after a checkpoint of several ranks was saved, loaded or refused", async () => {
    const createModule = (group: ReturnType<typeof groups>[0], isDivided: boolean) => {
      const module = new Linear(group.backend, 4, 4, {
        dtype: "f32",
        random: new RandomState(3n),
        bias: false,
      });
      if (isDivided)
        for (const parameter of module.parameters())
          parameter.part = partAlong([8, 4], 0, [[4 * group.rank, 4 * group.rank + 4]]);
      return module;
    };
    const onEachRank =
      (run: (folder: string, group: ReturnType<typeof groups>[0]) => Promise<unknown>) => () =>
        Promise.all(groups().map((group) => run(folder, group)));
    const saving = onEachRank(async (target, group) => {
      using module = createModule(group, true);
      await saveShardedCheckpoint(target, { module, group });
    });
    const loading = onEachRank(async (from, group) => {
      using module = createModule(group, true);
      module.parameters()[0]!.part = partAlong([8, 4], 0, [
        [2 * group.rank, 2 * group.rank + 2],
        [4 + 2 * group.rank, 6 + 2 * group.rank],
      ]);
      await loadShardedCheckpoint(from, { module, group });
    });
    await saving();
    expect([...open]).toEqual([]);
    await loading();
    expect([...open]).toEqual([]);
    const files = readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
    expect(files).toHaveLength(3);
    for (const name of files) {
      const bytes = readFileSync(name);
      await fc.assert(
        fc.asyncProperty(damagedBytes(bytes), async (alteredBytes) => {
          writeFileSync(name, alteredBytes);
          expect(await openFilesAfter(loading)).toEqual([]);
        }),
        { numRuns: draws(8) },
      );
      writeFileSync(name, bytes);
    }
  });
});
