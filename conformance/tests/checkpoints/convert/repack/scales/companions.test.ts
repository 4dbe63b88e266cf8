/** Zero points, group indices and column factors are parts of the values: the codes of a weight that has them are not kept. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { DIALECT_TARGETS, parseTarget } from "../../../../../../src/checkpoints/convert/targets/named.js";
import { conventionOf } from "../../../../../../src/checkpoints/stored/conventions.js";
import { sampleCases } from "../../../../harness/draws.js";
import { useBackend } from "../../../../harness/suite.js";
import {
  convertTo,
  inFolder,
  readContents,
  type StoredTensor,
  transpose,
  valuesIn,
  writeContents,
} from "../../../files/checkpoints.js";
import { addWeight, configFor, contentsOf, drawsFrom, FORMS, type Form } from "../../../files/drawn-files.js";

const backend = useBackend({ threads: 1 });
const SIDE = 64;
const MODULE = "model.layers.0.mlp.down_proj";
const COMPANIONS = ["zeros", "order", "factors"] as const;
type Companion = (typeof COMPANIONS)[number];

/** Whether files of a form have a companion. */
function hasCompanion({ name, kind }: Form, companion: Companion): boolean {
  const row = conventionOf(name);
  if (row[companion] === undefined) return false;
  if (companion === "factors") return true;
  return row.type.startsWith("int") && (kind === "group" || (companion === "zeros" && kind === "row"));
}

/** Whether a target has codes of the same type, takes a matrix of any size, and has the range of drawn values. */
function keepsCodes({ name }: Form, target: (typeof DIALECT_TARGETS)[number]): boolean {
  const { convention } = parseTarget(target).dialectTarget ?? {};
  if (!convention || target === "torchao-nvfp4") return false;
  const { type, transposedWide } = conventionOf(convention);
  return type === conventionOf(name).type && !transposedWide;
}

const CASES = FORMS.flatMap((form) =>
  COMPANIONS.filter((companion) => hasCompanion(form, companion)).flatMap((companion) =>
    DIALECT_TARGETS.filter((target) => keepsCodes(form, target)).map(
      (target) => [form.name, form.kind, companion, target, form] as const,
    ),
  ),
);

describe("the reported changes equal the changes of the values", () => {
  it.each(CASES)("%s, a scale for each %s, with %s, to %s", async (_, __, companion, target, form) => {
    const options = { [companion]: true };
    const tensors = new Map<string, StoredTensor>();
    addWeight(tensors, MODULE, form, [SIDE, SIDE], drawsFrom(1), options);
    await inFolder(async (folder) => {
      await writeContents(folder, contentsOf(tensors, configFor(form, options)));
      const out = join(folder, "out");
      const { changes } = await convertTo(backend(), folder, out, target);
      const [original = []] = (await valuesIn(folder)).values();
      const [converted = []] = (await valuesIn(out)).values();
      const differingValues = [...original].filter((value, i) => value !== converted[i]);
      expect(changes).toMatchObject([{ elements: SIDE * SIDE, changed: differingValues.length }]);
    });
  });
});

/** Every form with each companion that its files have, with all of them, and with none. */
const SETS = FORMS.flatMap((form) => {
  const possibleCompanions = COMPANIONS.filter((companion) => hasCompanion(form, companion));
  const sets =
    possibleCompanions.length > 1
      ? [...possibleCompanions.map((companion) => [companion]), possibleCompanions]
      : [possibleCompanions];
  return [...sets, []].map((set) => [form.name, form.kind, set.join(", "), form] as const);
});
const [WITH, WITHOUT] = [SETS.filter(([, , set]) => set !== ""), SETS.filter(([, , set]) => set === "")];

describe("wide values are computed from codes, scales and companions", () => {
  it.each([...WITH, ...sampleCases(WITHOUT, 8)])(
    "%s, a scale for each %s, with %s",
    async (_, __, set, form) => {
      const options = Object.fromEntries(COMPANIONS.map((companion) => [companion, set.includes(companion)]));
      const tensors = new Map<string, StoredTensor>();
      addWeight(tensors, MODULE, form, [SIDE, SIDE], drawsFrom(1), options);
      await inFolder(async (folder) => {
        await writeContents(folder, contentsOf(tensors, configFor(form, options)));
        const out = join(folder, "out");
        await convertTo(backend(), folder, out, "f32");
        const [values = []] = (await valuesIn(folder)).values();
        const [wideTensor] = (await readContents(out)).tensors.values();
        const { transposedWide } = conventionOf(form.name);
        const expected = Float32Array.from(transposedWide ? transpose(values, SIDE, SIDE) : values);
        expect(Buffer.compare((wideTensor as StoredTensor).bytes, new Uint8Array(expected.buffer))).toBe(0);
      });
    },
  );
});
