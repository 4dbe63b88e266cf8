/** The stages of recorded layers in float64, from their recorded inputs. It shares no code with the library. */
import type { Shape } from "../../../../../src/tensor/shape.js";
import type { StageOptions } from "./witness.js";

/** A tensor in float64. */
export interface Float64 {
  readonly values: Float64Array;
  readonly shape: Shape;
}

type Inputs = (name: string) => Float64;
type Results = Readonly<Record<string, Float64Array>>;

const columnCount = ({ shape }: Float64): number => shape.at(-1) as number;
const elementAt = (values: Float64Array, i: number): number => values[i] as number;

/** Values computed one by one. */
function tabulate(count: number, compute: (i: number) => number): Float64Array {
  return Float64Array.from({ length: count }, (_, i) => compute(i));
}

function sumOver(count: number, term: (i: number) => number): number {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += term(i);
  return sum;
}

function columnSums(values: Float64Array, columns: number): Float64Array {
  const sums = new Float64Array(columns);
  values.forEach((value, i) => {
    sums[i % columns] = elementAt(sums, i % columns) + value;
  });
  return sums;
}

function normForward(input: Inputs, eps: number, isLayer: boolean): Results {
  const x = input("x");
  const [n, gamma] = [columnCount(x), input("gamma").values];
  const beta = isLayer ? input("beta").values : undefined;
  const rows = x.values.length / n;
  const mean = tabulate(rows, (r) => (isLayer ? sumOver(n, (i) => elementAt(x.values, r * n + i)) / n : 0));
  const rstd = tabulate(
    rows,
    (r) =>
      1 / Math.sqrt(sumOver(n, (i) => (elementAt(x.values, r * n + i) - elementAt(mean, r)) ** 2) / n + eps),
  );
  const out = x.values.map((value, i) => {
    const [r, c] = [Math.floor(i / n), i % n];
    return (
      (value - elementAt(mean, r)) * elementAt(rstd, r) * elementAt(gamma, c) +
      (beta ? elementAt(beta, c) : 0)
    );
  });
  return { out, rstd, ...(isLayer ? { mean } : {}) };
}

/** The gradient of a norm from the recorded mean and rstd. */
function normBackward(input: Inputs, isLayer: boolean): Results {
  const [grad, x, gamma] = [input("grad").values, input("x"), input("gamma").values];
  const [n, rstd] = [columnCount(x), input("rstd").values];
  const mean = isLayer ? input("mean").values : undefined;
  const normalized = x.values.map((value, i) => {
    const r = Math.floor(i / n);
    return (value - (mean ? elementAt(mean, r) : 0)) * elementAt(rstd, r);
  });
  const scaled = grad.map((value, i) => value * elementAt(gamma, i % n));
  const rows = x.values.length / n;
  const meanOfScaled = tabulate(rows, (r) =>
    isLayer ? sumOver(n, (i) => elementAt(scaled, r * n + i)) / n : 0,
  );
  const meanOfProducts = tabulate(
    rows,
    (r) => sumOver(n, (i) => elementAt(scaled, r * n + i) * elementAt(normalized, r * n + i)) / n,
  );
  const dx = scaled.map((value, i) => {
    const r = Math.floor(i / n);
    return (
      elementAt(rstd, r) *
      (value - elementAt(meanOfScaled, r) - elementAt(normalized, i) * elementAt(meanOfProducts, r))
    );
  });
  const dgamma = columnSums(
    grad.map((value, i) => value * elementAt(normalized, i)),
    n,
  );
  return { dx, dgamma, ...(isLayer ? { dbeta: columnSums(grad, n) } : {}) };
}

interface Scalar {
  readonly value: (x: number) => number;
  readonly derivative: (x: number) => number;
}

const ROOT = Math.sqrt(2 / Math.PI);
const CUBIC = 0.044715;
const GELU: Scalar = {
  value: (x) => 0.5 * x * (1 + Math.tanh(ROOT * (x + CUBIC * x ** 3))),
  derivative: (x) => {
    const t = Math.tanh(ROOT * (x + CUBIC * x ** 3));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * CUBIC * x * x);
  },
};
const SILU: Scalar = {
  value: (x) => x / (1 + Math.exp(-x)),
  derivative: (x) => {
    const s = 1 / (1 + Math.exp(-x));
    return s * (1 + x * (1 - s));
  },
};
const ACTIVATIONS: Readonly<Record<string, Scalar & { readonly gated: boolean }>> = {
  gelu: { ...GELU, gated: false },
  geglu: { ...GELU, gated: true },
  silu: { ...SILU, gated: false },
  swiglu: { ...SILU, gated: true },
};

function activate(input: Inputs, name: string): Results {
  const { value, gated } = ACTIVATIONS[name] as (typeof ACTIVATIONS)[string];
  const x = input("x");
  if (!gated) return { out: x.values.map(value) };
  const n = columnCount(x) / 2;
  const index = (i: number): number => Math.floor(i / n) * 2 * n + (i % n);
  return {
    out: tabulate(
      x.values.length / 2,
      (i) => value(elementAt(x.values, index(i))) * elementAt(x.values, index(i) + n),
    ),
  };
}

function activationGradient(input: Inputs, name: string): Results {
  const { value, derivative, gated } = ACTIVATIONS[name] as (typeof ACTIVATIONS)[string];
  const [x, grad] = [input("x"), input("grad").values];
  const width = columnCount(x);
  if (!gated) {
    const dx = x.values.map((element, i) => elementAt(grad, i) * derivative(element));
    return { dx, biasGrad: columnSums(dx, width) };
  }
  const n = width / 2;
  const dx = x.values.map((element, i) => {
    const [r, c] = [Math.floor(i / width), i % width];
    const g = elementAt(grad, r * n + (c % n));
    return c < n
      ? g * elementAt(x.values, i + n) * derivative(element)
      : g * value(elementAt(x.values, i - n));
  });
  return { dx, biasGrad: columnSums(dx, width) };
}

/** Rows of a causal softmax: masked elements are 0. */
function softmax(x: Float64Array, columns: number, rows: number, scale: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let r = 0; r < x.length / columns; r++) {
    const count = (r % rows) + 1 + columns - rows;
    const z = tabulate(count, (i) => scale * elementAt(x, r * columns + i));
    const largest = Math.max(...z);
    const sum = sumOver(count, (i) => Math.exp(elementAt(z, i) - largest));
    for (let i = 0; i < count; i++) out[r * columns + i] = Math.exp(elementAt(z, i) - largest) / sum;
  }
  return out;
}

function softmaxGradient(grad: Float64Array, y: Float64Array, columns: number, scale: number): Float64Array {
  const rows = y.length / columns;
  const sums = tabulate(rows, (r) =>
    sumOver(columns, (i) => elementAt(y, r * columns + i) * elementAt(grad, r * columns + i)),
  );
  return y.map((value, i) => scale * value * (elementAt(grad, i) - elementAt(sums, Math.floor(i / columns))));
}

/** The attention and its gradients from q [B, S, H, D], k and v [B, S, G, D], with the scale 1 / sqrt(D). */
function attention(input: Inputs): Results {
  const [q, k, v, grad] = [input("q"), input("k").values, input("v").values, input("grad").values];
  const [batch = 0, rows = 0, heads = 0, width = 0] = q.shape;
  const groups = input("k").shape[2] as number;
  const alpha = 1 / Math.sqrt(width);
  const out = new Float64Array(q.values.length);
  const dq = new Float64Array(q.values.length);
  const [dk, dv] = [new Float64Array(k.length), new Float64Array(k.length)];
  const accumulate = (sums: Float64Array, i: number, value: number): void => {
    sums[i] = elementAt(sums, i) + value;
  };
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++) {
      const queryOffset = (s: number): number => ((b * rows + s) * heads + h) * width;
      const keyOffset = (s: number): number =>
        ((b * rows + s) * groups + Math.floor((h * groups) / heads)) * width;
      const dot = (x: Float64Array, i: number, y: Float64Array, j: number): number =>
        sumOver(width, (d) => elementAt(x, i + d) * elementAt(y, j + d));
      const pairs = (x: Float64Array, y: Float64Array, factor: number): Float64Array =>
        tabulate(
          rows * rows,
          (i) => factor * dot(x, queryOffset(Math.floor(i / rows)), y, keyOffset(i % rows)),
        );
      const p = softmax(pairs(q.values, k, alpha), rows, rows, 1);
      const ds = softmaxGradient(pairs(grad, v, 1), p, rows, alpha);
      for (let s = 0; s < rows; s++)
        for (let t = 0; t < rows; t++)
          for (let d = 0; d < width; d++) {
            const [i, j] = [queryOffset(s) + d, keyOffset(t) + d];
            accumulate(out, i, elementAt(p, s * rows + t) * elementAt(v, j));
            accumulate(dv, j, elementAt(p, s * rows + t) * elementAt(grad, i));
            accumulate(dq, i, elementAt(ds, s * rows + t) * elementAt(k, j));
            accumulate(dk, j, elementAt(ds, s * rows + t) * elementAt(q.values, i));
          }
    }
  return { out, dq, dk, dv };
}

const BASE = 10000;

/** The rotation by angles in float64. Element i is rotated with element i + D / 2. */
function rotate(input: Inputs, inverse: boolean): Results {
  const { values, shape } = input("x");
  const [, positions = 0, heads = 0, width = 0] = shape;
  const half = width / 2;
  const out = values.map((value, i) => {
    const [d, position] = [i % width, Math.floor(i / (width * heads)) % positions];
    const angle = position * BASE ** ((-2 * (d % half)) / width);
    const sin = inverse ? -Math.sin(angle) : Math.sin(angle);
    const partner = d < half ? -elementAt(values, i + half) : elementAt(values, i - half);
    return value * Math.cos(angle) + partner * sin;
  });
  return { out };
}

function withBias(input: Inputs): Inputs {
  const [x, bias] = [input("x"), input("bias").values];
  const values = x.values.map((value, i) => value + elementAt(bias, i % bias.length));
  return (name) => (name === "x" ? { values, shape: x.shape } : input(name));
}

/** The results of a stage in float64, by name. Empty for stages that must be equal in every bit. */
export function computeFloat64(stage: string, input: Inputs, options: StageOptions): Results {
  const [name = "", suffix] = stage.split(" ");
  if (stage === "layerNorm" || stage === "rmsNorm")
    return normForward(input, options.eps ?? 0, stage === "layerNorm");
  if (stage === "layerNorm gradient" || stage === "rmsNorm gradient")
    return normBackward(input, stage === "layerNorm gradient");
  if (stage === "RoPE" || stage === "RoPE gradient") return rotate(input, stage === "RoPE gradient");
  if (stage === "softmax gradient") {
    const y = input("y");
    return { dx: softmaxGradient(input("grad").values, y.values, columnCount(y), options.scale ?? 1) };
  }
  if (stage === "attention") return attention(input);
  if (stage === "bias and gelu") return activate(withBias(input), "gelu");
  if (stage === "bias and gelu gradient") return activationGradient(withBias(input), "gelu");
  if (stage === "gemm") {
    const b = input("b");
    return { biasGrad: columnSums(b.values, columnCount(b)) };
  }
  if (name in ACTIVATIONS)
    return suffix === "gradient" ? activationGradient(input, name) : activate(input, name);
  return {};
}
