/** Numbers of assembly/datapath.ts that the GEMM kernels are told. */

export const KERNEL = { scalar: 0, narrow: 1, wide: 2, plain: 3, exact: 4 } as const;
export const PROMOTION = { none: 0, add: 1, scaleProduct: 2, scaleChain: 3 } as const;
export const STAGING = { plain: 0, bf16: 1, tf32: 2, scaled: 3, grouped: 4 } as const;

/** Bytes of the block that describes a GEMM, and the exponent of a zero operand that never counts. */
export const TASK_BYTES = 384;
export const NO_EXPONENT = -16384;
