/** The names of the ways in which codes lie in a tensor. */

/**
 * How codes lie in a tensor.
 *
 * * `words`: each row is a stream of bits in little-endian words of 32 bits, from the low bits up, filled up to whole words
 *   (`pack_to_int32` of compressed-tensors).
 * * `bytes`: a byte for each code.
 * * `rows`: a byte has the codes of two rows in one column, that of the even row in its low bits, as two's complement
 *   (`pack_int4_in_uint8` of ModelOpt).
 * * `high-first`: a byte has two codes of a row, that of the even column in its high bits (`pack_uint4` of comfy-kitchen).
 */
export type PackingName = "bytes" | "words" | "rows" | "high-first";
