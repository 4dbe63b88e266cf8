// The elementwise operators of src/backends/elementwise.ts on four f32 lanes. operators.gen.ts has their loops.
import { logistic } from "./curve";

export function add(x: v128, y: v128): v128 {
  return f32x4.add(x, y);
}

export function multiply(x: v128, y: v128): v128 {
  return f32x4.mul(x, y);
}

export function scaled(x: v128, factor: v128): v128 {
  return f32x4.mul(x, factor);
}

export function sigmoid(x: v128): v128 {
  return logistic(x);
}
