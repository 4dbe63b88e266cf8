/** Limits of the format and of the host. */

/** The longest header that readers of the format accept. */
export const MAX_HEADER_BYTES = 100_000_000;

/** Node reads and writes less than 2 GiB at a time. */
export const MAX_TRANSFER_BYTES = 2 ** 30;
