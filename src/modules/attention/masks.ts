/** The kinds of masks of attention, as TransformerEngine names them. */
import { ArgumentError } from "../../errors.js";
import { oneOf } from "../../options.js";

/** What a kind of mask hides. */
interface MaskKind {
  /** Whether later keys are hidden. */
  readonly causal: boolean;
  /** Whether keys and queries beyond the length of their sequence are hidden. */
  readonly padding: boolean;
  /** Whether the last query is at the last key. Undefined if the option `bottomRightDiagonal` says it. */
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
 * The kind of mask. `padding` hides what is beyond the length of a sequence, `causal` later keys, from the first key or, with
 * `bottom_right`, so that the last query sees the last key. `arbitrary` is a tensor.
 */
export type AttentionMaskType = keyof typeof MASKS;

/** Checks the name of a mask. */
export const maskType = oneOf(Object.keys(MASKS));

/** The visible neighbourhood of a query: keys before and after it; -1 for all. */
export type AttentionWindow = readonly [left: number, right: number];

/** A mask with its window and alignment, as the operation `attention` takes them. */
export interface Visibility extends Required<Omit<MaskKind, "alignsEnd">> {
  readonly align: "start" | "end";
  readonly window: AttentionWindow;
  /** Whether a tensor is the mask. */
  readonly arbitrary: boolean;
}

/** Returns what the options hide. Throws `ArgumentError` for a window that does not go with the mask. */
export function visibilityOf(
  user: string,
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
      `${user}: windowSize is [${left}, ${right}] and the mask "${mask}", which hides later keys; give [${left}, 0]`,
    );
  return {
    causal,
    padding,
    align: alignsEnd ? "end" : "start",
    window: [left, causal ? 0 : right],
    arbitrary: mask === "arbitrary",
  };
}
