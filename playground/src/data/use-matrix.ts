/** The matrix that the address describes: drawn, pasted, or a part of a file's tensor. */
import type { Backend, WideDType } from "lockstep";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Params } from "../params.js";
import type { Matrix } from "../reference/index.js";
import { drawNumbers } from "./distribution.js";
import { type OpenFile, openFile, sizeOf } from "./file.js";
import { type Lines, MAX_SIZE, parseLines } from "./numbers.js";
import type { Stored } from "./stored.js";

/** The types that a matrix can have before it is quantized. */
export const INPUT_TYPES = ["bf16", "f32", "f16"] as const satisfies readonly WideDType[];

/** A matrix, or a sentence that says why there is none. */
export interface Source {
  readonly matrix: Matrix | undefined;
  readonly fault: string | undefined;
  readonly file: OpenFile | undefined;
  /** The codes and scales of the matrix, if it is a quantized tensor of the file. */
  readonly stored: Stored | undefined;
  /**
   * Opens dropped files: one file with tensors, and its configurations. Returns the file's name, and the name of the tensor to
   * show: the first quantized one, else the first with at least two dimensions, else the first.
   */
  open(files: readonly File[]): Promise<{ readonly name: string; readonly tensor: string | undefined }>;
}

/** Parses an integer and clamps it to limits. */
export function wholeNumber(text: string, least: number, most: number): number {
  const value = Number.parseInt(text, 10);
  return Number.isNaN(value) ? least : Math.min(most, Math.max(least, value));
}

/** Parses two integers separated by a comma. */
export function pairOf(text: string): readonly [number, number] {
  const [first, second] = text.split(",").map((word) => wholeNumber(word, 0, Number.MAX_SAFE_INTEGER));
  return [first ?? 0, second ?? 0];
}

export function useMatrix(backend: Backend, params: Params): Source {
  const [file, setFile] = useState<OpenFile>();
  const [fileFault, setFileFault] = useState<string>();
  const [part, setPart] = useState<Lines & { readonly stored?: Stored }>();
  const { source, draw, rows, columns, seed, numbers, tensor, from, dtype } = params;
  useEffect(() => {
    if (source !== "file" || !file) return;
    let isCurrent = true;
    const read = partOf(backend, file, tensor, pairOf(from));
    read?.then(
      (lines) => {
        if (!isCurrent) return;
        setPart(lines);
        setFileFault(undefined);
      },
      (error) => {
        if (!isCurrent) return;
        setPart(undefined);
        setFileFault(String(error.message ?? error));
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [backend, file, source, tensor, from]);
  const lines = useMemo(() => {
    if (source === "numbers") return parseLines(numbers);
    if (source === "file") return part ?? fileFault ?? fileRequest(params.file, tensor);
    const size = { rows: wholeNumber(rows, 1, MAX_SIZE), columns: wholeNumber(columns, 1, MAX_SIZE) };
    const values = drawNumbers(draw, size.rows * size.columns, BigInt(wholeNumber(seed, 0, 2 ** 53 - 1)));
    return typeof values === "string" ? values : { ...size, values };
  }, [source, draw, rows, columns, seed, numbers, part, fileFault, params.file, tensor]);
  const type = INPUT_TYPES.find((name) => name === dtype) ?? INPUT_TYPES[0];
  const matrix = useMemo(
    () => (typeof lines === "string" ? undefined : { ...lines, dtype: type }),
    [lines, type],
  );
  const open = async (files: readonly File[]) => {
    const dropped = (files.find(({ name }) => !name.endsWith(".json")) ?? files[0]) as File;
    const { name } = dropped;
    setPart(undefined);
    try {
      const opened = await openFile(
        dropped,
        files.filter((each) => each !== dropped),
      );
      setFile(opened);
      setFileFault(undefined);
      const [quantized] = opened.quantized.keys();
      if (quantized !== undefined) return { name, tensor: quantized };
      const entries = [...opened.tensors.values()].filter(({ shape }) => !shape.includes(0));
      return { name, tensor: (entries.find(({ shape }) => shape.length > 1) ?? entries[0])?.name };
    } catch (error) {
      setFile(undefined);
      setFileFault(error instanceof Error ? error.message : String(error));
      return { name, tensor: undefined };
    }
  };
  return {
    matrix,
    fault: typeof lines === "string" ? lines : undefined,
    file,
    stored: source === "file" ? part?.stored : undefined,
    open,
  };
}

/** The part of a tensor from a row and a column on; undefined for a tensor that the file does not have. */
function partOf(
  backend: Backend,
  file: OpenFile,
  tensor: string,
  [row, column]: readonly [number, number],
): Promise<Lines & { readonly stored?: Stored }> | undefined {
  if (file.quantized.has(tensor))
    return file
      .readStored(backend, tensor, row, column)
      .then((stored) => ({ rows: stored.rows, columns: stored.columns, values: stored.values, stored }));
  const entry = file.tensors.get(tensor);
  if (!entry) return undefined;
  const [height, width] = sizeOf(entry);
  return file.read(tensor, Math.min(row, height - 1), Math.min(column, width - 1));
}

function fileRequest(file: string, tensor: string): string {
  return file
    ? `This link shows ${tensor} of ${file}. Drop that file here to see it.`
    : "Drop a safetensors file here, or choose one. It stays in this page.";
}
