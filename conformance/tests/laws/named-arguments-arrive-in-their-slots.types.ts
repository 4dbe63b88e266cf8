/** Calls that must not compile, one for each kind of mistake. `npm run check` compiles this file; nothing runs it. */
import type { Addon, DeviceHandle } from "../../../src/backends/cuda/addon.js";
import type { Pool } from "../../../src/backends/wasm/pool.js";

export function mistakesOfNativeCalls(addon: Addon, device: DeviceHandle, word: number): void {
  const f32 = { address: 0, dtype: "f32" } as const;
  const sum = { x: f32, y: f32, out: f32 } as const;
  addon.add(device, { ...sum, count: 1 });
  // a tensor has more properties than a call needs
  addon.add(device, { ...sum, x: { ...f32, shape: [1] }, count: 1 });
  // @ts-expect-error too few arguments
  addon.add(device, sum);
  // @ts-expect-error an unknown argument
  addon.add(device, { ...sum, count: 1, momentum: 3 });
  const extraFields = { ...sum, count: 1, momentum: 3 };
  // @ts-expect-error an unknown argument, passed in a variable
  addon.add(device, extraFields);
  // @ts-expect-error an unknown argument, passed by a spread
  addon.add(device, { ...extraFields });
  // @ts-expect-error a misspelt argument
  addon.add(device, { ...sum, cuont: 1 });
  // @ts-expect-error undefined for an argument that is not optional
  addon.add(device, { ...sum, count: undefined });
  // @ts-expect-error a string for a number
  addon.add(device, { ...sum, count: "1" });
  // @ts-expect-error a tensor of another dtype
  addon.add(device, { ...sum, x: { address: 0, dtype: "i32" }, count: 1 });
  // @ts-expect-error an address for a tensor
  addon.add(device, { ...sum, x: 0, count: 1 });
  const norm = {
    gamma: f32,
    rstd: f32,
    epsilon: 0,
    zeroCentered: false,
    x: f32,
    out: f32,
    rows: 1,
    columns: 1,
  } as const;
  addon.norm(device, { ...norm, parameterType: 0 });
  // @ts-expect-error a number that is no wide type
  addon.norm(device, { ...norm, parameterType: 7 });
  // @ts-expect-error a variable of type number for a wide type
  addon.norm(device, { ...norm, parameterType: word });
  // @ts-expect-error the arguments of another operation
  addon.hadamard(device, { ...sum, count: 1 });
  // @ts-expect-error an unknown operation
  addon.adds(device, { ...sum, count: 1 });
  // @ts-expect-error arguments in two objects
  addon.add(device, sum, { count: 1 });

  const scales = { amaxHistory: f32, scale: f32, length: 1, count: 1, scaledMax: 448 };
  addon.updateScales(device, { ...scales, mostRecent: true });
  // @ts-expect-error a number for a boolean
  addon.updateScales(device, { ...scales, mostRecent: 1 });

  const placement = { bytes: 0, lines: 1, blocks: 1, lineStride: 1, blockStride: 1, swizzled: false };
  const from = { data: f32, placement };
  addon.relayout(device, { unit: 4, from, to: from });
  // @ts-expect-error too few arguments in a group
  addon.relayout(device, { unit: 4, from, to: { data: f32 } });
  // @ts-expect-error an unknown argument in a group
  addon.relayout(device, { unit: 4, from, to: { ...from, codes: 0 } });
  const widerPlacement = { ...placement, pitch: 4 };
  // @ts-expect-error an unknown argument in a nested group
  addon.relayout(device, { unit: 4, from, to: { data: f32, placement: widerPlacement } });

  const quantizedTask = { word, rule: 0, scaling: 0, pow2: false, epsilon: 0 } as const;
  const tensor = { x: f32, rows: 1, columns: 1, ...quantizedTask } as const;
  addon.quantizeTensor(device, tensor);
  addon.quantizeTensor(device, { ...tensor, scale: undefined, noop: f32 });
  // @ts-expect-error a misspelt optional argument
  addon.quantizeTensor(device, { ...tensor, nop: f32 });
}

export function mistakesOfExports(pool: Pool): void {
  const job = { total: 1 };
  const sum = { x: 0, xType: 0, y: 0, yType: 1, out: 0, outType: 2 };
  pool.run("add", job, sum);
  // @ts-expect-error too few arguments
  pool.run("add", job, { x: 0, xType: 0 });
  // @ts-expect-error an unknown argument
  pool.run("add", job, { ...sum, momentum: 3 });
  const extraFields = { ...sum, momentum: 3 };
  // @ts-expect-error an unknown argument, passed in a variable
  pool.run("add", job, extraFields);
  // @ts-expect-error an argument that the job itself supplies
  pool.run("add", job, { ...sum, scratch: 0 });
  // @ts-expect-error a misspelt argument
  pool.run("add", job, { x: 0, xType: 0, y: 0, yType: 1, out: 0, outTpye: 2 });
  // @ts-expect-error a string for a number
  pool.run("add", job, { ...sum, outType: "f32" });
  // @ts-expect-error undefined for an argument
  pool.run("add", job, { ...sum, out: undefined });
  // @ts-expect-error arguments by position
  pool.run("add", job, [0, 0, 0, 1, 0, 2]);
  // @ts-expect-error the arguments of another export
  pool.run("scaled", job, sum);
  // @ts-expect-error an unknown export
  pool.run("adds", job, sum);

  const scales = { history: 0, scale: 0, length: 1, slots: 1, scaledMax: 448 };
  pool.run("updateScales", job, { ...scales, mostRecent: true });
  // @ts-expect-error a number for a boolean
  pool.run("updateScales", job, { ...scales, mostRecent: 1 });

  const largest = { src: 0, type: 0, count: 1 };
  pool.call("largestBits", largest);
  // @ts-expect-error too few arguments
  pool.call("largestBits", {});
  // @ts-expect-error an unknown argument
  pool.call("largestBits", { ...largest, operand: 1 });

  const draws = { seedLo: 0, seedHi: 0, offsetLo: 0, offsetHi: 0, copy: 0 };
  const dropout = { x: 0, xType: 0, out: 0, outType: 0, threshold: 0, keep: 1 };
  pool.run("dropout", job, { ...dropout, draws });
  // @ts-expect-error too few arguments in a record
  pool.run("dropout", job, { ...dropout, draws: { seedLo: 0 } });
  // @ts-expect-error an unknown argument in a record
  pool.run("dropout", job, { ...dropout, draws: { ...draws, step: 0 } });
  // @ts-expect-error a number for a record
  pool.run("dropout", job, { ...dropout, draws: 0 });
  // @ts-expect-error an export that needs scratch memory and a range
  pool.call("add", sum);
}
