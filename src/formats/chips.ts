/**
 * The chips whose order of summation is known, one row for each compute capability. Each row lists the pairs of a chip and a
 * cuBLASLt version for which the order was measured. What the GPU backend claims about the bits of a product follows from these
 * rows.
 */

/** The generations of tensor cores whose summation is modelled (datapath.md §1). */
export const HARDWARE_FAMILIES = ["ada", "hopper", "blackwell"] as const;

export type HardwareFamily = (typeof HARDWARE_FAMILIES)[number];

/** A chip and a library version for which products of the GPU were compared with the reference, and all elements were equal. */
export interface MeasuredPair {
  /** The chip's common name. */
  readonly chip: string;
  /** The device name that the driver reports. */
  readonly device: string;
  /** The version of cuBLASLt, as 10000 * major + 100 * minor + patch. */
  readonly cublasLt: number;
}

/** The alignment that cuBLASLt requires of operands, and how unaligned operands are padded. */
export interface BlasAlignment {
  /** The length of each row of an operand or result must be a multiple of this many bits. */
  readonly rowBits: number;
  /** A padded operand has a multiple of `paddedLines` rows, and each row is a multiple of `paddedBits` bits long. */
  readonly paddedLines: number;
  readonly paddedBits: number;
  /** The row length of the tensor that a fused GELU stores its argument in must be a multiple of this many elements. */
  readonly auxColumns: number;
}

export interface ChipRow {
  readonly computeCapability: readonly [major: number, minor: number];
  /** The datapath family of its tensor cores. The rows of that family in datapath.ts describe it. */
  readonly datapath: HardwareFamily;
  /**
   * The ids of the cuBLASLt algorithms that sum in the order of datapath.md §2. If absent, none was measured and any algorithm is
   * used.
   */
  readonly algorithms?: readonly number[];
  readonly alignment: BlasAlignment;
  /** The maximum workspace of a cuBLASLt algorithm, in bytes. */
  readonly workspace: number;
  readonly measured: readonly MeasuredPair[];
}

const ALIGNMENT = { rowBits: 128, paddedLines: 16, paddedBits: 1024, auxColumns: 8 } as const;
const MIB = 2 ** 20;
const CUBLASLT_13_1_0 = 130100;

export const CHIPS: readonly ChipRow[] = [
  { computeCapability: [8, 9], datapath: "ada", alignment: ALIGNMENT, workspace: 64 * MIB, measured: [] },
  {
    computeCapability: [9, 0],
    datapath: "hopper",
    algorithms: [66],
    alignment: ALIGNMENT,
    workspace: 64 * MIB,
    measured: [
      { chip: "H100 SXM", device: "NVIDIA H100 80GB HBM3", cublasLt: CUBLASLT_13_1_0 },
      { chip: "H200", device: "NVIDIA H200", cublasLt: CUBLASLT_13_1_0 },
    ],
  },
  {
    computeCapability: [10, 0],
    datapath: "blackwell",
    alignment: ALIGNMENT,
    workspace: 64 * MIB,
    measured: [],
  },
];

/** A GPU as the driver describes it. */
export interface Gpu {
  readonly name: string;
  /** The major number of the compute capability. */
  readonly major: number;
  readonly minor: number;
}

/** Returns the row of a GPU, or undefined if its compute capability has no row. */
export function chipOf({ major, minor }: Gpu): ChipRow | undefined {
  return CHIPS.find(({ computeCapability: [a, b] }) => a === major && b === minor);
}

/**
 * Returns why sums of products are unverified on this GPU with this cuBLASLt version, or undefined if the pair was measured.
 */
export function unverifiedPair(gpu: Gpu, cublasLt: number): string | undefined {
  const measured = CHIPS.flatMap((row) => (row === chipOf(gpu) ? row.measured : []));
  if (measured.some((pair) => pair.device === gpu.name && pair.cublasLt === cublasLt)) return undefined;
  return `the sums of ${gpu.name}, sm_${gpu.major}${gpu.minor}, with cuBLASLt ${libraryVersion(cublasLt)} were not measured; those of ${MEASURED_ON} were`;
}

const PAIRS: readonly MeasuredPair[] = CHIPS.flatMap(({ measured }) => measured);
const IDS: readonly number[] = CHIPS.flatMap(({ algorithms = [] }) => algorithms);

/** The measured pairs, as text. */
export const MEASURED_ON = PAIRS.map(
  ({ chip, cublasLt }) => `${chip} with cuBLASLt ${libraryVersion(cublasLt)}`,
).join(" and ");

/**
 * Returns why the order of additions of a cuBLASLt algorithm is unknown, or undefined if the algorithm is one of those in
 * datapath.md §2.
 */
export function unknownOrder({ id }: { readonly id: number }): string | undefined {
  if (IDS.includes(id)) return undefined;
  return `cuBLASLt's algorithm ${id} adds in an order that was not measured; algorithm ${IDS.join(", ")}'s was`;
}

/** Returns why sums of products are unverified with this cuBLASLt version, or undefined if it was measured on some chip. */
export function unverifiedVersion(cublasLt: number): string | undefined {
  if (PAIRS.some((pair) => pair.cublasLt === cublasLt)) return undefined;
  return `the sums of cuBLASLt ${libraryVersion(cublasLt)} were not measured; those of ${MEASURED_ON} were`;
}

/** Formats a version: 130100 becomes 13.1.0. */
export function libraryVersion(cublasLt: number): string {
  return `${Math.floor(cublasLt / 10000)}.${Math.floor((cublasLt % 10000) / 100)}.${cublasLt % 100}`;
}
