// The cases of the benchmark. A case has a name, a function that does the work of one call, and the baseline to compare
// it with in the same run.
import {
  add,
  attention,
  attentionBackward,
  empty,
  Float8BlockQuantizer,
  factsOf,
  gemm,
  MXFP8Quantizer,
  NVFP4Quantizer,
  rmsNorm,
  Scope,
  tensor,
} from "lockstep";

/** Sizes of f32 input. The first fits in the L2 cache; the second exceeds all caches and is read from memory. */
export const PLACES = [
  { place: "L2", rows: 256, columns: 512 },
  { place: "DRAM", rows: 4096, columns: 4096 },
];

/** Reproducible pseudorandom values of either sign around 1 over a few binades (xorshift32; not Math.random). */
function values(count, seed = 1) {
  const out = new Float32Array(count);
  let state = seed;
  for (let i = 0; i < count; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    out[i] = ((state | 0) / 2 ** 31) * 2 ** ((state & 7) - 3);
  }
  return out;
}

/** Cases of `encode`: the reference's exports on one thread, compared with its scalar loop and with a plain copy. */
export function encodeCases(backend, pool, { place, rows, columns }) {
  const count = rows * columns;
  const source = tensor(backend, values(count), [count]);
  const codes = empty(backend, "bf16", [count]);
  const [from, to] = [new Uint8Array(count * 4), new Uint8Array(count * 4)];
  const call = (name, format, times) => {
    const { word } = factsOf(format);
    const part = count / times;
    const draws = { seedLo: 0, seedHi: 0, offsetLo: 0, offsetHi: 0, copy: 0 };
    const policy = { word, rounding: 0, overflow: 0, scale: 1, draws };
    const args = { src: source.address, srcType: 0, dst: codes.address, ...policy };
    return () => pool.run(name, { total: part }, args);
  };
  const row = (name, run, more = {}) => ({
    name: `${name} ${place}`,
    unit: "GB/s",
    work: count * 4,
    run,
    ...more,
  });
  const formats = ["e4m3", "e2m1", "bf16", "f16", "e5m2"];
  return [
    row("memcpy", () => to.set(from)),
    ...formats.flatMap((format) => [
      row(`encode ${format}`, call("encode", format, 1), {
        ceiling: `memcpy ${place}`,
        baseline: `scalar ${format} ${place}`,
      }),
      row(`scalar ${format}`, call("encodeScalar", format, 1)),
    ]),
  ];
}

/** Cases of quantizers through the public API, with preallocated outputs. */
export function quantizeCases(backend, { place, rows, columns }) {
  const source = tensor(backend, values(rows * columns, 2), [rows, columns]);
  const quantizers = [
    ["mxfp8 rowwise", new MXFP8Quantizer()],
    ["mxfp8 columnwise", new MXFP8Quantizer({ rowwise: false, columnwise: true })],
    ["nvfp4 rowwise", new NVFP4Quantizer()],
    ["fp8-block rowwise", new Float8BlockQuantizer()],
  ];
  return quantizers.map(([name, quantizer]) => {
    const target = quantizer.makeEmpty(backend, [rows, columns], "f32");
    return {
      name: `${name} ${place}`,
      unit: "GB/s",
      work: rows * columns * 4,
      ceiling: `memcpy ${place}`,
      run: () => quantizer.updateQuantized(source, target),
    };
  });
}

/** A tensor of pseudorandom bf16 values. */
function bf16Tensor(backend, shape, seed) {
  const count = shape.reduce((product, size) => product * size, 1);
  const bits = new Uint32Array(values(count, seed).buffer);
  return tensor(
    backend,
    Uint16Array.from(bits, (b) => b >>> 16),
    shape,
    "bf16",
  );
}

/**
 * Cases of a decode step through the public API, as a language model of 576 channels computes one for each token: products of
 * few rows, whose baseline is a product of 256 rows, and calls of other operations, in thousands per second.
 */
export function decodeCases(backend) {
  const scoped = (name, unit, work, body) => ({
    name,
    unit,
    work,
    run: () => {
      const scope = new Scope();
      body();
      scope.dispose();
    },
  });
  const product = (m, n, k) => {
    const [x, w] = [bf16Tensor(backend, [m, k], 13), bf16Tensor(backend, [n, k], 14)];
    const options = { outDtype: "bf16", datapath: "hopper" };
    return scoped(`gemm hopper bf16 ${m}x${n}x${k}`, "GMAC/s", m * n * k, () => gemm({ x, w, ...options }));
  };
  const quantized = (name, quantizer) => {
    const [x, w] = [
      [1, 576],
      [1536, 576],
    ].map((shape) => quantizer.quantize(bf16Tensor(backend, shape, 15)));
    const options = { outDtype: "bf16", datapath: "hopper" };
    return scoped(`gemm hopper ${name} 1x1536x576`, "GMAC/s", 1536 * 576, () => gemm({ x, w, ...options }));
  };
  const large = product(256, 1536, 576);
  const shapes = [
    [1, 576, 576],
    [1, 1536, 576],
    [1, 576, 1536],
    [1, 49152, 576],
    [4, 1536, 576],
    [8, 1536, 576],
  ];
  const row = bf16Tensor(backend, [1, 576], 16);
  const gain = bf16Tensor(backend, [576], 17);
  const query = bf16Tensor(backend, [1, 1, 9, 64], 18);
  const call = (name, body) => scoped(name, "1000 calls/s", 1e6, body);
  const attend = (count) => {
    const [k, v] = [19, 20].map((seed) => bf16Tensor(backend, [1, count, 3, 64], seed));
    return call(`attention of one query, ${count} keys`, () => attention(query, k, v));
  };
  const [x16, w16] = [bf16Tensor(backend, [1, 16], 21), bf16Tensor(backend, [16, 16], 22)];
  return [
    large,
    ...shapes.map((shape) => ({ ...product(...shape), baseline: large.name })),
    quantized("mxfp8", new MXFP8Quantizer()),
    quantized("nvfp4", new NVFP4Quantizer()),
    call("gemm 1x16x16", () => gemm({ x: x16, w: w16, outDtype: "bf16" })),
    call("add 1x576", () => add(row, row)),
    call("rmsNorm 1x576", () => rmsNorm(row, gain)),
    attend(64),
    attend(512),
  ];
}

/** Cases of GEMMs through the public API. The unit is multiply-adds per second. */
export function gemmCases(backend, size, suffix) {
  const random = (seed, dtype) => tensor(backend, values(size * size, seed), [size, size], dtype);
  const fp8 = (seed) => {
    const codes = new Uint8Array(size * size);
    values(size * size, seed).forEach((v, i) => {
      const code = Math.floor(Math.abs(v) * 1e4) & 0x7f;
      codes[i] = (code > 0x7e ? 0x38 : code) | (v < 0 ? 0x80 : 0);
    });
    return tensor(backend, codes, [size, size], "e4m3");
  };
  const bf16 = (seed) => bf16Tensor(backend, [size, size], seed);
  const work = size ** 3;
  const product = (name, a, b, options, scale = 1, unit = "GMAC/s") => ({
    name: `${name} ${size}³ ${suffix}`,
    unit,
    work: work * scale,
    run: () => {
      const scope = new Scope();
      gemm({ a, b, outDtype: "f32", ...options });
      scope.dispose();
    },
  });
  const [a8, b8, a16, b16] = [fp8(3), fp8(4), bf16(5), bf16(6)];
  const [a32, b32] = [random(7), random(8)];
  return [
    product("gemm hopper fp8", a8, b8, { datapath: "hopper" }),
    product("gemm hopper fp8 split accumulator", a8, b8, { datapath: "hopper", useSplitAccumulator: true }),
    product("gemm hopper bf16", a16, b16, { datapath: "hopper" }),
    product("gemm exact fp8", a8, b8, { datapath: "exact" }),
    product("gemm fp32", a32, b32, { datapath: "fp32" }, 2, "GFLOP/s"),
  ];
}

/**
 * Cases of attention by the public API: causal and full, 2 heads of 128. The unit is multiply-adds per second of all products.
 */
export function attentionCases(backend, length, suffix) {
  const half = (seed) => bf16Tensor(backend, [1, length, 2, 128], seed);
  const [q, k, v, grad] = [half(9), half(10), half(11), half(12)];
  const { out, lse } = attention(q, k, v);
  const pairs = 2 * length * length * 128;
  const scoped = (name, work, body) => ({
    name: `${name} ${length} ${suffix}`,
    unit: "GMAC/s",
    work,
    run: () => {
      const scope = new Scope();
      body();
      scope.dispose();
    },
  });
  return [
    scoped("attention bf16", 2 * pairs, () => attention(q, k, v)),
    scoped("attention bf16 causal", pairs, () => attention(q, k, v, { causal: true })),
    scoped("attention bf16 backward", 5 * pairs, () => attentionBackward(grad, q, k, v, out, lse)),
  ];
}
