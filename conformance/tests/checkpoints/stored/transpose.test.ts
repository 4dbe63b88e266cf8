/** Experts of gpt-oss: quantized matrices are stored as [E, N, K], unquantized ones as [E, K, N]. */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { transposing } from "../../../../src/checkpoints/stored/transpose.js";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import { FileError } from "../../../../src/errors.js";
import { fromBytes } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { share } from "../../arbitraries/share.js";
import { useWorkspace } from "../../harness/cli.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import {
  convertTo,
  readContents,
  reportOf,
  transpose,
  VECTORS,
  valuesIn,
  writeContents,
} from "../files/checkpoints.js";

const w = useWorkspace();
const backend = useBackend({ threads: 1 });
const FIXTURE = join(VECTORS, "gpt-oss");
const WEIGHTS = ["*_proj"];
const GATE_UP = "model.layers.0.mlp.experts.gate_up_proj";

const bits16 = ({ buffer, byteOffset, byteLength }: Uint8Array): Uint16Array =>
  new Uint16Array(buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer);

describe("experts of gpt-oss", () => {
  it("are repacked from codes of the same kind, and refused if a layer has another name", async () => {
    const { plan } = await convertTo(backend(), FIXTURE, w.path("oss"), "gpt-oss");
    expect([...plan.converted.values()]).toEqual(["repacked", "repacked"]);
    expect((await readContents(w.path("oss"))).tensors).toEqual((await readContents(FIXTURE)).tensors);
    await expect(convertTo(backend(), FIXTURE, w.path("oss-ct"), "ct-mxfp4")).rejects.toThrow(
      /does not end in \.weight/,
    );
    const original = join(VECTORS, "original");
    await expect(convertTo(backend(), original, w.path("to-oss"), "gpt-oss")).rejects.toThrow(FileError);
  });

  it.each(["bf16", "f32"])("are [E, K, N] in %s, as transformers has them", async (target) => {
    await convertTo(backend(), FIXTURE, w.path(target), target);
    const { tensors } = await readContents(w.path(target));
    const values = await valuesIn(FIXTURE);
    expect(tensors.get(GATE_UP)?.shape).toEqual([2, 32, 48]);
    for (const [name, elements] of values) {
      const { shape = [], bytes = new Uint8Array() } = tensors.get(name) ?? {};
      const [, columns = 0, rows = 0] = shape;
      const f32Bits = target === "bf16" ? Uint32Array.from(bits16(bytes), (half) => half << 16) : undefined;
      const converted = new Float32Array(f32Bits?.buffer ?? bytes.slice().buffer);
      expect([...converted]).toEqual(transpose(elements, rows, columns));
    }
  });

  it.each(["bf16", "f32"])(
    "return unchanged from %s, and are compared with the wide file",
    async (target) => {
      await convertTo(backend(), FIXTURE, w.path(`${target}-there`), target);
      await convertTo(backend(), w.path(`${target}-there`), w.path(`${target}-back`), "gpt-oss", WEIGHTS);
      expect((await readContents(w.path(`${target}-back`))).tensors).toEqual(
        (await readContents(FIXTURE)).tensors,
      );
      const { weights } = await reportOf(FIXTURE, w.path(`${target}-there`));
      expect(weights.map(({ error }) => error)).toEqual(weights.map(() => ({ relative: 0, max: 0 })));
    },
  );

  it("have the codes of the dialect along K, in matrices of several pieces", async () => {
    const [experts, columns, rows] = [2, 2048, 1100];
    const halves = Uint16Array.from(
      { length: experts * columns * rows },
      (_, i) => (Math.imul(i, 2654435761) >>> 16) & 0xbfff,
    );
    const tensor = {
      dtype: "BF16",
      shape: [experts, columns, rows],
      bytes: new Uint8Array(halves.buffer),
    } as const;
    const name = "m.experts.down_proj";
    await writeContents(w.path("."), { tensors: new Map([[name, tensor]]), metadata: {}, json: new Map() });
    await convertTo(backend(), w.path("."), w.path("pieces"), "gpt-oss", WEIGHTS);
    const { tensors } = await readContents(w.path("pieces"));
    using _scope = new Scope();
    const ownBytes = new Uint8Array(Uint16Array.from(transpose(halves, columns, rows)).buffer);
    const x = fromBytes(backend(), ownBytes, [experts * rows, columns], "bf16");
    const { data, scaleInv } = quantizerOf({ dialect: "gptoss-mxfp4" }).quantize(x).copy("rowwise");
    expect(tensors.get(`${name}_blocks`)?.shape).toEqual([experts, rows, columns / 32, 16]);
    for (const [suffix, madeName] of [
      ["_blocks", data],
      ["_scales", scaleInv],
    ] as const)
      expect(
        Buffer.compare(
          tensors.get(name + suffix)?.bytes ?? new Uint8Array(),
          madeName.dataSync() as Uint8Array,
        ),
      ).toBe(0);
  });

  it("are refused where they are no matrices", async () => {
    const tensor = { dtype: "BF16", shape: [4, 64], bytes: new Uint8Array(512) } as const;
    await writeContents(w.path("."), {
      tensors: new Map([["m.down_proj", tensor]]),
      metadata: {},
      json: new Map(),
    });
    await expect(convertTo(backend(), w.path("."), w.path("two"), "gpt-oss", WEIGHTS)).rejects.toThrow(
      /its shape is \[64,4\]; matrices of experts are needed/,
    );
  });
});

it("matrices in any pieces are transposed", async () => {
  const sizes = fc.tuple(
    fc.integer({ min: 1, max: 3 }),
    fc.integer({ min: 1, max: 130 }),
    fc.integer({ min: 1, max: 130 }),
  );
  const cutShares = fc.array(share, { maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(
      sizes,
      cutShares,
      fc.constantFrom(2 as const, 4 as const),
      async ([count, rows, columns], places, width) => {
        const length = count * rows * columns;
        const elements = Uint32Array.from({ length }, (_, i) =>
          width === 2 ? i & 0xffff : Math.imul(i, 2654435761),
        );
        const typedElements = width === 2 ? Uint16Array.from(elements) : elements;
        const bytes = new Uint8Array(typedElements.buffer);
        const out: number[] = [];
        const write = transposing([count, rows, columns], width, async (matrix) => {
          const matrixBytes = matrix.slice().buffer;
          out.push(...(width === 2 ? new Uint16Array(matrixBytes) : new Uint32Array(matrixBytes)));
        });
        const ends = [
          ...places.map((fraction) => Math.floor(fraction * bytes.length)).toSorted((a, b) => a - b),
          bytes.length,
        ];
        let from = 0;
        for (const end of ends) {
          await write(bytes.subarray(from, end));
          from = end;
        }
        expect(out).toEqual(transpose(typedElements, rows, columns));
      },
    ),
    { numRuns: draws(50) },
  );
});
