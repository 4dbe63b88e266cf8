// The elementwise operators of src/backends/elementwise.ts on four f32 lanes. operators.gen.ts has their loops.
import { exp4, sqrtSoftplus as root, sqrtSoftplusDerivative as rootDerivative } from "../core/math";
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

export function divide(x: v128, y: v128): v128 {
  return f32x4.div(x, y);
}

export function exp(x: v128): v128 {
  return exp4(x);
}

export function rsqrt(x: v128): v128 {
  return f32x4.div(f32x4.splat(1), f32x4.sqrt(x));
}

export function sqrtSoftplus(x: v128): v128 {
  let y = f32x4.splat(root(f32x4.extract_lane(x, 0)));
  y = f32x4.replace_lane(y, 1, root(f32x4.extract_lane(x, 1)));
  y = f32x4.replace_lane(y, 2, root(f32x4.extract_lane(x, 2)));
  return f32x4.replace_lane(y, 3, root(f32x4.extract_lane(x, 3)));
}

export function sqrtSoftplusDerivative(x: v128): v128 {
  let y = f32x4.splat(rootDerivative(f32x4.extract_lane(x, 0)));
  y = f32x4.replace_lane(y, 1, rootDerivative(f32x4.extract_lane(x, 1)));
  y = f32x4.replace_lane(y, 2, rootDerivative(f32x4.extract_lane(x, 2)));
  return f32x4.replace_lane(y, 3, rootDerivative(f32x4.extract_lane(x, 3)));
}

export function where(condition: v128, x: v128, y: v128): v128 {
  return v128.bitselect(x, y, f32x4.ne(condition, f32x4.splat(0)));
}
