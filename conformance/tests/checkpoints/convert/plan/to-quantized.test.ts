/** Projections that loaders fuse have one global scale after a conversion to a convention that needs it. */
import { join } from "node:path";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { DIALECT_TARGETS, parseTarget } from "../../../../../src/checkpoints/convert/targets/named.js";
import { type ConventionName, conventionOf } from "../../../../../src/checkpoints/stored/conventions.js";
import { toFloats } from "../../../../../src/checkpoints/stored/scales.js";
import { derivedSeed, draws } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";
import {
  convertTo,
  errorsIn,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  writeContents,
} from "../../files/checkpoints.js";
import { addWeight, configFor, contentsOf, drawsFrom, STORED_NAMES } from "../../files/drawn-files.js";

const backend = useBackend({ threads: 1 });
const MODULES = ["q_proj", "k_proj", "v_proj"].map((name) => `model.layers.0.self_attn.${name}`);

/** The targets whose projections are fused under one global scale, with their conventions. */
const TARGETS = DIALECT_TARGETS.flatMap((name) => {
  const convention = parseTarget(name).dialectTarget?.convention;
  return convention && conventionOf(convention).global?.fused ? [{ name, convention }] : [];
});
/** The conventions with global scales. */
const SOURCES = STORED_NAMES.filter((name) => conventionOf(name).global !== undefined);

interface Case {
  readonly from: ConventionName;
  readonly target: (typeof TARGETS)[number];
  /** The factors of the global scales of the three projections. */
  readonly factors: readonly number[];
  readonly seed: number;
}

const cases: fc.Arbitrary<Case> = fc.record({
  from: fc.constantFrom(...SOURCES),
  target: fc.constantFrom(...TARGETS),
  factors: fc.array(fc.constantFrom(1, 1, 0.5, 0.75), { minLength: 3, maxLength: 3 }),
  seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
});

const TENSOR = { name: "modelopt-nvfp4", convention: "modelopt-nvfp4" } as const;
/** Projections whose codes and scales could be repacked, each with its own global scale. */
const UNEQUAL: Case = { from: "modelopt-nvfp4", target: TENSOR, factors: [1, 0.75, 1], seed: 1 };

/** The global scale of a module. */
function globalOf(tensors: ReadonlyMap<string, StoredTensor>, module: string, name: ConventionName): number {
  const { bytes } = tensors.get(module + conventionOf(name).global?.suffix) as StoredTensor;
  return toFloats("F32", bytes)[0] as number;
}

/** A file of three projections whose global scales have these factors. */
function projections({ from, factors, seed }: Case): Map<string, StoredTensor> {
  const tensors = new Map<string, StoredTensor>();
  for (const [i, module] of MODULES.entries()) {
    addWeight(tensors, module, { name: from, kind: "group" }, [32, 64], drawsFrom(seed + i));
    const scale = globalOf(tensors, module, from) * (factors[i] as number);
    const tensor = tensors.get(module + conventionOf(from).global?.suffix) as StoredTensor;
    tensor.bytes = new Uint8Array(Float32Array.of(scale).buffer);
  }
  return tensors;
}

it("of q, k and v are equal", async () => {
  await fc.assert(
    fc.asyncProperty(cases, async (testCase) => {
      const { from, target, factors } = testCase;
      await inFolder(async (folder) => {
        const [source, out] = [folder, join(folder, "out")];
        const config = configFor({ name: from, kind: "group" });
        await writeContents(source, contentsOf(projections(testCase), config));
        const { plan } = await convertTo(backend(), source, out, target.name);
        const { tensors } = await readContents(out);
        const globals = MODULES.map((module) => globalOf(tensors, module, target.convention));
        expect(new Set(globals).size, String(globals)).toBe(1);
        expect(errorsIn((await reportOf(out)).findings)).toEqual([]);
        // codes are kept only if all projections had one global scale
        const conversions = new Set(plan.converted.values());
        expect(conversions.size).toBe(1);
        if (new Set(factors).size > 1) expect([...conversions]).toEqual(["quantized"]);
        else if (from === target.convention) expect([...conversions]).toEqual(["repacked"]);
      });
    }),
    { numRuns: draws(100, 6), seed: derivedSeed(361), examples: [[UNEQUAL]] },
  );
});
