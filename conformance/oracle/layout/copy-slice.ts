/** Slices, concatenations and expansions of tensors, element by element. */

/** A tensor as its elements in row-major order. */
export interface Elements {
  readonly elements: ArrayLike<number>;
  readonly shape: readonly number[];
}

/** The tensor of shape `shape` whose element at `index` is `element(index)`. */
function tabulate(shape: readonly number[], element: (index: readonly number[]) => number): Elements {
  const size = shape.reduce((product, each) => product * each, 1);
  const elements = Array.from({ length: size }, (_, position) => {
    const index: number[] = [];
    for (let axis = shape.length - 1, remainder = position; axis >= 0; axis--) {
      const length = shape[axis] as number;
      index.unshift(remainder % length);
      remainder = Math.floor(remainder / length);
    }
    return element(index);
  });
  return { elements, shape };
}

function readElement({ elements, shape }: Elements, index: readonly number[]): number {
  return elements[index.reduce((sum, i, axis) => sum * (shape[axis] as number) + i, 0)] as number;
}

/** Replaces the entry at `axis`, which may count from the end. */
function replaceSize(list: readonly number[], axis: number, value: number): number[] {
  const copy = [...list];
  copy.splice(axis, 1, value);
  return copy;
}

/** The slices start to end - 1 along `axis`. All three may count from the end. */
export function slice(x: Elements, axis: number, start: number, end: number): Elements {
  const length = x.shape.at(axis) as number;
  const firstIndex = start < 0 ? length + start : start;
  const lastIndex = end < 0 ? length + end : end;
  return tabulate(replaceSize(x.shape, axis, lastIndex - firstIndex), (index) =>
    readElement(x, replaceSize(index, axis, (index.at(axis) as number) + firstIndex)),
  );
}

/** All tensors, one after the other along `axis`. */
export function concatenate(inputs: readonly Elements[], axis: number): Elements {
  const [first] = inputs as readonly [Elements];
  const total = inputs.reduce((sum, { shape }) => sum + (shape.at(axis) as number), 0);
  return tabulate(replaceSize(first.shape, axis, total), (index) => {
    let i = index.at(axis) as number;
    for (const input of inputs) {
      const length = input.shape.at(axis) as number;
      if (i < length) return readElement(input, replaceSize(index, axis, i));
      i -= length;
    }
    return Number.NaN;
  });
}

/** x with the shape `shape`, by the rules of broadcasting. */
export function expand(x: Elements, shape: readonly number[]): Elements {
  const missingDims = shape.length - x.shape.length;
  return tabulate(shape, (index) =>
    readElement(
      x,
      index.slice(missingDims).map((i, axis) => (x.shape[axis] === 1 ? 0 : i)),
    ),
  );
}
