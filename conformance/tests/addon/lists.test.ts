/** Lists of argument sets: an optimizer's step is one call of the addon, and a call with an invalid set is refused as a whole. */
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { AddonExports, DeviceHandle } from "../../../src/backends/cuda/addon.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import { NATIVE_CALLS, NATIVE_LISTS, type NativeCall } from "../../../src/backends/cuda/native-calls.js";
import { slotsOf } from "../../../src/backends/cuda/native-slots.js";
import { WIDE } from "../../../src/formats/contract.gen.js";
import { Parameter } from "../../../src/modules/parameter.js";
import { zeros } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { clipGradNorm } from "../../../src/optimizers/clip-grad-norm.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { Scope } from "../../../src/tensor/scope.js";
import { inSlots } from "../harness/addon/slots.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

const PARAMETERS = 40;

describeOnStandIn("a list of argument sets", (addon) => {
  let gpu: Backend;
  let calls: (readonly [name: string, sets: number])[] = [];
  const native = (name: NativeCall) => addon[name] as (device: DeviceHandle, slots: Float64Array) => unknown;
  beforeAll(() => {
    const counting = Object.keys(NATIVE_LISTS).map((name) => [
      name,
      (device: DeviceHandle, slots: Float64Array) => {
        calls.push([name, slots.length / slotsOf(NATIVE_CALLS[name as NativeCall]).length]);
        return native(name as NativeCall)(device, slots);
      },
    ]);
    gpu = openCuda({ ...addon, ...Object.fromEntries(counting) } as AddonExports);
  });
  afterAll(() => gpu.dispose());

  /** Parameters of different sizes and types, with gradients. */
  const parameters = (): ReadonlyMap<string, Parameter> =>
    new Map(
      Array.from({ length: PARAMETERS }, (_, i) => {
        const parameter = new Parameter(zeros(gpu, i % 2 === 0 ? "bf16" : "f32", [i + 1]));
        parameter.grad = zeros(gpu, i % 3 === 0 ? "f32" : "bf16", [i + 1]);
        return [`p${i}`, parameter];
      }),
    );

  it.each([
    [
      "adamw",
      () => new AdamW(parameters(), { learningRate: 0.1, groups: [{ parameters: "p1*", beta1: 0.5 }] }),
    ],
    ["sgd", () => new SGD(parameters(), { learningRate: 0.1, momentum: 0.9 })],
  ] as const)(
    "is one call of %s for all parameters of an optimizer, and one for their norm",
    (name, create) => {
      using _ = new Scope();
      using optimizer = create();
      calls = [];
      clipGradNorm(optimizer, 1);
      optimizer.step();
      optimizer.step();
      expect(calls).toEqual([
        ["squareSum", PARAMETERS],
        [name, PARAMETERS],
        [name, PARAMETERS],
      ]);
      for (const { parameter } of optimizer.slots.values()) {
        parameter.zeroGrad();
        parameter.dispose();
      }
    },
  );

  it("is refused if it is empty, has a part of a set, or has one invalid set", () => {
    const device = new addon.Device(0);
    const [x, out] = [addon.allocate(device, 256), addon.allocate(device, 256)];
    const set = (values: Readonly<Record<string, number>>) => [
      ...inSlots("squareSum", { x, count: 8, workspace: out, out: x, ...values }, WIDE.f32),
    ];
    const call = (...numbers: readonly number[]) => native("squareSum")(device, Float64Array.from(numbers));
    const other = { out: out + 64 };
    expect(() => call()).toThrow("sets of 5 slots");
    expect(() => call(...set(other), 0)).toThrow("sets of 5 slots");
    expect(() => call(...set(other), ...set({ x: 4096 }))).toThrow("no live tensor");
    expect(() => call(...set(other), ...set({ workspace: x }))).toThrow("share memory");
    addon.free(device, x);
    addon.free(device, out);
    addon.close(device);
  });
});
