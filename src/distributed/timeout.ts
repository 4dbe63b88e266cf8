/** How long ranks wait for each other. */
import { integer } from "../options.js";

/** Ten minutes, as PyTorch's NCCL groups wait. */
export const DEFAULT_TIMEOUT_MS = 600_000;

/** The domain of a timeout in milliseconds: what a timer takes. */
export const timeout = integer(1, 2 ** 31 - 1);
