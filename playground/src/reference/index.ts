/**
 * The page's interface to the library: answers of the reference as plain data. Views import no other module that calls the
 * library.
 */
export { answerOrReason, openReference, within } from "./backend.js";
export { CHOICES, type Choice, choiceOf, keyOf } from "./choices.js";
export { type Codes, codesOf, scaleIndex } from "./codes.js";
export { type Cost, compare, costOf, type Difference, differenceAt, type Pair } from "./comparison.js";
export {
  explainProduct,
  type Operand,
  type PlacedStep,
  type ProductAnswer,
} from "./product.js";
export { explainElement, type Matrix, type Quantization, quantize } from "./quantization.js";
