/**
 * The addon accepts an address range if it lies inside of one live tensor and has the alignment of the widest access
 * that kernels use there.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { AddonExports, DeviceHandle } from "../../../src/backends/cuda/addon.js";
import { namingArguments } from "../../../src/backends/cuda/addon.js";
import { namedWords } from "../../../src/backends/cuda/gemm/plan.js";
import { WIDE } from "../../../src/formats/contract.gen.js";
import { factsOf } from "../../../src/formats/derive.js";
import { inSlots } from "../harness/addon/slots.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

describeOnStandIn("an address", (exports: AddonExports) => {
  const addon = namingArguments(exports);

  const withBlock = (bytes: number, body: (device: DeviceHandle, address: number) => void): void => {
    const device = new addon.Device(0);
    body(device, addon.allocate(device, bytes));
    addon.close(device);
  };

  it("is accepted for a kernel's operand only if it is aligned and all its bytes are allocated, and for a copy only if all its bytes are allocated", () => {
    const BLOCK = 300;
    withBlock(BLOCK, (device, address) => {
      const out = addon.allocate(device, 4 * BLOCK);
      fc.assert(
        fc.property(
          fc.integer({ min: -40, max: 340 }),
          fc.integer({ min: 0, max: 340 }),
          fc.constantFrom("f32" as const, "bf16" as const, "f16" as const),
          (offset, count, dtype) => {
            const bytes = count * (dtype === "f32" ? 4 : 2);
            const isInside = offset >= 0 && offset <= BLOCK && offset + bytes <= BLOCK;
            const width = Math.min(16, 2 ** Math.floor(Math.log2(Math.max(bytes, 1))));
            const operand = { address: address + offset, dtype } as const;
            const sum = { x: operand, y: operand, out: { address: out, dtype: "f32" }, count } as const;
            const runAdd = () => addon.add(device, sum);
            const runCopy = () => addon.readSync(device, address + offset, bytes);
            if (isInside && offset % width === 0) runAdd();
            else expect(runAdd).toThrow(isInside ? /multiple of/ : /no live tensor|are needed/);
            if (isInside) expect(runCopy()).toHaveLength(bytes);
            else expect(runCopy).toThrow(/no live tensor|are needed/);
          },
        ),
        {
          numRuns: 3000,
          seed: 1,
          examples: [
            [4, 4, "f32"],
            [4, 1, "f32"],
            [8, 3, "f32"],
            [2, 1, "bf16"],
            [15, 0, "f32"],
            [300, 0, "f32"],
          ],
        },
      );
    });
  });

  it("is refused after its memory was freed, and if it belongs to another backend", () => {
    withBlock(4096, (device, address) => {
      withBlock(4096, (_, otherAddress) => {
        addon.free(device, address);
        for (const x of [address, otherAddress])
          expect(() => addon.fill(device, { to: x, bytes: 16, value: 1 })).toThrow(/no live tensor/);
      });
    });
  });

  it("of a workspace that the addon allocates overlaps no tensor: a product changes its result and no other tensor", () => {
    withBlock(64, (device) => {
      const operands = [0, 1, 2].map(() => addon.allocate(device, 64 * 64 * 2)) as [number, number, number];
      const canaries = Array.from({ length: 20 }, () => addon.allocate(device, 4096));
      const size = { m: 64, n: 64, k: 64, batch: 1, transposeA: true, transposeB: false };
      const options = { tf32: false, fastAccumulation: false, deviceScalars: false };
      const pitches = { aPitch: 64, bPitch: 64, cPitch: 64, dPitch: 64 };
      const types = { aType: 14, bType: 14, cType: 14, dType: 14 };
      for (const canary of canaries) addon.fill(device, { to: canary, bytes: 4096, value: 0x33 });
      const plan = addon.gemmPlan(device, { ...size, ...options, ...pitches, ...types });
      const search = { plan, count: 8, schemes: 7, alignment: 256, workspace: 2 ** 26 };
      const workspaces = addon.gemmCandidates(device, search).map(({ words: planWords, workspace }) => {
        addon.gemmChoose(device, { plan, ...namedWords(planWords) });
        const [a, b, d] = operands;
        addon.gemm(device, { plan, a, aOffset: 0, b, bOffset: 0, d, alpha: 1, beta: 0 });
        return workspace;
      });
      expect(workspaces).toEqual([0, 4096, 8192]);
      for (const canary of canaries)
        expect(addon.readSync(device, canary, 4096).every((byte) => byte === 0x33)).toBe(true);
    });
  });

  it("of a workspace of the caller must not overlap any other argument", () => {
    const sizes = { rows: 8, columns: 8, count: 8, vocabulary: 8, first: 0 };
    const pointers = {
      embeddingBackward: ["grad", "ids", "out"],
      columnSum: ["x", "out"],
      squareSum: ["x", "out"],
      normBackward: ["grad", "x", "gamma", "mean", "rstd", "dx", "dgamma", "dbeta"],
      quantizeTensor: ["x", "rowwise", "rowwiseScaleInv", "scale", "amax", "amaxOut"],
    } as const;
    withBlock(2 ** 16, (device, address) => {
      for (const operation of Object.keys(pointers) as (keyof typeof pointers)[]) {
        const names = pointers[operation];
        const scales = { rule: 0, scaling: 0, epsilon: 0, pow2: 0 };
        const numbers = { ...sizes, word: factsOf("e4m3").word, ...scales, zeroCentered: 0 };
        const addresses = Object.fromEntries(names.map((name, i) => [name, address + 4096 * i]));
        const call = (workspace: number) =>
          exports[operation](device, inSlots(operation, { ...numbers, ...addresses, workspace }, WIDE.f32));
        call(address + 4096 * names.length);
        for (const name of names)
          expect(() => call(addresses[name] as number), `${operation} ${name}`).toThrow(/share memory/);
      }
    });
  });
});
