/** The colours of pictures, for light and for dark backgrounds. */

/** From small to large: dark blue, teal, green, yellow. Both ends contrast with both backgrounds. */
export const RAMP = ["#2a2a5c", "#2b5d8f", "#2d9997", "#7ec570", "#f0db60"];
