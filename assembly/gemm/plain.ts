// The datapath of plain f32 arithmetic: acc = fl(acc + fl(x * w)) in ascending order of k, where fl rounds to f32. Two
// rows by 16 columns are computed at a time.

import { ProductTask } from "./task";
import { Tile } from "./tile";

function addRows(x: usize, pitch: usize, w: usize, step: u32, state: usize): void {
  let a0 = v128.load(state);
  let a1 = v128.load(state, 16);
  let a2 = v128.load(state, 32);
  let a3 = v128.load(state, 48);
  let b0 = v128.load(state, 64);
  let b1 = v128.load(state, 80);
  let b2 = v128.load(state, 96);
  let b3 = v128.load(state, 112);
  const end = x + (step << 2);
  let y = x + pitch;
  while (true) {
    const p0 = v128.load_splat<f32>(x);
    const q0 = v128.load_splat<f32>(y);
    const w0 = v128.load(w);
    const w1 = v128.load(w, 16);
    const w2 = v128.load(w, 32);
    const w3 = v128.load(w, 48);
    a0 = v128.add<f32>(a0, v128.mul<f32>(p0, w0));
    a1 = v128.add<f32>(a1, v128.mul<f32>(p0, w1));
    a2 = v128.add<f32>(a2, v128.mul<f32>(p0, w2));
    a3 = v128.add<f32>(a3, v128.mul<f32>(p0, w3));
    b0 = v128.add<f32>(b0, v128.mul<f32>(q0, w0));
    b1 = v128.add<f32>(b1, v128.mul<f32>(q0, w1));
    b2 = v128.add<f32>(b2, v128.mul<f32>(q0, w2));
    b3 = v128.add<f32>(b3, v128.mul<f32>(q0, w3));
    x += 8;
    if (x > end) break;
    const p64 = v128.load_splat<f32>(x - 4);
    const q64 = v128.load_splat<f32>(y + 4);
    const w64 = v128.load(w, 64);
    const w65 = v128.load(w, 80);
    const w66 = v128.load(w, 96);
    const w67 = v128.load(w, 112);
    a0 = v128.add<f32>(a0, v128.mul<f32>(p64, w64));
    a1 = v128.add<f32>(a1, v128.mul<f32>(p64, w65));
    a2 = v128.add<f32>(a2, v128.mul<f32>(p64, w66));
    a3 = v128.add<f32>(a3, v128.mul<f32>(p64, w67));
    b0 = v128.add<f32>(b0, v128.mul<f32>(q64, w64));
    b1 = v128.add<f32>(b1, v128.mul<f32>(q64, w65));
    b2 = v128.add<f32>(b2, v128.mul<f32>(q64, w66));
    b3 = v128.add<f32>(b3, v128.mul<f32>(q64, w67));
    y += 8;
    w += 128;
    if (x === end) break;
  }
  v128.store(state, a0);
  v128.store(state, a1, 16);
  v128.store(state, a2, 32);
  v128.store(state, a3, 48);
  v128.store(state, b0, 64);
  v128.store(state, b1, 80);
  v128.store(state, b2, 96);
  v128.store(state, b3, 112);
}

/**
 * Adds `step` products to each accumulator of `rows` rows (an even number) by 16 columns. X is f32 [rows][step], W f32
 * [step][16], the states f32 [rows][16].
 */
export function stepPlain(_task: ProductTask, tile: Tile): void {
  let x = tile.x;
  const w = tile.w;
  const step = tile.step;
  const rows = tile.rows;
  let state = tile.states;
  for (let row: u32 = 0; row < rows; row += 2) {
    addRows(x, (<usize>step) << 2, w, step, state);
    x += step << 3;
    state += 128;
  }
}
