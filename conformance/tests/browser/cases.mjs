// Functions that run in a page and in Node with the built package. Each returns a digest of every bit of its results.

import {
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  gemm,
  MXFP8Quantizer,
  NVFP4Quantizer,
  openBackend,
  Scope,
  tensor,
} from "lockstep";
import { platform } from "#platform";

const both = { rowwise: true, columnwise: true };

const QUANTIZERS = {
  mxfp8: () => new MXFP8Quantizer(both),
  nvfp4: () => new NVFP4Quantizer(both),
  "fp8-block": () => new Float8BlockQuantizer(both),
  "fp8-current": () => new Float8CurrentScalingQuantizer(both),
};

export const QUANTIZER_NAMES = Object.keys(QUANTIZERS);

/** Opens a backend with these options; returns its properties and the digest of each case. */
export async function answers(options, cases) {
  const backend = await openBackend("wasm", options);
  const digests = [];
  for (const each of cases) digests.push(await answer(backend, each));
  const { threads, fewerThreads, description } = backend;
  const { live } = backend.memoryUse();
  await backend.dispose();
  return { threads, fewerThreads, description, live, digests };
}

/** The code and message of the error that opening a backend with these options throws. */
export async function refusal(options) {
  try {
    const backend = await openBackend("wasm", options);
    await backend.dispose();
  } catch ({ code, message }) {
    return { code, message };
  }
  return undefined;
}

/** The error of a call whose first worker throws out of its loop, and the error of the next call. */
export async function death() {
  const { spawn } = platform;
  // the worker sleeps once before its first job
  const dying = (body) => `(data) => {
    const { wait } = Atomics;
    Atomics.wait = (...args) => { wait.apply(Atomics, args); throw new Error("broken"); };
    return (${body})(data);
  }`;
  let started = 0;
  platform.spawn = (body, data) => spawn.call(platform, started++ === 0 ? dying(body) : body, data);
  try {
    const backend = await openBackend("wasm", { threads: 3 });
    const call = () => {
      try {
        new MXFP8Quantizer().quantize(tensor(backend, new Float32Array(2 ** 20), [1024, 1024]));
      } catch ({ code, message }) {
        return { code, message };
      }
      return undefined;
    };
    const errors = [call(), call()];
    await backend.dispose();
    return errors;
  } finally {
    platform.spawn = spawn;
  }
}

/** Quantizes two operands of given bits and multiplies them; returns a digest of codes, scales and product. */
async function answer(backend, { quantizer, rows, columns, depth, bits, outDtype }) {
  const scope = new Scope();
  try {
    const operand = (count, from) => {
      const words = Uint32Array.from({ length: count * depth }, (_, i) => bits[(from + i * 7) % bits.length]);
      const x = tensor(backend, new Float32Array(words.buffer), [count, depth]);
      return QUANTIZERS[quantizer]().quantize(x);
    };
    const [a, b] = [operand(rows, 0), operand(columns, 3)];
    const { out } = gemm({ a, b, outDtype });
    const copies = [a, b].flatMap((x) => [x.rowwise, x.columnwise]).filter((copy) => copy);
    const parts = [...copies.flatMap(({ data, scaleInv }) => [data, scaleInv]), out];
    return await digestOf(parts.map((part) => part.dataSync()));
  } finally {
    scope.dispose();
  }
}

async function digestOf(arrays) {
  const whole = await new Blob(arrays).arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
