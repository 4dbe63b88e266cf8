/** Exactly the missing layers, experts and global scales are found, at any position and under any configuration. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { writeGguf } from "../../../../../src/checkpoints/gguf/writer.js";
import { useBackend } from "../../../harness/suite.js";
import {
  convertTo,
  inFolder,
  readContents,
  reportOf,
  reportOfContents,
  type StoredTensor,
} from "../../files/checkpoints.js";

const backend = useBackend({ threads: 1 });
const MAX_LAYERS = 6;
const WEIGHT: StoredTensor = { dtype: "BF16", shape: [2, 2], bytes: new Uint8Array(8) };
/** The counts that a configuration declares. */
const DECLARED = [undefined, ...Array.from({ length: MAX_LAYERS }, (_, i) => i + 1)];

/** All subsets of the numbers below `count`, except the empty one. */
const subsetsOf = (count: number): readonly (readonly number[])[] =>
  Array.from({ length: 2 ** count - 1 }, (_, i) =>
    Array.from({ length: count }, (_, bit) => bit).filter((bit) => ((i + 1) >> bit) & 1),
  );
/** Every set of numbers that a list of layers or experts may have. */
const SETS = subsetsOf(MAX_LAYERS);

/** The subjects of the findings `kind` about a file of bf16 weights. */
async function subjectsOf(
  kind: string,
  names: readonly string[],
  config: object,
): Promise<readonly string[]> {
  const tensors = new Map(names.map((name) => [name, WEIGHT]));
  const json = new Map([["config.json", { ...config }]]);
  const { findings } = await reportOfContents({ tensors, metadata: {}, json });
  return findings.flatMap(({ name, subject }) => (name === kind ? [subject] : []));
}

// one file has all sets: each set is a list under a prefix
it.each(DECLARED)(
  "a layer is absent if it lies between others, or if the count is %s",
  async (declaredCount) => {
    const names = SETS.flatMap((numbers, i) => numbers.map((n) => `m${i}.model.layers.${n}.up_proj.weight`));
    const absentNames = SETS.flatMap((numbers, i) => {
      const begin = declaredCount === undefined ? Math.min(...numbers) : 0;
      const end = Math.max(declaredCount ?? 0, Math.max(...numbers) + 1);
      const absentNumbers = Array.from({ length: end }, (_, n) => n).filter(
        (n) => n >= begin && !numbers.includes(n),
      );
      return absentNumbers.map((n) => `m${i}.model.layers.${n}`);
    });
    const subjects = await subjectsOf("layer-absent", names, { num_hidden_layers: declaredCount });
    expect(subjects.toSorted()).toEqual(absentNames.toSorted());
  },
);

it.each(DECLARED)(
  "an expert is absent if another one has a larger number, or if the count is %s",
  async (declaredCount) => {
    const names = SETS.flatMap((numbers, i) => numbers.map((n) => `m${i}.mlp.experts.${n}.up_proj.weight`));
    const absentNames = SETS.flatMap((numbers, i) => {
      const end = Math.max(declaredCount ?? 0, Math.max(...numbers) + 1);
      const absentNumbers = Array.from({ length: end }, (_, n) => n).filter((n) => !numbers.includes(n));
      return absentNumbers.map((n) => `m${i}.mlp.experts.${n}`);
    });
    const subjects = await subjectsOf("expert-absent", names, { num_experts: declaredCount });
    expect(subjects.toSorted()).toEqual(absentNames.toSorted());
  },
);

it("an optional global scale is absent if more than half of the weights have one", () =>
  inFolder(async (folder) => {
    const COUNT = 4;
    const nameOf = (i: number): string => `blk.${i}.ffn_up`;
    const tensor: StoredTensor = {
      dtype: "F32",
      shape: [4, 64],
      bytes: new Uint8Array(Float32Array.from({ length: 256 }, (_, i) => Math.sin(i)).buffer),
    };
    const write = async (path: string, tensors: ReadonlyMap<string, StoredTensor>): Promise<void> => {
      const plan = [...tensors].map(([name, { dtype, shape }]) => ({ name, dtype, shape }));
      await writeGguf(path, { tensors: plan, metadata: [] }, async (writeTensor) => {
        for (const [name, { bytes }] of tensors) await writeTensor(name, bytes);
      });
    };
    const plainTensors = new Map(Array.from({ length: COUNT }, (_, i) => [`${nameOf(i)}.weight`, tensor]));
    await write(join(folder, "plain.gguf"), plainTensors);
    await convertTo(backend(), join(folder, "plain.gguf"), join(folder, "nvfp4"), "gguf-nvfp4");
    const { tensors } = await readContents(join(folder, "nvfp4"));
    for (const scaledIndices of [[], ...subsetsOf(COUNT)])
      for (const count of [COUNT, COUNT - 1]) {
        const isKept = (name: string): boolean => {
          const i = Number(/^blk\.(\d+)\./.exec(name)?.[1]);
          return i < count && (scaledIndices.includes(i) || !name.endsWith(".scale"));
        };
        const keptTensors = new Map([...tensors].filter(([name]) => isKept(name)));
        await write(join(folder, "some.gguf"), keptTensors);
        const { findings } = await reportOf(join(folder, "some.gguf"));
        const subjects = findings.flatMap(({ name, subject }) => (name === "scale-absent" ? [subject] : []));
        const unscaledIndices = Array.from({ length: count }, (_, i) => i).filter(
          (i) => !scaledIndices.includes(i),
        );
        const expected =
          2 * unscaledIndices.length < count ? unscaledIndices.map((i) => `${nameOf(i)}.weight`) : [];
        expect(subjects, `${scaledIndices} of ${count}`).toEqual(expected);
      }
  }));
