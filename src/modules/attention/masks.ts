/** The kinds of masks of attention, as TransformerEngine names them. */
import { ArgumentError } from "../../errors.js";
import { oneOf } from "../../options.js";

/** The keys that a kind of mask hides. */
interface MaskKind {
  /** Whether later keys are hidden. */
  readonly causal: boolean;
  /** Whether keys and queries beyond the length of their sequence are hidden. */
  readonly padding: boolean;
  /** Whether the last query is aligned to the last key. Undefined if the option `bottomRightDiagonal` decides. */
  readonly alignsEnd?: boolean;
}

const MASKS = {
  no_mask: { causal: false, padding: false },
  padding: { causal: false, padding: true },
  causal: { causal: true, padding: false, alignsEnd: false },
  padding_causal: { causal: true, padding: true, alignsEnd: false },
  causal_bottom_right: { causal: true, padding: false, alignsEnd: true },
  padding_causal_bottom_right: { causal: true, padding: true, alignsEnd: true },
  arbitrary: { causal: false, padding: false },
} as const satisfies Record<string, MaskKind>;

/**
 * The kind of mask. `padding` hides positions beyond the length of a sequence. `causal` hides later keys; the first query is
 * aligned to the first key or, with `bottom_right`, the last query to the last key. `arbitrary` takes a tensor.
 */
export type AttentionMaskType = keyof typeof MASKS;

/** Checks the name of a mask. */
export const maskType = oneOf(Object.keys(MASKS));

/** The numbers of visible keys before and after a query; -1 for all. */
export type AttentionWindow = readonly [left: number, right: number];

/** A mask with its window and alignment, as the operation `attention` takes them. */
export interface Visibility extends Required<Omit<MaskKind, "alignsEnd">> {
  readonly align: "start" | "end";
  readonly window: AttentionWindow;
  /** Whether the mask is a tensor. */
  readonly arbitrary: boolean;
}

/** Returns which keys these options hide. Throws `ArgumentError` for a window that contradicts the mask. */
export function visibilityOf(
  caller: string,
  {
    mask,
    window,
    bottomRightDiagonal = true,
  }: {
    readonly mask: AttentionMaskType;
    readonly window: AttentionWindow | undefined;
    readonly bottomRightDiagonal: boolean | undefined;
  },
): Visibility {
  const { causal, padding, alignsEnd = bottomRightDiagonal }: MaskKind = MASKS[mask];
  const [left, right] = window ?? [-1, causal ? 0 : -1];
  if (causal && right > 0)
    throw new ArgumentError(
      `${caller}: windowSize is [${left}, ${right}] and the mask "${mask}", which hides later keys; give [${left}, 0]`,
    );
  return {
    causal,
    padding,
    align: alignsEnd ? "end" : "start",
    window: [left, causal ? 0 : right],
    arbitrary: mask === "arbitrary",
  };
}
