// The largest elements of rows (docs/numerics.md 7.17).
import { Wide } from "../contract";
import { loadWide, storeWide } from "../core/wide";

/** The values of the mask while a row is computed. */
const OUTSIDE: f32 = 0;
const CANDIDATE: f32 = 2;
const CHOSEN: f32 = 1;

/** The arguments of `topk`. */
@unmanaged
class TopkTask {
  x: usize;
  xType: u32;
  columns: usize;
  k: usize;
  groups: usize;
  groupTopk: usize;
  indices: usize;
  routingMap: usize;
  mask: usize;
}

/**
 * Computes the rows [begin, end). An element is chosen if it is one of the k largest of its row. With `groups` groups of
 * neighbours, only elements of the `groupTopk` best groups are candidates. `mask` [rows, columns] is f32. The first bytes of the
 * calling thread's `scratch` are an f32 for each group.
 */
export function topk(task: TopkTask, scratch: usize, begin: usize, end: usize): void {
  const x = task.x;
  const xType = task.xType;
  const columns = task.columns;
  const k = task.k;
  const groups = task.groups;
  const groupTopk = task.groupTopk;
  const indices = task.indices;
  const routingMap = task.routingMap;
  const mask = task.mask;
  const size = columns / groups;
  for (let row = begin; row < end; row++) {
    const first = row * columns;
    const flags = mask + (first << 2);
    setFlags(flags, columns, groupTopk === groups ? CANDIDATE : OUTSIDE);
    if (groupTopk !== groups) {
      for (let group: usize = 0; group < groups; group++) {
        const part = flags + ((group * size) << 2);
        setFlags(part, size, CANDIDATE);
        let score: f32 = 0;
        for (let i: usize = 0; i < k / groupTopk; i++) {
          const best = choose(x, xType, first + group * size, part, size);
          score += scoreAt(x, xType, first + group * size + best);
        }
        store<f32>(scratch + (group << 2), score);
        setFlags(part, size, OUTSIDE);
      }
      for (let i: usize = 0; i < groupTopk; i++) {
        const group = bestGroup(scratch, flags, groups, size);
        setFlags(flags + ((group * size) << 2), size, CANDIDATE);
      }
    }
    for (let i: usize = 0; i < k; i++) {
      store<u32>(indices + ((row * k + i) << 2), <u32>choose(x, xType, first, flags, columns));
    }
    for (let i: usize = 0; i < columns; i++) {
      const isChosen = load<f32>(flags + (i << 2)) === CHOSEN;
      store<u32>(routingMap + ((first + i) << 2), u32(isChosen));
      storeWide(mask, Wide.F32, first + i, isChosen ? CHOSEN : OUTSIDE);
    }
  }
}

function setFlags(flags: usize, count: usize, value: f32): void {
  for (let i: usize = 0; i < count; i++) store<f32>(flags + (i << 2), value);
}

/** The element, or -infinity for NaN. */
function scoreAt(x: usize, type: u32, index: usize): f32 {
  const value = loadWide(x, type, index);
  return value > -Infinity ? value : -Infinity;
}

/** Marks the largest candidate as chosen and returns its index. Among equals, it is the first one. */
function choose(x: usize, type: u32, first: usize, flags: usize, count: usize): usize {
  let best: usize = 0;
  let top: f32 = -Infinity;
  let found = false;
  for (let i: usize = 0; i < count; i++) {
    if (load<f32>(flags + (i << 2)) !== CANDIDATE) continue;
    const value = scoreAt(x, type, first + i);
    if (found && !(value > top)) continue;
    found = true;
    best = i;
    top = value;
  }
  store<f32>(flags + (best << 2), CHOSEN);
  return best;
}

/** The group with the largest score among the groups without candidates. Among equals, it is the first one. */
function bestGroup(scores: usize, flags: usize, groups: usize, size: usize): usize {
  let best: usize = 0;
  let top: f32 = -Infinity;
  let found = false;
  for (let group: usize = 0; group < groups; group++) {
    if (load<f32>(flags + ((group * size) << 2)) !== OUTSIDE) continue;
    const value = scoreAt(scores, Wide.F32, group);
    if (found && !(value > top)) continue;
    found = true;
    best = group;
    top = value;
  }
  return best;
}
