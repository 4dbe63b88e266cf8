/** The names of the packings of codes. */

/**
 * The packing of codes in a tensor.
 *
 * * `words`: each row is a bit stream in little-endian 32-bit words, from the low bits up; its last word is padded
 *   (`pack_to_int32` of compressed-tensors).
 * * `bytes`: one byte for each code; codes of 4 and 6 bits are a stream of bits, from the low bits up.
 * * `rows`: a byte has the codes of two rows in one column, the even row in the low bits, as two's complement
 *   (`pack_int4_in_uint8` of ModelOpt).
 * * `high-first`: a byte has two codes of a row, the even column in the high bits (`pack_uint4` of comfy-kitchen).
 */
export type PackingName = "bytes" | "words" | "rows" | "high-first";
