/** Transposes matrices for libraries that store unquantized matrices transposed (`Convention.transposedWide`). */
import type { Shape } from "../../tensor/shape.js";
import { matricesOf } from "./weight.js";

/** Elements of 2 or 4 bytes. */
type Elements = Uint16Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;

/** The side of a square tile of elements. The rows and columns of a tile fit in a processor's caches. */
const SQUARE = 64;

/** The shape with its last two dimensions exchanged. */
export function transposedShape(shape: Shape): Shape {
  const [, rows, columns] = matricesOf(shape);
  return [...shape.slice(0, -2), columns, rows];
}

/**
 * Returns a function that takes the bytes of matrices in order, in pieces of any length. It transposes each complete matrix and
 * passes it to `append`. `shape`: the shape before transposition. Elements have 2 or 4 bytes. Two copies of a matrix are in
 * memory.
 */
export function transposing(
  shape: Shape,
  elementBytes: number,
  append: (bytes: Uint8Array) => Promise<void>,
): (bytes: Uint8Array) => Promise<void> {
  const [, rows, columns] = matricesOf(shape);
  const empty = (): Elements =>
    elementBytes === 2 ? new Uint16Array(rows * columns) : new Uint32Array(rows * columns);
  let [matrix, out] = [new Uint16Array() as Elements, new Uint16Array() as Elements];
  let offset = 0;
  return async (piece) => {
    // allocate at the first bytes: a weight without matrices may have dimensions of any size
    if (matrix.length === 0 && piece.length > 0) [matrix, out] = [empty(), empty()];
    const bytes = new Uint8Array(matrix.buffer);
    for (let from = 0; from < piece.length; ) {
      const part = piece.subarray(from, from + bytes.length - offset);
      bytes.set(part, offset);
      offset += part.length;
      from += part.length;
      if (offset < bytes.length) continue;
      transpose(matrix, out, rows, columns);
      offset = 0;
      await append(new Uint8Array(out.buffer));
    }
  };
}

function transpose(from: Elements, to: Elements, rows: number, columns: number): void {
  for (let top = 0; top < rows; top += SQUARE)
    for (let firstColumn = 0; firstColumn < columns; firstColumn += SQUARE)
      for (let row = top; row < Math.min(top + SQUARE, rows); row++)
        for (let column = firstColumn; column < Math.min(firstColumn + SQUARE, columns); column++)
          to[column * rows + row] = from[row * columns + column] as number;
}
