/** Limits of the format and of the host. */

/** The maximum length of a header that readers of the format accept. */
export const MAX_HEADER_BYTES = 100_000_000;

/** Node reads and writes less than 2 GiB per call. */
export const MAX_TRANSFER_BYTES = 2 ** 30;
