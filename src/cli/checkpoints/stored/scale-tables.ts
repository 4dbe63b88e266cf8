/** Scales whose bytes mean something else than the type of their tensor says. */
import { valueOfCode } from "../../../formats/derive.js";

/** Bytes that are codes of e4m3. */
export const E4M3_BYTES = Float32Array.from({ length: 256 }, (_, byte) => valueOfCode("e4m3", byte));
