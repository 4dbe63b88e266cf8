// Loops that need no second turn in the GPU's tests, and why. `text` is the loop's head as the report prints it; `unit` a .cu
// file, where the reason is that file's alone.
export const EXCEPTIONS = [];
