/** The time limit for waiting for other ranks. */
import { integer } from "../options.js";

/** Ten minutes, the default of PyTorch's NCCL groups. */
export const DEFAULT_TIMEOUT_MS = 600_000;

/** The domain of a timeout in milliseconds, limited to what a timer supports. */
export const timeout = integer(1, 2 ** 31 - 1);
