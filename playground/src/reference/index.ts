/**
 * What the page knows of the library: answers of the reference as plain data, and nothing else. Views import no other module that
 * computes.
 */
export { answerOrReason, openReference } from "./backend.js";
export {
  type Cost,
  compare,
  costOf,
  type Difference,
  differenceAt,
  type Pair,
  reasons,
} from "./comparison.js";
export { type ElementAnswer, explainElement } from "./element.js";
export { explainProduct, type ProductAnswer, type Step, type Term } from "./product.js";
export {
  CHOICES,
  type Choice,
  type Matrix,
  type Quantization,
  quantize,
  scaleIndex,
} from "./quantization.js";
export { type Decision, type Rounded, roundAll } from "./rounding.js";
