// Records the cuBLASLt call of a product of the public interface, and enqueues it again from a C++ loop with the same plan,
// algorithm and operands. Import this module before a backend is opened, because opening binds the addon's functions.

import { NATIVE_CALLS } from "../../dist/src/backends/cuda/native-calls.js";
import { slotsOf } from "../../dist/src/backends/cuda/native-slots.js";
import { platform } from "../../dist/src/backends/platform/node.js";

const { exports: addon } = platform.loadAddon();
const multiply = addon?.gemm;
const TIMES = slotsOf(NATIVE_CALLS.gemm).findIndex(({ name }) => name === "times");
/** While a product is recorded: takes the arguments of the cuBLASLt call. */
let record;

if (addon) {
  addon.gemm = (device, slots) => {
    record?.(device, slots);
    return multiply(device, slots);
  };
}

/** A function that enqueues the last product of `run` a given number of times. The operands have to stay alive. */
export function loopOf(run) {
  let device;
  let slots;
  record = (...args) => {
    device = args[0];
    slots = args[1].slice();
  };
  run();
  record = undefined;
  return (times) => {
    slots[TIMES] = times;
    multiply(device, slots);
  };
}
