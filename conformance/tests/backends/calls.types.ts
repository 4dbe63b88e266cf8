/** Calls that the compiler must refuse, one for each kind of mistake: `npm run check` compiles this file, and nothing runs it. */
import type { Addon, DeviceHandle } from "../../../src/backends/cuda/addon.js";
import type { Pool } from "../../../src/backends/wasm/pool.js";

export function mistakesOfNativeCalls(addon: Addon, device: DeviceHandle, word: number): void {
  const sum = { x: 0, xType: 0, y: 0, yType: 1, out: 0, outType: 2 } as const;
  addon.add(device, { ...sum, count: 1 });
  // @ts-expect-error too few
  addon.add(device, sum);
  // @ts-expect-error too many
  addon.add(device, { ...sum, count: 1, momentum: 3 });
  const more = { ...sum, count: 1, momentum: 3 };
  // @ts-expect-error too many, of a variable
  addon.add(device, more);
  // @ts-expect-error too many, spread
  addon.add(device, { ...more });
  // @ts-expect-error misspelt
  addon.add(device, { ...sum, cuont: 1 });
  // @ts-expect-error none is undefined but what is optional
  addon.add(device, { ...sum, count: undefined });
  // @ts-expect-error no number
  addon.add(device, { ...sum, count: "1" });
  // @ts-expect-error no wide type
  addon.add(device, { ...sum, xType: 7, count: 1 });
  // @ts-expect-error any number, where a wide type is wanted
  addon.add(device, { ...sum, xType: word, count: 1 });
  // @ts-expect-error of another operation
  addon.hadamard(device, { ...sum, count: 1 });
  // @ts-expect-error no such operation
  addon.adds(device, { ...sum, count: 1 });
  // @ts-expect-error in parts
  addon.add(device, sum, { count: 1 });

  const scales = { amaxHistory: 0, scale: 0, length: 1, count: 1, scaledMax: 448 };
  addon.updateScales(device, { ...scales, mostRecent: true });
  // @ts-expect-error a flag is no number
  addon.updateScales(device, { ...scales, mostRecent: 1 });

  const placement = { bytes: 0, lines: 1, blocks: 1, lineStride: 1, blockStride: 1, swizzled: false };
  const from = { scales: 0, placement };
  addon.relayout(device, { wide: true, from, to: from });
  // @ts-expect-error too few of a group
  addon.relayout(device, { wide: true, from, to: { scales: 0 } });
  // @ts-expect-error too many of a group
  addon.relayout(device, { wide: true, from, to: { ...from, codes: 0 } });
  const wider = { ...placement, pitch: 4 };
  // @ts-expect-error too many of a group in a group
  addon.relayout(device, { wide: true, from, to: { scales: 0, placement: wider } });

  const tensor = { x: 0, xType: 0, rows: 1, columns: 1, word, pow2: false, epsilon: 0 } as const;
  addon.quantizeTensor(device, tensor);
  addon.quantizeTensor(device, { ...tensor, scale: undefined, noop: 0 });
  // @ts-expect-error misspelt, where it may be left out
  addon.quantizeTensor(device, { ...tensor, nop: 0 });
}

export function mistakesOfExports(pool: Pool): void {
  const job = { total: 1 };
  const sum = { x: 0, xType: 0, y: 0, yType: 1, out: 0, outType: 2 };
  pool.run("add", job, sum);
  // @ts-expect-error too few
  pool.run("add", job, { x: 0, xType: 0 });
  // @ts-expect-error too many
  pool.run("add", job, { ...sum, momentum: 3 });
  const more = { ...sum, momentum: 3 };
  // @ts-expect-error too many, of a variable
  pool.run("add", job, more);
  // @ts-expect-error what the job gives
  pool.run("add", job, { ...sum, scratch: 0 });
  // @ts-expect-error misspelt
  pool.run("add", job, { x: 0, xType: 0, y: 0, yType: 1, out: 0, outTpye: 2 });
  // @ts-expect-error no number
  pool.run("add", job, { ...sum, outType: "f32" });
  // @ts-expect-error undefined
  pool.run("add", job, { ...sum, out: undefined });
  // @ts-expect-error by position
  pool.run("add", job, [0, 0, 0, 1, 0, 2]);
  // @ts-expect-error of another export
  pool.run("scaled", job, sum);
  // @ts-expect-error no such export
  pool.run("adds", job, sum);

  const scales = { history: 0, scale: 0, length: 1, slots: 1, scaledMax: 448 };
  pool.run("updateScales", job, { ...scales, mostRecent: true });
  // @ts-expect-error a flag is no number
  pool.run("updateScales", job, { ...scales, mostRecent: 1 });

  pool.call("gemmUnits", { task: 0 });
  // @ts-expect-error too few
  pool.call("gemmUnits", {});
  // @ts-expect-error too many
  pool.call("gemmUnits", { task: 0, operand: 1 });
  // @ts-expect-error one that needs working memory and a range
  pool.call("add", sum);
}
