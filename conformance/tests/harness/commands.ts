/** A successful call of every command, for tests of all commands. */
import { type FileTensor, f32, ramp } from "./cli.js";

/** A successful call of each command, on a file `in` of `TENSORS`. */
export const SUCCESSFUL_ARGUMENTS: Readonly<Record<string, readonly string[]>> = {
  info: [],
  dialects: [],
  diff: ["te", "te", "@in"],
  identify: ["@in", "@in", "--tensor", "z", "--codes", "z.bytes", "--scales", "z.exponents"],
  encode: ["@in", "--output", "@out", "--format", "e4m3"],
  decode: ["@in", "--output", "@out", "--format", "e4m3"],
  sweep: ["--format", "e2m1", "--chunks", "0"],
  quantize: ["@in", "--output", "@out", "--quantizer", "mxfp8"],
  dequantize: ["@in", "--output", "@out"],
  gemm: ["@in", "--output", "@out", "--datapath", "exact"],
  compare: ["@in", "@in"],
  explain: ["@in", "--tensor", "a", "--at", "3,17", "--quantizer", "mxfp8"],
  inspect: ["@in"],
  verify: ["@in"],
  convert: ["@in", "--output", "@wide", "--to", "bf16"],
  generate: ["@in", "--prompt", "hello", "--max-tokens", "2"],
  perplexity: ["@in", "--text", "@in"],
  conform: ["--op", "amax", "--runs", "1"],
  fuzz: ["--op", "encode", "--format", "e4m3", "--cases", "1", "--output", "@out"],
  operators: [],
  apply: ["@in", "--output", "@out"],
  replay: ["@in"],
  contract: ["check", "@in"],
  launch: ["@in"],
  serve: ["--stdio"],
  "build-cuda": [],
};

/**
 * Commands whose successful call takes minutes, runs a program or needs a model or a recorded run. Only refused calls are tested
 * for them.
 */
export const SLOW_COMMANDS = [
  "build-cuda",
  "launch",
  "generate",
  "perplexity",
  "apply",
  "replay",
  "contract",
];

/** The tensors of the file that the calls read. */
export const TENSORS: readonly FileTensor[] = [
  f32("a", [32, 32], ramp(1024)),
  f32("b", [32, 32], ramp(1024, 7)),
  f32("z", [32, 32], new Float32Array(1024)),
  { name: "z.bytes", dtype: "U8", shape: [32, 32], bytes: new Uint8Array(1024) },
  { name: "z.exponents", dtype: "U8", shape: [32, 1], bytes: new Uint8Array(32) },
];

/** The successful call of a command with one option replaced. */
export function withOption(
  command: string,
  option: string,
  ...replacement: readonly string[]
): readonly string[] {
  const args = [...(SUCCESSFUL_ARGUMENTS[command] ?? [])];
  const index = args.indexOf(`--${option}`);
  if (index >= 0) args.splice(index, 2);
  return [command, ...args, ...replacement];
}
