/**
 * The chips whose order of summation is known, one row for each compute capability, and the pairs of a chip and a version of
 * cuBLASLt for which it was measured. What a GPU promises of a product follows from these rows.
 */

/** Generations of tensor cores whose sums are modelled (datapath.md §1). */
export const HARDWARE_FAMILIES = ["ada", "hopper", "blackwell"] as const;

export type HardwareFamily = (typeof HARDWARE_FAMILIES)[number];

/** A chip and a library whose products were compared with the reference, all elements equal. */
export interface MeasuredPair {
  /** The chip's common name. */
  readonly chip: string;
  /** Its name in the driver. */
  readonly device: string;
  /** The version of cuBLASLt: 10000 * major + 100 * minor + patch. */
  readonly cublasLt: number;
}

/** The alignment that cuBLASLt requires of operands, and the padding used otherwise. */
export interface BlasAlignment {
  /** The alignment of rows of operands and results, in bits. */
  readonly rowBits: number;
  /** Padded operands have a multiple of `paddedLines` lines, each a multiple of `paddedBits` bits. */
  readonly paddedLines: number;
  readonly paddedBits: number;
  /** The row length of a fused GELU's argument is a multiple of this many elements. */
  readonly auxColumns: number;
}

export interface ChipRow {
  readonly computeCapability: readonly [major: number, minor: number];
  /** The family of datapaths that its tensor cores follow; what that emulates is in the family's row (datapath.ts). */
  readonly datapath: HardwareFamily;
  /** The algorithms of cuBLASLt whose order of summation is that of datapath.md §2; absent: none was measured, any is taken. */
  readonly algorithms?: readonly number[];
  readonly alignment: BlasAlignment;
  /** The maximum workspace of an algorithm, in bytes. */
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

/** A GPU as its driver describes it. */
export interface Gpu {
  readonly name: string;
  /** Compute capability. */
  readonly major: number;
  readonly minor: number;
}

/** The row of a GPU; undefined for an unknown compute capability. */
export function chipOf({ major, minor }: Gpu): ChipRow | undefined {
  return CHIPS.find(({ computeCapability: [a, b] }) => a === major && b === minor);
}

/** Why the sums of a product on that GPU with that version of cuBLASLt are unverified; undefined for a measured pair. */
export function unverifiedPair(gpu: Gpu, cublasLt: number): string | undefined {
  const measured = CHIPS.flatMap((row) => (row === chipOf(gpu) ? row.measured : []));
  if (measured.some((pair) => pair.device === gpu.name && pair.cublasLt === cublasLt)) return undefined;
  return `the sums of ${gpu.name}, sm_${gpu.major}${gpu.minor}, with cuBLASLt ${libraryVersion(cublasLt)} were not measured; those of ${MEASURED_ON} were`;
}

const PAIRS: readonly MeasuredPair[] = CHIPS.flatMap(({ measured }) => measured);
const IDS: readonly number[] = CHIPS.flatMap(({ algorithms = [] }) => algorithms);

/** The measured pairs as text. */
export const MEASURED_ON = PAIRS.map(
  ({ chip, cublasLt }) => `${chip} with cuBLASLt ${libraryVersion(cublasLt)}`,
).join(" and ");

/** Why the order of additions of an algorithm of cuBLASLt is unknown; undefined for those in datapath.md §2. */
export function unknownOrder({ id }: { readonly id: number }): string | undefined {
  if (IDS.includes(id)) return undefined;
  return `cuBLASLt's algorithm ${id} adds in an order that was not measured; algorithm ${IDS.join(", ")}'s was`;
}

/** Why the sums of that version of cuBLASLt are unverified; undefined if some chip's were measured. */
export function unverifiedVersion(cublasLt: number): string | undefined {
  if (PAIRS.some((pair) => pair.cublasLt === cublasLt)) return undefined;
  return `the sums of cuBLASLt ${libraryVersion(cublasLt)} were not measured; those of ${MEASURED_ON} were`;
}

/** 130100 as 13.1.0. */
export function libraryVersion(cublasLt: number): string {
  return `${Math.floor(cublasLt / 10000)}.${Math.floor((cublasLt % 10000) / 100)}.${cublasLt % 100}`;
}
