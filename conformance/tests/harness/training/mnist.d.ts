declare module "mnist" {
  /** The digits of one class: pixels from 0 to 1, 784 per digit, concatenated. */
  interface DigitClass {
    readonly raw: ArrayLike<number>;
    readonly length: number;
  }
  const digits: Readonly<Record<number, DigitClass>>;
  export = digits;
}
